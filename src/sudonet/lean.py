"""Units fused with linear layers and convolutions, which save less for the backward pass.

A unit followed by a layer saves two float32 numbers an element: the unit's input, for its slope,
and its output, for the layer's gradient. The output can be computed from the input again
(:class:`SUDOLinear`, :class:`SUDOConv2d`: 4 bytes), and the input from the codes of the layer
before, by one more product (:class:`CodedLinear`, :class:`CodedConv2d`: 1 byte, 2 for more than
256 outputs). Gradients are the same to the last bit, unless an input is NaN, which has no code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from sudonet import _kernels, functional
from sudonet.staircase import Staircase, expect_staircase

MEMORY = ("plain", "lean", "codes")
"""What units and the layers after them keep: 8 bytes an element, 4, or 1."""


class UnitThenLayer(nn.Module):
    """A discrete unit and the layer after it, which keep 4 bytes an element."""

    unit: Staircase
    weight: Any
    bias: Any
    converted = False  # If the unit's former place says which unit it is.

    @property
    def units(self) -> str:
        """The names of the units inside of the layer."""
        return self.unit.name

    def forward(self, x: Tensor) -> Tensor:
        product = _product(self)
        if _fusing(x, product):
            result: Tensor = _UnitThenLayer.apply(x, self.weight, self.bias, self.unit, product)
            return result
        plain: Tensor = super().forward(functional.apply(x, self.unit))
        return plain

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, unit={self.unit}"


class CodedLayer(nn.Module):
    """A layer, and the unit after it, which keep the codes of their input."""

    before: Staircase | None
    after: Staircase | None
    weight: Any
    bias: Any
    converted = False

    @property
    def units(self) -> str:
        """The names of the units around the layer."""
        return f"{self.before}, {self.after}"

    def forward(self, x: Tensor) -> Tensor:
        product = _product(self)
        if _fusing(x, product):
            result: Tensor = _FromCodes.apply(
                x, self.weight, self.bias, self.before, self.after, product
            )
            return result
        z: Tensor = super().forward(x)
        return z if self.after is None else functional.apply(z, self.after)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, before={self.before}, after={self.after}"


class SUDOLinear(UnitThenLayer, nn.Linear):
    """A discrete unit and the linear layer after it, which keep 4 bytes an element.

    Parameters
    ----------
    in_features, out_features, bias, device, dtype
        As in nn.Linear.
    unit
        The unit in front of the layer.

    Examples
    --------
    >>> layer = SUDOLinear(3, 2, unit=Staircase(4))
    >>> layer
    SUDOLinear(in_features=3, out_features=2, bias=True, unit=sudo-4)
    >>> x = torch.randn(5, 3)
    >>> torch.equal(layer(x), linear(functional.sudo(x, 4), layer.weight, layer.bias))
    True
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        unit: Staircase,
        **more: Any,
    ) -> None:
        super().__init__(in_features, out_features, bias, **more)
        self.unit = expect_staircase(unit)


class CodedLinear(CodedLayer, nn.Linear):
    """A linear layer, and the unit after it, which keep the codes of their input.

    Parameters
    ----------
    in_features, out_features, bias, device, dtype
        As in nn.Linear.
    before
        The unit that emitted the layer's input. None if the input may be any number; then
        the input itself is kept.
    after
        The unit after the layer, None if there is none.

    Examples
    --------
    >>> CodedLinear(3, 2, before=Staircase(4), after=Staircase(8))
    CodedLinear(in_features=3, out_features=2, bias=True, before=sudo-4, after=sudo-8)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        before: Staircase | None,
        after: Staircase | None,
        **more: Any,
    ) -> None:
        super().__init__(in_features, out_features, bias, **more)
        self.before = None if before is None else expect_staircase(before)
        self.after = None if after is None else expect_staircase(after)


class _SUDOConvolution(UnitThenLayer):
    def __init__(self, *shape: Any, unit: Staircase, **more: Any) -> None:
        super().__init__(*shape, **more)
        self.unit = expect_staircase(unit)


class _CodedConvolution(CodedLayer):
    def __init__(
        self, *shape: Any, before: Staircase | None, after: Staircase | None, **more: Any
    ) -> None:
        super().__init__(*shape, **more)
        self.before = None if before is None else expect_staircase(before)
        self.after = None if after is None else expect_staircase(after)


class SUDOConv1d(_SUDOConvolution, nn.Conv1d):
    """A unit and the convolution after it: :class:`SUDOLinear`, with nn.Conv1d's arguments."""


