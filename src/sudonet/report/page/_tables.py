"""The tables of the page: three views of every cell, and its details."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sudonet.experiments import GRIDS
from sudonet.experiments.experiment import TableGrid
from sudonet.report import published
from sudonet.report.agreement import (
    Agreement,
    Comparison,
    agreement,
    compare,
    is_one_by_definition,
)
from sudonet.report.cell import Cell, Place
from sudonet.report.page import _words
from sudonet.report.page._curves import Panel, panels
from sudonet.report.published import PublishedTable
from sudonet.report.tables import METRICS
from sudonet.study.view import duration

FULL_COLOUR = 3.0
"""The difference that has the full colour, in units of the paper's noise."""

NAMED = 4
"""Up to this many cells are named in a note; of more, only their number is given."""


@dataclass(frozen=True)
class Shown:
    """One cell, in all three views.

    Parameters
    ----------
    id
        Name of the cell in the page.
    ours, published, difference
        What is written in it.
    values
        The numbers behind those, for sorting; None where there is none.
    heat
        Depth of colour in each view, 0 to 1.
    better
        Whether ours is better than the paper's.
    mark
        ``"*"`` where networks diverged or failed.
    """

    id: str
    ours: str
    published: str
    difference: str
    values: tuple[float | None, float, float | None]
    heat: tuple[float, float, float]
    better: bool
    mark: str


@dataclass(frozen=True)
class PageTable:
    """A table, ready to be written into the page."""

    id: str
    title: str
    shape: str
    experiment: str
    metric: str
    higher_is_better: bool
    columns: tuple[str, ...]
    rows: Mapping[str, list[Shown]]
    agreement: Agreement
    notes: list[str]
    panels: list[Panel]
    axis: str


def cell_id(table: str, activation: str, column: int) -> str:
    """Name of a cell in the page.

    Examples
    --------
    >>> cell_id("checkerboard-2", "sudo-16", 50)
    'checkerboard-2.sudo-16.50'
    """
    return f"{table}.{activation}.{column}"


def page_tables(cells: Mapping[str, Mapping[Place, Cell]]) -> list[PageTable]:
    """All tables, run or not, in the order of the paper."""
    return [_page_table(grid, cells.get(name, {})) for name, grid in GRIDS.items()]


def details(
    cells: Mapping[str, Mapping[Place, Cell]],
) -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """The details of every cell: a title, and lines of a label and a text."""
    found = {}
    for name, grid in GRIDS.items():
        about, ours = published.table(name), cells.get(name, {})
        comparisons = compare(grid, ours)
        for place in grid.cells:
            title = f"{place[0]}, {about.column_name(place[1])}, {name}"
            lines = _lines(about, place, ours.get(place), comparisons.get(place))
            found[cell_id(name, *place)] = (title, lines)
    return found


def _page_table(grid: TableGrid, cells: Mapping[Place, Cell]) -> PageTable:
    about, comparisons = published.table(grid.id), compare(grid, cells)
    better = "higher" if about.higher_is_better else "lower"
    heats = _heats(about, cells)
    return PageTable(
        id=grid.id,
        title=_words.title(grid),
        shape=_words.shape(grid),
        experiment=grid.experiment,
        metric=f"{METRICS[about.metric]}, {better} is better",
        higher_is_better=about.higher_is_better,
        columns=tuple(about.column_name(column) for column in grid.columns),
        rows={
            row: [
                _shown(about, (row, c), cells.get((row, c)), comparisons.get((row, c)), heats)
                for c in grid.columns
            ]
            for row in grid.rows
        },
        agreement=agreement(grid, cells),
        notes=_notes(grid, cells),
        panels=panels(grid, cells),
        axis=_words.AXES[about.metric],
    )


def _shown(
    about: PublishedTable,
    place: Place,
    cell: Cell | None,
    found: Comparison | None,
    heats: Mapping[tuple[str, Place], float],
) -> Shown:
    value = None if cell is None else cell.value
    theirs = about.value(*place)
    ours = "not run" if cell is None else "none"
    difference, off, better = "", 0.0, False
    if found is not None and not is_one_by_definition(about, place):
        difference = _words.signed(found.difference, _digits(about))
        off = min(abs(found.in_noise) / FULL_COLOUR, 1.0)
        better = (found.difference > 0) == about.higher_is_better
    return Shown(
        id=cell_id(about.id, *place),
        ours=ours if value is None else _words.number(value, about.decimals),
        published=_words.number(theirs, about.decimals),
        difference=difference,
        values=(value, theirs, found.difference if found and difference else None),
        heat=(heats.get(("ours", place), 0.0), heats["published", place], off),
        better=better,
        mark="*" if cell is not None and (cell.diverged or cell.failed) else "",
    )


def _digits(about: PublishedTable) -> int:
    """Digits of a difference; ratios have two."""
    return 2 if about.compared_by_ratio else about.decimals


