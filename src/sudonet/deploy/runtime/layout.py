"""An integer network as steps of the C core (``sudo_step`` of csrc/integer/program.h).

Tensors between steps are channels-last, so that the inputs of a window are contiguous. Inputs and
outputs of a network are channels-first, and so is an image that a dense layer reads. Where the two
meet, a step transposes the tensor, or the weights of the dense layer are reordered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sudonet.deploy.layers import (
    Affine,
    ChannelThresholds,
    Layer,
    MaxPool,
    Scores,
    SharedThresholds,
    SumPool,
    image,
)
from sudonet.deploy.runtime.parts import in_panels, parts, scratch
from sudonet.deploy.runtime.tables import Tables
from sudonet.native import library

Image: TypeAlias = tuple[int, int, int]
Order: TypeAlias = NDArray[np.intp]

TYPES = {"uint8": 0, "uint16": 1, "int16": 2, "int32": 3, "int64": 4}
"""``sudo_type``."""

TRANSPOSE, AFFINE, MAX_POOL, SUM_POOL = range(4)
"""``sudo_step_kind``."""


def program(layers: Sequence[Layer], tables: Tables) -> library.Program:
    """Layers as steps, with the scratch that they need; ``max_examples`` is left open."""
    steps: list[library.Step] = []
    scratch_bytes = 0
    stored = _flat(image(layers[0].shape_in))
    for layer, following in zip(layers, [*layers[1:], None], strict=True):
        wanted = _stored_shape(image(layer.shape_in))
        made = _stored_shape(image(layer.shape_out))
        if isinstance(layer, Affine) and layer.kind == "dense":
            if following is not None:
                made = _stored_shape(image(following.shape_in))
            layer = _reordered(layer, _channels_last(stored), _channels_last(made))
        elif stored != wanted:
            dtype = layer.grid_in.dtype
            steps += [_transpose(stored, dtype, first=False)] if stored != _flat(stored) else []
            steps += [_transpose(wanted, dtype, first=True)] if wanted != _flat(wanted) else []
        if not steps and isinstance(layer, Affine) and _reads_beyond(layer, tables):
            steps.append(_transpose(_flat(wanted), layer.grid_in.dtype, first=True))
        step, needed = _affine(layer, tables) if isinstance(layer, Affine) else _pool(layer)
        steps.append(step)
        scratch_bytes, stored = max(scratch_bytes, needed), made
    if stored != _flat(stored):
        steps.append(_transpose(stored, dtype_out(layers[-1]), first=False))
    stride = max((_bytes_out(step) for step in steps[:-1]), default=0)
    return library.Program(
        step_count=len(steps),
        steps=tables.structures(steps),
        example_stride=-(-stride // 64) * 64,
        scratch_bytes=scratch_bytes,
    )


def dtype_out(layer: Layer) -> np.dtype[Any]:
    """The type of a layer's outputs."""
    return layer.grid_out.dtype if layer.grid_out else np.dtype(np.int64)


def _flat(shape: Image) -> Image:
    return math.prod(shape), 1, 1


def _stored_shape(shape: Image) -> Image:
    """The shape of a channels-last tensor; a vector where the order makes no difference."""
    return _flat(shape) if 1 in (shape[0], shape[1] * shape[2]) else shape


def _channels_last(shape: Image) -> Order | None:
    """For every element of a channels-last tensor: its index in the channels-first one."""
    if shape == _flat(shape):
        return None
    order: Order = np.arange(math.prod(shape)).reshape(shape).transpose(1, 2, 0).ravel()
    return order


def _reordered(layer: Affine, into: Order | None, out: Order | None) -> Affine:
    """A dense layer with its inputs and outputs in another order."""
    if into is not None:
        layer = replace(layer, weights=layer.weights[:, into])
    if out is None:
        return layer
    after = layer.after
    if isinstance(after, ChannelThresholds):
        after = replace(after, table=after.table[out])
    else:
        assert isinstance(after, SharedThresholds | Scores)
        after = replace(after, factor=after.factor[out], constant=after.constant[out])
    return replace(layer, weights=layer.weights[out], after=after)


def _reads_beyond(layer: Affine, tables: Tables) -> bool:
    """Whether C may read a few bytes behind the input, beyond the end of the caller's array."""
    return layer.kind != "dense" or (in_panels(layer, tables) and layer.weights.shape[1] % 4 != 0)


def _shapes(into: Image, out: Image) -> dict[str, int]:
    names = ("channels", "rows", "columns")
    return {
        f"{name}_{way}": n
        for way, shape in (("in", into), ("out", out))
        for name, n in zip(names, shape, strict=True)
    }


def _bytes_out(step: library.Step) -> int:
    size = np.dtype(list(TYPES)[step.type_out]).itemsize
    return int(step.channels_out * step.rows_out * step.columns_out * size)


def _transpose(shape: Image, dtype: np.dtype[Any], first: bool) -> library.Step:
    """From channels-first to channels-last (``first``), or back; a copy of a vector."""
    number = TYPES[dtype.name]
    return library.Step(
        kind=TRANSPOSE,
        type_in=number,
        type_out=number,
        channels_first=first,
        **_shapes(shape, shape),
    )


def _pool(layer: MaxPool | SumPool) -> tuple[library.Step, int]:
    """The step of a pool, and the bytes of its sums."""
    maximum = isinstance(layer, MaxPool)
    step = library.Step(
        kind=MAX_POOL if maximum else SUM_POOL,
        type_in=TYPES[layer.grid_in.dtype.name],
        type_out=TYPES[layer.grid_out.dtype.name],
        kernel=layer.kernel,
        stride=layer.stride,
        padding=layer.padding if isinstance(layer, MaxPool) else (0, 0),
        initial=layer.grid_in.low if maximum else 0,
        **_shapes(image(layer.shape_in), image(layer.shape_out)),
    )
    return step, 4 * step.channels_out * step.columns_out


def _affine(layer: Affine, tables: Tables) -> tuple[library.Step, int]:
    """The step of a layer with weights, and the bytes of scratch that it needs."""
    made = parts(layer, tables)
    step = library.Step(
        kind=AFFINE,
        type_in=TYPES[layer.grid_in.dtype.name],
        type_out=TYPES[dtype_out(layer).name],
        part_count=len(made),
        parts=tables.structures(made),
        **_shapes(image(layer.shape_in), image(layer.shape_out)),
    )
    return step, max(scratch(part, layer.grid_in.dtype.itemsize) for part in made)
