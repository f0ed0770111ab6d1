"""An integer network's layers in real arithmetic, for runtimes that are fast at it.

A unit after integer weights is a table of integers. A runtime without a fast look-up
computes ``y = slope * accumulator + constant`` and the staircase of y instead. Slope and
constant are chosen such that y passes each threshold halfway between two accumulators, so
that rounding in float32 changes a code only if its error reaches about half an accumulator.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sudonet.deploy import reference
from sudonet.deploy.grid import Grid
from sudonet.deploy.layers import (
    Affine,
    ChannelThresholds,
    Scores,
    SharedThresholds,
    accumulator_bounds,
    image,
)
from sudonet.staircase import Staircase

Real = NDArray[np.float64]

FLOAT32 = 2**24
"""float32 holds all integers up to here."""

NARROWINGS = 80
"""Steps of the ternary search for a slope: each leaves two thirds, 80 leave 10^-14."""


@dataclass(frozen=True)
class Ramp:
    """A staircase as arithmetic: ``code = clip(ceil(u * gain + offset), 0, top)``."""

    gain: float
    offset: float
    top: int

    @classmethod
    def of(cls, unit: Staircase) -> Ramp:
        """The arithmetic of a unit.

        Examples
        --------
        >>> Ramp.of(Staircase(16))
        Ramp(gain=8.0, offset=7.0, top=15)
        >>> Ramp.of(Staircase(16, rectified=True))
        Ramp(gain=8.0, offset=0.0, top=8)
        """
        half = unit.underlying in ("tanh", "hardtanh") and unit.placement == "paper"
        plateaus = unit.levels / 2 if half else float(unit.levels)
        highest = 6.0 if unit.underlying == "relu6" else 1.0
        top = len(unit.thresholds)
        # Where u is highest, one plateau lies above the last threshold.
        return cls(plateaus / highest, top - plateaus, top)


def regular(unit: Staircase) -> bool:
    """Whether codes are the integers of the unit's grid; else these are max(2 * code - 1, 0).

    Examples
    --------
    >>> regular(Staircase(16)), regular(Staircase(16, rectified=True))
    (True, False)
    """
    integers = Grid.of_unit(unit).integers(unit.values)
    return bool((integers == np.arange(len(integers))).all())


def whole_thresholds(layer: Affine) -> NDArray[np.int64]:
    """For every channel and threshold the largest accumulator that does not pass it.

    Thresholds out of reach are clipped to just beyond the largest accumulator.
    """
    after = layer.after
    if isinstance(after, ChannelThresholds):
        table = after.table.astype(np.int64)
    else:
        assert isinstance(after, SharedThresholds)
        table = (after.table - after.constant[:, None]) // after.factor[:, None].astype(np.int64)
    bounds = accumulator_bounds(layer, layer.by_output).astype(np.int64)[:, None]
    clipped: NDArray[np.int64] = np.clip(table, -bounds - 1, bounds)
    return clipped


def straight(layer: Affine) -> tuple[Real, Real]:
    """Slope and constant of every channel: ``y = slope * accumulator + constant``."""
    after = layer.after
    if isinstance(after, Scores):
        return np.ldexp(after.factor, -after.fraction), np.ldexp(after.constant, -after.fraction)
    if isinstance(after, ChannelThresholds | SharedThresholds):
        bounds = accumulator_bounds(layer, layer.by_output)[:, None]
        known = None
        if isinstance(after, SharedThresholds):
            known = np.ldexp(after.factor.astype(np.float64), -after.fraction)
        return _between(whole_thresholds(layer), after.unit.thresholds, bounds, known)
    return np.full(layer.channels, after.factor), after.constant


def of_products(layer: Affine) -> tuple[Real, Real]:
    """Slope and constant of the plain sums of weight * integer, padding included.

    There is one slope a channel, and one constant; a ``centred`` layer has a constant for
    every position of the output.
    """
    slope, constant = straight(layer)
    if not layer.centred:
        return slope, constant
    missing = layer.twice_zero * slope[:, None, None] * met(layer)
    return 2 * slope, constant[:, None, None] - missing


def met(layer: Affine) -> NDArray[np.int64]:
    """The sum of the weights that meet an input, at every position of the output."""
    ones = np.ones((1, *image(layer.shape_in)), np.int64)
    found: NDArray[np.int64] = reference.accumulate(replace(layer, centred=False), ones)[0]
    return found


def _between(
    table: NDArray[np.int64], thresholds: Real, bounds: Real, slope: Real | None
) -> tuple[Real, Real]:
    """The line that passes the thresholds as far from any accumulator as possible.

    Threshold t lies at ``a * t + b`` among the accumulators, which should be near the middle
    of the two that it separates. For a given a, the best b is the mean of the largest errors
    to either side, and the distance between these is convex in a.
    """
    middle = table + 0.5
    always, never = middle < -bounds, middle > bounds  # an error to one side does not matter here

    def errors(a: Real) -> tuple[Real, Real]:
        rest = middle - a[:, None] * thresholds
        most = np.where(always, -np.inf, rest).max(1)
        least = np.where(never, np.inf, rest).min(1)
        return np.where(np.isinf(most), least, most), np.where(np.isinf(least), most, least)

    if slope is None:
        one_sided = always.all(1) | never.all(1)

        def distance(a: Real) -> Real:
            most, least = errors(a)
            return np.where(one_sided, -a, most - least)

        # A line may be flat where all thresholds lie between the same two accumulators.
        low = np.full(len(table), 0.01 / max(float(np.ptp(thresholds)), 1.0))
        closest = float(np.diff(thresholds).min()) if len(thresholds) > 1 else 1.0
        high = np.maximum((2 * bounds[:, 0] + 2) / closest, 2 * low)
        for _ in range(NARROWINGS):
            third = (high - low) / 3
            left = distance(low + third) < distance(high - third)
            low, high = np.where(left, low, low + third), np.where(left, high - third, high)
        a = (low + high) / 2
    else:
        a = 1 / slope
    most, least = errors(a)
    return 1 / a, -(most + least) / 2 / a