def _heats(about: PublishedTable, cells: Mapping[Place, Cell]) -> dict[tuple[str, Place], float]:
    """How good each cell is, from 0 for the worst of its table to 1 for the best.

    Ours and the paper's share one scale, so that colours can be compared, unless their
    pictures differ.
    """
    theirs = {("published", place): about.value(*place) for place in about.cells}
    ours = {("ours", place): cell.value for place, cell in cells.items() if cell.value is not None}
    groups = (theirs, ours) if about.compared_by_ratio else (theirs | ours,)
    found = {}
    for group in groups:
        heights = {key: _height(about, value) for key, value in group.items()}
        low, high = min(heights.values(), default=0.0), max(heights.values(), default=0.0)
        for key, height in heights.items():
            found[key] = round((height - low) / (high - low), 3) if high > low else 0.5
    return found


def _height(about: PublishedTable, value: float) -> float:
    """How good a value is; logarithmic for regression, whose errors span three powers of ten."""
    if about.metric == "mse_x100":
        return -math.log(max(value, 10.0**-about.decimals / 2))
    return value if about.higher_is_better else -value


def _lines(
    about: PublishedTable, place: Place, cell: Cell | None, found: Comparison | None
) -> list[tuple[str, str]]:
    digits = about.decimals
    theirs = _words.number(about.value(*place), digits)
    if cell is None:
        return [("Ours", "not run"), ("Published", theirs)]
    lines = [("Ours", _value(cell, digits)), ("Published", theirs)]
    if about.compared_by_ratio and found is not None:
        lines.append(("Ratio to tanh", f"{found.ours:.2f}, published {found.published:.2f}"))
    if found is not None and not is_one_by_definition(about, place):
        times = _words.signed(found.in_noise, 1)
        lines.append(
            ("Difference", f"{_words.signed(found.difference, _digits(about))}, {times} x noise")
        )
    if cell.rate is not None:
        tried = f", best of {cell.rates}" if cell.rates > 1 else ", the only one tried"
        lines.append(("Learning rate", f"{cell.rate:g}{tried}"))
    share = f"{100 * cell.share_of_steps:.3g} % of the protocol"
    lines.append(("Steps", f"{cell.steps:,}, {share}"))
    networks = _words.counted(cell.trials, "network")
    lines.append(("CPU time", f"{_time(cell.seconds)} for {networks}"))
    if cell.diverged:
        lines.append(("Diverged", f"{cell.diverged} of {networks}"))
    if cell.failed:
        lines.append(("Failed", _words.counted(cell.failed, "network")))
    return [*lines, ("Protocol", cell.protocol), ("Engine", cell.engine)]


def _value(cell: Cell, digits: int) -> str:
    if cell.value is None:
        return f"none: {cell.reason}"
    text = _words.number(cell.value, digits)
    if cell.spread is None:
        return f"{text}, {_words.counted(cell.replicas, 'replica')}, so no spread"
    spread = _words.number(cell.spread, digits)
    return f"{text} ± {spread}, {_words.counted(cell.replicas, 'replica')}"


def _time(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 10 else duration(seconds)


def _notes(grid: TableGrid, cells: Mapping[Place, Cell]) -> list[str]:
    """What a reader must know about the cells: gaps, shortened training, data."""
    if not cells:
        command = f"sudonet reproduce --tables {grid.id}"
        return [f"Nothing of this table has been run. {command} trains its networks."]
    said: dict[str, list[Place]] = defaultdict(list)
    for place in grid.cells:
        cell = cells.get(place)
        if cell is None:
            said["not run"].append(place)
            continue
        if not cell.full:
            said[cell.protocol].append(place)
        if cell.reason is not None:
            said[f"no value: {cell.reason}"].append(place)
        elif cell.diverged:
            said[f"* {cell.diverged} of {cell.trials} networks diverged"].append(place)
        if cell.failed and cell.value is not None:
            count = _words.counted(cell.failed, "network")
            said[f"* {count} could not be trained"].append(place)
        if cell.value is not None and cell.replicas == 1:
            said["one replica, so no spread"].append(place)
    notes = [f"{_capital(text)} ({_where(grid, places)})." for text, places in said.items()]
    return [*notes, *_data(cells.values())]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _where(grid: TableGrid, places: list[Place]) -> str:
    if len(places) == len(grid.cells):
        return f"all {len(places)} cells"
    if len(places) > NAMED:
        return f"{len(places)} of {len(grid.cells)} cells"
    about = published.table(grid.id)
    return ", ".join(f"{row} with {about.column_name(column)}" for row, column in places)


def _data(cells: Iterable[Cell]) -> list[str]:
    notes: dict[str, None] = {}
    for cell in cells:
        instead = f", in place of {cell.stand_in_for}" if cell.stand_in_for else ""
        notes[f"Data: {cell.source}{instead}."] = None
    return list(notes)
