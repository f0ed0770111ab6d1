"""What an integer network computes, in numpy: the definition that back ends are tested against.

With ``dtype=numpy.int64`` every sum is one of integers. ``float64`` gives the same numbers
faster, by BLAS: the compiler proves that every partial sum stays below 2^31, and float64 is
exact up to 2^53.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sudonet.deploy.grid import Integers
from sudonet.deploy.layers import (
    Affine,
    ChannelThresholds,
    Layer,
    MaxPool,
    RealScores,
    RealThresholds,
    Scores,
    SharedThresholds,
    SumPool,
    emitted,
    image,
)

Numbers = NDArray[Any]


def run(layers: tuple[Layer, ...], x: Integers, dtype: DTypeLike = np.int64) -> Iterator[Numbers]:
    """The output of every layer in turn, for a batch of integers.

    Units give the integers of their grid, the last layer its scores.
    """
    for layer in layers:
        batch = x.reshape(len(x), *image(layer.shape_in))
        if isinstance(layer, Affine):
            x = finish(layer, accumulate(layer, batch, dtype))
        else:
            x = _pooled(layer, batch)
        x = x.reshape(len(x), *layer.shape_out)
        yield x


def accumulate(layer: Affine, x: Integers, dtype: DTypeLike = np.int64) -> Numbers:
    """The accumulators of a layer, (batch, channels, height, width)."""
    if layer.weight_kind == "float32":
        dtype = np.float64
    weights = layer.by_output.astype(dtype)
    rows, columns = layer.taps(0), layer.taps(1)
    total = np.zeros((len(x), layer.channels, len(rows), len(columns)), dtype)
    weight_sums = np.zeros((layer.channels, len(rows), len(columns)), dtype)
    for i in range(layer.kernel[0]):
        to_row, from_row = _connected(rows, i)
        for j in range(layer.kernel[1]):
            to_column, from_column = _connected(columns, j)
            here = np.ix_(to_row, to_column)
            seen = x[:, :, from_row][:, :, :, from_column].astype(dtype)
            total[:, :, here[0], here[1]] += _products(weights[:, :, i, j], seen, layer.groups)
            weight_sums[:, here[0], here[1]] += weights[:, :, i, j].sum(1)[:, None, None]
    return 2 * total - layer.twice_zero * weight_sums if layer.centred else total


def _connected(taps: list[list[tuple[int, int]]], place: int) -> tuple[list[int], list[int]]:
    """Outputs and inputs that the weight at ``place`` of the kernel connects."""
    pairs = [(out, into) for out, some in enumerate(taps) for k, into in some if k == place]
    return [out for out, _ in pairs], [into for _, into in pairs]


def _products(weights: Numbers, x: Numbers, groups: int) -> Numbers:
    """(out, in / groups) times (batch, in, height, width), group by group."""
    batch, channels, height, width = x.shape
    each = x.reshape(batch, groups, channels // groups, height * width)
    split = weights.reshape(groups, len(weights) // groups, channels // groups)
    # One product for the whole batch and not one an example, which numpy does slowly.
    flat = each.transpose(1, 2, 0, 3).reshape(groups, channels // groups, batch * height * width)
    out = (split @ flat).reshape(groups, len(weights) // groups, batch, height * width)
    together: Numbers = out.transpose(2, 0, 1, 3).reshape(batch, len(weights), height, width)
    return together


def finish(layer: Affine, total: Numbers) -> Numbers:
    """Accumulators to integers of the unit's grid, or to scores."""
    codes = codes_of(layer, total)
    if codes is not None:
        return emitted(layer.after.unit)[codes]  # type: ignore[union-attr]
    after = layer.after
    if isinstance(after, Scores):
        return total.astype(np.int64) * _per_channel(after.factor) + _per_channel(after.constant)
    assert isinstance(after, RealScores)
    return total * after.factor + _per_channel(after.constant, np.float64)


def codes_of(layer: Affine, total: Numbers) -> NDArray[np.intp] | None:
    """The unit's code of every accumulator; None at the network's output."""
    after = layer.after
    if isinstance(after, ChannelThresholds):
        codes = np.empty(total.shape, np.intp)
        for channel, table in enumerate(after.table):
            codes[:, channel] = np.searchsorted(table, total[:, channel], side="left")
        return codes
    if isinstance(after, SharedThresholds):
        fixed = total.astype(np.int64) * _per_channel(after.factor) + _per_channel(after.constant)
        return np.searchsorted(after.table, fixed, side="left")
    if isinstance(after, RealThresholds):
        real = total * after.factor + _per_channel(after.constant, np.float64)
        return np.searchsorted(after.unit.thresholds, real, side="left")
    return None


def _per_channel(numbers: Numbers, dtype: DTypeLike = np.int64) -> Numbers:
    return numbers.astype(dtype)[:, None, None]


def _pooled(layer: MaxPool | SumPool, x: Integers) -> Integers:
    _, height, width = image(layer.shape_in)
    _, rows, columns = image(layer.shape_out)
    top, left = layer.padding if isinstance(layer, MaxPool) else (0, 0)
    lowest = layer.grid_in.low
    made = np.full((*x.shape[:2], rows, columns), lowest, layer.grid_out.dtype)
    for row in range(rows):
        for column in range(columns):
            first, start = row * layer.stride[0] - top, column * layer.stride[1] - left
            window = x[
                :,
                :,
                max(first, 0) : min(first + layer.kernel[0], height),
                max(start, 0) : min(start + layer.kernel[1], width),
            ]
            if isinstance(layer, MaxPool):
                made[:, :, row, column] = window.max((2, 3))
            else:
                made[:, :, row, column] = window.astype(np.int64).sum((2, 3))
    return made
