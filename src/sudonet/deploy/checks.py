"""Checks that an integer network can run: no index out of bounds, no overflow.

A network that was compiled passes. One that was read from a file may hold anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from sudonet.deploy.grid import Grid
from sudonet.deploy.layers import (
    ACCUMULATOR,
    FIXED,
    KINDS,
    WEIGHTS,
    Affine,
    ChannelThresholds,
    Layer,
    MaxPool,
    RealScores,
    RealThresholds,
    Scores,
    Shape,
    SharedThresholds,
    accumulator_bounds,
    image,
)
from sudonet.deploy.network import OUTPUTS, IntegerNetwork
from sudonet.staircase import Staircase

ELEMENTS = 2**26
"""Limit of the numbers between two layers, for one example, and of strides and the like."""

AXES = 8
NAME = 256
"""Limit of the characters in a layer's name."""

LARGEST = 255
"""The largest integer of a unit."""

FRACTION = 62
SCALES = (2.0**-100, 2.0**100)
ZEROS = 2.0**62


class ArtefactError(ValueError):
    """A file holds no valid network, or a network cannot be saved; the message says why."""


def check(network: IntegerNetwork) -> None:
    """Raise an ArtefactError unless the network runs on every valid input, with exact sums."""
    _check_grid(network.inputs)
    if not 1 <= len(network.shape_in) <= AXES:
        _fail(f"shape_in has 1 to {AXES} axes, got {_short(network.shape_in)}")
    _check_shape("shape_in", network.shape_in)
    if not network.layers:
        _fail("the network has no layers")
    shape, grid = network.shape_in, network.inputs
    for place, layer in enumerate(network.layers):
        where = f"layer {place} ({_short(layer.name)})"
        last = place == len(network.layers) - 1
        try:
            if math.prod(layer.shape_in) != math.prod(shape):
                _fail(f"shape_in is {layer.shape_in}, but what comes in is {shape}")
            if layer.grid_in != grid:
                _fail(f"grid_in is {layer.grid_in}, but what comes in is on {grid}")
            _check_layer(layer, last)
            made = layer.grid_out
            if made is not None:
                _check_grid(made)
                grid = made
        except ValueError as error:  # an invalid Grid raises one, too
            raise ArtefactError(f"{where}: {error}") from error
        shape = layer.shape_out
    _check_output(network.output, network.layers[-1])


def check_unit(unit: Staircase) -> None:
    """Raise an ArtefactError if the unit's integers need more than a byte."""
    # Rectified units keep half of their levels, so that up to twice as many may fit. More are
    # refused before Grid.of_unit builds their tables.
    if unit.levels >= 2 * (LARGEST + 1) or Grid.of_unit(unit).high > LARGEST:
        _fail(f"the unit {unit} has integers above {LARGEST}, more than a byte holds")


def _fail(message: str) -> NoReturn:
    raise ArtefactError(message)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _check_grid(grid: Grid) -> None:
    if not SCALES[0] <= grid.scale <= SCALES[1]:
        _fail(f"a grid's scale must be from 2^-100 to 2^100, got {grid.scale!r}")
    if not abs(grid.zero) <= ZEROS:
        _fail(f"a grid's zero must be from -2^62 to 2^62, got {grid.zero!r}")


def _check_shape(name: str, shape: Shape) -> None:
    if min(shape) < 1:
        _fail(f"{name} must be 1 or more along every axis, got {_short(shape)}")
    if math.prod(shape) > ELEMENTS:
        _fail(f"{name} has at most {ELEMENTS:,} numbers, got {_short(shape)}")


def _check_output(output: str, last: Layer) -> None:
    if output not in OUTPUTS:
        _fail(f"output must be one of {', '.join(OUTPUTS)}, got {_short(output)}")
    if not isinstance(last, Affine):
        _fail("the last layer is a pooling: it must be a layer with weights")
    if (output == "codes") != (last.grid_out is not None):
        found = "a unit" if last.grid_out is not None else "scores"
        _fail(f"a network that ends in {found} cannot have the output {output!r}")
    if output in ("softmax", "argmax") and len(last.shape_out) != 1:
        _fail(f"{output} needs an output with one axis, got {last.shape_out}")


def _check_layer(layer: Layer, last: bool) -> None:
    if len(layer.name) > NAME or not layer.name.isprintable():
        _fail(f"a name has at most {NAME} characters, all of them printable")
    if isinstance(layer, Affine) and layer.kind not in KINDS:
        _fail(f"kind must be one of {', '.join(KINDS)}, got {_short(layer.kind)}")
    check_geometry(layer)
    if isinstance(layer, Affine):
        _check_weights(layer)
        _check_zero(layer)
        _check_after(layer, last)


