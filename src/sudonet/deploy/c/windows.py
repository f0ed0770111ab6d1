"""Convolutions of both kinds as rows of weights over windows of the input."""

from __future__ import annotations

from dataclasses import dataclass

from sudonet.deploy.layers import Affine, image


@dataclass(frozen=True)
class Axis:
    """Windows along height or width: which inputs the outputs of a pass see.

    Output ``out_first + n * out_step``, n < outputs, sees the inputs
    ``first + n * step + t * distance``, t < len(taps), with the weight at ``taps[t]``.
    """

    first: int
    step: int
    taps: tuple[int, ...]
    distance: int
    outputs: int
    out_first: int
    out_step: int


@dataclass(frozen=True)
class Pass:
    """Outputs that share a row of weights for each channel."""

    rows: Axis
    columns: Axis

    @property
    def taps(self) -> int:
        return len(self.rows.taps) * len(self.columns.taps)


def passes(layer: Affine) -> list[Pass]:
    """One pass for a convolution; a transposed one has one for every phase of its stride.

    Outputs of one phase meet the same weights: they are an ordinary convolution with a part
    of the kernel.
    """
    return [Pass(rows, columns) for rows in _axes(layer, 0) for columns in _axes(layer, 1)]


def _axes(layer: Affine, axis: int) -> list[Axis]:
    made = image(layer.shape_out)[1 + axis]
    size, stride = layer.kernel[axis], layer.stride[axis]
    padding, dilation = layer.padding[axis], layer.dilation[axis]
    if layer.kind != "transposed":
        return [Axis(-padding, stride, tuple(range(size)), dilation, made, 0, 1)]
    found, phases = [], layer.phases(axis)
    for start in range(min(stride, made)):
        # The first output's input for every weight that meets one, the nearest input first.
        met = sorted(((start + padding - k * dilation) // stride, k) for k in phases.get(start, ()))
        first = met[0][0] if met else 0
        distance = met[1][0] - first if len(met) > 1 else 1
        taps = tuple(k for _, k in met)
        found.append(Axis(first, 1, taps, distance, len(range(start, made, stride)), start, stride))
    return found
