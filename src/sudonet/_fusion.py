"""Puts the layers of :mod:`sudonet.lean` into a model that exists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from torch import nn

from sudonet.lean import (
    MEMORY,
    CodedConv1d,
    CodedConv2d,
    CodedLayer,
    CodedLinear,
    SUDOConv1d,
    SUDOConv2d,
    SUDOLinear,
    UnitThenLayer,
)
from sudonet.staircase import Staircase
from sudonet.units import StaircaseUnit

_LEAN: dict[type[nn.Module], Any] = {
    nn.Linear: SUDOLinear,
    nn.Conv1d: SUDOConv1d,
    nn.Conv2d: SUDOConv2d,
}
_CODED: dict[type[nn.Module], Any] = {
    nn.Linear: CodedLinear,
    nn.Conv1d: CodedConv1d,
    nn.Conv2d: CodedConv2d,
}


@dataclass(frozen=True)
class Fusion:
    """New modules by path in ``places``; in ``left``, why a unit keeps no less than before."""

    places: Mapping[str, nn.Module]
    left: Mapping[str, str]


class MovedUnit(nn.Identity):
    """The place of a unit that became part of a layer beside it."""

    def __init__(self, staircase: Staircase) -> None:
        super().__init__()
        self.staircase = staircase

    def extra_repr(self) -> str:
        return f"{self.staircase}, in the layer beside it"


def fused(model: nn.Module, units: Mapping[str, Staircase], memory: str) -> Fusion:
    """Modules that take the place of units, linear layers and convolutions in ``model``.

    Neighbours in every nn.Sequential are fused; ``units`` are the discrete units by path.
    Parameters stay the same objects; a unit that moves into a layer leaves a
    :class:`MovedUnit` behind. Modules with hooks stay as they are, since a hook must see the
    module's own input and output.
    """
    if memory not in MEMORY:
        raise ValueError(f"memory must be one of {', '.join(MEMORY)}, got {memory!r}")
    if memory == "plain":
        return Fusion({}, {})
    places: dict[str, nn.Module] = {}
    left = dict.fromkeys(units, "not in an nn.Sequential, where the next layer is known")
    counts = Counter(m for _, m in model.named_modules(remove_duplicate=False))
    for parent, sequence in model.named_modules():
        if not _runs_in_order(sequence):
            continue
        # Not named_children, which leaves out a module's second place.
        children = {f"{parent}.{name}".lstrip("."): m for name, m in sequence._modules.items()}
        paths = ["", *children, ""]
        for path, after in pairwise(paths):
            if path in units:
                left[path] = _obstacle(children.get(path), children.get(after), counts)
        for before, path, after in zip(paths, paths[1:], paths[2:], strict=False):
            layer = children[path]
            front, back = (
                units.get(unit) if not _obstacle(children.get(unit), layer, counts) else None
                for unit in (before, after)
            )
            if memory == "lean" and front:
                places[before] = MovedUnit(front)
                places[path] = _sharing(_LEAN[type(layer)], layer, unit=front)
            elif memory == "codes" and (front or back):
                places[path] = _sharing(_CODED[type(layer)], layer, before=front, after=back)
                if back:
                    places[after] = MovedUnit(back)
                    left[after] = ""
    return Fusion(places, {path: why for path, why in left.items() if why})


def units_of(model: nn.Module) -> dict[str, str]:
    """The names of a model's units by path, the same for any ``memory`` of :func:`convert`."""
    units = {}
    for path, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, (StaircaseUnit, MovedUnit)):
            units[path] = module.staircase.name
        elif isinstance(module, (UnitThenLayer, CodedLayer)) and not module.converted:
            units[path] = module.units
    return units


def _obstacle(unit: nn.Module | None, layer: nn.Module | None, counts: Counter[nn.Module]) -> str:
    """Why a unit and a layer beside it cannot be fused; empty if they can."""
    if layer is None:
        return "no layer follows in its nn.Sequential"
    if type(layer) not in _LEAN:
        return f"followed by {type(layer).__name__}, not directly by Linear, Conv1d or Conv2d"
    if counts[layer] > 1:
        return "the layer is used in several places"
    if isinstance(layer, (nn.Conv1d, nn.Conv2d)) and (
        layer.padding_mode != "zeros" or isinstance(layer.padding, str)
    ):
        return "the convolution's padding is not a number of zeros"
    if _has_hooks(layer) or (unit is not None and _has_hooks(unit)):
        return "hooks must see what goes in and out"
    return ""


def _runs_in_order(module: nn.Module) -> bool:
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


def _has_hooks(module: nn.Module) -> bool:
    return any(
        hooks
        for name, hooks in vars(module).items()
        if name.startswith(("_forward_", "_backward_")) and name.endswith("hooks")
    )


def _sharing(kind: Any, layer: Any, **units: Staircase | None) -> Any:
    """A layer of ``kind`` with the shape and the very parameters of ``layer``."""
    shape: tuple[Any, ...]
    if isinstance(layer, nn.Linear):
        shape = (layer.in_features, layer.out_features)
    else:
        shape = (layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride)
        shape += (layer.padding, layer.dilation, layer.groups)
    made = kind(*shape, device="meta", **units)
    made.weight, made.bias = layer.weight, layer.bias
    made.converted = True
    return made