def check_geometry(layer: Layer) -> None:
    """Raise an ArtefactError unless shapes, weights and windows of a layer fit together."""
    dense = isinstance(layer, Affine) and layer.kind == "dense"
    for name, shape in (("shape_in", layer.shape_in), ("shape_out", layer.shape_out)):
        if len(shape) not in ((1,) if dense else (2, 3)):
            _fail(f"{name} has {'1 axis' if dense else '2 or 3 axes'} here, got {_short(shape)}")
        _check_shape(name, shape)
    if len(layer.shape_in) != len(layer.shape_out):
        _fail(f"an image cannot become a sequence: {layer.shape_in} to {layer.shape_out}")
    if not isinstance(layer, Affine):
        _check_pool(layer)
        return
    _check_settings(1, stride=layer.stride, dilation=layer.dilation, groups=(layer.groups,))
    _check_settings(0, padding=layer.padding, output_padding=layer.output_padding)
    axes = 2 if dense else 4
    if layer.weights.ndim != axes or not layer.weights.size:
        _fail(f"weights of a {layer.kind} layer have {axes} axes, got {layer.weights.shape}")
    if dense:
        _check_dense(layer)
    else:
        _check_windows(layer)


def _check_settings(least: int, **settings: tuple[int, ...]) -> None:
    for name, numbers in settings.items():
        if not all(least <= number <= ELEMENTS for number in numbers):
            _fail(f"{name} must be from {least} to {ELEMENTS:,}, got {numbers}")


def _check_size(layer: Layer, computed_size: Callable[[int], int]) -> None:
    for axis, name in enumerate(("height", "width")):
        declared, computed = image(layer.shape_out)[1 + axis], computed_size(axis)
        if declared != computed:
            _fail(f"shape_out has {name} {declared}, but the windows give {computed}")


def _check_pool(layer: Any) -> None:
    kernel, stride = layer.kernel, layer.stride
    padding = layer.padding if isinstance(layer, MaxPool) else (0, 0)
    _check_settings(1, kernel=kernel, stride=stride)
    # As in PyTorch: more padding would give windows with nothing in them.
    if not all(0 <= 2 * p <= k for p, k in zip(padding, kernel, strict=True)):
        _fail(f"padding must be from 0 to half of the kernel {kernel}, got {padding}")
    if layer.shape_in[0] != layer.shape_out[0]:
        _fail(f"pooling keeps channels: {layer.shape_in} cannot become {layer.shape_out}")
    if len(layer.shape_in) == 2 and (kernel[0], stride[0], padding[0]) != (1, 1, 0):
        _fail("a sequence has height 1, so kernel, stride and padding are 1, 1 and 0 there")
    size = image(layer.shape_in)[1:]
    _check_size(
        layer, lambda axis: (size[axis] + 2 * padding[axis] - kernel[axis]) // stride[axis] + 1
    )


def _check_weights(layer: Affine) -> None:
    weights, kind = layer.weights, layer.weight_kind
    if kind == "float32":
        if weights.dtype != np.float32 or not np.isfinite(weights).all():
            _fail("float32 weights must be finite and float32")
        return
    if kind not in WEIGHTS:
        _fail(f"weights must be one of {', '.join(WEIGHTS)}, float32, got {_short(kind)}")
    if weights.dtype != np.int8:
        _fail(f"{kind} weights must be held as int8, got {weights.dtype}")
    top = max(2 ** (WEIGHTS[kind] - 1) - 1, 1)
    low, high = int(weights.min()), int(weights.max())
    if low < -top or high > top or (kind == "binary" and not weights.all()):
        allowed = "-1 or 1" if kind == "binary" else f"from {-top} to {top}"
        _fail(f"{kind} weights are {allowed}, got {low} to {high}")


def _check_dense(layer: Affine) -> None:
    if layer.weights.shape != (*layer.shape_out, *layer.shape_in):
        _fail(
            f"weights of shape {layer.weights.shape} do not make {layer.shape_out} "
            f"of {layer.shape_in}"
        )
    ones = (*layer.stride, *layer.dilation, layer.groups)
    if set(ones) != {1} or set(layer.padding + layer.output_padding) != {0}:
        _fail("a dense layer has no windows: stride, dilation and groups are 1, padding is 0")


