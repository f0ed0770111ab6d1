"""An integer network, and its outputs, in a few lines of text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sudonet._text import aligned, readable
from sudonet.deploy.histograms import blocks
from sudonet.deploy.layers import (
    Affine,
    ChannelThresholds,
    Layer,
    MaxPool,
    RealThresholds,
    Shape,
    SharedThresholds,
)
from sudonet.deploy.network import IntegerNetwork
from sudonet.deploy.sizes import (
    Buffer,
    arena_lines,
    packed_total,
    size_text,
    sizes,
    threshold_bytes,
)

HEADINGS = (
    *("layer", "kind", "output", "unit", "weights", "thresholds"),
    *("stored", "tables", "bytes", "packed", "multiply-adds"),
)
LEFT = 6
THRESHOLDS = {
    ChannelThresholds: "channel",
    SharedThresholds: "shared",
    RealThresholds: "float64",
}
ROWS = 8
"""Outputs that are shown."""
NUMBERS = 10
"""Numbers of an output, and classes, that are shown."""


def by(shape: Shape) -> str:
    """A shape as people write it.

    Examples
    --------
    >>> by((1, 28, 28))
    '1x28x28'
    """
    return "x".join(map(str, shape)) or "one number"


def in_short(network: IntegerNetwork) -> str:
    """Layers, weights and inputs of a network in a few words."""
    weights = sum(layer.weight_bytes for layer in network.layers if isinstance(layer, Affine))
    kind = "real values" if network.inputs.from_examples else f"of {network.inputs.dtype}"
    return (
        f"{len(network.layers)} layers, {readable(weights)} of weights, "
        f"takes {by(network.shape_in)} {kind}"
    )


def listing(
    network: IntegerNetwork, counts: Mapping[int, NDArray[np.int64]] | None = None
) -> list[str]:
    """The layers of a network as a table, with how often each code occurs if that is given."""
    between = sizes(network)
    outputs = between.buffers[1:]
    rows = [_cells(layer, output) for layer, output in zip(network.layers, outputs, strict=True)]
    table = [HEADINGS, *rows, _total(network, outputs)]
    grid = network.inputs
    low, high = grid.values([grid.low, grid.high])
    span = f"{grid.low} to {grid.high} for {low:.6g} to {high:.6g}"
    if grid.from_examples:
        span += " (found from examples: integers are real values)"
    lines = [
        f"input: {by(network.shape_in)}, {grid.dtype} {span}; output: {network.output}",
        *aligned(table, LEFT),
        *arena_lines(between.arena_bytes, between.arena_packed_bytes),
    ]
    if counts is not None:
        used = [
            (network.layers[place].name, f"{np.count_nonzero(c)} of {len(c)}", f"|{blocks(c)}|")
            for place, c in counts.items()
        ]
        lines += ["", *aligned([("layer", "codes used", "how often"), *used], 3)]
    return lines


def _cells(layer: Layer, output: Buffer) -> tuple[str, ...]:
    stored = readable(output.plain_bytes), size_text(output.packed_bytes)
    if not isinstance(layer, Affine):
        kind = "max" if isinstance(layer, MaxPool) else "sum"
        return (layer.name, kind, by(layer.shape_out), *"---", "-", "-", *stored, "-")
    return (
        *(layer.name, layer.kind, by(layer.shape_out)),
        "-" if layer.grid_out is None else layer.after.unit.name,  # type: ignore[union-attr]
        layer.weight_kind,
        THRESHOLDS.get(type(layer.after), "-"),
        *(readable(layer.weight_bytes), readable(threshold_bytes(layer.after))),
        *(*stored, f"{layer.multiply_adds:,}"),
    )


def _total(network: IntegerNetwork, outputs: tuple[Buffer, ...]) -> tuple[str, ...]:
    affine = [layer for layer in network.layers if isinstance(layer, Affine)]
    return (
        *("total", "", "", "", "", ""),
        readable(sum(layer.weight_bytes for layer in affine)),
        readable(sum(threshold_bytes(layer.after) for layer in affine)),
        readable(sum(output.plain_bytes for output in outputs)),
        size_text(packed_total(outputs)),
        f"{sum(layer.multiply_adds for layer in affine):,}",
    )


def described(network: IntegerNetwork, outputs: NDArray[Any]) -> Iterator[str]:
    """A description of a batch of outputs, and the first of them."""
    yield f"{len(outputs):,} outputs of shape {by(outputs.shape[1:])}, {outputs.dtype}"
    rows = outputs.reshape(len(outputs), math.prod(outputs.shape[1:]))
    classes = None
    if network.output == "argmax":
        classes = rows[:, 0]
    elif network.output in ("real", "softmax") and outputs.ndim == 2 and rows.shape[1] > 1:
        classes = rows.argmax(1)
    if classes is not None and len(rows):
        found, times = np.unique(classes, return_counts=True)
        order = np.argsort(-times, kind="stable")[:NUMBERS]
        often = ", ".join(f"{found[i]} ({times[i]:,})" for i in order)
        yield f"largest, and how often: {often}{', ...' if len(found) > NUMBERS else ''}"
    for place, row in enumerate(rows[:ROWS]):
        numbers = " ".join(f"{number:.4g}" for number in row[:NUMBERS])
        more = " ..." if len(row) > NUMBERS else ""
        best = "" if classes is None or network.output == "argmax" else f" -> {classes[place]}"
        yield f"{place}: {numbers}{more}{best}"
    if len(rows) > ROWS:
        yield f"and {len(rows) - ROWS:,} more"