class SUDOConv2d(_SUDOConvolution, nn.Conv2d):
    """A unit and the convolution after it: :class:`SUDOLinear`, with nn.Conv2d's arguments.

    Examples
    --------
    >>> SUDOConv2d(3, 8, 3, unit=Staircase(4))
    SUDOConv2d(3, 8, kernel_size=(3, 3), stride=(1, 1), unit=sudo-4)
    """


class CodedConv1d(_CodedConvolution, nn.Conv1d):
    """A convolution and the unit after it: :class:`CodedLinear`, with nn.Conv1d's arguments."""


class CodedConv2d(_CodedConvolution, nn.Conv2d):
    """A convolution and the unit after it: :class:`CodedLinear`, with nn.Conv2d's arguments."""


def codes_of(values: Tensor, unit: Staircase) -> Tensor:
    """Codes of numbers that ``unit`` emitted, uint8 or uint16.

    Examples
    --------
    >>> codes_of(torch.tensor([-1.0, 1.0, -1 / 3]), Staircase(4))
    tensor([0, 3, 1], dtype=torch.uint8)
    """
    table = unit.values
    kind = torch.uint8 if unit.outputs <= 256 else torch.uint16
    if values.dtype.itemsize < 4:
        # Neighbouring values may be equal in this type, and a position too coarse to round.
        emitted = torch.tensor(table).to(dtype=values.dtype, device=values.device).float()
        return torch.searchsorted(emitted, values.float()).to(kind)
    if unit.rectified and unit.placement == "paper" and unit.underlying != "relu6":
        # Positions are 0, 0.5, 1.5, ... (L even) or 0, 1, 2, ...: a quarter more rounds both.
        position = values * ((unit.levels - 1) / 2) + 0.25
    else:
        position = (values - float(table[0])) * ((len(table) - 1) / float(table[-1] - table[0]))
    return position.round_().to(kind)


def values_of(codes: Tensor, unit: Staircase, dtype: torch.dtype) -> Tensor:
    """The inverse of :func:`codes_of`, exact."""
    table = torch.tensor(unit.values).to(dtype=dtype, device=codes.device)
    return table[codes.int()]


def _product(layer: Any) -> _Linear | _Convolution:
    if isinstance(layer, nn.Linear):
        return _Linear()
    return _Convolution(layer.stride, layer.padding, layer.dilation, layer.groups)


def _fusing(x: Tensor, product: _Linear | _Convolution) -> bool:
    # Under autocast a layer computes in another type than its input's, which autograd handles.
    return (
        not torch.compiler.is_compiling()
        and torch.is_grad_enabled()
        and functional.plain(x)
        and not torch.is_autocast_enabled(x.device.type)
        and product.takes(x)
    )


class _Linear:
    """What a linear layer computes, and its gradients from the same products as autograd's."""

    def takes(self, x: Tensor) -> bool:
        return True

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return linear(x, weight, bias)

    def gradients(
        self, needed: Sequence[bool], grad: Tensor, x: Tensor, weight: Tensor
    ) -> Sequence[Tensor | None]:
        """By input, weight and bias. The values of ``x`` are read for the weight's alone."""
        rows = grad.reshape(-1, grad.shape[-1])
        to_x = (rows @ weight).view(*grad.shape[:-1], weight.shape[1]) if needed[0] else None
        to_weight = rows.t() @ x.reshape(-1, x.shape[-1]) if needed[1] else None
        to_bias = rows.sum(0) if needed[2] else None
        return [to_x, to_weight, to_bias]


