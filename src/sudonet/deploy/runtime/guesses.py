"""Guesses of codes: a position in float32 that says nearly always which thresholds are passed.

The thresholds of a channel are integers, one table each, but all channels got them from the same
thresholds of the unit: ``floor((threshold - constant) / slope)``. So a straight line for each
channel takes sums back to where the unit's thresholds are. The line need not be the one that the
tables were made with; it must only pass each threshold between the same two integers. Where
rounding to float32 leaves that open, the guess is in doubt, and the table decides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Real = NDArray[np.float64]
Floats = NDArray[np.float32]

PLACES = 32
"""Entries of the tables that C looks codes up in."""

DOUBT = 2.0**-12
"""Share of a place that may be in doubt: it would be met too often beyond."""

ROUNDS = 60
"""Rounds in which lines get nearer to the best ones."""

TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Guess:
    """Lines for every channel, and what lies in the places between 0 and ``top``.

    Parameters
    ----------
    scale, offset
        float32, one a channel: a sum lies at ``sum * scale + offset``.
    thresholds
        float32, where in each place its threshold is; infinity where there is none.
    codes
        Of each place, below its threshold.
    top
        All that lies beyond it is in the last place.
    doubt
        How close to a threshold the guess is not trusted.
    """

    scale: Floats
    offset: Floats
    thresholds: Floats
    codes: NDArray[np.intp]
    top: float
    doubt: float


def guess(thresholds: Real, table: NDArray[np.int64], ends: NDArray[np.int64]) -> Guess | None:
    """A guess for integer thresholds, or None where none can be trusted.

    Parameters
    ----------
    thresholds
        The unit's own, ascending.
    table
        Channels x thresholds: the code is the number of them strictly below a sum.
    ends
        Channels x 1: no sum is farther from 0.
    """
    positions = _positions(thresholds)
    if positions is None:
        return None
    reached = (-ends <= table) & (table < ends)
    line = _lines(positions, table, ends, reached)
    scale, offset = (part.astype(np.float32) for part in line)
    narrow = positions.astype(np.float32)
    # Positions never fall as sums rise: it is enough to look at both sides of each threshold.
    below = _at(table, scale, offset) - narrow
    above = narrow - _at(table + 1, scale, offset)
    wrong = np.maximum(
        np.where(table >= -ends, below, -np.inf), np.where(table < ends, above, -np.inf)
    )
    steps = np.spacing(np.float32(PLACES)).item()  # rounding, also that of this simulation
    doubt = max(float(wrong.max()) + 2 * steps, 0.0)
    places = narrow.astype(np.intp)
    within = narrow - places
    if not doubt < DOUBT or min(within.min(), 1 - within.max()) <= 2 * doubt + steps:
        return None
    filled = np.full(PLACES, np.inf, np.float32)
    filled[places] = narrow
    codes = np.searchsorted(places, np.arange(PLACES), side="left")
    return Guess(scale, offset, filled, codes, float(places[-1]) + 1.5, doubt)


def _positions(thresholds: Real) -> Real | None:
    """Thresholds in places of equal width, at most one in each and none close to its ends."""
    width = float(np.diff(thresholds).min(initial=np.inf))
    if not np.isfinite(width):
        return np.array([0.5])
    for shift in np.linspace(0.25, 0.75, 41):
        found: Real = (thresholds - thresholds[0]) / width + shift
        within = found - np.floor(found)
        if found[-1] < PLACES - 1 and min(within.min(), 1 - within.max()) > 0.01:
            return found
    return None


def _lines(
    positions: Real, table: NDArray[np.int64], ends: NDArray[np.int64], reached: NDArray[np.bool_]
) -> tuple[Real, Real]:
    """Scale and offset for every channel, which pass thresholds near the middle between integers.

    The largest miss counts, so misses are weighed by their size again and again (Lawson's way to
    the best line in that sense).
    """
    middle = table + 0.5
    weights = np.where(reached, 1.0, 0.0)
    best = np.zeros((len(table), 1))
    least = np.full((len(table), 1), np.inf)
    for _ in range(ROUNDS):
        total = np.maximum(weights.sum(1, keepdims=True), TINY)
        from_mean = positions - (weights * positions).sum(1, keepdims=True) / total
        spread = (weights * from_mean**2).sum(1, keepdims=True)
        slope = (weights * from_mean * middle).sum(1, keepdims=True) / np.maximum(spread, TINY)
        start = _halfway(middle - slope * positions, reached)
        misses = np.where(reached, np.abs(slope * positions + start - middle), 0.0)
        largest = misses.max(1, keepdims=True)
        best, least = np.where(largest < least, slope, best), np.minimum(largest, least)
        weights = weights * (misses + 1e-9)
        weights /= np.maximum(weights.max(1, keepdims=True), TINY)
    # Several thresholds may lie between the same two integers: still they are passed in turn.
    best = np.maximum(best, 0.4 / max(float(np.ptp(positions)), 1.0))
    scale = 1 / best
    offset = -_halfway(middle - best * positions, reached) * scale
    # With less than two thresholds within reach, flat enough to meet no other.
    passed = (table < -ends).sum(1, keepdims=True)
    first = np.minimum(passed, table.shape[1] - 1)
    flat = 0.25 / (ends + 1.0)
    at_first = positions[first] - flat * np.take_along_axis(middle, first, 1)
    edges = np.concatenate([[0.0], (positions[1:] + positions[:-1]) / 2, [positions[-1] + 1]])
    count = reached.sum(1, keepdims=True)
    scale = np.select([count == 0, count == 1], [0.0, flat], scale)
    offset = np.select([count == 0, count == 1], [edges[passed], at_first], offset)
    return scale, offset


def _halfway(values: Real, counted: NDArray[np.bool_]) -> Real:
    """Halfway between the least and the largest of a row's values that count."""
    anything = values[:, :1]
    least = np.where(counted, values, np.inf).min(1, keepdims=True)
    largest = np.where(counted, values, -np.inf).max(1, keepdims=True)
    some = counted.any(1, keepdims=True)
    found: Real = (np.where(some, least, anything) + np.where(some, largest, anything)) / 2
    return found


def _at(sums: NDArray[np.int64], scale: Floats, offset: Floats) -> Floats:
    """Positions of sums, as C works them out."""
    narrow = sums.astype(np.float32).astype(np.float64)
    found: Floats = (narrow * scale.astype(np.float64) + offset.astype(np.float64)).astype(
        np.float32
    )
    return found
