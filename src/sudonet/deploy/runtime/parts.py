"""A layer of weights as the C core reads it (``sudo_part`` of csrc/integer/program.h).

A part is a product of a matrix with windows of the input. A dense layer or a convolution is
one part. A convolution with groups is several, one for each group or for a few; a transposed
convolution has a part for every phase of its stride, since each phase has its own weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sudonet.deploy.layers import Affine, accumulator_bounds, image
from sudonet.deploy.runtime import tables as packed_tables
from sudonet.deploy.runtime.tables import BLOCK, Tables
from sudonet.native import library

PANEL, MAX_WINDOWS = 4, 256
"""SUDO_PANEL and SUDO_MAX_WINDOWS of csrc/integer/program.h."""

ROW_MAJOR, PANELS_INT8, PANELS_INT4 = range(3)
"""``sudo_weight_layout``."""

WINDOW_BYTES = 65_536
"""Bytes of windows gathered at a time, about: they stay in cache."""

Weights = NDArray[np.int8]


@dataclass(frozen=True)
class Axis:
    """Outputs along one axis that use the same taps of the kernel.

    Output m is at ``first + m * step``. It multiplies the input at ``m * stride + offset`` by the
    weight of the tap of the same index, for every offset.
    """

    first: int
    step: int
    count: int
    stride: int
    offsets: list[int]
    taps: list[int]
    length: int

    @cached_property
    def classes(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """The distinct ranges of taps inside the input, and which of them every output has.

        Offsets ascend, so the taps of an output that are inside the input are a range.
        """
        start = np.arange(self.count) * self.stride
        ends = (np.searchsorted(self.offsets, place - start) for place in (0, self.length))
        distinct, which = np.unique(np.stack([*ends], 1), axis=0, return_inverse=True)
        return distinct, which.reshape(-1).astype(np.int32)

    @property
    def before(self) -> int:
        """How far windows extend before the first input."""
        return max(-min(self.offsets), 0)

    @property
    def padded(self) -> int:
        """The number of inputs, with the zeros that windows need before and after them."""
        last = (self.count - 1) * self.stride + max(self.offsets)
        return self.before + max(last + 1, self.length)


def axes(layer: Affine, axis: int) -> list[Axis]:
    """The outputs along height (0) or width (1); one axis per phase of a transposed stride."""
    length, out_length = image(layer.shape_in)[1 + axis], image(layer.shape_out)[1 + axis]
    if layer.kind == "dense":
        return [Axis(0, 1, 1, 1, [0], [0], 1)]
    size, stride = layer.kernel[axis], layer.stride[axis]
    padding, dilation = layer.padding[axis], layer.dilation[axis]
    if layer.kind == "conv":
        offsets = [k * dilation - padding for k in range(size)]
        return [Axis(0, 1, out_length, stride, offsets, list(range(size)), length)]
    found, phases = [], layer.phases(axis)
    for phase in range(min(stride, out_length)):
        reached = [(phase + padding - k * dilation, k) for k in phases.get(phase, ())]
        # In ascending order, so that inputs are contiguous. Tap `size` has zeros, for outputs
        # without any weight.
        used = sorted((at // stride, k) for at, k in reached) or [(0, size)]
        count = -(-(out_length - phase) // stride)
        offsets, taps = [at for at, _ in used], [k for _, k in used]
        found.append(Axis(phase, stride, count, 1, offsets, taps, length))
    return found


def in_panels(layer: Affine, tables: Tables) -> bool:
    """Whether the weights are stored in panels, which need uint8 inputs."""
    return tables.vectors and layer.grid_in.dtype == np.uint8


def parts(layer: Affine, tables: Tables) -> list[library.Part]:
    """The matrix products of a layer."""
    out = layer.channels // layer.groups
    # Groups of few outputs share a block, whose other weights are 0: a block costs the same.
    few = min(max(BLOCK // out, 1), layer.groups)
    found = []
    vertical, horizontal = axes(layer, 0), axes(layer, 1)
    for group in range(0, layer.groups, few):
        groups = range(group, min(group + few, layer.groups))
        channels = slice(groups.start * out, groups.stop * out)
        epilogue = packed_tables.epilogue(layer, channels, tables)
        weights = _weights(layer, groups)
        for rows in vertical:
            for columns in horizontal:
                some = weights[:, rows.taps][:, :, columns.taps]
                part = _product(layer, some, tables)
                part.first_in = groups.start * layer.by_output.shape[1]
                part.first_out, part.epilogue = channels.start, epilogue
                _set_windows(part, layer, rows, columns, tables)
                if layer.centred:
                    _set_corrections(part, layer.twice_zero, some, rows, columns, tables)
                found.append(part)
    return found


def scratch(part: library.Part, size: int) -> int:
    """Bytes of gathered windows, of a padded image, and of the gap between them."""
    if part.direct:
        return 0
    padded = part.padded_rows * part.padded_columns * part.inputs * size if part.padded else 0
    return int(part.max_windows * _width(part, size) + 128 + padded)


def _weights(layer: Affine, groups: range) -> Weights:
    """(out, height, width, in) of some groups, with a row and a column of zeros at the end.

    Weights between the outputs of a group and the inputs of another one are zeros, too.
    """
    own = layer.by_output
    out, into = layer.channels // layer.groups, own.shape[1]
    height, width = layer.kernel
    weights = np.zeros(
        (len(groups) * out, height + 1, width + 1, len(groups) * into), dtype=np.int8
    )
    for i, group in enumerate(groups):
        block = own[group * out : (group + 1) * out].transpose(0, 2, 3, 1)
        rows, columns = slice(i * out, (i + 1) * out), slice(i * into, (i + 1) * into)
        weights[rows, :height, :width, columns] = block
    return weights


def _product(layer: Affine, weights: Weights, tables: Tables) -> library.Part:
    outputs, inputs = len(weights), weights.shape[3]
    flat = weights.reshape(outputs, -1)
    largest = int(np.abs(flat.astype(np.int16)).max())
    part = library.Part(
        inputs=inputs,
        outputs=outputs,
        terms=flat.shape[1],
        safe_pairs=32767 // max(2 * layer.grid_in.reach * largest, 1),
    )
    if not in_panels(layer, tables):
        rows = np.concatenate([flat, np.zeros((-outputs % 4, part.terms), np.int8)])
        part.weight_layout, part.weights = ROW_MAJOR, tables.add(rows)
        return part
    rest = outputs % BLOCK
    last = flat[:0]
    if tables.folds and 0 < rest <= BLOCK // 2:
        flat, last = flat[:-rest], flat[-rest:]
        part.fold = 4 if rest <= BLOCK // 4 else 2
        part.tail = tables.add(_folded(last, part.fold))
    # Nibbles save memory traffic where weights are read once; their sums are 16 times as large.
    small = largest <= 7 and 16 * accumulator_bounds(layer, layer.by_output).max() < 2**31
    if layer.kind == "dense" and len(flat) > BLOCK and small:
        part.weight_layout, blocks = PANELS_INT4, _panels(_nibbles(_blocks(flat)), PANEL // 2)
    else:
        part.weight_layout, blocks = PANELS_INT8, _panels(_blocks(flat), PANEL)
        if tables.tiles:  # few windows use the folded block, many the unfolded one
            blocks = np.concatenate([blocks, _blocks(last).ravel()])
    part.weights = tables.add(blocks)
    return part


def _folded(weights: Weights, fold: int) -> Weights:
    """(terms / (4 fold), fold, outputs, 4 terms) from a few (outputs, terms)."""
    outputs, terms = weights.shape
    padded = np.zeros((BLOCK // fold, -(-terms // (4 * fold)) * 4 * fold), np.int8)
    padded[:outputs, :terms] = weights
    split: Weights = padded.reshape(BLOCK // fold, -1, fold, 4).transpose(1, 2, 0, 3)
    return split


def _blocks(weights: Weights) -> Weights:
    """(block, terms / 4, 16 outputs, 4 terms) from (outputs, terms)."""
    outputs, terms = weights.shape
    padded = np.zeros((-(-outputs // BLOCK) * BLOCK, -(-terms // 4) * 4), np.int8)
    padded[:outputs, :terms] = weights
    split: Weights = padded.reshape(-1, BLOCK, padded.shape[1] // 4, 4).swapaxes(1, 2)
    return split


def _nibbles(blocks: Weights) -> Weights:
    """Two blocks in one; a last block without a partner is in the high halves."""
    paired = len(blocks) - len(blocks) % 2
    low, high = blocks[0:paired:2], blocks[1:paired:2]
    return np.concatenate([(low + 8) | (high << 4), blocks[paired:] << 4])


def _panels(blocks: Weights, width: int) -> Weights:
    """``width`` blocks side by side, term by term."""
    starts = range(0, len(blocks), width)
    panels = [blocks[i : i + width].swapaxes(0, 1).ravel() for i in starts]
    return np.concatenate([np.empty(0, np.int8), *panels])


def _width(part: library.Part, size: int) -> int:
    return int(-(-part.terms * size // 16) * 16)


def _set_windows(
    part: library.Part, layer: Affine, rows: Axis, columns: Axis, tables: Tables
) -> None:
    """Where windows start, and how many are gathered at a time."""
    part.direct = layer.kind == "dense"
    size = layer.grid_in.dtype.itemsize
    pixel = part.inputs * size
    part.padded = layer.groups > 1 or any(a.padded > a.length for a in (rows, columns))
    part.padding_top, part.padding_left = rows.before, columns.before
    part.padded_rows, part.padded_columns = rows.padded, columns.padded
    # Multiples of the rows of every path's tiles; those of AMX are larger.
    multiple, least = (32, 32) if tables.tiles else (12, 24)
    fitting = WINDOW_BYTES // _width(part, size) // multiple * multiple
    part.max_windows = (
        MAX_WINDOWS if part.direct else min(max(fitting, least), MAX_WINDOWS // multiple * multiple)
    )
    vertical, horizontal = (np.array(a.offsets, np.int64) + a.before for a in (rows, columns))
    offsets = (vertical[:, None] * part.padded_columns + horizontal) * pixel
    part.segment_bytes = pixel
    if (np.diff(offsets, axis=1) == pixel).all():
        offsets, part.segment_bytes = offsets[:, :1], pixel * len(horizontal)
    part.segments, part.segment_offsets = offsets.size, tables.add(offsets)
    for name, axis, stride in (
        ("rows", rows, rows.stride * part.padded_columns * pixel),
        ("columns", columns, columns.stride * pixel),
    ):
        classes = tables.add(axis.classes[1]) if layer.centred else None
        setattr(part, name, library.Axis(axis.first, axis.step, axis.count, stride, classes))


def _set_corrections(
    part: library.Part,
    twice_zero: int,
    weights: Weights,
    rows: Axis,
    columns: Axis,
    tables: Tables,
) -> None:
    """What a layer with centred inputs subtracts, for every class of windows."""
    # Sums from the first tap to every other: those of a range are differences.
    sums = np.zeros((len(weights), *(n + 1 for n in weights.shape[1:3])), np.int64)
    sums[:, 1:, 1:] = weights.sum(3, dtype=np.int64).cumsum(1).cumsum(2)
    vertical, horizontal = rows.classes[0], columns.classes[0]
    along = np.diff(sums[:, vertical], axis=2)[:, :, 0]
    corrections: NDArray[Any] = np.diff(along[:, :, horizontal], axis=3)[..., 0] * twice_zero
    part.corrections = tables.add(corrections.transpose(1, 2, 0).astype(np.int32))
    part.column_classes = len(horizontal)
