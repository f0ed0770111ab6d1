"""The plan of a network's C: storage, rows of weights, layout of the arena."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sudonet.deploy.c import storage
from sudonet.deploy.c.arena import Need, placed
from sudonet.deploy.c.windows import Pass, passes
from sudonet.deploy.layers import (
    WEIGHTS,
    Affine,
    ChannelThresholds,
    Layer,
    MaxPool,
    Scores,
    emitted,
    image,
)
from sudonet.deploy.network import IntegerNetwork
from sudonet.deploy.steps import CompileError
from sudonet.packing import aligned_bytes

OPTIMISE = ("speed", "flash", "ram")


@dataclass(frozen=True)
class Buffer:
    """Numbers between two layers: how they are stored, and where in the arena."""

    storage: str
    count: int
    offset: int = 0

    @property
    def bytes(self) -> int:
        """Bytes that are taken: what comes next starts at a multiple of 4."""
        return aligned_bytes(self.count * storage.BITS[self.storage])


@dataclass(frozen=True)
class Rows:
    """The parameters of a function that multiplies rows of weights; layers may share one.

    Parameters
    ----------
    vector
        Storage of what the weights are multiplied with.
    bits
        Of a weight.
    count
        ``""`` for products. For binary weights and codes of one bit, a popcount: ``and``
        counts ones in both; ``xor`` counts differences inside the image, which a second row
        of bits marks.
    centred
        There is an offset for every channel.
    after
        ``channel``, ``narrow``, ``shared`` or ``scores``.
    out
        Storage of the codes, ``""`` for scores.
    mapped
        Codes go through a table.
    """

    vector: str
    bits: int
    count: str
    centred: bool
    after: str
    out: str
    mapped: bool

    @property
    def per_word(self) -> int:
        """Weights in 32 bits."""
        return 32 // self.bits

    def words(self, inputs: int) -> int:
        """Words of a row of ``inputs`` weights."""
        return -(-inputs // self.per_word)


@dataclass(frozen=True)
class Planned:
    """A layer, where its numbers come from and go to, and how.

    Parameters
    ----------
    source, target
        None for the network's input and output.
    rows
        None for pooling.
    passes
        Of windows; empty for dense layers and pooling.
    patch
        Where the inputs of one window are gathered.
    pool, kept
        A pooling that takes the largest sums at once, and where those are kept meanwhile.
    pad, scale, doubled
        The padding value, the factor of inputs in the patch, and the factor of sums.
    """

    layer: Layer
    source: Buffer | None
    target: Buffer | None
    rows: Rows | None = None
    passes: tuple[Pass, ...] = ()
    patch: Buffer | None = None
    pool: MaxPool | None = None
    kept: Buffer | None = None
    pad: int = 0
    scale: int = 1
    doubled: int = 1

    def inputs(self, one: Pass | None) -> int:
        """Inputs of a row of weights."""
        assert isinstance(self.layer, Affine)
        into = self.layer.by_output.shape[1]
        return int(into * one.taps) if one is not None else int(into)


@dataclass(frozen=True)
class Plan:
    """All layers, and the bytes of the arena that they share."""

    network: IntegerNetwork
    optimise: str
    layers: tuple[Planned, ...]
    arena: int


def plan(network: IntegerNetwork, optimise: str = "speed") -> Plan:
    """How ``network`` becomes C; a CompileError if it cannot."""
    if optimise not in OPTIMISE:
        raise ValueError(f"optimise must be one of {', '.join(OPTIMISE)}, got {optimise!r}")
    for layer in network.layers:
        _check(layer)
    joined = _joined(network.layers)
    buffers = []
    for (layer, pool), (following, _) in pairwise(joined):
        last = pool or layer
        kind = _storage_between(last, following, optimise)
        buffers.append(Buffer(kind, math.prod(last.shape_out)))
    into: list[Buffer | None] = [None, *buffers]
    out: list[Buffer | None] = [*buffers, None]
    first = storage.OF_INPUTS[network.inputs.dtype.name]
    planned = [
        replace(
            _layer(layer, source, target, source.storage if source else first, optimise),
            pool=pool,
            kept=_kept(layer) if pool else None,
        )
        for (layer, pool), source, target in zip(joined, into, out, strict=True)
    ]
    return _placed(network, optimise, planned)


def _joined(layers: tuple[Layer, ...]) -> list[tuple[Layer, MaxPool | None]]:
    """Layers, each with the max pooling that can be fused into it, before its thresholds.

    Units are monotonic, so the largest code is that of the largest sum. Pooling windows that
    overlap are not fused: their sums would be computed more than once.
    """
    found: list[tuple[Layer, MaxPool | None]] = []
    for layer in layers:
        before = found[-1] if found else None
        if (
            isinstance(layer, MaxPool)
            and layer.padding == (0, 0)
            and all(k <= s for k, s in zip(layer.kernel, layer.stride, strict=True))
            and before is not None
            and isinstance(before[0], Affine)
            and before[0].kind == "conv"
            and before[0].shape_out == layer.shape_in
            and before[1] is None
        ):
            found[-1] = before[0], layer
        else:
            found.append((layer, None))
    return found


def _kept(layer: Layer) -> Buffer:
    assert isinstance(layer, Affine)
    return Buffer("s32", layer.channels // layer.groups)


def _check(layer: Layer) -> None:
    if isinstance(layer, Affine) and layer.weight_kind == "float32":
        raise CompileError(
            f"{layer.name} has float32 weights, and C for microcontrollers is without floating "
            "point: compile the model with weights='int8', or with int4, ternary or binary"
        )
    grid = layer.grid_out
    if isinstance(layer, Affine) and grid is not None and grid.high > 255:
        raise CompileError(
            f"{layer.name} has a unit whose integers go up to {grid.high}: bytes hold 255, use "
            "fewer levels"
        )


def _counted(layer: Layer) -> str:
    """How the sums of a layer become popcounts, ``""`` if they do not: see Rows.count."""
    if not isinstance(layer, Affine) or layer.weight_kind != "binary":
        return ""
    if (layer.grid_in.low, layer.grid_in.high) != (0, 1):
        return ""
    if not layer.centred:
        return "and"
    return "xor" if layer.twice_zero == 1 else ""


def _storage_between(layer: Layer, following: Layer, optimise: str) -> str:
    grid = layer.grid_out
    assert grid is not None
    counted = isinstance(following, Affine) and following.kind == "dense" and _counted(following)
    return storage.of_grid(grid, pack=optimise == "ram" or bool(counted))


def _layer(
    layer: Layer, source: Buffer | None, target: Buffer | None, kind: str, optimise: str
) -> Planned:
    if not isinstance(layer, Affine):
        return Planned(layer, source, target)
    counted = _counted(layer)
    if layer.kind == "dense":
        # A popcount needs packed bits: the network's own input has a byte for each.
        counted = counted if kind == "b1" else ""
        return Planned(layer, source, target, _rows(layer, target, kind, counted, optimise))
    found = tuple(passes(layer))
    pad, scale, doubled = _padding(layer)
    if counted:
        pad, scale, doubled, kind = 0, 1, 1, "b1"
    else:
        low, high = scale * layer.grid_in.low, scale * layer.grid_in.high
        kind = storage.holding(min(low, pad), max(high, pad))
    rows = _rows(layer, target, kind, counted, optimise)
    longest = max(rows.words(layer.by_output.shape[1] * one.taps) for one in found)
    numbers = longest * rows.per_word * (2 if counted == "xor" else 1)
    patch = Buffer(kind, numbers)
    return Planned(layer, source, target, rows, found, patch, pad=pad, scale=scale, doubled=doubled)


def _padding(layer: Affine) -> tuple[int, int, int]:
    """The padding value, and the factors of inputs and of sums.

    A centred sum is that of ``weight * (2 * input - twice_zero)``, where padding counts 0.
    So it is that of ``weight * 2 * input`` over all weights, padded with twice_zero, less a
    constant. If zero is an integer, sums can be doubled instead of inputs.
    """
    if not layer.centred:
        return 0, 1, 1
    if layer.twice_zero % 2 == 0:
        return layer.twice_zero // 2, 1, 2
    return layer.twice_zero, 2, 1


def _rows(layer: Affine, target: Buffer | None, kind: str, counted: str, optimise: str) -> Rows:
    after = layer.after
    scores = isinstance(after, Scores)
    if scores:
        name = "scores"
    elif isinstance(after, ChannelThresholds):
        name = "narrow" if optimise == "flash" else "channel"
    else:
        name = "shared"
    codes = None if scores else emitted(after.unit)  # type: ignore[union-attr]
    return Rows(
        vector=kind,
        bits=WEIGHTS[layer.weight_kind],
        count=counted,
        centred=layer.centred and counted != "xor",
        after=name,
        out="" if scores else target.storage if target else "u8",
        mapped=codes is not None and bool((codes != np.arange(len(codes))).any()),
    )


def offsets(planned: Planned, one: Pass) -> NDArray[np.int64]:
    """What is added to the sums of a centred layer in one pass, for every channel."""
    layer = planned.layer
    assert isinstance(layer, Affine)
    kernel = layer.by_output[:, :, list(one.rows.taps)][:, :, :, list(one.columns.taps)]
    whole: NDArray[np.int64] = kernel.astype(np.int64).reshape(layer.channels, -1).sum(1)
    return -layer.twice_zero * whole


def _in_place(layer: Layer, source: Buffer | None, target: Buffer | None) -> bool:
    """Whether a pooling may write over its input.

    Without padding an output never lies behind its own window, and no later window reaches
    back to it.
    """
    if isinstance(layer, Affine) or source is None or target is None:
        return False
    padded = isinstance(layer, MaxPool) and layer.padding != (0, 0)
    return not padded and source.storage == target.storage


def _placed(network: IntegerNetwork, optimise: str, planned: list[Planned]) -> Plan:
    needs = [
        Need(
            one.target.bytes if one.target else 0,
            sum(room.bytes for room in (one.patch, one.kept) if room),
            _in_place(one.layer, one.source, one.target),
        )
        for one in planned
    ]
    places, size = placed(needs)
    found: list[Planned] = []
    source: Buffer | None = None
    for one, place in zip(planned, places, strict=True):
        target = replace(one.target, offset=place.target) if one.target else None
        patch = replace(one.patch, offset=place.patch) if one.patch else None
        kept = one.kept
        if kept and patch:
            kept = replace(kept, offset=patch.offset + patch.bytes)
        found.append(replace(one, source=source, target=target, patch=patch, kept=kept))
        source = target
    # C has no arrays without elements, which a network of one layer would need.
    return Plan(network, optimise, tuple(found), max(size, 4))


def output_count(network: IntegerNetwork) -> int:
    """Numbers in the network's output."""
    return math.prod(image(network.layers[-1].shape_out))
