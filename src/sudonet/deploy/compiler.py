"""From a trained model to an integer network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.export import ExportedProgram

from sudonet.deploy.errors import CompileError, no_layer_to_fold_into, not_at_the_end
from sudonet.deploy.given import Kind, check_model, examples_of, grid_of, shape_of, weight_kinds
from sudonet.deploy.grid import Grid
from sudonet.deploy.layers import (
    ACCUMULATOR,
    FIXED,
    Affine,
    After,
    ChannelThresholds,
    Layer,
    MaxPool,
    RealScores,
    RealThresholds,
    Scores,
    SharedThresholds,
    SumPool,
    accumulator_bounds,
)
from sudonet.deploy.network import IntegerNetwork
from sudonet.deploy.quantise import quantise
from sudonet.deploy.steps import (
    Norm,
    Output,
    Pool,
    Products,
    Step,
    Unit,
    exported,
    steps,
)
from sudonet.staircase import Staircase

FEW_LEVELS = 17
"""A unit with at most this many outputs has thresholds for every channel."""

SHARED_ERROR = 2.0**-16
"""How far fixed-point sums may be off, as a share of the unit's narrowest plateau."""


def compile(  # noqa: A001
    model: nn.Module | ExportedProgram,
    weights: Kind | Mapping[str, Kind] = "int8",
    calibration: ArrayLike | Tensor | None = None,
    *,
    inputs: Grid | Sequence[float] | None = None,
    shape: int | Sequence[int] | None = None,
    thresholds: str = "auto",
) -> IntegerNetwork:
    """The integer network that a trained model becomes.

    Parameters
    ----------
    model
        Linear, Conv1d, Conv2d, ConvTranspose2d, BatchNorm, Flatten, pooling and SUDO or
        R-SUDO units, one after another; a tanh, a softmax or an argmax may come last.
        Or the same as a program of :func:`torch.export.export`.
    weights
        ``int8``, ``int4``, ``ternary``, ``binary`` or ``float32``, which leaves them as they
        are; or a mapping from a layer's path in the model to one of these (``int8`` for
        layers that it does not name). ``torch.int8`` and ``torch.float32`` will do.
    calibration
        Examples of inputs, a batch of real values of any type. They give the shape of an input
        and, without ``inputs``, its range. The network takes the same array and means the
        same: integers are real values to it, too.
    inputs
        What the input's integers stand for; ``Grid.of_range(0, 1)`` or ``(0, 1)`` declares that
        uint8 pixels stand for 0 to 1, as a model needs them that was trained on such values.
    shape
        Of one example; not needed with ``calibration`` or if the first layer is a Linear.
    thresholds
        ``channel``: exact integers for every channel; ``shared``: one table a layer and
        fixed-point sums, smaller for many levels; ``auto``: the first up to 17 outputs. Layers
        whose channels differ so much in scale that fixed point is not precise enough get
        ``channel`` in any case.

    Examples
    --------
    >>> from torch import nn
    >>> import sudonet
    >>> model = nn.Sequential(nn.Linear(4, 3), sudonet.SUDO(16), nn.Linear(3, 2))
    >>> network = compile(model, inputs=Grid.of_range(-1, 1))
    >>> network(np.zeros((5, 4), np.uint8)).shape
    (5, 2)
    """
    if thresholds not in ("auto", "channel", "shared"):
        raise ValueError(f"thresholds must be auto, channel or shared, got {thresholds!r}")
    check_model(model, program=True)
    examples = examples_of(calibration)
    grid = grid_of(inputs, examples)
    if not isinstance(model, ExportedProgram):
        model = exported(model, shape_of(model, shape, examples))
    shape_in, found = steps(model)
    chain = _arranged(found)
    kinds = weight_kinds(weights, [s.path for s in chain if isinstance(s, Products)])
    layers: list[Layer] = []
    output, current = "real", grid
    for place, step in enumerate(chain):
        if isinstance(step, Pool):
            layers.append(_pooling(step, current))
        elif isinstance(step, Products):
            following = chain[place + 1] if place + 1 < len(chain) else None
            unit = following.staircase if isinstance(following, Unit) else None
            layers.append(_affine(step, kinds[step.path], current, unit, thresholds))
            output = "real" if unit is None else "codes"
        elif isinstance(step, Output):
            output = step.kind
        if layers and layers[-1].grid_out is not None:
            current = layers[-1].grid_out
    return IntegerNetwork(grid, shape_in, tuple(layers), output)


