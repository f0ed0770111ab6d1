"""A layer of weights as the C core reads it (``sudo_part`` of csrc/integer/program.h).

A part is a product of a matrix with windows of the input. A dense layer or a convolution is
one part. A convolution with groups is several, one a group or a few; a transposed one has a
part for every step of its stride, since each meets weights of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sudonet.deploy.layers import Affine, accumulator_bounds, image
from sudonet.deploy.runtime import tables as packed_tables
from sudonet.deploy.runtime.tables import BLOCK, Tables
from sudonet.native import library

PANEL, ROWS = 4, 256
"""SUDO_PANEL and SUDO_ROWS of csrc/integer/program.h."""

LINES, BYTES, NIBBLES = range(3)
"""``sudo_form``."""

GATHERED = 65_536
"""Bytes of windows gathered at a time, about: they stay close to the core."""

Weights = NDArray[np.int8]


@dataclass(frozen=True)
class Axis:
    """Outputs along one axis whose windows meet inputs in the same way.

    Output number m lies at ``first + m * step`` and meets the inputs ``m * stride + offset``,
    each with the weight at the place of the same index.
    """

    first: int
    step: int
    count: int
    stride: int
    offsets: list[int]
    places: list[int]
    length: int

    @property
    def met(self) -> NDArray[np.bool_]:
        """Which taps of every output meet an input."""
        inputs = np.arange(self.count)[:, None] * self.stride + np.array(self.offsets)
        inside: NDArray[np.bool_] = (inputs >= 0) & (inputs < self.length)
        return inside

    @property
    def classes(self) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
        """The different ways to meet the edge, and which of them every output has."""
        ways, which = np.unique(self.met, axis=0, return_inverse=True)
        return ways, which.reshape(-1).astype(np.int32)

    @property
    def before(self) -> int:
        """How far windows reach over the first input."""
        return max(-min(self.offsets), 0)

    @property
    def framed(self) -> int:
        """Inputs, and the zeros that windows reach before and after them."""
        last = (self.count - 1) * self.stride + max(self.offsets)
        return self.before + max(last + 1, self.length)


def axes(layer: Affine, axis: int) -> list[Axis]:
    """The outputs along height (0) or width (1): one kind, or one for each step of a stride."""
    length, made = image(layer.shape_in)[1 + axis], image(layer.shape_out)[1 + axis]
    if layer.kind == "dense":
        return [Axis(0, 1, 1, 1, [0], [0], 1)]
    size, stride = layer.kernel[axis], layer.stride[axis]
    padding, dilation = layer.padding[axis], layer.dilation[axis]
    if layer.kind == "conv":
        offsets = [k * dilation - padding for k in range(size)]
        return [Axis(0, 1, made, stride, offsets, list(range(size)), length)]
    found = []
    for phase in range(min(stride, made)):
        reached = [(phase + padding - k * dilation, k) for k in range(size)]
        # In rising order, so that they lie side by side. Place `size` holds zeros, for outputs
        # that meet no weight at all.
        taps = sorted((at // stride, k) for at, k in reached if at % stride == 0) or [(0, size)]
        count = -(-(made - phase) // stride)
        offsets, places = [at for at, _ in taps], [k for _, k in taps]
        found.append(Axis(phase, stride, count, 1, offsets, places, length))
    return found


def in_panels(layer: Affine, tables: Tables) -> bool:
    """Whether the weights lie in panels, which need uint8 inputs."""
    return tables.vectors and layer.grid_in.dtype == np.uint8


def parts(layer: Affine, tables: Tables) -> list[library.Part]:
    """The products of a layer."""
    out = layer.channels // layer.groups
    # Groups of few outputs share a block, whose other weights are 0: a block costs the same.
    few = min(max(BLOCK // out, 1), layer.groups)
    found = []
    for group in range(0, layer.groups, few):
        groups = range(group, min(group + few, layer.groups))
        channels = slice(groups.start * out, groups.stop * out)
        after = packed_tables.after(layer, channels, tables)
        weights = _weights(layer, groups)
        for rows in axes(layer, 0):
            for columns in axes(layer, 1):
                some = weights[:, rows.places][:, :, columns.places]
                part = _product(layer, some, tables)
                part.first_in = groups.start * layer.by_output.shape[1]
                part.first_out, part.after = channels.start, after
                _set_windows(part, layer, rows, columns, tables)
                if layer.centred:
                    _set_corrections(part, layer.twice_zero, some, rows, columns, tables)
                found.append(part)
    return found


def scratch(part: library.Part, size: int) -> int:
    """Bytes of gathered windows and of a framed image, and of what lies between them."""
    if part.direct:
        return 0
    framed = part.height * part.width * part.inputs * size if part.framed else 0
    return int(part.windows * _width(part, size) + 128 + framed)


def _weights(layer: Affine, groups: range) -> Weights:
    """(out, height, width, in) of some groups, with a row and a column of zeros at the end.

    From the outputs of each group to the inputs of the others there are zeros, too.
    """
    own = layer.by_output
    out, into = layer.channels // layer.groups, own.shape[1]
    height, width = layer.kernel
    weights = np.zeros(
        (len(groups) * out, height + 1, width + 1, len(groups) * into), dtype=np.int8
    )
    for place, group in enumerate(groups):
        here = own[group * out : (group + 1) * out].transpose(0, 2, 3, 1)
        to, of = slice(place * out, (place + 1) * out), slice(place * into, (place + 1) * into)
        weights[to, :height, :width, of] = here
    return weights


def _product(layer: Affine, weights: Weights, tables: Tables) -> library.Part:
    outputs, inputs = len(weights), weights.shape[3]
    flat = weights.reshape(outputs, -1)
    largest = int(np.abs(flat.astype(np.int16)).max())
    part = library.Part(
        inputs=inputs,
        outputs=outputs,
        terms=flat.shape[1],
        pairs=32767 // max(2 * layer.grid_in.reach * largest, 1),
    )
    if not in_panels(layer, tables):
        lines = np.concatenate([flat, np.zeros((-outputs % 4, part.terms), np.int8)])
        part.form, part.weights = LINES, tables.add(lines)
        return part
    rest = outputs % BLOCK
    last = flat[:0]
    if tables.folds and 0 < rest <= BLOCK // 2:
        flat, last = flat[:-rest], flat[-rest:]
        part.fold = 4 if rest <= BLOCK // 4 else 2
        part.tail = tables.add(_folded(last, part.fold))
    # Nibbles save bytes where weights are read once; their sums get 16 times as large.
    small = largest <= 7 and 16 * accumulator_bounds(layer, layer.by_output).max() < 2**31
    if layer.kind == "dense" and len(flat) > BLOCK and small:
        part.form, blocks = NIBBLES, _panels(_nibbles(_blocks(flat)), PANEL // 2)
    else:
        part.form, blocks = BYTES, _panels(_blocks(flat), PANEL)
        if tables.tiles:  # few windows meet the folded block, many meet it as it is
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
    """Where windows lie, and how many are gathered at a time."""
    part.direct = layer.kind == "dense"
    size = layer.grid_in.dtype.itemsize
    pixel = part.inputs * size
    part.framed = layer.groups > 1 or any(a.framed > a.length for a in (rows, columns))
    part.top, part.left = rows.before, columns.before
    part.height, part.width = rows.framed, columns.framed
    # Multiples of the rows of every path's tile; AMX has larger ones.
    tall, least = (32, 32) if tables.tiles else (12, 24)
    fitting = GATHERED // _width(part, size) // tall * tall
    part.windows = ROWS if part.direct else min(max(fitting, least), ROWS // tall * tall)
    down, across = (np.array(a.offsets, np.int64) + a.before for a in (rows, columns))
    starts = (down[:, None] * part.width + across) * pixel
    part.run = pixel
    if (np.diff(starts, axis=1) == pixel).all():
        starts, part.run = starts[:, :1], pixel * len(across)
    part.runs, part.starts = starts.size, tables.add(starts)
    for name, axis, stride in (
        ("rows", rows, rows.stride * part.width * pixel),
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
    """What a layer that takes sums around zero must take away, for every class of windows."""
    sums = weights.astype(np.int64).sum(3)
    down, across = (axis.classes[0].astype(np.int64) for axis in (rows, columns))
    taken: NDArray[Any] = np.einsum("oij,ri,cj->rco", sums, down, across) * twice_zero
    part.corrections = tables.add(taken.astype(np.int32))
    part.column_classes = len(across)
