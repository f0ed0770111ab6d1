"""The staircase and its derivative: in the C core, or in ordinary PyTorch operations.

float32 tensors on the CPU go to the C core where there is one. Without it, large tensors are
processed block by block, in scratch buffers that stay in cache: a formula estimates the code, and
the few inputs that are too close to a threshold for the estimate are compared with the thresholds.
The result equals :class:`~sudonet.staircase.Staircase` in every bit. Other devices, and small
tensors, look thresholds and values up.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sudonet import native
from sudonet.native.library import UNDERLYING, Core, Unit
from sudonet.staircase import Staircase

BLOCK = 32_768
"""Elements of a block for each thread: three float32 buffers of it stay in L2."""

SMALL = 4096
"""Elements up to which a look-up costs less than the calls that a block needs."""

_NUMPY: dict[torch.dtype, np.dtype[np.floating[Any]]] = {
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
}


def forward(x: Tensor, unit: Staircase) -> Tensor:
    """The unit's output for every input; the layout in memory is kept."""
    if x.dtype is torch.float32 and (core := _core_for(x)):
        out = torch.empty_like(x)
        x = _laid_out_like(out, x)
        address, _kept = native_unit(unit)  # until C is done with it
        threads = torch.get_num_threads()
        core.functions.sudo_forward(
            core.path_number, address, x.data_ptr(), out.data_ptr(), x.numel(), threads
        )
        return out
    if x.dtype not in _NUMPY:
        return forward(x.float(), unit).to(x.dtype)
    if x.device.type != "cpu" or x.numel() <= SMALL:
        return _looked_up(x, unit)
    out = torch.empty_like(x)
    flat_out, flat_x = _flat(out, x)
    _estimate_and_correct(flat_x, flat_out, unit)
    return out


def backward(grad: Tensor, x: Tensor, unit: Staircase) -> Tensor:
    """``grad`` times the derivative of the underlying function at ``x``."""
    if x.dtype is grad.dtype is torch.float32 and (core := _core_for(x)):
        out = torch.empty_like(x)
        x, grad = _laid_out_like(out, x), _laid_out_like(out, grad)
        address, _kept = native_unit(unit)
        core.functions.sudo_backward(
            core.path_number,
            address,
            grad.data_ptr(),
            x.data_ptr(),
            out.data_ptr(),
            x.numel(),
            torch.get_num_threads(),
        )
        return out
    if x.dtype not in _NUMPY:
        return backward(grad.float(), x.float(), unit).to(x.dtype)
    if x.device.type != "cpu":
        return torch.empty_like(x).copy_(grad * slope(x, unit))
    out = torch.empty_like(x)
    flat_out, flat_x, flat_grad = _flat(out, x, grad)
    for begin, end, scratch in _blocks(flat_x, 1):
        _slope_times(flat_grad[begin:end], flat_x[begin:end], scratch[0], flat_out[begin:end], unit)
    return out


def slope(x: Tensor, unit: Staircase) -> Tensor:
    """Derivative of the underlying function, differentiable itself."""
    if unit.underlying == "tanh":
        result = 1 - torch.tanh(x).square()
    elif unit.underlying == "sigmoid":
        result = torch.sigmoid(x) * torch.sigmoid(-x)
    else:
        low, high = unit.ramp
        inside = ((x > low) & (x < high)).to(x.dtype)
        result = torch.where(x.isnan(), x, inside)
    return torch.where(x < 0, 0.0, result) if unit.rectified else result


def curvature(x: Tensor, unit: Staircase) -> Tensor:
    """Second derivative of the underlying function, differentiable itself."""
    if unit.underlying == "tanh":
        return -2 * torch.tanh(x) * slope(x, unit)
    if unit.underlying == "sigmoid":
        return (1 - 2 * torch.sigmoid(x)) * slope(x, unit)
    return torch.where(x.isnan(), x, torch.zeros_like(x))


def _looked_up(x: Tensor, unit: Staircase) -> Tensor:
    thresholds, values = _tables(unit, x.dtype, x.device)
    found = values[torch.bucketize(x.contiguous(), thresholds)]
    return torch.empty_like(x).copy_(torch.where(x.isnan(), x, found))


