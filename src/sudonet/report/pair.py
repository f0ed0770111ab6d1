"""One cell against another: which is better, and whether that is more than noise.

That two cells are as good as one another allows for a margin, the largest of three: the paper's
own noise in that column, the last digit that the paper prints, and twice the standard error of
our difference. That one beats the other is a statement about our networks, which more of them
can decide; so the paper's noise has no part in it.

Two cells are not compared if one is missing or has fewer than two replicas, or if they were
trained on different data, for different shares of the protocol's steps or with different numbers
of rates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sudonet.report import published
from sudonet.report.agreement import ROUNDING
from sudonet.report.cell import SAME, Cell, Place

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
        What noise allows.
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
        """The first is not worse than the second beyond the margin."""
        return None if self.ahead is None else self.ahead >= -self.margin - ROUNDING

    def alike(self) -> bool | None:
        """Neither is better beyond the margin."""
        return None if self.ahead is None else abs(self.ahead) <= self.margin + ROUNDING

    def beats(self) -> bool | None:
        """The first is better beyond our error; None where it is better, but within it."""
        if self.ahead is None or ROUNDING < self.ahead <= self.error + ROUNDING:
            return None
        return self.ahead > ROUNDING


def against(tables: Tables, first: Spot, second: Spot) -> Pair:
    """Compare two cells; ``ahead`` is positive if the first is better."""
    (a, why_a), (b, why_b) = usable(tables, first), usable(tables, second)
    if a is None or b is None or a.value is None or b.value is None:
        return Pair(why_a or why_b)
    if a.checksum != b.checksum:
        return Pair(f"{_both(first, second)}: trained on different data")
    if abs(a.share_of_steps - b.share_of_steps) > SAME or a.rates != b.rates:
        return Pair(f"{_both(first, second)}: one is {a.protocol}, the other {b.protocol}")
    noises = [_noise(tables, spot, a.checksum) for spot in (first, second)]
    known = [noise for noise in noises if noise is not None]
    if len(known) < len(noises):
        return Pair(f"{_both(first, second)}: there is no tanh cell to relate the noise to")
    table = published.table(first[0])
    digits = table.decimals
    margins = {
        "the paper's noise": max(known),
        "the last digit": 10.0**-digits,
        "twice our standard error": 2 * math.sqrt(_error(a) ** 2 + _error(b) ** 2),
    }
    source, margin = max(margins.items(), key=lambda item: item[1])
    error = max(margins["the last digit"], margins["twice our standard error"])
    ahead = a.value - b.value if table.higher_is_better else b.value - a.value
    numbers = f"{a.value:.{digits}f}", f"{b.value:.{digits}f}"
    distance = f"{'ahead' if ahead > 0 else 'behind'} by {abs(ahead):.{digits}f}"
    text = (
        f"{_both(first, second, *numbers)}: {'level' if abs(ahead) <= ROUNDING else distance}, "
        f"margin {margin:.{digits}f} ({source})"
        f"{f', our error {error:.{digits}f}' if error < margin else ''}"
        f"{'' if a.full and b.full else ', not by the full protocol'}"
    )
    return Pair(text, ahead, margin, error, a.full and b.full)


def usable(tables: Tables, spot: Spot) -> tuple[Cell | None, str]:
    """A cell that can be compared; otherwise why not."""
    name, activation, column = spot
    cell = tables.get(name, {}).get((activation, column))
    if cell is None:
        return None, f"{_name(spot)} is missing"
    if cell.value is None:
        return None, f"{_name(spot)} has no value: {cell.reason}"
    if cell.replicas < FEWEST_REPLICAS or cell.spread is None:
        return None, f"{_name(spot)} has too few replicas ({cell.replicas} < {FEWEST_REPLICAS})"
    return cell, ""


def _noise(tables: Tables, spot: Spot, checksum: str) -> float | None:
    """The paper's noise in that column, on the scale of our values."""
    name, _, column = spot
    table = published.table(name)
    noise = published.noise(name).column_max[column]
    if not table.compared_by_ratio:
        return noise
    tanh = tables.get(name, {}).get(("tanh", column))
    if tanh is None or tanh.value is None or tanh.checksum != checksum:
        return None
    return noise * tanh.value / table.value("tanh", column)


def _error(cell: Cell) -> float:
    """The standard error of a cell's mean."""
    return (cell.spread or 0.0) / math.sqrt(cell.replicas)


def _both(first: Spot, second: Spot, one: str = "", other: str = "") -> str:
    """Two cells in words, each with its number; what they have in common is said once."""
    if (first[0], first[2]) == (second[0], second[2]):
        return f"{_where(first)}: {first[1]} {one}".rstrip() + f" and {second[1]} {other}".rstrip()
    return f"{_name(first)} {one}".rstrip() + f" and {_name(second)} {other}".rstrip()


def _where(spot: Spot) -> str:
    name, _, column = spot
    return f"{name}, {published.table(name).column_name(column)}"


def _name(spot: Spot) -> str:
    return f"{_where(spot)}, {spot[1]}"