def _arranged(found: list[Step]) -> list[Step]:
    """Norms folded into the layer before them, maxima moved behind units, the order checked."""
    chain: list[Step] = []
    for step in found:
        last = chain[-1] if chain else None
        if isinstance(step, Norm):
            if not isinstance(last, Products):
                pooling = last.path if isinstance(last, Pool) and last.kind == "max" else None
                raise no_layer_to_fold_into(step.path, pooling, bool((step.factor > 0).all()))
            chain[-1] = _folded(last, step)
        elif (
            isinstance(step, Unit)
            and isinstance(last, Pool)
            and last.kind == "max"
            and (len(chain) > 1 and isinstance(chain[-2], Products))
        ):
            # Units are monotonic, so the largest code is the code of the largest sum.
            chain[-1:] = [step, last]
        else:
            chain.append(step)
    for place, step in enumerate(chain):
        before = chain[place - 1] if place else None
        if isinstance(before, Output):
            raise not_at_the_end(before.path, before.kind, getattr(step, "kind", ""))
        if isinstance(step, Unit) and not isinstance(before, Products):
            raise CompileError(f"{step.path} must follow a Linear or a convolution")
        if isinstance(step, Unit) and Grid.of_unit(step.staircase).high > 255:
            raise CompileError(
                f"{step.path} is {step.staircase}, whose levels do not fit into a byte: use at "
                "most 256"
            )
        if isinstance(step, Products | Pool) and 0 in step.shape_out:
            raise CompileError(f"{step.path} has an empty output, of shape {step.shape_out}")
        if isinstance(step, Products | Pool) and isinstance(before, Products):
            raise CompileError(
                f"there is no unit between {before.path} and {step.path}: put SUDO(16) there"
            )
    if not chain or not any(isinstance(s, Products) for s in chain):
        raise CompileError("the model has nothing to compile: no Linear and no convolution")
    if isinstance(chain[-1], Output) and not isinstance(chain[-2], Products):
        raise CompileError(f"{chain[-1].path} must follow a Linear or a convolution")
    if isinstance(chain[-1], Pool):
        raise CompileError(f"{chain[-1].path} cannot be the end: put it before the last layer")
    return chain


def _folded(layer: Products, norm: Norm) -> Products:
    if norm.factor.shape != layer.bias.shape:
        raise CompileError(
            f"{norm.path} normalises {norm.factor.size} features, but {layer.path} has "
            f"{layer.bias.size} channels: put it before Flatten"
        )
    shape = [1] * layer.weights.ndim
    if layer.kind == "transposed":
        if layer.groups != 1:
            raise CompileError(f"{norm.path} after a transposed convolution needs groups=1")
        shape[1] = -1
    else:
        shape[0] = -1
    return replace(
        layer,
        weights=layer.weights * norm.factor.reshape(shape),
        bias=layer.bias * norm.factor + norm.constant,
    )


def _pooling(step: Pool, grid: Grid) -> MaxPool | SumPool:
    if step.kind == "max":
        return MaxPool(
            step.path, step.kernel, step.stride, step.padding, step.shape_in, step.shape_out, grid
        )
    return SumPool(step.path, step.kernel, step.stride, step.shape_in, step.shape_out, grid)


def _affine(
    step: Products, kind: str, grid: Grid, unit: Staircase | None, thresholds: str
) -> Affine:
    over_the_edge = step.kind == "transposed" or step.padding != (0, 0)
    centred = over_the_edge and grid.zero != 0
    if centred and 2 * grid.zero != round(2 * grid.zero):
        raise CompileError(
            f"{step.path} pads with 0, and no integer of the input stands for 0: take "
            "Grid.calibrated(examples) for inputs, or a range from 0, or one around 0"
        )
    layer = Affine(
        name=step.path,
        kind=step.kind,
        weights=step.weights.astype(np.float32),
        weight_kind=kind,
        shape_in=step.shape_in,
        shape_out=step.shape_out,
        grid_in=grid,
        after=RealScores(1.0, step.bias),
        stride=step.stride,
        padding=step.padding,
        dilation=step.dilation,
        output_padding=step.output_padding,
        groups=step.groups,
        centred=centred,
        twice_zero=round(2 * grid.zero) if centred else 0,
    )
    factor = grid.scale / 2 if centred else grid.scale
    if kind == "float32":
        whole = layer.by_output.astype(np.float64).reshape(layer.channels, -1).sum(1)
        constant = step.bias if centred else step.bias - grid.scale * grid.zero * whole
        after: After = (
            RealThresholds(unit, factor, constant) if unit else RealScores(factor, constant)
        )
        return replace(layer, after=after)
    by_output = replace(layer, weights=step.weights).by_output
    integers, scales = quantise(by_output.astype(np.float64), kind)
    whole = integers.reshape(layer.channels, -1).astype(np.float64).sum(1)
    sums = _Sums(scales * factor, np.zeros(len(whole)) if centred else grid.zero * whole, step.bias)
    bounds = accumulator_bounds(layer, integers)
    if bounds.max() >= ACCUMULATOR:
        raise CompileError(
            f"{step.path} can reach {int(bounds.max()):,}, which 32 bits do not hold: it adds up "
            f"{integers[0].size:,} products of inputs up to {grid.reach:,}; use fewer inputs, "
            "fewer levels, or weights with fewer bits"
        )
    few = thresholds == "auto" and unit is not None and unit.outputs <= FEW_LEVELS
    exact = unit is not None and (few or thresholds == "channel")
    fixed = None if exact else _fixed_point(step.path, unit, sums, bounds)
    if unit and (fixed is None or not _precise(fixed, unit, sums, bounds)):
        after = ChannelThresholds(unit, _tables(unit.thresholds, sums, bounds))
    else:
        assert fixed is not None
        after = fixed
    return replace(layer, weights=_as_stored(layer, integers), after=after)


