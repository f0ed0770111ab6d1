"""Units fused with linear layers, which save less for the backward pass.

A unit followed by a linear layer saves two float32 numbers an element: the unit's input,
for its slope, and its output, for the layer's gradient. The output can be computed from the
input again (:class:`SUDOLinear`: 4 bytes), and the input from the codes of the layer before,
by one more product (:class:`CodedLinear`: 1 byte, 2 for more than 256 outputs). Gradients are
the same to the last bit, unless an input is NaN, which has no code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from sudonet import _kernels, functional
from sudonet.staircase import Staircase, expect_staircase

MEMORY = ("plain", "lean", "codes")
"""What units and linear layers keep: 8 bytes an element, 4, or 1."""


class SUDOLinear(nn.Linear):
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

    def forward(self, x: Tensor) -> Tensor:
        if _fusing(x):
            result: Tensor = _UnitThenLinear.apply(x, self.weight, self.bias, self.unit)
            return result
        return linear(functional.apply(x, self.unit), self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, unit={self.unit}"


class CodedLinear(nn.Linear):
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

    def forward(self, x: Tensor) -> Tensor:
        if _fusing(x):
            result: Tensor = _FromCodes.apply(x, self.weight, self.bias, self.before, self.after)
            return result
        return _linear_then_unit(x, self.weight, self.bias, self.after)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, before={self.before}, after={self.after}"


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


def fused(model: nn.Module, units: Mapping[str, Staircase], memory: str) -> dict[str, nn.Module]:
    """Modules by path that take the place of units and linear layers in ``model``.

    Neighbours in every nn.Sequential are fused; ``units`` are the discrete units by path.
    Parameters stay the same objects; a unit that moves into a layer leaves an nn.Identity
    behind. Modules with hooks stay as they are, since a hook must see the module's own input
    and output.
    """
    if memory not in MEMORY:
        raise ValueError(f"memory must be one of {', '.join(MEMORY)}, got {memory!r}")
    places: dict[str, nn.Module] = {}
    counts = Counter(m for _, m in model.named_modules(remove_duplicate=False))
    for parent, sequence in model.named_modules():
        if memory == "plain" or not _runs_in_order(sequence):
            continue
        children = {f"{parent}.{name}".lstrip("."): m for name, m in sequence.named_children()}
        paths = list(children)
        free = {path: units.get(path) for path, m in children.items() if not _has_hooks(m)}
        for i, (path, layer) in enumerate(children.items()):
            if type(layer) is not nn.Linear or counts[layer] > 1 or path not in free:
                continue
            before = free.get(paths[i - 1]) if i else None
            after = free.get(paths[i + 1]) if i + 1 < len(paths) else None
            if memory == "lean" and before:
                places[paths[i - 1]] = nn.Identity()
                places[path] = _sharing(SUDOLinear, layer, unit=before)
            elif memory == "codes" and (before or after):
                places[path] = _sharing(CodedLinear, layer, before=before, after=after)
                if after:
                    places[paths[i + 1]] = nn.Identity()
    return places


def _runs_in_order(module: nn.Module) -> bool:
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


def _has_hooks(module: nn.Module) -> bool:
    return any(
        hooks
        for name, hooks in vars(module).items()
        if name.startswith(("_forward_", "_backward_")) and name.endswith("hooks")
    )


def _sharing(kind: Any, layer: nn.Linear, **units: Staircase | None) -> nn.Linear:
    made: nn.Linear = kind(layer.in_features, layer.out_features, device="meta", **units)
    made.weight, made.bias = layer.weight, layer.bias
    return made


def _fusing(x: Tensor) -> bool:
    # Under autocast a layer computes in another type than its input's, which autograd handles.
    return (
        not torch.compiler.is_compiling()
        and torch.is_grad_enabled()
        and functional.plain(x)
        and not torch.is_autocast_enabled(x.device.type)
    )


def _linear_then_unit(
    x: Tensor, weight: Tensor, bias: Tensor | None, unit: Staircase | None
) -> Tensor:
    z = linear(x, weight, bias)
    return z if unit is None else functional.apply(z, unit)


def _gradients(
    needed: tuple[bool, ...], grad: Tensor, x: Tensor | None, weight: Tensor
) -> list[Tensor | None]:
    """Gradients by input, weight and bias, from the same products as autograd's."""
    rows = grad.reshape(-1, grad.shape[-1])
    to_x = (rows @ weight).view(*grad.shape[:-1], weight.shape[1]) if needed[0] else None
    to_weight = rows.t() @ x.reshape(-1, x.shape[-1]) if needed[1] and x is not None else None
    to_bias = rows.sum(0) if needed[2] else None
    return [to_x, to_weight, to_bias]


class _UnitThenLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, unit: Staircase
    ) -> Tensor:
        ctx.save_for_backward(x, weight, bias)
        ctx.unit = unit
        return linear(_kernels.forward(x, unit), weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias = ctx.saved_tensors
        if torch.is_grad_enabled():
            again = linear(functional.apply(x, ctx.unit), weight, bias)
            return (*_differentiable(ctx, again, (x, weight, bias), grad), None)
        y = _kernels.forward(x, ctx.unit) if ctx.needs_input_grad[1] else None
        to_y, to_weight, to_bias = _gradients(ctx.needs_input_grad, grad, y, weight)
        to_x = None if to_y is None else _kernels.backward(to_y, x, ctx.unit)
        return to_x, to_weight, to_bias, None


class _FromCodes(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        before: Staircase | None,
        after: Staircase | None,
    ) -> Tensor:
        ctx.before, ctx.after, ctx.dtype = before, after, x.dtype
        ctx.save_for_backward(codes_of(x, before) if before else x, weight, bias)
        z = linear(x, weight, bias)
        return _kernels.forward(z, after) if after else z

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        kept, weight, bias = ctx.saved_tensors
        if torch.is_grad_enabled() and ctx.before:
            raise RuntimeError(
                "a layer that keeps codes has no second derivatives: its input was not "
                "kept. Convert with memory='lean' or memory='plain'"
            )
        x = values_of(kept, ctx.before, ctx.dtype) if ctx.before else kept
        if torch.is_grad_enabled():
            again = _linear_then_unit(x, weight, bias, ctx.after)
            return (*_differentiable(ctx, again, (x, weight, bias), grad), None, None)
        if ctx.after:
            grad = _kernels.backward(grad, linear(x, weight, bias), ctx.after)
        return (*_gradients(ctx.needs_input_grad, grad, x, weight), None, None)


def _differentiable(
    ctx: Any, again: Tensor, inputs: Sequence[Tensor], grad: Tensor
) -> list[Tensor | None]:
    """Gradients that can be differentiated again, by autograd of the plain operations."""
    wanted = [x for x, needed in zip(inputs, ctx.needs_input_grad, strict=False) if needed]
    found = iter(torch.autograd.grad(again, wanted, grad, create_graph=True))
    return [next(found) if needed else None for needed in ctx.needs_input_grad[:3]]
