"""One cell against another: which is better, and whether that is more than noise.

Cells that are equally good may differ by a margin: the paper's own noise in that column, or the
last digit that the paper prints. A larger difference counts only if it also exceeds our error,
twice the standard error of our difference; otherwise the pair is undecided. Whether one cell
beats another is a question about our networks, which more replicas can decide: the paper's noise
plays no part in it.

Two cells are not compared if one is missing or has fewer than two replicas, or if they were
trained on different data, by different engines, for different shares of the protocol's steps or
with different numbers of rates. Where a cell was trained in several ways, the ways that match are
compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sudonet.report import published
from sudonet.report.agreement import ROUNDING
from sudonet.report.cell import Cell, Place

Tables: TypeAlias = Mapping[str, Mapping[Place, Cell]]
"""Cells of every table, by its name."""

Spot: TypeAlias = tuple[str, str, int]
"""Table, activation and column of a cell."""

FEWEST_REPLICAS = 2


@dataclass(frozen=True)
class Pair:
    """One cell against another.

    Parameters
    ----------
    text
        The pair in words and numbers, or why it is unknown.
    ahead
        How much better the first cell is; None where that is unknown.
    margin
        What the paper's noise allows.
    error
        What the spread of our replicas allows.
    full
        Whether both cells followed the full protocol.
    """

    text: str
    ahead: float | None = None
    margin: float = math.inf
    error: float = math.inf
    full: bool = True

    def as_good(self) -> bool | None:
        """The first is not worse beyond the margin; None where our error hides it."""
        return None if self.ahead is None else self._within_margin(max(0.0, -self.ahead))

    def alike(self) -> bool | None:
        """Neither is better beyond the margin; None where our error hides it."""
        return None if self.ahead is None else self._within_margin(abs(self.ahead))

    def _within_margin(self, distance: float) -> bool | None:
        if self.margin + ROUNDING < distance <= self.error + ROUNDING:
            return None
        return distance <= self.margin + ROUNDING

    def beats(self) -> bool | None:
        """The first is better beyond our error; None where it is better, but within it."""
        if self.ahead is None or ROUNDING < self.ahead <= self.error + ROUNDING:
            return None
        return self.ahead > ROUNDING


def against(tables: Tables, first: Spot, second: Spot) -> Pair:
    """Compare two cells; ``ahead`` is positive if the first is better."""
    (ones, why_one), (others, why_other) = usable(tables, first), usable(tables, second)
    if not ones or not others:
        return Pair(why_one or why_other)
    matching = ((a, b) for a in ones for b in others if _unlike(a, b, first, second) is None)
    a, b = next(matching, (ones[0], others[0]))
    if a.value is None or b.value is None or (why := _unlike(a, b, first, second)):
        return Pair(f"{_both(first, second)}: {why}")
    noises = [_noise(tables, spot, cell) for spot, cell in ((first, a), (second, b))]
    known = [noise for noise in noises if noise is not None]
    if len(known) < len(noises):
        return Pair(f"{_both(first, second)}: there is no tanh cell to relate the noise to")
    table = published.table(first[0])
    digits = table.decimals
    last_digit = 10.0**-digits
    margin = max(*known, last_digit)
    error = max(last_digit, 2 * math.hypot(_error(a), _error(b)))
    ahead = a.value - b.value if table.higher_is_better else b.value - a.value
    numbers = f"{a.value:.{digits}f}", f"{b.value:.{digits}f}"
    distance = f"{'ahead' if ahead > 0 else 'behind'} by {abs(ahead):.{digits}f}"
    text = (
        f"{_both(first, second, *numbers)}: {'level' if abs(ahead) <= ROUNDING else distance}, "
        f"margin {margin:.{digits}f}, our error {error:.{digits}f}"
        f"{'' if a.full and b.full else ', not by the full protocol'}"
    )
    return Pair(text, ahead, margin, error, a.full and b.full)


def usable(tables: Tables, spot: Spot) -> tuple[list[Cell], str]:
    """A cell in every form that can be compared, the best first; if there is none, why."""
    name, activation, column = spot
    cell = tables.get(name, {}).get((activation, column))
    if cell is None:
        return [], f"{_name(spot)} is missing"
    found = [
        form
        for form in (cell, *cell.others)
        if form.value is not None and form.spread is not None and form.replicas >= FEWEST_REPLICAS
    ]
    if found:
        return found, ""
    if cell.value is None:
        return [], f"{_name(spot)} has no value: {cell.reason}"
    return [], f"{_name(spot)} has too few replicas ({cell.replicas} < {FEWEST_REPLICAS})"


def _unlike(a: Cell, b: Cell, first: Spot, second: Spot) -> str | None:
    """Why two cells cannot be compared. Networks of equal layers must also share the recipe."""
    (one, _, column), (other, _, its_column) = first, second
    same_layers = (published.table(one).main, column) == (published.table(other).main, its_column)
    if same_layers and a.recipe != b.recipe:
        return "trained by different recipes"
    return a.unlike(b)


def _noise(tables: Tables, spot: Spot, cell: Cell) -> float | None:
    """The paper's noise in that column, on the scale of our values."""
    name, _, column = spot
    table = published.table(name)
    noise = published.noise(name).column_max[column]
    if not table.compared_by_ratio:
        return noise
    tanh = tables.get(name, {}).get(("tanh", column))
    same = tanh and tanh.as_trained(cell)
    if not same or same.value is None:
        return None
    return noise * same.value / table.value("tanh", column)


def _error(cell: Cell) -> float:
    """The standard error of a cell's mean."""
    return (cell.spread or 0.0) / math.sqrt(cell.replicas)


def _both(first: Spot, second: Spot, one: str = "", other: str = "") -> str:
    """Two cells in words, each with its number; what they share is named once."""
    if (first[0], first[2]) == (second[0], second[2]):
        return f"{_where(first)}: {first[1]} {one}".rstrip() + f" and {second[1]} {other}".rstrip()
    return f"{_name(first)} {one}".rstrip() + f" and {_name(second)} {other}".rstrip()


def _where(spot: Spot) -> str:
    name, _, column = spot
    return f"{name}, {published.table(name).column_name(column)}"


def _name(spot: Spot) -> str:
    return f"{_where(spot)}, {spot[1]}"