@lru_cache(maxsize=64)
def _tables(unit: Staircase, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    thresholds, values = unit.narrowed(_NUMPY[dtype])
    return torch.tensor(thresholds, device=device), torch.tensor(values, device=device)


def _core_for(x: Tensor) -> Core | None:
    # A tensor whose storage was freed has no address: torch's operations say so.
    freed = not x.data_ptr() and x.numel() and not x._is_zerotensor()
    return native.core() if x.device.type == "cpu" and not freed else None


@lru_cache(maxsize=1024)
def native_unit(unit: Staircase) -> tuple[int, Unit]:
    """The unit as the C core reads it: its address, and the structure to keep alive."""
    thresholds, values = unit.narrowed(np.float32)
    stretch, scale, offset = _position(unit)
    centre, span = _centre(unit)
    tolerance = _tolerance(unit, np.dtype(np.float32))
    structure = Unit(
        underlying=UNDERLYING[unit.underlying],
        rectified=unit.rectified,
        count=len(thresholds),
        thresholds=thresholds.ctypes.data,
        values=values.ctypes.data,
        stretch=stretch,
        scale=scale,
        offset=offset,
        low=0.5,  # the middle of the first and of the last plateau: always certain
        high=unit.levels - 0.5,
        tolerance=tolerance,
        centre=centre,
        factor=6 if unit.underlying == "relu6" else 1,
        span=span,
    )
    structure.tables = thresholds, values
    return ctypes.addressof(structure), structure


def _laid_out_like(out: Tensor, t: Tensor) -> Tensor:
    # a lazily negated tensor's memory holds the opposite, and lazy zeros have no memory
    as_is = t.stride() == out.stride() and not t.is_neg() and not t._is_zerotensor()
    return t if as_is else torch.empty_like(out).copy_(t)


def _flat(out: Tensor, *inputs: Tensor) -> list[Tensor]:
    """One-dimensional views in the order of ``out`` in memory."""
    alike = [_laid_out_like(out, t) for t in inputs]
    return [t.as_strided((out.numel(),), (1,)) for t in (out, *alike)]


def _tolerance(unit: Staircase, dtype: np.dtype[np.floating[Any]]) -> float:
    """How close to a threshold, in plateaus, an estimate is uncertain.

    Its error is a few units in the last place of ``levels``; 16 is ample.
    """
    return 16 * unit.levels * float(np.finfo(dtype).eps)


def _blocks(x: Tensor, buffers: int) -> list[tuple[int, int, list[Tensor]]]:
    """Bounds of cache-sized blocks, each with its scratch buffers."""
    step = BLOCK * torch.get_num_threads()
    length = min(step, len(x))
    scratch = [x.new_empty(length) for _ in range(buffers)]
    return [
        (begin, min(begin + step, len(x)), [s[: len(x) - begin] for s in scratch])
        for begin in range(0, len(x), step)
    ]


def _estimate_and_correct(x: Tensor, out: Tensor, unit: Staircase) -> None:
    levels, dtype = unit.levels, x.dtype
    numpy_dtype = _NUMPY[dtype]
    thresholds, values = unit.narrowed(numpy_dtype)
    stretch, scale, offset = _position(unit)
    constant = torch.tensor(offset, dtype=dtype)
    tolerance = _tolerance(unit, numpy_dtype)
    centre, half_span = _centre(unit)
    x_numpy, out_numpy = x.numpy(), out.numpy()
    for begin, end, (position, distance) in _blocks(x, 2):
        if stretch:
            torch.mul(x[begin:end], stretch, out=position).sigmoid_()
            torch.add(constant, position, alpha=scale, out=position)
        else:
            torch.add(constant, x[begin:end], alpha=scale, out=position)
        # Plateau k of 1..L is the half-open interval (k-1, k] of positions. Saturated
        # inputs go to the middle of the first or the last one, where the estimate is certain.
        position.clamp_(0.5, levels - 0.5)
        torch.ceil(position, out=distance)
        code = out[begin:end].copy_(distance)
        distance.sub_(position).sub_(0.5).abs_()
        code.sub_(centre)
        if unit.underlying == "relu6":
            code.mul_(6)
        code.div_(half_span)
        if unit.rectified:
            code.clamp_(min=0)
        uncertain = np.flatnonzero(distance.numpy() > 0.5 - tolerance) + begin
        if uncertain.size:
            out_numpy[uncertain] = values[np.searchsorted(thresholds, x_numpy[uncertain])]


def _position(unit: Staircase) -> tuple[float, float, float]:
    """(stretch, scale, offset): the position of x on the plateaus, from 0 to ``levels``.

    The position is scale * f + offset, with f = sigmoid(stretch * x), or x itself
    where stretch is 0. tanh is a stretched sigmoid, (tanh x + 1) / 2 = sigmoid(2x),
    and costs less that way.
    """
    levels = unit.levels
    full = unit.placement == "full"
    if unit.underlying == "tanh":
        return (2.0, 2.0 * levels, -float(levels)) if full else (2.0, levels, 0.0)
    if unit.underlying == "sigmoid":
        return 1.0, levels, 0.0
    if unit.underlying == "relu6":
        return 0.0, levels / 6, 0.0
    return (0.0, levels, 0.0) if full else (0.0, levels / 2, levels / 2)


def _centre(unit: Staircase) -> tuple[float, float]:
    """(c, s) with value = (k - c) / s for plateau k of 1..L; both are exact in float32.

    A quotient of two exact numbers is rounded once, like the float64 quotient: so these are
    exactly the narrowed values of the staircase.
    """
    levels = unit.levels
    if unit.underlying in ("tanh", "hardtanh") and unit.placement != "full":
        return (levels + 1) / 2, (levels - 1) / 2
    return 1.0, levels - 1.0


def _slope_times(grad: Tensor, x: Tensor, scratch: Tensor, out: Tensor, unit: Staircase) -> None:
    if unit.underlying in ("tanh", "sigmoid"):
        # s(1-s) = e / (1+e)^2 with e = exp(-|x|) keeps its digits in the tails; and torch
        # rounds exp, unlike the sigmoid, the same wherever in a tensor a number stands.
        stretch = 2 if unit.underlying == "tanh" else 1
        torch.abs(x, out=scratch).mul_(-stretch).exp_()
        torch.mul(grad, scratch, out=out)
        if stretch == 2:
            out.mul_(4)
        out.div_(scratch.add_(1).square_())
    else:
        low, high = unit.ramp
        torch.ops.aten.hardtanh_backward.grad_input(grad, x, low, high, grad_input=out)
        torch.where(x.isnan(), x, out, out=out)
    if unit.rectified:
        out.masked_fill_(x < 0, 0)
