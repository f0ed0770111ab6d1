"""From rows of the store to the cells of a table."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TypeAlias

from sudonet.experiments import EXPERIMENTS
from sudonet.experiments.experiment import Protocol, TableGrid
from sudonet.report import published
from sudonet.study.store import Row

Place: TypeAlias = tuple[str, int]
"""(activation, column) of a cell."""

ProtocolOf: TypeAlias = Callable[[str, int], Protocol]
"""The full protocol of the cells of a shape and a column."""

Group: TypeAlias = tuple[str, str, int, str]
"""Data, engine, steps and recipe, which all rows of a cell share."""

SAME = 0.02
"""Relative tolerance between shares of steps, since steps are whole numbers."""


@dataclass(frozen=True)
class Cell:
    """One number of a table, and the networks behind it.

    Parameters
    ----------
    value
        Mean over the replicas at the best rate; None where there is none.
    spread
        Sample standard deviation over those replicas; None with fewer than two.
    replicas
        How many networks the mean is over. Those that diverged are not among them.
    rate
        The best learning rate; None without a value.
    rates
        How many rates were tried, not counting those that were only begun.
    steps, share_of_steps
        How long each network was trained, also as a share of the full protocol's steps.
    diverged, failed, trials
        Networks that diverged, that could not be trained, and that were trained, all rates
        together.
    seconds
        CPU time of all of them.
    engine, source, checksum, stand_in_for, recipe
        What trained them, the data as its ``Source`` names it, and the digest of the recipe.
    full
        Whether the full protocol was followed.
    protocol
        The same in words: ``"full"``, or what is missing.
    reason
        Why there is no value.
    others
        The same cell from rows that were trained in another way, the next best first.
    """

    value: float | None
    spread: float | None
    replicas: int
    rate: float | None
    rates: int
    steps: int
    share_of_steps: float
    diverged: int
    failed: int
    trials: int
    seconds: float
    engine: str
    source: str
    checksum: str
    stand_in_for: str | None
    recipe: str
    full: bool
    protocol: str
    reason: str | None = None
    others: tuple[Cell, ...] = ()

    def unlike(self, other: Cell) -> str | None:
        """Why two cells cannot be compared; None if they were trained in the same way."""
        if self.checksum != other.checksum:
            return "trained on different data"
        if self.engine != other.engine:
            return f"trained by different engines, {self.engine} and {other.engine}"
        if not same_share(self, other) or self.rates != other.rates:
            return f"one is {self.protocol}, the other {other.protocol}"
        return None

    def as_trained(self, like: Cell) -> Cell | None:
        """The best form of the cell that was trained as ``like`` was, a cell of its column."""
        for cell in (self, *self.others):
            if cell.recipe == like.recipe and cell.unlike(like) is None:
                return cell
        return None


def cells(grid: TableGrid, rows: Iterable[Row], protocol_of: ProtocolOf) -> dict[Place, Cell]:
    """The cells of a table that have been run.

    A cell is made of rows of one group: one engine, one data set, one recipe, one number of
    steps. Groups of today's recipe come first. Among those it is the group with the largest share
    of the full protocol, which is the share of its steps (at most 1) times the share of its
    networks. Of equal groups the one with more networks is taken, then the one nearest to the
    protocol's steps, then the first by name of data and engine. Where all cells of a column were
    trained for the same number of steps, those are shown, even if some were trained for more, too.
    Rates outside the protocol do not count: every cell gets the same tuning.

    The rate is chosen by the mean over the replicas that all rates have. A rate that was only
    begun, with at most half of the replicas of another, does not count yet. A rate at which
    networks diverged is worse than any at which none did; if no other is left, its value is
    the mean over the networks that did not diverge.

    Autoencoder tables are relative: a cell's value and spread are divided by the value of
    the convolutional tanh cell of scale 1 on the same data, if possible one that was trained
    for the same share of its steps. The spread of that cell itself is left out.

    Parameters
    ----------
    grid
        The table, or a part of it.
    rows
        Of any experiment; others are ignored.
    protocol_of
        The full protocol, such as ``EXPERIMENTS[grid.experiment].protocol``.

    Returns
    -------
    dict
        Cells by (activation, column), in the order of the table. What was not run is absent.
    """
    rows = list(rows)
    higher = published.table(grid.id).higher_is_better
    places: dict[Place, list[Row]] = defaultdict(list)
    for row in rows:
        if grid.has(row.trial):
            places[row.trial.activation, row.trial.column].append(row)
    ranked = {
        place: _ranked(places[place], protocol_of(grid.shape, place[1]), higher)
        for place in grid.cells
        if places[place]
    }
    found: dict[Place, Cell] = {}
    for column in grid.columns:
        found |= _alike({place: forms for place, forms in ranked.items() if place[1] == column})
    found = {place: found[place] for place in grid.cells if place in found}
    reference = EXPERIMENTS[grid.experiment].reference
    if reference is None:
        return found
    of_reference = [
        row
        for row in rows
        if (row.trial.experiment, row.trial.cell) == (grid.experiment, reference)
    ]
    references = _ranked(of_reference, protocol_of(*reference[:2]), higher)
    return {
        place: replace(
            _relative(cell, references),
            others=tuple(_relative(other, references) for other in cell.others),
        )
        for place, cell in found.items()
    }


def _alike(column: Mapping[Place, list[Cell]]) -> dict[Place, Cell]:
    """The best form of each cell of a column, with equal steps if all have such a form."""
    forms = {place: some for place, some in column.items() if some}
    steps = [[form.steps for form in some] for some in forms.values()]
    common = set(steps[0]).intersection(*steps) if steps else set()
    best = min(common, key=lambda n: (sum(some.index(n) for some in steps), -n), default=None)
    found = {}
    for place, some in forms.items():
        chosen = next((form for form in some if form.steps == best), some[0])
        others = tuple(form for form in some if form is not chosen)
        found[place] = replace(chosen, others=others)
    return found


def same_share(one: Cell, other: Cell) -> bool:
    """Whether two cells were trained for the same share of their steps."""
    return math.isclose(one.share_of_steps, other.share_of_steps, rel_tol=SAME)


def _ranked(rows: Iterable[Row], full: Protocol, higher: bool) -> list[Cell]:
    """A cell for every group of rows, the one that is nearest to the full protocol first."""
    groups: dict[Group, dict[tuple[float, int], Row]] = defaultdict(dict)
    for row in rows:
        if row.trial.rate in full.rates:
            group = groups[row.checksum, row.engine, row.trial.steps, row.recipe]
            network = row.trial.rate, row.trial.seed
            if row.failed is None or network not in group:
                group[network] = row

    def order(key: Group) -> tuple[bool, float, int, int, Group]:
        other = bool(_other_recipe(next(iter(groups[key].values()))))
        trained = [row for row in groups[key].values() if row.failed is None]
        per_rate = [
            min(full.replicas, sum(row.trial.rate == rate for row in trained))
            for rate in full.rates
        ]
        share = min(1.0, key[2] / full.steps) * sum(per_rate)
        return other, -share, -len(trained), abs(key[2] - full.steps), key

    return [_cell(list(groups[key].values()), full, higher) for key in sorted(groups, key=order)]


def _cell(group: list[Row], full: Protocol, higher: bool) -> Cell:
    trained: dict[float, dict[int, float | None]] = defaultdict(dict)
    for row in group:
        if row.failed is None:
            trained[row.trial.rate][row.trial.seed] = _finite(row)
    values = [value for by_seed in trained.values() for value in by_seed.values()]
    most = min(full.replicas, max(map(len, trained.values()), default=0))
    trained = {rate: by_seed for rate, by_seed in trained.items() if len(by_seed) > most / 2}
    rate = _best_rate(trained, higher)
    chosen = [] if rate is None else [v for v in trained[rate].values() if v is not None]
    protocol = _protocol({rate: len(seeds) for rate, seeds in trained.items()}, group, full)
    first = group[0]
    return Cell(
        value=statistics.fmean(chosen) if chosen else None,
        spread=statistics.stdev(chosen) if len(chosen) > 1 else None,
        replicas=len(chosen),
        rate=rate,
        rates=len(trained),
        steps=first.trial.steps,
        share_of_steps=first.trial.steps / full.steps,
        diverged=sum(value is None for value in values),
        failed=len(group) - len(values),
        trials=len(values),
        seconds=sum(row.cpu_seconds for row in group),
        engine=first.engine,
        source=first.source,
        checksum=first.checksum,
        stand_in_for=first.stand_in_for,
        recipe=first.recipe,
        full=protocol == "full",
        protocol=protocol,
        reason=None if chosen else _why_none(group),
    )


def _finite(row: Row) -> float | None:
    """The value of a trained network; None where it diverged."""
    if row.diverged is not None or row.value is None or not math.isfinite(row.value):
        return None
    return row.value


def _best_rate(trained: Mapping[float, Mapping[int, float | None]], higher: bool) -> float | None:
    if not trained:
        return None
    common = set.intersection(*(set(by_seed) for by_seed in trained.values()))

    def badness(rate: float) -> tuple[float, float, float]:
        by_seed = trained[rate]
        finite = {seed: value for seed, value in by_seed.items() if value is not None}
        shared = [value for seed, value in finite.items() if seed in common]
        mean = statistics.fmean(shared or finite.values())
        return 1 - len(finite) / len(by_seed), -mean if higher else mean, -rate

    usable = [rate for rate, found in trained.items() if any(v is not None for v in found.values())]
    return min(usable, key=badness, default=None)


def _protocol(replicas: Mapping[float, int], group: list[Row], full: Protocol) -> str:
    """What is different from the full protocol, in words."""
    missing = []
    if len(replicas) < len(full.rates):
        missing.append(f"{len(replicas)} of {len(full.rates)} rates")
    fewest = min(replicas.values(), default=0)
    if fewest < full.replicas:
        missing.append(f"{fewest} of {full.replicas} replicas")
    share = group[0].trial.steps / full.steps
    if share < 1:
        missing.append(f"{100 * share:.3g} % of the steps")
    parts = [f"another recipe: {', '.join(others)}"] if (others := _other_recipe(group[0])) else []
    if missing:
        parts.append(f"reduced: {', '.join(missing)}")
    elif share > 1:
        parts.append(f"longer: {100 * share:.3g} % of the steps")
    return "; ".join(parts) or "full"


def _other_recipe(row: Row) -> list[str]:
    """How the recipe of a row differs from today's, in words."""
    try:
        then = dict(json.loads(row.spec))
    except (ValueError, TypeError):
        return [f"a spec that cannot be read, {row.spec!r}"]
    now = json.loads(json.dumps(asdict(EXPERIMENTS[row.trial.experiment].spec(row.trial))))
    for spec in (then, now):
        if "sizes" in spec:
            spec["sizes"] = spec["sizes"][1:]  # the number of inputs depends on the data
    return [
        f"{name} {then[name]} instead of {value}"
        for name, value in now.items()
        if then.get(name, value) != value
    ]


def _why_none(group: list[Row]) -> str:
    failures = [row.failed for row in group if row.failed is not None]
    if not failures:
        return f"all {len(group)} networks diverged"
    if len(failures) == len(group):
        return f"all {len(group)} networks failed: {failures[0]}"
    return f"{len(group) - len(failures)} networks diverged and {len(failures)} failed"


def _relative(cell: Cell, references: list[Cell]) -> Cell:
    """A cell of the autoencoders, divided by its reference."""
    if cell.value is None:
        return cell
    usable = [r for r in references if r.checksum == cell.checksum and r.value]

    def unlike(reference: Cell) -> tuple[bool, bool]:
        return not same_share(reference, cell), reference.engine != cell.engine

    best = min(usable, key=unlike, default=None)
    if best is None or best.value is None:
        reason = "no convolutional tanh network of scale 1 was trained on the same data"
        return replace(cell, value=None, spread=None, reason=reason)
    words = (
        cell.protocol
        if best.protocol == cell.protocol
        else f"{cell.protocol}; reference {best.protocol}"
    )
    return replace(
        cell,
        value=cell.value / best.value,
        spread=None if cell.spread is None else cell.spread / best.value,
        full=cell.full and best.full,
        protocol=words,
    )
