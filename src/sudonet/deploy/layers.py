"""The layers of an integer network, and the integers that they hold.

Every layer takes integers and gives integers; a :class:`Grid` says what they stand for.
Shapes have no batch in them: (channels, height, width) for images, (channels, length) for
sequences, (features,) otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sudonet.deploy.grid import Grid
from sudonet.staircase import Staircase

Shape: TypeAlias = tuple[int, ...]
Pair: TypeAlias = tuple[int, int]
Weights: TypeAlias = NDArray[Any]

WEIGHTS = {"int8": 8, "int4": 4, "ternary": 2, "binary": 1}
"""Bits of a weight, by the name of its kind; ``float32`` weights are no integers."""

KINDS = ("dense", "conv", "transposed")

ACCUMULATOR = 2**31
"""Accumulators are 32 bits wide."""

FIXED = 2**62
"""Fixed-point numbers have 64 bits: a sign, a bit to spare, and 62."""

PIECE = 2**20
"""Weights that are added up at a time, which bounds the memory that large layers need."""


@dataclass(frozen=True, eq=False)
class ChannelThresholds:
    """A unit as integer thresholds for every channel: exact, 4 bytes a threshold.

    The code of an accumulator is the number of ``table[channel]`` strictly below it.

    Parameters
    ----------
    unit
        The unit.
    table
        int32, channels x thresholds, ascending along each row.
    """

    unit: Staircase
    table: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class SharedThresholds:
    """A unit by one table for all channels: 12 bytes a channel, for many levels.

    An accumulator becomes the fixed-point number ``accumulator * factor + constant`` in
    units of 2^-fraction; its code is the number of ``table`` strictly below that.

    Parameters
    ----------
    unit
        The unit.
    factor
        int32, one a channel, above 0.
    constant
        int64, one a channel.
    table
        int64, ascending.
    fraction
        Binary digits after the point.
    """

    unit: Staircase
    factor: NDArray[np.int32]
    constant: NDArray[np.int64]
    table: NDArray[np.int64]
    fraction: int


@dataclass(frozen=True, eq=False)
class RealThresholds:
    """A unit after float32 weights: its own thresholds, compared in float64."""

    unit: Staircase
    factor: float
    constant: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scores:
    """The output: ``accumulator * factor + constant``, int64 in units of 2^-fraction."""

    factor: NDArray[np.int32]
    constant: NDArray[np.int64]
    fraction: int


@dataclass(frozen=True, eq=False)
class RealScores:
    """The output after float32 weights: ``accumulator * factor + constant`` in float64."""

    factor: float
    constant: NDArray[np.float64]


After: TypeAlias = ChannelThresholds | SharedThresholds | RealThresholds | Scores | RealScores


@dataclass(frozen=True, eq=False)
class Affine:
    """Linear, Conv1d, Conv2d or ConvTranspose2d, and the thresholds or scores after it.

    The accumulator of an output is the sum of weight * integer over the inputs that it
    sees. A layer whose windows reach over the edge is ``centred``: its accumulator is
    ``2 * sum - twice_zero * (sum of the weights that met an input)``, so that padding counts
    as 0, even where 0 is not an integer of the grid.

    Parameters
    ----------
    name
        The layer's path in the model.
    kind
        ``dense``, ``conv`` or ``transposed``.
    weights
        (out, in), (out, in / groups, height, width) or, transposed, (in, out / groups,
        height, width): int8, or float32 where weights were left as they are.
    weight_kind
        ``int8``, ``int4``, ``ternary``, ``binary`` or ``float32``.
    shape_in, shape_out
        Without the batch; sequences have (channels, length).
    stride, padding, dilation, output_padding, groups
        As in PyTorch; sequences have height 1.
    centred
        Accumulators are taken around zero, as above.
    twice_zero
        Two times the zero of the input's grid, where ``centred``.
    grid_in
        What the input's integers stand for.
    after
        Thresholds of the unit that follows, or the network's output.
    """

    name: str
    kind: str
    weights: Weights
    weight_kind: str
    shape_in: Shape
    shape_out: Shape
    grid_in: Grid
    after: After
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    output_padding: Pair = (0, 0)
    groups: int = 1
    centred: bool = False
    twice_zero: int = 0

    @property
    def channels(self) -> int:
        """Outputs with weights of their own."""
        return self.shape_out[0]

    @property
    def kernel(self) -> Pair:
        return (1, 1) if self.kind == "dense" else (self.weights.shape[2], self.weights.shape[3])

    @property
    def grid_out(self) -> Grid | None:
        """What the output's integers stand for; None for scores."""
        if isinstance(self.after, Scores | RealScores):
            return None
        return Grid.of_unit(self.after.unit)

    @cached_property
    def by_output(self) -> Weights:
        """The weights as (out, in / groups, height, width) for every kind."""
        if self.kind == "dense":
            return self.weights[:, :, None, None]
        if self.kind == "conv":
            return self.weights
        into, out, height, width = self.weights.shape
        split = self.weights.reshape(self.groups, into // self.groups, out, height, width)
        swapped: Weights = split.swapaxes(1, 2)
        return swapped.reshape(self.groups * out, into // self.groups, height, width)

    def met(self, axis: int, place: int) -> tuple[slice, slice]:
        """Outputs and inputs along height (0) or width (1) that meet at a place of the kernel.

        The n-th of the one meets the n-th of the other; padding is left out.
        """
        length, made = image(self.shape_in)[1 + axis], image(self.shape_out)[1 + axis]
        stride, at = self.stride[axis], place * self.dilation[axis] - self.padding[axis]
        if self.kind == "transposed":  # input i is met by output i * stride + at
            inputs, outputs = meeting(length, made, stride, at)
        else:  # output o meets input o * stride + at
            outputs, inputs = meeting(made, length, stride, at)
        return outputs, inputs

    def phases(self, axis: int) -> dict[int, list[int]]:
        """Places of a transposed kernel by the phase of the stride whose outputs they reach."""
        found: dict[int, list[int]] = {}
        for place in range(self.kernel[axis]):
            phase = (place * self.dilation[axis] - self.padding[axis]) % self.stride[axis]
            found.setdefault(phase, []).append(place)
        return found

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights in the network's file."""
        if self.weight_kind == "float32":
            return 4 * self.weights.size
        return -(-self.weights.size * WEIGHTS[self.weight_kind] // 8)

    @property
    def multiply_adds(self) -> int:
        """Products for one example."""
        rows, columns = (self._meetings(axis) for axis in (0, 1))
        numbers = self.weights.size // math.prod(self.kernel)
        return rows * columns * numbers

    def _meetings(self, axis: int) -> int:
        """How often a weight meets an input along an axis, in all."""
        at = np.arange(self.kernel[axis]) * self.dilation[axis] - self.padding[axis]
        length, made = image(self.shape_in)[1 + axis], image(self.shape_out)[1 + axis]
        count, length = (length, made) if self.kind == "transposed" else (made, length)
        first, end = _first_and_end(count, length, self.stride[axis], at)
        return int((end - first).sum())


@dataclass(frozen=True, eq=False)
class MaxPool:
    """The largest code of every window; padding does not count."""

    name: str
    kernel: Pair
    stride: Pair
    padding: Pair
    shape_in: Shape
    shape_out: Shape
    grid_in: Grid

    @property
    def grid_out(self) -> Grid:
        return self.grid_in


@dataclass(frozen=True, eq=False)
class SumPool:
    """The sum of every window: average pooling, with the division in the grid's scale."""

    name: str
    kernel: Pair
    stride: Pair
    shape_in: Shape
    shape_out: Shape
    grid_in: Grid

    @property
    def grid_out(self) -> Grid:
        size = math.prod(self.kernel)
        g = self.grid_in
        return Grid(g.scale / size, g.zero * size, g.low * size, g.high * size)


Layer: TypeAlias = Affine | MaxPool | SumPool


def meeting(count: int, length: int, stride: int, at: int) -> tuple[slice, slice]:
    """The numbers n below count with ``0 <= n * stride + at < length``, and these places."""
    first, end = (int(n) for n in _first_and_end(count, length, stride, at))
    start = first * stride + at
    return slice(first, end), slice(start, start + (end - first) * stride, stride)


def _first_and_end(count: int, length: int, stride: int, at: Any) -> tuple[Any, Any]:
    first = np.maximum(-(at // stride), 0)
    return first, np.maximum(np.minimum((length - 1 - at) // stride + 1, count), first)


def image(shape: Shape) -> tuple[int, int, int]:
    """(channels, height, width) of any shape: a sequence has height 1, a vector 1 x 1."""
    if len(shape) == 3:
        return shape[0], shape[1], shape[2]
    if len(shape) == 2:
        return shape[0], 1, shape[1]
    return math.prod(shape), 1, 1


def accumulator_bounds(layer: Affine, by_output: Weights) -> NDArray[np.float64]:
    """Bounds of the absolute value of each channel's accumulator and of all partial sums."""
    weights = by_output.reshape(len(by_output), -1)
    sizes = np.zeros(len(weights))
    rows = max(1, PIECE // weights.shape[1])
    for row in range(0, len(weights), rows):
        for column in range(0, weights.shape[1], PIECE):
            some = weights[row : row + rows, column : column + PIECE]
            sizes[row : row + rows] += np.abs(some.astype(np.float64)).sum(1)
    reach = layer.grid_in.reach
    furthest = 2 * reach + abs(layer.twice_zero) if layer.centred else reach
    bounds: NDArray[np.float64] = sizes * furthest
    return bounds


def emitted(unit: Staircase) -> NDArray[np.uint8]:
    """The integer of every code on the unit's grid: mostly the code itself.

    Examples
    --------
    >>> emitted(Staircase(4)).tolist(), emitted(Staircase(8, rectified=True)).tolist()
    ([0, 1, 2, 3], [0, 1, 3, 5, 7])
    """
    return Grid.of_unit(unit).integers(unit.values).astype(np.uint8)
