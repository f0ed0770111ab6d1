"""What the integers of a tensor stand for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from sudonet.staircase import Staircase

Integers = NDArray[np.integer[Any]]


def array_of(values: Any) -> NDArray[Any]:
    """Numbers of any kind as an array; bfloat16, which numpy lacks, as float32."""
    if not isinstance(values, torch.Tensor):
        return np.asarray(values)
    tensor = values.detach().cpu()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


@dataclass(frozen=True)
class Grid:
    """Evenly spaced real values, one for each integer from ``low`` to ``high``.

    An integer n stands for ``scale * (n - zero)``. Not every integer need occur: a
    rectified unit with an even number of levels emits 0, 1, 3, 5 and so on.

    Parameters
    ----------
    scale
        Distance between neighbours, above 0.
    zero
        The integer that stands for 0. It may lie between two integers: with an even
        number of levels no level is 0.
    low, high
        The smallest and the largest integer.
    from_examples
        The grid was found from examples. A network then takes arrays of integers as real
        values, as the examples were; otherwise integers of the grid's type are its codes.

    Examples
    --------
    >>> pixels = Grid.of_range(0.0, 1.0)
    >>> pixels.values([0, 51, 255]).tolist()
    [0.0, 0.2, 1.0]
    >>> pixels.integers([0.0, 0.2001, 7.0]).tolist()
    [0, 51, 255]
    """

    scale: float
    zero: float
    low: int
    high: int
    from_examples: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if not (np.isfinite(self.scale) and self.scale > 0):
            raise ValueError(f"a grid's scale must be above 0, got {self.scale!r}")
        if not np.isfinite(self.zero):
            raise ValueError(f"a grid's zero must be a number, got {self.zero!r}")
        if not -(2**31) < self.low < self.high < 2**31:
            raise ValueError(f"a grid must run from low to high, got {self.low} to {self.high}")

    @classmethod
    def of_range(cls, low: float, high: float, bits: int = 8) -> Grid:
        """The real values from ``low`` to ``high`` in 8 bits (uint8) or 16 (int16).

        The ends are exact: 0 and 255 stand for ``low`` and ``high``.
        """
        if bits not in (8, 16):
            raise ValueError(f"inputs have 8 or 16 bits, got {bits}")
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise ValueError(f"a range must run from low to high, got {low} to {high}")
        first, last = (0, 255) if bits == 8 else (-(2**15), 2**15 - 1)
        scale = (high - low) / (last - first)
        if not scale > 0:
            raise ValueError(f"the range from {low} to {high} is too narrow for {bits} bits")
        return cls(scale, first - low / scale, first, last)

    @classmethod
    def calibrated(cls, values: ArrayLike, bits: int = 8) -> Grid:
        """The grid that covers ``values``, real ones of any type, and has an integer for 0."""
        seen = np.asarray(values, np.float64)
        if not seen.size or not np.isfinite(seen).all():
            raise ValueError("calibration needs at least one value, and only finite ones")
        low, high = min(float(seen.min()), 0.0), max(float(seen.max()), 0.0)
        if low == high:
            high = 1.0
        grid = cls.of_range(low, high, bits)
        # At least one integer on each side that has values.
        zero = float(np.clip(np.rint(grid.zero), grid.low + (low < 0), grid.high - (high > 0)))
        # Moving zero to an integer shifts both ends by up to half a step: widen to cover them.
        needed = [low / (grid.low - zero) if low < 0 else 0.0]
        needed.append(high / (grid.high - zero) if high > 0 else 0.0)
        return cls(max(needed), zero, grid.low, grid.high, from_examples=True)

    @classmethod
    def of_unit(cls, unit: Staircase) -> Grid:
        """The grid on which the values of a unit lie."""
        values = unit.values
        steps = np.diff(values)
        scale = float(steps.min())
        if unit.rectified and unit.placement == "paper" and unit.underlying != "relu6":
            # The step from 0 to the first level is half of the others when L is even.
            scale = (1.0 if unit.levels % 2 == 0 else 2.0) / (unit.levels - 1)
        zero = float(np.rint(-2 * values[0] / scale)) / 2
        return cls(scale, zero, 0, unit.highest_integer)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest type that holds every integer."""
        for name in ("uint8", "uint16", "int16", "int32"):
            limits = np.iinfo(name)
            if limits.min <= self.low and self.high <= limits.max:
                return np.dtype(name)
        raise AssertionError("low and high are checked when a grid is made")

    def values(self, integers: ArrayLike) -> NDArray[np.float64]:
        """The real values of integers."""
        return (np.asarray(integers, np.float64) - self.zero) * self.scale

    def integers(self, values: ArrayLike) -> Integers:
        """The integer nearest to every value, clipped to ``low`` and ``high``."""
        real = np.asarray(values, np.float64)
        if np.isnan(real).any():
            raise ValueError("an input is NaN, which no integer stands for: remove it first")
        return np.clip(np.rint(real / self.scale + self.zero), self.low, self.high).astype(
            self.dtype
        )

    def outside(self, values: ArrayLike) -> int:
        """How many of the values lie more than one step beyond the ends."""
        real = np.asarray(values)
        low, high = self.values([self.low - 1, self.high + 1])
        return int(np.count_nonzero((real < low) | (real > high)))

    @property
    def reach(self) -> int:
        """The largest absolute value of an integer."""
        return max(abs(self.low), abs(self.high))
