"""Estimates of codes: a position in float32 that nearly always says which thresholds are passed.

Each channel has its own table of integer thresholds, but all of them come from the same thresholds
of the unit: ``floor((threshold - constant) / slope)``. So one line for each channel maps its sums
back to where the unit's thresholds are. The line need not be the one that the tables were made
with; it must only pass each threshold between the same two integers. Where rounding to float32
leaves that open, within a tolerance, the table decides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Real = NDArray[np.float64]
Floats = NDArray[np.float32]

BINS = 32
"""Entries of the tables in which C looks up codes."""

MAX_TOLERANCE = 2.0**-12
"""Largest tolerance, in bins: with more, the table would decide too often."""

ITERATIONS = 60
"""Iterations of the fit of lines."""

TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Estimate:
    """A line for every channel, and the bins between 0 and ``max_position``.

    Parameters
    ----------
    scale, offset
        float32, one for each channel: the position of a sum is ``sum * scale + offset``.
    thresholds
        float32, the position of the threshold in each bin; infinity where there is none.
    codes
        The code below the threshold of each bin.
    max_position
        Positions beyond it are in the last bin.
    tolerance
        How close to a threshold the table must decide.
    """

    scale: Floats
    offset: Floats
    thresholds: Floats
    codes: NDArray[np.intp]
    max_position: float
    tolerance: float


def estimate(
    thresholds: Real, table: NDArray[np.int64], bounds: NDArray[np.int64]
) -> Estimate | None:
    """An estimate for integer thresholds, or None where the tolerance would be too large.

    Parameters
    ----------
    thresholds
        The unit's own, ascending.
    table
        Channels x thresholds: the code is the number of them strictly below a sum.
    bounds
        Channels x 1: the largest absolute value of a sum.
    """
    positions = _positions(thresholds)
    if positions is None:
        return None
    reachable = (-bounds <= table) & (table < bounds)
    line = _fit_lines(positions, table, bounds, reachable)
    scale, offset = (part.astype(np.float32) for part in line)
    narrow = positions.astype(np.float32)
    # Positions never fall as sums rise: both sides of each threshold are enough.
    below = _position_of(table, scale, offset) - narrow
    above = narrow - _position_of(table + 1, scale, offset)
    error = np.maximum(
        np.where(table >= -bounds, below, -np.inf), np.where(table < bounds, above, -np.inf)
    )
    rounding = np.spacing(np.float32(BINS)).item()  # also that of this simulation
    tolerance = max(float(error.max()) + 2 * rounding, 0.0)
    bins = narrow.astype(np.intp)
    within = narrow - bins
    margin = min(within.min(), 1 - within.max())
    if not tolerance < MAX_TOLERANCE or margin <= 2 * tolerance + rounding:
        return None
    filled = np.full(BINS, np.inf, np.float32)
    filled[bins] = narrow
    codes = np.searchsorted(bins, np.arange(BINS), side="left")
    return Estimate(scale, offset, filled, codes, float(bins[-1]) + 1.5, tolerance)


def _positions(thresholds: Real) -> Real | None:
    """Thresholds in bins of equal width, at most one in each and none close to its edges."""
    width = float(np.diff(thresholds).min(initial=np.inf))
    if not np.isfinite(width):
        return np.array([0.5])
    for shift in np.linspace(0.25, 0.75, 41):
        found: Real = (thresholds - thresholds[0]) / width + shift
        within = found - np.floor(found)
        if found[-1] < BINS - 1 and min(within.min(), 1 - within.max()) > 0.01:
            return found
    return None


def _fit_lines(
    positions: Real,
    table: NDArray[np.int64],
    bounds: NDArray[np.int64],
    reachable: NDArray[np.bool_],
) -> tuple[Real, Real]:
    """Scale and offset for every channel: lines that pass thresholds midway between integers.

    The largest error counts, so the fit is a minimax one: least squares, reweighted by the errors
    again and again (Lawson's algorithm).
    """
    target = table + 0.5
    weights = np.where(reachable, 1.0, 0.0)
    best = np.zeros((len(table), 1))
    least = np.full((len(table), 1), np.inf)
    for _ in range(ITERATIONS):
        total = np.maximum(weights.sum(1, keepdims=True), TINY)
        from_mean = positions - (weights * positions).sum(1, keepdims=True) / total
        spread = (weights * from_mean**2).sum(1, keepdims=True)
        slope = (weights * from_mean * target).sum(1, keepdims=True) / np.maximum(spread, TINY)
        start = _midrange(target - slope * positions, reachable)
        errors = np.where(reachable, np.abs(slope * positions + start - target), 0.0)
        largest = errors.max(1, keepdims=True)
        best, least = np.where(largest < least, slope, best), np.minimum(largest, least)
        weights = weights * (errors + 1e-9)
        weights /= np.maximum(weights.max(1, keepdims=True), TINY)
    # Several thresholds may be between the same two integers: their order is kept.
    best = np.maximum(best, 0.4 / max(float(np.ptp(positions)), 1.0))
    scale = 1 / best
    offset = -_midrange(target - best * positions, reachable) * scale
    # With fewer than two reachable thresholds: flat enough to pass no other.
    passed = (table < -bounds).sum(1, keepdims=True)
    first = np.minimum(passed, table.shape[1] - 1)
    flat = 0.25 / (bounds + 1.0)
    at_first = positions[first] - flat * np.take_along_axis(target, first, 1)
    edges = np.concatenate([[0.0], (positions[1:] + positions[:-1]) / 2, [positions[-1] + 1]])
    count = reachable.sum(1, keepdims=True)
    scale = np.select([count == 0, count == 1], [0.0, flat], scale)
    offset = np.select([count == 0, count == 1], [edges[passed], at_first], offset)
    return scale, offset


def _midrange(values: Real, included: NDArray[np.bool_]) -> Real:
    """The mean of the least and the largest of a row's included values."""
    fallback = values[:, :1]
    least = np.where(included, values, np.inf).min(1, keepdims=True)
    largest = np.where(included, values, -np.inf).max(1, keepdims=True)
    some = included.any(1, keepdims=True)
    found: Real = (np.where(some, least, fallback) + np.where(some, largest, fallback)) / 2
    return found


def _position_of(sums: NDArray[np.int64], scale: Floats, offset: Floats) -> Floats:
    """Positions of sums, as C computes them."""
    narrow = sums.astype(np.float32).astype(np.float64)
    found: Floats = (narrow * scale.astype(np.float64) + offset.astype(np.float64)).astype(
        np.float32
    )
    return found
