"""Small plots of a table: its metric against the levels, one for every column."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sudonet.experiments.experiment import BASELINES, LEVELS, TableGrid
from sudonet.report import published
from sudonet.report.agreement import compare
from sudonet.report.cell import Cell, Place
from sudonet.report.published import PublishedTable

WIDTH, HEIGHT = 224, 158
LEFT, RIGHT, TOP, BOTTOM = 34, 12, 8, 20
"""Margins around the plot; in them are the numbers of the axes."""

ROOM = 0.06
"""Share of the range of values that stays free above and below."""


@dataclass(frozen=True)
class Value:
    """A number of ours in the unit in which cells are compared, and its spread."""

    mean: float
    spread: float | None


@dataclass(frozen=True)
class Mark:
    """A point of a curve: where it is drawn, its number and its cell."""

    x: float
    y: float
    value: float
    activation: str
    column: int


@dataclass(frozen=True)
class Baseline:
    """tanh or relu: a line across the plot, and what the paper has."""

    name: str
    ours: Mark | None
    band: tuple[float, float] | None
    published: Mark


@dataclass(frozen=True)
class Panel:
    """One plot. Coordinates are those of a picture of WIDTH x HEIGHT.

    Parameters
    ----------
    title, label
        The column, and the plot in words for screen readers.
    line, band
        Path of our curve and of its spread, with gaps where there is no value.
    ours, published
        The points of both curves.
    baselines
        tanh and relu.
    ticks
        Height and text of the numbers at the left.
    """

    title: str
    label: str
    line: str
    band: str
    ours: list[Mark]
    published: list[Mark]
    baselines: list[Baseline]
    ticks: list[tuple[float, str]]


class Scale:
    """From values to heights in the picture, linear or logarithmic."""

    def __init__(self, values: Iterable[float], logarithmic: bool) -> None:
        found = list(values)
        self.logarithmic = logarithmic
        self._least = min((v for v in found if v > 0), default=1.0) if logarithmic else -math.inf
        low, high = self._of(min(found)), self._of(max(found))
        room = ROOM * (high - low) or 0.5
        self.low, self.high = low - room, high + room

    def __call__(self, value: float) -> float:
        share = (self._of(value) - self.low) / (self.high - self.low)
        return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 2)

    def _of(self, value: float) -> float:
        return math.log10(max(value, self._least)) if self.logarithmic else value

    def ticks(self) -> list[tuple[float, str]]:
        """Round numbers within the scale, a handful of them."""
        values = self._powers() if self.logarithmic else self._steps()
        return [(self(value), f"{value:g}") for value in values]

    def _steps(self) -> list[float]:
        rough = (self.high - self.low) / 6
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * n for n in (1, 2, 5, 10) if power * n >= rough)
        first = math.ceil(self.low / step)
        return [round(n * step, 10) for n in range(first, math.floor(self.high / step) + 1)]

    def _powers(self) -> list[float]:
        wide = self.high - self.low > 2
        return [
            value
            for power in range(math.floor(self.low), math.ceil(self.high) + 1)
            for value in ((10.0**power,) if wide else (10.0**power * n for n in (1, 2, 5)))
            if self.low <= math.log10(value) <= self.high
        ]


def panels(grid: TableGrid, cells: Mapping[Place, Cell]) -> list[Panel]:
    """A plot for every column of a table; all share one scale."""
    about = published.table(grid.id)
    ours = values_as_compared(grid, cells)
    theirs = {place: _theirs(about, place) for place in grid.cells}
    means = [value.mean for value in ours.values()]
    scale = Scale([*means, *theirs.values()], logarithmic=about.metric == "mse_x100")
    return [_panel(grid, column, ours, theirs, scale) for column in grid.columns]


def values_as_compared(grid: TableGrid, cells: Mapping[Place, Cell]) -> dict[Place, Value]:
    """Means and spreads of the cells that can be compared.

    Where cells are compared by ratio, both are divided by the tanh cell of the column.
    """
    found = {}
    for place, comparison in compare(grid, cells).items():
        cell = cells[place]
        spread = cell.spread
        if spread is not None and cell.value:
            spread *= comparison.ours / cell.value
        found[place] = Value(comparison.ours, spread)
    return found


def level_x(levels: int) -> float:
    """Where a number of levels stands on the axis."""
    return round(LEFT + (LEVELS.index(levels) + 0.5) * (WIDTH - LEFT - RIGHT) / len(LEVELS), 2)


def _theirs(about: PublishedTable, place: Place) -> float:
    value = about.value(*place)
    return value / about.value("tanh", place[1]) if about.compared_by_ratio else value


def _panel(
    grid: TableGrid,
    column: int,
    ours: Mapping[Place, Value],
    theirs: Mapping[Place, float],
    scale: Scale,
) -> Panel:
    units = [row for row in grid.rows if row not in BASELINES]
    places = {row: level_x(int(row.rpartition("-")[2])) for row in units}
    line, band = _paths([(places[row], ours.get((row, column))) for row in units], scale)
    about = published.table(grid.id)
    return Panel(
        title=about.column_name(column),
        label=_label(grid, column, ours),
        line=line,
        band=band,
        ours=[
            Mark(x, scale(ours[row, column].mean), ours[row, column].mean, row, column)
            for row, x in places.items()
            if (row, column) in ours
        ],
        published=[
            Mark(x, scale(theirs[row, column]), theirs[row, column], row, column)
            for row, x in places.items()
        ],
        baselines=[
            _baseline(name, column, ours.get((name, column)), theirs[name, column], scale)
            for name in BASELINES
        ],
        ticks=scale.ticks(),
    )


def _baseline(name: str, column: int, ours: Value | None, theirs: float, scale: Scale) -> Baseline:
    edge = WIDTH - RIGHT
    band = None
    if ours is not None and ours.spread is not None:
        top, bottom = scale(ours.mean + ours.spread), scale(ours.mean - ours.spread)
        band = (top, round(bottom - top, 2))
    mean = None if ours is None else ours.mean
    return Baseline(
        name,
        None if mean is None else Mark(edge, scale(mean), mean, name, column),
        band,
        Mark(edge, scale(theirs), theirs, name, column),
    )


def _paths(points: list[tuple[float, Value | None]], scale: Scale) -> tuple[str, str]:
    """The curve and the area of its spread; both stop where a value is missing."""
    line, band = [], []
    for run in _runs(points):
        line.append("M" + "L".join(f"{x},{scale(value.mean)}" for x, value in run))
        up = [(x, scale(v.mean + (v.spread or 0.0))) for x, v in run]
        down = [(x, scale(v.mean - (v.spread or 0.0))) for x, v in reversed(run)]
        band.append("M" + "L".join(f"{x},{y}" for x, y in up + down) + "Z")
    return "".join(line), "".join(band)


def _runs(points: list[tuple[float, Value | None]]) -> list[list[tuple[float, Value]]]:
    runs: list[list[tuple[float, Value]]] = [[]]
    for x, value in points:
        if value is None:
            runs.append([])
        else:
            runs[-1].append((x, value))
    return [run for run in runs if run]


def _label(grid: TableGrid, column: int, ours: Mapping[Place, Value]) -> str:
    about = published.table(grid.id)
    said = [
        f"{row} {ours[row, column].mean:.3g}" if (row, column) in ours else f"{row} has no value"
        for row in grid.rows
    ]
    return f"{grid.id}, {about.column_name(column)}: {', '.join(said)}"
