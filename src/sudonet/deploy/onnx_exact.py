"""The layers of an integer network as ONNX operators on integers, bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sudonet.deploy.layers import (
    Affine,
    ChannelThresholds,
    Scores,
    SharedThresholds,
    Weights,
    emitted,
    image,
)
from sudonet.deploy.onnx_graph import Graph, along, convolution_attributes, graph_shapes
from sudonet.deploy.real_form import met, regular
from sudonet.deploy.steps import CompileError

FEW = 16
"""Up to this many thresholds, comparing with all of them is faster than a search."""

PAIR = 2**15
"""CPUs without VNNI add up two products of uint8 and int8 in 16 bits."""

ZERO_POINT = 128
"""The zero point of weights that are stored as uint8."""


def affine(graph: Graph, layer: Affine, x: str) -> str:
    """The integers of the unit's grid (uint8), or scores (int64)."""
    if layer.weight_kind == "float32":
        raise CompileError(
            f"{layer.name} has float32 weights, whose sums depend on the order of "
            "addition: compile it with weights='int8', or leave out exact=True"
        )
    total, dtype = _accumulators(graph, layer, x)
    after, (_, shape) = layer.after, graph_shapes(layer)
    if isinstance(after, ChannelThresholds):
        table = after.table.astype(dtype)
        return _emitted(graph, layer, counted(graph, total, table, shape))
    assert isinstance(after, SharedThresholds | Scores)
    wide = total if dtype == np.int64 else graph.cast(total, np.int64)
    scaled = graph.add("Mul", wide, along(after.factor.astype(np.int64), shape))
    fixed = graph.add("Add", scaled, along(after.constant, shape))
    if isinstance(after, Scores):
        return fixed
    return _emitted(graph, layer, counted(graph, fixed, after.table[None], shape))


def integer_products(graph: Graph, layer: Affine, x: str, *, largest: int) -> str:
    """int32 sums of weight * integer for uint8 integers up to ``largest``.

    Weights are int8 where every CPU adds them up exactly, and otherwise uint8 with a zero
    point of 128. Convolutions always take the second, which ONNX Runtime runs faster.
    """
    weights = layer.by_output
    if layer.kind == "dense":
        matrix = np.ascontiguousarray(layer.weights.T)
        if 2 * largest * int(np.abs(matrix.astype(np.int64)).max()) < PAIR:
            return graph.add("MatMulInteger", x, matrix)
        zero_points = np.uint8(0), np.uint8(ZERO_POINT)
        return graph.add("MatMulInteger", x, _unsigned(matrix), *zero_points)
    attributes = convolution_attributes(layer)
    if layer.kind == "transposed":
        x = _spread(graph, layer, x)
        weights = weights[:, :, ::-1, ::-1]
        attributes |= {"strides": [1, 1], "pads": [0, 0, 0, 0]}
        del attributes["output_padding"]
    return graph.add("ConvInteger", x, _unsigned(weights), "", np.uint8(ZERO_POINT), **attributes)


def counted(graph: Graph, x: str, table: NDArray[np.integer[Any]], shape: tuple[int, ...]) -> str:
    """How many of its channel's thresholds lie strictly below each number, as int32.

    ``table`` has a row for every channel, or one for all.
    """
    if table.shape[1] <= FEW:
        passed = [
            graph.cast(graph.add("Greater", x, along(column, shape)), np.int32)
            for column in table.T
        ]
        total = passed[0]
        for one in passed[1:]:
            total = graph.add("Add", total, one)
        return total
    return _searched(graph, x, table, shape)


def _searched(graph: Graph, x: str, table: NDArray[np.integer[Any]], shape: tuple[int, ...]) -> str:
    """The same, by binary search."""
    halvings = table.shape[1].bit_length()
    rows = np.full((len(table), 2**halvings), np.iinfo(table.dtype).max, table.dtype)
    rows[:, : table.shape[1]] = table
    starts = along(np.arange(len(table), dtype=np.int32) * 2**halvings, shape)
    place = ""
    for halving in reversed(range(halvings)):
        step = np.int32(2**halving)
        if place:
            asked = graph.add("Gather", rows.ravel(), graph.add("Add", place, step - np.int32(1)))
            passed = graph.add("Greater", x, asked)
            place = graph.add("Where", passed, graph.add("Add", place, step), place)
        else:
            passed = graph.add("Greater", x, along(rows[:, step - 1], shape))
            place = graph.add("Where", passed, starts + step, starts)
    return graph.add("Sub", place, starts) if starts.any() else place


def _accumulators(graph: Graph, layer: Affine, x: str) -> tuple[str, np.dtype[Any]]:
    """Accumulators, and their type: int32, or int64 where inputs are wider than a byte."""
    grid = layer.grid_in
    lowest = min(grid.low, 0)
    largest = grid.high - lowest
    dtype: np.dtype[Any] = np.dtype(np.int32)
    if grid.dtype == np.uint8:
        total = integer_products(graph, layer, x, largest=largest)
    else:
        # Byte by byte, counted from the lowest integer: ONNX has no product of wider integers.
        rest = graph.cast(x, np.int64)
        if lowest:
            rest = graph.add("Sub", rest, np.int64(lowest))
        dtype, total = np.dtype(np.int64), ""
        for power in range(0, largest.bit_length(), 8):
            here = graph.add("Div", rest, np.int64(2**power)) if power else rest
            byte = graph.cast(graph.add("Mod", here, np.int64(256)), np.uint8)
            sums = graph.cast(integer_products(graph, layer, byte, largest=255), np.int64)
            sums = graph.add("Mul", sums, np.int64(2**power)) if power else sums
            total = graph.add("Add", total, sums) if total else sums
    share = 2 * lowest - layer.twice_zero if layer.centred else lowest
    if layer.centred:
        total = graph.add("Mul", total, np.array(2, dtype))
    if share:
        every = (share * met(layer)).astype(dtype)
        total = graph.add("Add", total, every.reshape(graph_shapes(layer)[1]))
    return total, dtype


def _spread(graph: Graph, layer: Affine, x: str) -> str:
    """Inputs with zeros between and around them: a transposed convolution becomes a plain one."""
    channels, *lengths = image(layer.shape_in)
    made = image(layer.shape_out)[1:]
    zeros, before, behind = [], [], []
    for axis in (0, 1):
        stride, span = layer.stride[axis], layer.dilation[axis] * (layer.kernel[axis] - 1)
        first = span - layer.padding[axis]
        zeros.append(stride - 1)
        before.append(first)
        behind.append(made[axis] + span - first - lengths[axis] * stride)
    if any(zeros):
        apart = graph.reshaped(x, (channels, lengths[0], 1, lengths[1], 1))
        padded = graph.add("Pad", apart, np.array([*[0] * 9, zeros[0], 0, zeros[1]]))
        x = graph.reshaped(
            padded, (channels, *(n * (z + 1) for n, z in zip(lengths, zeros, strict=True)))
        )
    return graph.add("Pad", x, np.array([0, 0, *before, 0, 0, *behind]))


def _emitted(graph: Graph, layer: Affine, codes: str) -> str:
    unit = layer.after.unit  # type: ignore[union-attr]
    return (
        graph.cast(codes, np.uint8) if regular(unit) else graph.add("Gather", emitted(unit), codes)
    )


def _unsigned(weights: Weights) -> NDArray[np.uint8]:
    shifted: NDArray[np.uint8] = (weights.astype(np.int16) + ZERO_POINT).astype(np.uint8)
    return shifted
