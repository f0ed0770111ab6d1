"""Memory and work of an integer network, planned from its shapes before anything is allocated.

A few hundred bytes of a file can describe a network that would take all of a machine. The plan
counts what the C core, the reference and the listing allocate, rounded up; one example at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sudonet._text import readable
from sudonet.deploy.checks import ArtefactError
from sudonet.deploy.layers import (
    Affine,
    ChannelThresholds,
    Layer,
    SharedThresholds,
    image,
)
from sudonet.deploy.reference import example_bytes

if TYPE_CHECKING:
    from sudonet.deploy.network import IntegerNetwork

WAY_OUT = "raise it by max_bytes= or --max-memory if you trust the file"

LIMIT = 2**31
"""Bytes that a network may take, unless another limit is given."""

WORK_PER_BYTE = 512
"""Multiply-adds of an example that are allowed for each byte of the limit."""

BLOCK = 16
"""Outputs that the C core computes together."""

PART, PART_WORK = 4096, 2**22
"""Bytes of a part of the C core with its tables, and the multiply-adds that making it is worth."""

WINDOWS = 2**16, 32
"""Bytes of gathered windows, about, and how many windows there are at least."""

ACTIVATIONS = 3 * 2**17
"""Bytes of activations that the C core keeps, at least."""


@dataclass(frozen=True)
class Need:
    """Bytes of a layer: those that stay, and those that it takes while it is made or run."""

    kept: int
    passing: int


def check_memory(network: IntegerNetwork, max_bytes: int, *, by_reference: bool = False) -> None:
    """Raise an ArtefactError if a network that passed ``checks.check`` exceeds a limit.

    Parameters
    ----------
    network
        The network.
    max_bytes
        The limit.
    by_reference
        The network is to be run by the reference.
    """
    needed = needed_bytes(network, by_reference=by_reference)
    if needed > max_bytes:
        raise too_large(needed, max_bytes)
    done, most = sum(map(work, network.layers)), WORK_PER_BYTE * max_bytes
    if done > most:
        raise ArtefactError(
            f"an example takes the work of {done:,} multiply-adds and the limit is {most:,}, "
            f"{WORK_PER_BYTE} for each byte of memory: {WAY_OUT}"
        )


def too_large(needed: int, max_bytes: int) -> ArtefactError:
    """The error for a network that would take more than the limit."""
    return ArtefactError(f"it needs {exceeded(needed, max_bytes)}")


def exceeded(needed: int, max_bytes: int) -> str:
    """What is needed, the limit, and the way out."""
    return (
        f"{needed:,} bytes of memory ({readable(needed)}) and the limit is {max_bytes:,} "
        f"({readable(max_bytes)}): {WAY_OUT}"
    )


def needed_bytes(network: IntegerNetwork, *, by_reference: bool = False) -> int:
    """Bytes that loading a network, listing it and running one example take, rounded up."""
    ends = math.prod(network.shape_in) + math.prod(network.layers[-1].shape_out)
    needs = [_need(layer) for layer in network.layers]
    passing = max(need.passing for need in needs)
    if by_reference or any(_has_reals(layer) for layer in network.layers):
        passing = max(passing, example_bytes(network.layers))
    return sum(need.kept for need in needs) + passing + _buffers(network.layers) + 32 * ends


def _has_reals(layer: Layer) -> bool:
    return isinstance(layer, Affine) and layer.weight_kind == "float32"


def _buffers(layers: Sequence[Layer]) -> int:
    """Bytes between the layers: two buffers that take turns."""
    numbers = [math.prod(layer.shape_in) * layer.grid_in.dtype.itemsize for layer in layers]
    return 2 * max(ACTIVATIONS, 8 * math.prod(layers[-1].shape_out), *numbers)


def work(layer: Layer) -> int:
    """Multiply-adds of the C core, which multiplies padding, too; comparisons of a pooling."""
    if isinstance(layer, Affine):
        taps = _taps(layer, 0) * _taps(layer, 1) * _group_inputs(layer)
        return math.prod(layer.shape_out) * taps + PART_WORK * _parts(layer)
    _, *size = image(layer.shape_in)
    windows = math.prod(min(k, n) for k, n in zip(layer.kernel, size, strict=True))
    return windows * math.prod(layer.shape_out)


def _groups(layer: Affine) -> tuple[int, int]:
    """Blocks of groups that share a part, and the groups in each."""
    together = min(max(BLOCK // (layer.channels // layer.groups), 1), layer.groups)
    return -(-layer.groups // together), together


def _group_inputs(layer: Affine) -> int:
    """Input channels of an output."""
    return image(layer.shape_in)[0] // layer.groups


def _phases(layer: Affine, axis: int) -> int:
    """Parts along an axis: transposed layers have one for every phase of their stride."""
    made = image(layer.shape_out)[1 + axis]
    return min(layer.stride[axis], made) if layer.kind == "transposed" else 1


def _parts(layer: Affine) -> int:
    return _groups(layer)[0] * _phases(layer, 0) * _phases(layer, 1)


def _need(layer: Layer) -> Need:
    if not isinstance(layer, Affine):
        return Need(PART, 4 * image(layer.shape_out)[0] * image(layer.shape_out)[2])
    blocks, together = _groups(layer)
    parts = _parts(layer)
    outputs = _up(together * layer.channels // layer.groups, BLOCK)
    inputs = together * _group_inputs(layer)
    places = math.prod(layer.kernel)
    stored = layer.weights.nbytes * (2 if layer.kind == "transposed" else 1)
    # The last outputs are packed twice, and every phase's row to a multiple of 16 weights.
    packed = (outputs + BLOCK) * (blocks * places * inputs + BLOCK * parts)
    table = _thresholds(layer) * blocks * outputs
    ends, corrections = _classes(layer)
    kept = (
        *(stored, packed, PART * parts, 8 * table),
        *(8 * blocks * places, 4 * parts * (ends + corrections * outputs)),
    )
    # Weights with a row and a column of zeros, and copies of them in wider types.
    widened = math.prod(n + 1 for n in layer.kernel) + 8 * places
    passing = (
        *(widened * outputs * inputs, 2 * layer.weights.nbytes, 64 * table),
        *(256 * sum(layer.kernel) + 64 * places, 160 * ends + 48 * corrections * outputs),
        _scratch(layer, inputs),
    )
    return Need(sum(kept), sum(passing))


def _thresholds(layer: Affine) -> int:
    """Numbers in the table of a channel."""
    if isinstance(layer.after, ChannelThresholds):
        return int(layer.after.table.shape[1])
    return 4 + isinstance(layer.after, SharedThresholds)


def _taps(layer: Affine, axis: int) -> int:
    """Places of the kernel that an output meets along an axis, at most."""
    if layer.kind != "transposed":
        return layer.kernel[axis]
    stride = layer.stride[axis]
    return -(-layer.kernel[axis] // (stride // math.gcd(stride, layer.dilation[axis])))


def _classes(layer: Affine) -> tuple[int, int]:
    """Outputs along the axes of a part, and its corrections for a channel, if centred."""
    if not layer.centred:
        return 0, 0
    counts = [-(-image(layer.shape_out)[1 + a] // _phases(layer, a)) for a in (0, 1)]
    distinct = [min(count, 2 * _taps(layer, a) + 1) for a, count in enumerate(counts)]
    return sum(counts), math.prod(distinct)


def _scratch(layer: Affine, inputs: int) -> int:
    """Bytes of gathered windows and of a padded image in the C core."""
    size = layer.grid_in.dtype.itemsize
    width = _up(_taps(layer, 0) * _taps(layer, 1) * inputs * size, BLOCK)
    padded = math.prod(_padded(layer, axis) for axis in (0, 1)) * inputs * size
    return max(WINDOWS[0], WINDOWS[1] * width) + padded


def _padded(layer: Affine, axis: int) -> int:
    length, made = image(layer.shape_in)[1 + axis], image(layer.shape_out)[1 + axis]
    stride, padding = layer.stride[axis], layer.padding[axis]
    reach = layer.dilation[axis] * (layer.kernel[axis] - 1)
    if layer.kind != "transposed":
        return max((made - 1) * stride + reach + 1, length + padding)
    before = -(-max(reach - padding, 0) // stride) + 1
    return before + max(-(-made // stride) + padding // stride + 1, length)


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
