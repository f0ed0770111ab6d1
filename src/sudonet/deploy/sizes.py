"""Bytes of an integer network: its tables, and what lies between its layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from sudonet.deploy.layers import (
    Affine,
    After,
    ChannelThresholds,
    Layer,
    RealScores,
    RealThresholds,
    Scores,
    Shape,
    SharedThresholds,
    SumPool,
)
from sudonet.deploy.network import IntegerNetwork
from sudonet.packing import MAX_LEVELS, packed_bytes

FLOAT32_BYTES = 4


@dataclass(frozen=True)
class Buffer:
    """The numbers of one example between two layers, and what they take in three forms.

    Parameters
    ----------
    values
        How many there are.
    float32_bytes
        As in the model.
    plain_bytes
        A whole integer each: one byte for up to 256 levels, eight for a score.
    packed_bytes
        As :mod:`sudonet.packing` lays them out; what has more levels stays plain.
    """

    values: int
    float32_bytes: int
    plain_bytes: int
    packed_bytes: int


def buffers(network: IntegerNetwork) -> tuple[Buffer, ...]:
    """The input of a network, and the output of every layer."""
    grid = network.inputs
    levels = grid.high - grid.low + 1
    found = [_buffer(network.shape_in, levels, grid.dtype.itemsize)]
    for layer in network.layers:
        if isinstance(layer, Affine):
            levels = 0 if layer.grid_out is None else layer.after.unit.outputs  # type: ignore[union-attr]
        elif isinstance(layer, SumPool):
            levels = layer.grid_out.high - layer.grid_out.low + 1
        found.append(_buffer(layer.shape_out, levels, _integer_bytes(layer)))
    return tuple(found)


def _buffer(shape: Shape, levels: int, integer_bytes: int) -> Buffer:
    values = math.prod(shape)
    plain = values * integer_bytes
    packed = packed_bytes(values, levels) if 0 < levels <= MAX_LEVELS else plain
    return Buffer(values, values * FLOAT32_BYTES, plain, packed)


def _integer_bytes(layer: Layer) -> int:
    return 8 if layer.grid_out is None else layer.grid_out.dtype.itemsize


def arena_bytes(sizes: Sequence[int]) -> int:
    """The most that a layer's input and output take together, from the sizes of all buffers.

    Examples
    --------
    >>> arena_bytes([10, 3, 8, 1])
    13
    """
    return max(before + after for before, after in pairwise(sizes))


def threshold_bytes(after: After) -> int:
    """Bytes of the tables by which accumulators become codes or scores."""
    if isinstance(after, ChannelThresholds):
        return after.table.nbytes
    if isinstance(after, SharedThresholds):
        return after.factor.nbytes + after.constant.nbytes + after.table.nbytes
    if isinstance(after, Scores):
        return after.factor.nbytes + after.constant.nbytes
    if isinstance(after, RealThresholds):
        return after.constant.nbytes + after.unit.thresholds.nbytes
    assert isinstance(after, RealScores)
    return after.constant.nbytes
