"""Bytes of an integer network: its tables, and what lies between its layers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from sudonet._text import readable
from sudonet.deploy.c.plan import plan
from sudonet.deploy.grid import Grid
from sudonet.deploy.layers import (
    After,
    ChannelThresholds,
    RealScores,
    RealThresholds,
    Scores,
    Shape,
    SharedThresholds,
)
from sudonet.deploy.network import IntegerNetwork
from sudonet.deploy.steps import CompileError

FLOAT32_BYTES = 4
SCORE_BYTES = 8


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
        As the C core stores them: one byte for up to 256 levels, eight for a score.
    packed_bytes
        As exported C stores them with ``optimise="ram"``: see
        :func:`sudonet.packing.arena_bits`. The network's input and output are not packed. None
        where that C stores nothing, since it takes the maximum of a window first, and for
        networks that cannot be exported as C.
    """

    values: int
    float32_bytes: int
    plain_bytes: int
    packed_bytes: int | None


@dataclass(frozen=True)
class Sizes:
    """What lies between the layers of a network.

    Parameters
    ----------
    buffers
        The input of the network, and the output of every layer.
    arena_bytes, arena_packed_bytes
        The arena of exported C with ``optimise="speed"`` and with ``optimise="ram"``: all that
        it needs between input and output at a time. None for networks that cannot be exported.
    """

    buffers: tuple[Buffer, ...]
    arena_bytes: int | None
    arena_packed_bytes: int | None


def packed_total(buffers: Iterable[Buffer]) -> int | None:
    """Bytes of all buffers that exported C stores; None if it stores none of them."""
    stored = [b.packed_bytes for b in buffers if b.packed_bytes is not None]
    return sum(stored) if stored else None


def size_text(size: int | None) -> str:
    """A size for people; ``-`` for what is not stored."""
    return "-" if size is None else readable(size)


def arena_lines(speed: int | None, ram: int | None) -> list[str]:
    """The line about the arena of exported C; none for a network without one."""
    if speed is None or ram is None:
        return []
    return [f"arena of exported C: {readable(speed)}, {readable(ram)} with --optimise ram"]


def sizes(network: IntegerNetwork) -> Sizes:
    """The buffers of a network and its arena, as the back ends have them."""
    plain = [_buffer(network.shape_in, network.inputs)]
    plain += [_buffer(layer.shape_out, layer.grid_out) for layer in network.layers]
    try:
        speed, ram = plan(network, "speed"), plan(network, "ram")
    except CompileError:  # float32 weights
        return Sizes(tuple(plain), None, None)
    packed: list[int | None] = [plain[0].plain_bytes]
    for planned in ram.layers:
        if planned.pool is not None:
            packed.append(None)
        packed.append(planned.target.bytes if planned.target else plain[-1].plain_bytes)
    buffers = (
        replace(buffer, packed_bytes=size) for buffer, size in zip(plain, packed, strict=True)
    )
    return Sizes(tuple(buffers), speed.arena, ram.arena)


def _buffer(shape: Shape, grid: Grid | None) -> Buffer:
    values = math.prod(shape)
    integer_bytes = SCORE_BYTES if grid is None else grid.dtype.itemsize
    return Buffer(values, values * FLOAT32_BYTES, values * integer_bytes, None)


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
