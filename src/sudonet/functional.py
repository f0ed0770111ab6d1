"""SUDO and R-SUDO as functions: staircase forward, underlying derivative backward.

Both are one registered operator, ``torch.ops.sudonet.staircase(x, unit)``, whose
second argument is the unit's name. A traced or exported graph therefore says
which unit it uses, and autograd, vmap and the compiler treat it as they treat
PyTorch's own operators.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from sudonet import _kernels
from sudonet.staircase import Staircase

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)

_unit = lru_cache(maxsize=1024)(Staircase.parse)


def sudo(x: Tensor, levels: int, underlying: str = "tanh") -> Tensor:
    """Discrete activation with ``levels`` output values.

    Forward: the plateau of u(x), ``-1 + 2k/(L-1)`` over tanh, where k counts the
    thresholds below x. Backward: u'(x), as if there were no staircase.
    Section 2 of the paper; see :class:`sudonet.Staircase` for all formulas.

    Parameters
    ----------
    x
        A floating-point tensor of any shape. Half types are computed in float32
        and rounded once. NaN stays NaN.
    levels
        L, an integer from 2 to 65,536.
    underlying
        ``"tanh"``, ``"sigmoid"``, ``"relu6"`` or ``"hardtanh"``.

    Examples
    --------
    >>> sudo(torch.tensor([-3.0, -0.2, 0.0, 0.2, 3.0]), 4)
    tensor([-1.0000, -0.3333, -0.3333,  0.3333,  1.0000])
    >>> x = torch.tensor(0.0, requires_grad=True)
    >>> sudo(x, 2).backward()
    >>> x.grad
    tensor(1.)
    """
    return apply(x, Staircase(levels, underlying))


def rsudo(x: Tensor, levels: int, underlying: str = "tanh", placement: str = "paper") -> Tensor:
    """Rectified discrete activation: 0 for x <= 0, no derivative for x < 0.

    Appendix of the paper. ``placement="paper"`` keeps the positive levels of
    :func:`sudo`, L/2 + 1 outputs for even L; ``"full"`` places all L levels at or
    above 0.

    Parameters
    ----------
    x
        A floating-point tensor of any shape.
    levels
        L, an integer from 2 to 65,536.
    underlying
        ``"tanh"``, ``"relu6"`` or ``"hardtanh"``.
    placement
        ``"paper"`` or ``"full"``.

    Examples
    --------
    >>> rsudo(torch.tensor([-3.0, 0.0, 0.2, 3.0]), 4)
    tensor([0.0000, 0.0000, 0.3333, 1.0000])
    """
    return apply(x, Staircase(levels, underlying, rectified=True, placement=placement))


def apply(x: Tensor, unit: Staircase) -> Tensor:
    """The output of ``unit`` for every element of ``x``.

    Examples
    --------
    >>> apply(torch.tensor([0.3, 0.4]), Staircase(3))
    tensor([0., 1.])
    """
    if not isinstance(x, Tensor):
        if isinstance(x, torch.fx.Proxy):
            return _forward_op(x, unit.name)
        raise TypeError(f"x must be a torch.Tensor, got {type(x).__name__}")
    if x.dtype not in DTYPES:
        names = ", ".join(str(d).removeprefix("torch.") for d in DTYPES)
        raise TypeError(f"x must be one of {names}, got {x.dtype}: convert it with x.float()")
    result: Tensor
    if torch.compiler.is_compiling() or torch._C._is_tracing():
        result = _forward_op(x, unit.name)
    elif plain(x):
        result = _eager(x, unit)
    else:
        result = _Staircase.apply(x, unit.name)
    return result


_library = torch.library.Library("sudonet", "DEF")
_library.define("staircase(Tensor x, str unit) -> Tensor")
_library.define("staircase_backward(Tensor grad, Tensor x, str unit) -> Tensor")
_forward_op = torch.ops.sudonet.staircase.default
_backward_op = torch.ops.sudonet.staircase_backward.default


@torch.library.impl(_library, "staircase", "CompositeExplicitAutograd")
def _(x: Tensor, unit: str) -> Tensor:
    return _kernels.forward(x, _unit(unit))


@torch.library.impl(_library, "staircase_backward", "CompositeExplicitAutograd")
def _(grad: Tensor, x: Tensor, unit: str) -> Tensor:
    return _kernels.backward(grad, x, _unit(unit))


@torch.library.register_fake("sudonet::staircase", lib=_library)
def _(x: Tensor, unit: str) -> Tensor:
    return torch.empty_like(x)


@torch.library.register_fake("sudonet::staircase_backward", lib=_library)
def _(grad: Tensor, x: Tensor, unit: str) -> Tensor:
    return torch.empty_like(x)


class _Staircase(torch.autograd.Function):
    """The operator with rules for torch.func, which needs an autograd.Function."""

    @staticmethod
    def forward(x: Tensor, unit: str) -> Any:
        return _forward_op(x, unit)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, str], output: Tensor) -> None:
        x, ctx.unit = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return _Slope.apply(grad, x, ctx.unit), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, unit: None) -> Any:
        (x,) = ctx.saved_tensors
        return _Slope.apply(tangent, x, ctx.unit)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, None], x: Tensor, unit: str) -> tuple[Tensor, int]:
        return _Staircase.apply(x, unit), in_dims[0]


class _Slope(torch.autograd.Function):
    """The gradient of :class:`_Staircase`, differentiable as the smooth function is."""

    @staticmethod
    def forward(grad: Tensor, x: Tensor, unit: str) -> Any:
        return _backward_op(grad, x, unit)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, str], output: Tensor) -> None:
        grad, x, ctx.unit = inputs
        ctx.save_for_backward(grad, x)
        ctx.save_for_forward(grad, x)

    @staticmethod
    def backward(ctx: Any, again: Tensor) -> tuple[Tensor, Tensor, None]:
        grad, x = ctx.saved_tensors
        to_grad = _Slope.apply(again, x, ctx.unit)
        return to_grad, again * grad * _kernels.curvature(x, _unit(ctx.unit)), None

    @staticmethod
    def jvp(ctx: Any, to_grad: Tensor | None, to_x: Tensor | None, unit: None) -> Tensor:
        grad, x = ctx.saved_tensors
        tangent = torch.zeros_like(x)
        if to_grad is not None:
            tangent = tangent + _Slope.apply(to_grad, x, ctx.unit)
        if to_x is not None:
            tangent = tangent + to_x * grad * _kernels.curvature(x, _unit(ctx.unit))
        return tangent

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, int | None, None], grad: Tensor, x: Tensor, unit: str
    ) -> tuple[Tensor, int]:
        batched = [
            t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)
            for t, dim in zip((grad, x), in_dims[:2], strict=True)
        ]
        return _Slope.apply(*batched, unit), 0


class _Eager(torch.autograd.Function):
    """The same without the dispatcher, for tensors that are :func:`plain`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, unit: Staircase) -> Tensor:
        ctx.save_for_backward(x)
        ctx.unit = unit
        return _kernels.forward(x, unit)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        if torch.is_grad_enabled() or type(grad) is not Tensor:
            return _Slope.apply(grad, x, ctx.unit.name), None
        return _kernels.backward(grad, x, ctx.unit), None


# Function.apply spends longer on its arguments than the C core on 10,000 elements. Without
# torch.func, which plain rules out, it does no more than call this method of its base class.
_eager = super(torch.autograd.Function, _Eager).apply


def plain(x: Tensor) -> bool:
    """Whether no subclass, torch.func transform or dispatch mode has to see the operator."""
    return (
        type(x) is Tensor
        and not torch._C._are_functorch_transforms_active()
        and not torch._C._len_torch_dispatch_stack()
        and torch.autograd.forward_ad._current_level < 0
    )


# Exported graphs call the operators directly, and train the same way.
for _name, _function in (("staircase", _Staircase), ("staircase_backward", _Slope)):
    torch.library.register_autograd(
        f"sudonet::{_name}",
        _function.backward,
        setup_context=_function.setup_context,
        lib=_library,
    )