@dataclass(frozen=True)
class _Convolution:
    """What a convolution computes, and its gradients by autograd's own operator."""

    stride: tuple[int, ...]
    padding: tuple[int, ...] | str
    dilation: tuple[int, ...]
    groups: int

    def takes(self, x: Tensor) -> bool:
        # Without a batch, or padded by name, PyTorch reshapes or pads first: that way is plain.
        return x.dim() == len(self.stride) + 2 and not isinstance(self.padding, str)

    @property
    def _shape(self) -> tuple[Any, ...]:
        none = (0,) * len(self.stride)
        return self.stride, self.padding, self.dilation, False, none, self.groups

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return torch.convolution(x, weight, bias, *self._shape)

    def gradients(
        self, needed: Sequence[bool], grad: Tensor, x: Tensor, weight: Tensor
    ) -> Sequence[Tensor | None]:
        """By input, weight and bias. The values of ``x`` are read for the weight's alone."""
        found: Sequence[Tensor | None] = torch.ops.aten.convolution_backward(
            grad, x, weight, [weight.shape[0]], *self._shape, list(needed[:3])
        )
        return found


class _UnitThenLayer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        unit: Staircase,
        product: _Linear | _Convolution,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, bias)
        ctx.unit, ctx.product = unit, product
        return product.forward(_kernels.forward(x, unit), weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias = ctx.saved_tensors
        if torch.is_grad_enabled():
            again = ctx.product.forward(functional.apply(x, ctx.unit), weight, bias)
            return (*_differentiable(ctx, again, (x, weight, bias), grad), None, None)
        y = _kernels.forward(x, ctx.unit) if ctx.needs_input_grad[1] else x
        to_y, *others = ctx.product.gradients(ctx.needs_input_grad, grad, y, weight)
        to_x = None if to_y is None else _kernels.backward(to_y, x, ctx.unit)
        return to_x, *others, None, None


class _FromCodes(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        before: Staircase | None,
        after: Staircase | None,
        product: _Linear | _Convolution,
    ) -> Tensor:
        ctx.before, ctx.after, ctx.product, ctx.dtype = before, after, product, x.dtype
        ctx.channels_last = not x.is_contiguous() and (
            x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
        )
        ctx.save_for_backward(codes_of(x, before) if before else x, weight, bias)
        z = product.forward(x, weight, bias)
        return _kernels.forward(z, after) if after else z

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias = ctx.saved_tensors
        if torch.is_grad_enabled() and ctx.before:
            raise RuntimeError(
                "a layer that keeps codes has no second derivatives: its input was not "
                "kept. Convert with memory='lean' or memory='plain'"
            )
        if ctx.before:
            x = values_of(x, ctx.before, ctx.dtype)
            if ctx.channels_last:  # The layout decides which kernel computes, and how it rounds.
                x = x.contiguous(memory_format=torch.channels_last)
        if torch.is_grad_enabled():
            again = ctx.product.forward(x, weight, bias)
            again = functional.apply(again, ctx.after) if ctx.after else again
            return (*_differentiable(ctx, again, (x, weight, bias), grad), None, None, None)
        if ctx.after:
            grad = _kernels.backward(grad, ctx.product.forward(x, weight, bias), ctx.after)
        found = ctx.product.gradients(ctx.needs_input_grad, grad, x, weight)
        return (*found, None, None, None)


def _differentiable(
    ctx: Any, again: Tensor, inputs: Sequence[Tensor], grad: Tensor
) -> list[Tensor | None]:
    """Gradients that can be differentiated again, by autograd of the plain operations."""
    wanted = [x for x, needed in zip(inputs, ctx.needs_input_grad, strict=False) if needed]
    found = iter(torch.autograd.grad(again, wanted, grad, create_graph=True))
    return [next(found) if needed else None for needed in ctx.needs_input_grad[:3]]
