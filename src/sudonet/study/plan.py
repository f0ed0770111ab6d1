"""Which networks to train: the trials of a preset, or those that fit into a budget."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from sudonet.experiments import BASELINES, EXPERIMENTS, GRIDS, LEVELS, TableGrid, Trial
from sudonet.experiments.experiment import Protocol
from sudonet.experiments.presets import Preset, Reduction

SEEDS = 2**63
"""The number of different seeds that the store can hold."""


@dataclass(frozen=True)
class Plan:
    """Trials to run, which of them each table needs, and which the budget leaves out.

    Parameters
    ----------
    trials
        Every trial once; tables share those of tanh and relu.
    tables
        The tables asked for, with the cells that the plan covers.
    left_out
        Trials that do not fit into the budget.
    references
        By table, the trials that its cells are divided by, if there are any.
    """

    trials: tuple[Trial, ...]
    tables: tuple[TableGrid, ...]
    left_out: tuple[Trial, ...] = ()
    references: Mapping[str, Collection[Trial]] = field(default_factory=dict)

    @property
    def cells(self) -> int:
        """Cells of the tables that have at least one trial."""
        return len(self.cells_of(self.trials))

    def cells_of(self, trials: Iterable[Trial]) -> set[tuple[str, str, int]]:
        """(table, activation, column) of every cell that has one of ``trials``."""
        return {
            (grid.id, trial.activation, trial.column)
            for trial in trials
            for grid in self.tables
            if grid.has(trial)
        }

    def tables_of(self, trial: Trial) -> list[str]:
        """The tables that need a trial, for one of their cells or as their reference."""
        return [grid.id for grid in self.tables if self._needs(grid, trial)]

    def _needs(self, grid: TableGrid, trial: Trial) -> bool:
        # Another table may have the same reference network, trained for other numbers of steps.
        if _is_reference(trial) and grid.id in self.references:
            return trial in self.references[grid.id]
        return grid.has(trial)

    def by_experiment(self) -> dict[str, list[Trial]]:
        found: dict[str, list[Trial]] = defaultdict(list)
        for trial in self.trials:
            found[trial.experiment].append(trial)
        return dict(found)

    def without(self, done: Callable[[Trial], bool]) -> Plan:
        """The plan without the trials that are done."""
        return replace(self, trials=tuple(t for t in self.trials if not done(t)))

    def within(self, seconds: float, cost: Callable[[Trial], float]) -> Plan:
        """The part of the plan that fits: first one trial of every cell, then the second.

        An experiment's reference, by which its cells are divided, comes before them. If the
        reference does not fit, the cells would show nothing and are left out, too.
        """
        first: dict[str, float] = defaultdict(float)
        for trial in filter(_is_reference, self.trials):
            first[trial.experiment] = max(first[trial.experiment], cost(trial))

        def order(trial: Trial) -> tuple[int, float, float, bool, Trial]:
            place = max(cost(trial), first[trial.experiment])
            return trial.seed, -trial.rate, place, not _is_reference(trial), trial

        kept: list[Trial] = []
        left_out, useless = list(self.left_out), set()
        for trial in sorted(self.trials, key=order):
            if trial.experiment not in useless and cost(trial) <= seconds:
                seconds -= cost(trial)
                kept.append(trial)
                continue
            left_out.append(trial)
            if _is_reference(trial):
                useless.add(trial.experiment)
        return replace(self, trials=tuple(sorted(kept)), left_out=tuple(left_out))


def make_plan(
    preset: Preset,
    tables: Collection[str] | None = None,
    levels: Collection[int] | None = None,
    seeds: Collection[int] | None = None,
) -> Plan:
    """Plan the trials of ``preset``.

    Parameters
    ----------
    preset
        How much of each table to run, and how it is trained.
    tables
        Names of the tables to run; all of them by default.
    levels
        L of the discrete units to run, instead of the preset's; tanh and relu always run.
    seeds
        Replicas to run, instead of the preset's.
    """
    for name, given in (("tables", tables), ("levels", levels), ("seeds", seeds)):
        if given is not None and not given:
            raise ValueError(f"{name} must name at least one, or be left out")
    unknown = [name for name in tables or () if name not in GRIDS]
    if unknown:
        raise ValueError(f"no table is called {unknown[0]!r}: choose from {', '.join(GRIDS)}")
    chosen = preset.levels if levels is None else tuple(levels)
    other = set(chosen) - set(LEVELS)
    if other:
        raise ValueError(
            f"no table has {min(other)} levels: choose from {', '.join(map(str, LEVELS))}"
        )
    if seeds is not None and not 0 <= min(seeds) <= max(seeds) < SEEDS:
        raise ValueError(f"seeds must be from 0 to {SEEDS - 1:,}, got {min(seeds)} to {max(seeds)}")
    grids, trials = [], set()
    references: dict[str, set[Trial]] = defaultdict(set)
    for grid in GRIDS.values():
        if tables is not None and grid.id not in tables:
            continue
        some = _part(grid, preset, chosen)
        grids.append(some)
        experiment = EXPERIMENTS[grid.experiment]
        for activation, column in some.cells:
            protocol = preset.protocol(experiment, grid.shape, column)
            replicas = range(protocol.replicas) if seeds is None else seeds
            trials |= _trials(grid.experiment, (grid.shape, column, activation), protocol, replicas)
            if experiment.reference is not None:
                # A reference is trained for the same share of its steps as the cell.
                share = protocol.steps / experiment.protocol(grid.shape, column).steps
                like = Reduction(share).applied(experiment.protocol(*experiment.reference[:2]))
                references[grid.id] |= _trials(
                    grid.experiment, experiment.reference, like, replicas
                )
    trials = trials.union(*references.values())
    return Plan(tuple(sorted(trials)), tuple(grids), references=dict(references))


def _trials(
    experiment: str, cell: tuple[str, int, str], protocol: Protocol, seeds: Collection[int]
) -> set[Trial]:
    """The trials of one cell (shape, column, activation)."""
    return {
        Trial(experiment, *cell, rate, seed, protocol.steps)
        for rate in protocol.rates
        for seed in seeds
    }


def _is_reference(trial: Trial) -> bool:
    return trial.cell == EXPERIMENTS[trial.experiment].reference


def _part(grid: TableGrid, preset: Preset, levels: Collection[int]) -> TableGrid:
    columns = preset.of(grid.experiment, grid.shape).columns or grid.columns
    rows = tuple(
        row for row in grid.rows if row in BASELINES or int(row.rpartition("-")[2]) in levels
    )
    return replace(grid, rows=rows, columns=columns)
