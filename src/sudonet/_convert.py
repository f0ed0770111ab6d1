"""Put discrete units into a network that exists, and take them out again.

Only activations that are modules can be replaced. Those that a network calls as
functions are searched for and named, so that a half-converted network does not pass
for a converted one.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from torch import nn

from sudonet._hidden_activations import NotReplaced, not_replaced, place
from sudonet.lean import fused
from sudonet.staircase import Staircase
from sudonet.units import RSUDO, SMOOTH, SUDO, StaircaseUnit, activation, activation_name

Unit: TypeAlias = str | Staircase
Kind: TypeAlias = type[nn.Module]

# While these attributes are true, evaluation computes a fused ReLU and never calls the
# activation module: the network would be discrete in training and continuous in use.
_SHORTCUTS: tuple[tuple[Kind, str], ...] = (
    (nn.TransformerEncoderLayer, "activation_relu_or_gelu"),
    (nn.TransformerEncoder, "use_nested_tensor"),
)


@dataclass(frozen=True)
class Change:
    """One activation that was replaced: its path, the module before, the module after."""

    path: str
    before: nn.Module
    after: nn.Module

    def __str__(self) -> str:
        return f"  {place(self.path)}: {self.before} -> {self.after}"


@dataclass(frozen=True)
class Conversion:
    """What :func:`convert` did: ``changes`` and ``not_replaced``. ``print`` shows both."""

    changes: tuple[Change, ...]
    not_replaced: tuple[NotReplaced, ...]
    _holder: nn.Module = field(repr=False)
    _shortcuts: tuple[tuple[nn.Module, str, Any], ...] = field(repr=False)

    @property
    def model(self) -> nn.Module:
        """The converted model: the one that was given, or its copy."""
        return self._holder.get_submodule("model")

    def undo(self) -> nn.Module:
        """Put the original modules back and return the model.

        They are the same objects as before; hooks, and train or eval mode, come from
        the units. If a place no longer holds the unit that was put there, because it
        was converted again or undone already, nothing is changed and a RuntimeError
        names the place.
        """
        for change in self.changes:
            try:
                present = self._holder.get_submodule(_full(change.path))
            except AttributeError:
                present = None
            if present is not change.after:
                raise RuntimeError(
                    f"cannot undo: {place(change.path)} holds {present}, not the {change.after} "
                    "that convert put there. Undo later conversions first, and each only once"
                )
        for change in self.changes:
            if isinstance(change.before, nn.Linear) and isinstance(change.after, nn.Linear):
                change.before.weight, change.before.bias = change.after.weight, change.after.bias
            _inherit(change.before, change.after)
            self._holder.set_submodule(_full(change.path), change.before)
        for module, name, value in self._shortcuts:
            setattr(module, name, value)
        return self.model

    def __str__(self) -> str:
        lines = [f"activations replaced: {len(self.changes)}", *self.changes]
        if self.not_replaced:
            lines += [f"not replaced: {len(self.not_replaced)}", *self.not_replaced]
        return "\n".join(map(str, lines))


def convert(
    model: nn.Module,
    to: Unit | Mapping[str | Kind, Unit | None],
    *,
    overrides: Mapping[str, Unit | None] | None = None,
    copy: bool = False,
    memory: str = "plain",
) -> Conversion:
    """Replace the activation modules of a network.

    Weights stay as they are and ``state_dict`` keeps its keys. A module is replaced
    if its class is exactly ``nn.Tanh``, ``nn.ReLU``, ``nn.Sigmoid``, ``nn.Hardtanh``
    or ``nn.ReLU6``; a class derived from one of them may compute something else and
    is left alone. One module registered under several paths stays one module where
    the paths get the same unit. Hooks of a replaced module keep working.

    Parameters
    ----------
    model
        The network. It is changed in place unless ``copy=True``.
    to
        The unit for all five kinds, in any form that :func:`sudonet.activation`
        reads, or a mapping from kind to unit. A kind is ``"tanh"``, ``"relu"``,
        ``"sigmoid"``, ``"hardtanh"``, ``"relu6"`` or any module class without
        parameters. Kinds that are not in the mapping, or map to None, stay.
    overrides
        Units for single places, by module path or by a pattern such as
        ``"encoder.*"``, where ``*`` also crosses dots. None leaves the place as it
        is; if several match, the last wins. Overrides also reach units that are
        discrete already, which ``to`` leaves alone, and so change their levels.
    copy
        Convert a deep copy, which is ``.model`` of the result.
    memory
        What units and linear layers that follow one another in an nn.Sequential keep for
        the backward pass: ``"plain"`` 8 bytes an element, ``"lean"`` 4, ``"codes"`` 1 at
        the price of one more product. Gradients are the same to the last bit. The layers
        become :class:`sudonet.SUDOLinear` or :class:`sudonet.CodedLinear` with the same
        parameters, and contain the units.

    Returns
    -------
    Conversion
        The model, what was changed, what could not be, and ``undo()``.

    Warns
    -----
    UserWarning
        Before any change, if the network computes one of the five kinds where it
        cannot be replaced: ``F.relu`` in ``forward``, or an ``nn.LSTM``. To find them
        torch.fx traces ``forward``, in train and eval mode, on a copy without data and
        hooks; modules that it cannot trace or does not reach are read in the source.

    Examples
    --------
    >>> network = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh())
    >>> conversion = convert(network, "sudo-32", overrides={"3": "sudo-2"})
    >>> print(conversion)
    activations replaced: 2
      1: Tanh() -> SUDO(sudo-32)
      3: Tanh() -> SUDO(sudo-2)
    >>> conversion.undo()[1]
    Tanh()
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    targets = _targets(model, _kinds(to), {k: _name(v) for k, v in (overrides or {}).items()})
    if "" in targets and not copy:
        raise ValueError(
            f"the model itself is the activation {model}, which cannot be replaced in place: "
            "use copy=True and take .model of the result"
        )
    left = () if "" in targets else tuple(dict.fromkeys(not_replaced(model, set(targets))))
    if left:
        # Before the first change: where warnings are errors, the model stays as it was.
        warnings.warn(
            "convert cannot replace activations that are not submodules:\n"
            + "\n".join(map(str, left))
            + "\nMake each a module: self.act = nn.ReLU() in __init__, self.act(x) in forward.",
            stacklevel=2,
        )
    holder = nn.Module()
    holder.model = deepcopy(model) if copy else model
    units: dict[tuple[nn.Module, str], nn.Module] = {}
    changes = []
    for path, target in targets.items():
        before = holder.get_submodule(_full(path))
        after = units.setdefault((before, target), activation(target))
        if repr(after) != repr(before):
            changes.append(Change(path, before, after))
    changes = _fused(holder, changes, memory)
    for change in changes:
        _inherit(change.after, change.before)
        holder.set_submodule(_full(change.path), change.after)
    shortcuts = [
        (module, name, vars(module)[name])
        for module in holder.modules()
        for kind, name in _SHORTCUTS
        if isinstance(module, kind)
        and name in vars(module)
        and not set(units.values()).isdisjoint(module.modules())
    ]
    for module, name, _ in shortcuts:
        setattr(module, name, False)
    return Conversion(tuple(changes), left, holder, tuple(shortcuts))