def _check_windows(layer: Affine) -> None:
    groups, shape = layer.groups, layer.weights.shape
    channels, *size = image(layer.shape_in)
    transposed = layer.kind == "transposed"
    # Transposed weights have the layer's inputs first; the other axis is one group's alone.
    first, second = (channels, layer.channels) if transposed else (layer.channels, channels)
    if shape[0] != first or shape[1] * groups != second or first % groups:
        _fail(
            f"weights of shape {shape} in {groups} groups do not make {layer.channels} "
            f"channels of {channels}"
        )
    kernel, stride, padding = layer.kernel, layer.stride, layer.padding
    dilation, more = layer.dilation, layer.output_padding
    framed = channels * math.prod(n + 2 * p for n, p in zip(size, padding, strict=True))
    if framed > ELEMENTS:
        _fail(f"with its padding an example has {framed:,} numbers: the limit is {ELEMENTS:,}")
    if len(layer.shape_in) == 2:
        at_height = (kernel[0], stride[0], dilation[0], padding[0], more[0])
        if at_height != (1, 1, 1, 0, 0):
            _fail("a sequence has height 1, so all settings of height are 1, and paddings 0")
    if any(
        extra and not (transposed and extra < max(s, d))
        for extra, s, d in zip(more, stride, dilation, strict=True)
    ):
        _fail(f"output_padding must be below stride or dilation, if transposed; got {more}")

    def size_out(axis: int) -> int:
        reach = dilation[axis] * (kernel[axis] - 1) + 1
        if transposed:
            return (size[axis] - 1) * stride[axis] - 2 * padding[axis] + reach + more[axis]
        return (size[axis] + 2 * padding[axis] - reach) // stride[axis] + 1

    _check_size(layer, size_out)


def _check_zero(layer: Affine) -> None:
    zero = layer.grid_in.zero
    over_the_edge = layer.kind == "transposed" or layer.padding != (0, 0)
    if layer.centred != (over_the_edge and zero != 0):
        _fail(
            "centred must be true if windows reach over the edge and the grid's zero is not 0, "
            f"and false otherwise; got {layer.centred}"
        )
    if layer.twice_zero != (2 * zero if layer.centred else 0):
        _fail(f"twice_zero must be {2 * zero if layer.centred else 0}, got {layer.twice_zero}")
    if abs(layer.twice_zero) >= ACCUMULATOR:
        _fail(f"twice_zero must fit 32 bits, got {layer.twice_zero:,}")


def _check_after(layer: Affine, last: bool) -> None:
    after = layer.after
    if not last and isinstance(after, Scores | RealScores):
        _fail("only the last layer can give scores, and this is not the last")
    if not isinstance(after, Scores | RealScores):
        check_unit(after.unit)
    real = isinstance(after, RealThresholds | RealScores)
    if real != (layer.weight_kind == "float32"):
        _fail(f"{type(after).__name__} cannot follow {layer.weight_kind} weights")
    bounds = accumulator_bounds(layer, layer.by_output)
    if isinstance(after, RealThresholds | RealScores):
        _check_real(after, bounds)
        return
    if bounds.max() >= ACCUMULATOR:
        _fail(f"an accumulator can reach {bounds.max():,.0f}, which 32 bits do not hold")
    if isinstance(after, ChannelThresholds):
        _check_table(after.table, np.int32, (layer.channels, after.unit.outputs - 1))
    else:
        if isinstance(after, SharedThresholds):
            _check_table(after.table, np.int64, (after.unit.outputs - 1,))
        _check_fixed_point(after, bounds)


def _check_vector(name: str, array: NDArray[Any], dtype: type, channels: int) -> None:
    if array.dtype != dtype or array.shape != (channels,):
        _fail(
            f"{name} must be {np.dtype(dtype)} of shape {(channels,)}, got {array.dtype} "
            f"of shape {array.shape}"
        )


def _check_table(table: NDArray[Any], dtype: type, shape: Shape) -> None:
    if table.dtype != dtype or table.shape != shape:
        _fail(
            f"the table must be {np.dtype(dtype)} of shape {shape}, got {table.dtype} "
            f"of shape {table.shape}"
        )
    if (table[..., 1:] < table[..., :-1]).any():
        _fail("the table's thresholds must ascend")
    if (table <= -FIXED).any() or (table >= FIXED).any():
        _fail("the table's thresholds must lie between -2^62 and 2^62")


def _check_fixed_point(after: SharedThresholds | Scores, bounds: NDArray[np.float64]) -> None:
    _check_vector("factor", after.factor, np.int32, len(bounds))
    _check_vector("constant", after.constant, np.int64, len(bounds))
    if not 0 <= after.fraction <= FRACTION:
        _fail(f"fraction must be from 0 to {FRACTION}, got {after.fraction}")
    if (after.factor < 1).any():
        _fail(f"factor must be above 0, got {after.factor.min()}")
    # Both are below 2^31, so that neither product nor difference overflows 64 bits.
    room = 2**63 - 1 - bounds.astype(np.int64) * after.factor
    if (after.constant > room).any() or (after.constant < -room).any():
        _fail("accumulator * factor + constant can overflow 64 bits")


def _check_real(after: RealThresholds | RealScores, bounds: NDArray[np.float64]) -> None:
    _check_vector("constant", after.constant, np.float64, len(bounds))
    if not 0 < after.factor < math.inf:
        _fail(f"factor must be finite and above 0, got {after.factor!r}")
    with np.errstate(over="ignore", invalid="ignore"):
        furthest = bounds * after.factor + np.abs(after.constant)
    if not (furthest < np.finfo(np.float32).max).all():
        _fail("accumulator * factor + constant can overflow float32, or is not finite")