def _as_stored(layer: Affine, by_output: NDArray[np.int8]) -> NDArray[np.int8]:
    """Weights of (out, in / groups, ...) in the layout of the layer's kind."""
    if layer.kind == "dense":
        return by_output[:, :, 0, 0]
    if layer.kind == "conv":
        return by_output
    out, into, height, width = by_output.shape
    split = by_output.reshape(layer.groups, out // layer.groups, into, height, width)
    return np.ascontiguousarray(
        split.swapaxes(1, 2).reshape(layer.groups * into, out // layer.groups, height, width)
    )


@dataclass(frozen=True)
class _Sums:
    """What the accumulators of each channel stand for: ``slope * (n - shift) + bias``.

    In this form a sum of exactly 0 stays 0: with an even number of levels it lies on a
    threshold, and must not be rounded across it.
    """

    slope: NDArray[np.float64]
    shift: NDArray[np.float64]
    bias: NDArray[np.float64]


def _tables(
    thresholds: NDArray[np.float64], sums: _Sums, bounds: NDArray[np.float64]
) -> NDArray[np.int32]:
    """For every channel and threshold the largest accumulator that does not pass it."""
    ends = bounds[:, None] + 1
    slope, shift, bias = (x[:, None] for x in (sums.slope, sums.shift, sums.bias))
    with np.errstate(over="ignore"):
        table = np.clip(np.floor((thresholds - bias) / slope + shift), -ends, ends)
    # The quotient may be off by a rounding error: correct it by the comparison itself.
    for _ in range(2):
        table += slope * (table + 1 - shift) + bias <= thresholds
    for _ in range(2):
        table -= slope * (table - shift) + bias > thresholds
    clipped: NDArray[np.int32] = np.clip(table, -ACCUMULATOR, ACCUMULATOR - 1).astype(np.int32)
    return clipped


def _fixed_point(
    path: str, unit: Staircase | None, sums: _Sums, bounds: NDArray[np.float64]
) -> SharedThresholds | Scores:
    """Factors of 31 bits or fewer, such that no fixed-point number overflows 64 bits."""
    tops = unit.thresholds if unit is not None else np.zeros(1)
    reach = sums.slope * (bounds + np.abs(sums.shift)) + np.abs(sums.bias)
    # Below this the fraction is 62 in any case; all weights may be 0.
    largest = max(float(reach.max()), float(np.abs(tops).max()), 2.0**-62)
    if not np.isfinite(largest):
        raise CompileError(f"{path} has weights or biases that are not finite: train it again")
    room = min(np.log2((ACCUMULATOR - 1) / sums.slope.max()), np.log2(FIXED / largest))
    fraction = min(int(np.floor(room)), 62)
    if fraction < 0:
        raise CompileError(
            f"{path} has sums up to {largest:.3g}, too large for fixed point: scale the model down"
        )
    factor = np.clip(np.rint(np.ldexp(sums.slope, fraction)), 1, ACCUMULATOR - 1)
    added = _whole(np.ldexp(sums.bias, fraction)) - _whole(factor * sums.shift)
    if unit is None:
        return Scores(factor.astype(np.int32), added, fraction)
    table = np.floor(np.ldexp(unit.thresholds, fraction)).astype(np.int64)
    return SharedThresholds(unit, factor.astype(np.int32), added, table, fraction)


def _precise(
    fixed: SharedThresholds | Scores, unit: Staircase, sums: _Sums, bounds: NDArray[np.float64]
) -> bool:
    """Whether codes can differ from exact ones only within SHARED_ERROR of a threshold.

    A factor that is off by a share r moves a sum y by ``r * |y - bias|``, and near a threshold
    t that is at most ``r * (|t| + |bias|)``. The rest is the rounding of the constant, of its
    product and of the table. Channels whose slope is far below the largest one have short
    factors, and so a large r.
    """
    thresholds = unit.thresholds
    narrowest = np.diff(thresholds).min(initial=1.0)
    share = np.abs(np.ldexp(fixed.factor.astype(np.float64), -fixed.fraction) / sums.slope - 1)
    reach = sums.slope * (bounds + np.abs(sums.shift))
    off = share * np.minimum(reach, np.abs(thresholds).max() + np.abs(sums.bias))
    off += np.ldexp(2.0, -fixed.fraction) + np.ldexp(np.abs(sums.slope * sums.shift), -52)
    return bool(off.max() <= SHARED_ERROR * narrowest)


def _whole(values: NDArray[np.float64]) -> NDArray[np.int64]:
    rounded: NDArray[np.int64] = np.rint(values).astype(np.int64)
    return rounded