def _full(path: str) -> str:
    return f"model.{path}" if path else "model"


def _fused(holder: nn.Module, changes: list[Change], memory: str) -> list[Change]:
    """The changes, with units that move into their neighbours where ``memory`` asks for it."""
    places = dict(holder.get_submodule("model").named_modules(remove_duplicate=False))
    after = places | {change.path: change.after for change in changes}
    units = {path: m.staircase for path, m in after.items() if isinstance(m, StaircaseUnit)}
    after |= fused(holder.get_submodule("model"), units, memory)
    return [Change(path, places[path], m) for path, m in after.items() if m is not places[path]]


def _name(unit: Unit | None) -> str | None:
    return None if unit is None else activation_name(activation(unit))


def _kinds(to: Unit | Mapping[str | Kind, Unit | None]) -> dict[Kind, str | None]:
    if isinstance(to, (str, Staircase)):
        return dict.fromkeys(SMOOTH.values(), _name(to))
    if not isinstance(to, Mapping):
        raise TypeError(f"to must be a unit such as 'sudo-32', or a mapping to units, got {to!r}")
    kinds = {}
    for key, unit in to.items():
        kind = SMOOTH.get(key.strip().lower()) if isinstance(key, str) else key
        if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
            raise ValueError(
                f"unknown kind of activation {key!r}: "
                f"expected one of {', '.join(SMOOTH)}, or a module class"
            )
        kinds[kind] = _name(unit)
    return kinds


def _targets(
    model: nn.Module, kinds: dict[Kind, str | None], overrides: dict[str, str | None]
) -> dict[str, str]:
    """The unit's name for every path that gets one."""
    modules = dict(model.named_modules(remove_duplicate=False))
    known = {*SMOOTH.values(), StaircaseUnit, SUDO, RSUDO, *kinds}
    targets = {path: kinds.get(type(m)) for path, m in modules.items() if type(m) in known}
    for pattern, unit in overrides.items():
        matching = [path for path in targets if fnmatchcase(path, pattern)]
        if not matching:
            raise ValueError(
                f"override {pattern!r} matches no activation: "
                f"there are {', '.join(map(place, targets)) or 'none'}"
            )
        targets.update(dict.fromkeys(matching, unit))
    first_path: dict[tuple[nn.Module, str], str] = {}
    for path, target in targets.items():
        parent, _, name = path.rpartition(".")
        first = first_path.setdefault((modules[parent], name), path)
        if targets[first] != target:
            raise ValueError(
                f"{first} and {path} are one place, in a module that is used twice, and cannot "
                f"get both {targets[first]} and {target}: give them the same unit"
            )
        if target and (modules[path].state_dict() or [*modules[path].children()]):
            raise ValueError(
                f"{path} is a {type(modules[path]).__name__}, whose parameters or submodules "
                "would be lost: only activations without them can be replaced"
            )
    return {path: target for path, target in targets.items() if target}


def _inherit(heir: nn.Module, module: nn.Module) -> None:
    # The dictionaries themselves are shared, so that a hook's handle still removes it.
    hooks = {name: value for name, value in vars(module).items() if "_hook" in name}
    vars(heir).update(hooks, training=module.training)
