"""What an integer network computes, in numpy: the definition that back ends are tested against.

With ``dtype=numpy.int64`` every sum is one of integers. ``float64`` gives the same numbers
faster, by BLAS: the compiler proves that every partial sum stays below 2^31, and float64 is
exact up to 2^53.
"""

from __future__ import annotations

import math
from collections import deque
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
    meeting,
)

Numbers = NDArray[Any]

SLICE = 2**28
"""Bytes that the outputs of a batch take at a time, about."""


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


def outputs(layers: tuple[Layer, ...], x: Integers) -> Numbers:
    """The output of the last layer, with float64; a part of the batch at a time."""
    found = []
    for part in slices(layers, len(x)):
        (last,) = deque(run(layers, x[part], np.float64), maxlen=1)
        found.append(last)
    return np.concatenate(found)


def slices(layers: tuple[Layer, ...], batch: int) -> Iterator[slice]:
    """Parts of a batch, at least one, that take about ``SLICE`` bytes each."""
    count = max(SLICE // example_bytes(layers), 1)
    for start in range(0, max(batch, 1), count):
        yield slice(start, start + count)


def example_bytes(layers: tuple[Layer, ...]) -> int:
    """Bytes that one example takes, rounded up."""
    return max(_layer_bytes(layer) for layer in layers)


def _layer_bytes(layer: Layer) -> int:
    into, out = math.prod(layer.shape_in), math.prod(layer.shape_out)
    if isinstance(layer, Affine):
        return 8 * layer.weights.size + 16 * into + 72 * out
    return 32 * (into + out)


def accumulate(layer: Affine, x: Integers, dtype: DTypeLike = np.int64) -> Numbers:
    """The accumulators of a layer, (batch, channels, height, width)."""
    if layer.weight_kind == "float32":
        dtype = np.float64
    weights = layer.by_output.astype(dtype)
    _, rows, columns = image(layer.shape_out)
    total = np.zeros((len(x), layer.channels, rows, columns), dtype)
    weight_sums = np.zeros((layer.channels, rows, columns), dtype)
    for i in range(layer.kernel[0]):
        to_row, from_row = layer.met(0, i)
        for j in range(layer.kernel[1]):
            to_column, from_column = layer.met(1, j)
            seen = x[:, :, from_row, from_column].astype(dtype)
            total[:, :, to_row, to_column] += _products(weights[:, :, i, j], seen, layer.groups)
            weight_sums[:, to_row, to_column] += weights[:, :, i, j].sum(1)[:, None, None]
    return 2 * total - layer.twice_zero * weight_sums if layer.centred else total


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
    """Maxima or sums of windows: along height, and of these along width."""
    counts = image(layer.shape_out)[1:]
    padding = layer.padding if isinstance(layer, MaxPool) else (0, 0)
    settings = zip(counts, layer.kernel, layer.stride, padding, strict=True)
    for axis, (count, kernel, stride, before) in enumerate(settings):
        x = np.moveaxis(x, 2 + axis, 0)
        join: np.ufunc = np.maximum if isinstance(layer, MaxPool) else np.add
        start, dtype = (layer.grid_in.low, x.dtype) if join is np.maximum else (0, np.int64)
        made = np.full((count, *x.shape[1:]), start, dtype)
        if kernel < count:  # the shorter of two loops
            for place in range(kernel):
                outputs, inputs = meeting(count, len(x), stride, place - before)
                made[outputs] = join(made[outputs], x[inputs])
        else:
            for place in range(count):
                first = place * stride - before
                made[place] = join.reduce(x[max(first, 0) : first + kernel], 0, made.dtype)
        x = np.moveaxis(made, 0, 2 + axis)
    return x.astype(layer.grid_out.dtype)
