"""Which unit each activation of a network gets, and why others get none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TypeAlias

from torch import nn

from sudonet._hidden_activations import NotReplaced, not_replaced, place
from sudonet._roles import roles
from sudonet._trace import Trace, traces
from sudonet.lean import CodedLayer, UnitThenLayer
from sudonet.staircase import Staircase
from sudonet.units import (
    CONTINUOUS,
    RSUDO,
    SMOOTH,
    SUDO,
    StaircaseUnit,
    activation,
    activation_name,
)

Unit: TypeAlias = str | Staircase
Kind: TypeAlias = type[nn.Module]
To: TypeAlias = Unit | Mapping[str | Kind, Unit | None] | None

_UNITS = (StaircaseUnit, SUDO, RSUDO)

# What ``levels`` puts a staircase over. A ReLU has no end, a staircase must: of all units this
# one keeps a trained network best (docs/convert.md has the numbers).
_OWN = {
    nn.Tanh: "tanh",
    nn.Sigmoid: "sigmoid",
    nn.Hardtanh: "hardtanh",
    nn.ReLU6: "relu6",
    nn.ReLU: "relu6",
}


@dataclass(frozen=True)
class Plan:
    """The unit's name for every path that gets one, and all that gets none."""

    targets: dict[str, str]
    kept: tuple[NotReplaced, ...]
    not_replaced: tuple[NotReplaced, ...]
    unclear: frozenset[str]
    traces: list[Trace]


def planned(
    model: nn.Module, to: To, levels: int | None, overrides: Mapping[str, Unit | None]
) -> Plan:
    """What :func:`sudonet.convert` does to ``model``."""
    choose, kinds = _chooser(to, levels)
    modules = dict(model.named_modules(remove_duplicate=False))
    choices = {path: choose(path, m) for path, m in modules.items() if type(m) in kinds}
    overridden: dict[str, str | None] = {}
    for pattern, unit in overrides.items():
        matching = [path for path in choices if fnmatchcase(path, pattern)]
        if not matching:
            raise ValueError(
                f"override {pattern!r} matches no activation: "
                f"there are {', '.join(map(place, choices)) or 'none'}"
            )
        overridden.update(dict.fromkeys(matching, _name(unit)))
    graphs = [] if "" in choices else traces(model, choices.keys())
    role = roles(model, graphs)
    left = list(dict.fromkeys(not_replaced(model, set(choices), graphs)))
    kept, targets = [], {}
    for path, choice in choices.items():
        if path in overridden:
            targets[path] = overridden[path]
        elif choice.asked and not choice.why:
            targets[path] = None
        elif path in role.kept:
            kept.append(NotReplaced(path, repr(modules[path]), role.kept[path]))
        elif choice.unit:
            targets[path] = choice.unit
        elif not isinstance(modules[path], StaircaseUnit):
            told = kept if choice.asked else left
            told.append(NotReplaced(path, repr(modules[path]), choice.why))
    for path, module in modules.items():
        why = _fixed(module)
        if why and path not in choices:
            told = kept if path in role.kept else left
            told.append(NotReplaced(path, repr(module), role.kept.get(path, why)))
    _check_places(modules, {path: targets.get(path) for path in choices})
    found = {path: target for path, target in targets.items() if target}
    return Plan(
        found,
        tuple(kept),
        tuple(left),
        frozenset(path for path in found if path not in role.hidden | overridden.keys() and path),
        graphs,
    )


def _name(unit: Unit | None) -> str | None:
    return None if unit is None else activation_name(activation(unit))


@dataclass(frozen=True)
class _Choice:
    """The unit for a module, or why there is none: ``asked`` if that was the user's choice."""

    unit: str | None = None
    why: str = ""
    asked: bool = False


_Chooser: TypeAlias = Callable[[str, nn.Module], _Choice]


def _chooser(to: To, levels: int | None) -> tuple[_Chooser, frozenset[Kind]]:
    """What ``to`` or ``levels`` chooses for a module, and the classes that it may choose for."""
    if (to is None) == (levels is None):
        raise TypeError(
            "to must be a unit such as 'sudo-32', or levels a number such as 16, and not both: "
            f"got {to!r} and {levels!r}"
        )
    usual = frozenset({*CONTINUOUS, *_UNITS})
    if levels is not None:
        own = Staircase(levels)
        return lambda path, module: _with_levels(path, module, own.levels), usual
    if isinstance(to, (str, Staircase)):
        choice = _Choice(_name(to))
        return lambda path, module: choice, usual
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
        kinds[kind] = _Choice(_name(unit), asked=unit is None)
    other = _Choice(why="its kind is not in the mapping", asked=True)
    return lambda path, module: kinds.get(type(module), other), usual | kinds.keys()


def _with_levels(path: str, module: nn.Module, levels: int) -> _Choice:
    if isinstance(module, StaircaseUnit):
        return _Choice(replace(module.staircase, levels=levels).name)
    own = _OWN.get(type(module))
    kind = type(module).__name__
    if own is None:
        way = f"convert(model, {{nn.{kind}: 'sudo-{levels}-relu6'}}) chooses one"
        return _Choice(why=f"there is no staircase over it: {way}")
    unit = Staircase(levels, own).name
    if isinstance(module, nn.Hardtanh) and own == "hardtanh":
        span = module.min_val, module.max_val
        if span != (-1, 1):
            way = f"overrides={{{path!r}: {unit!r}}} replaces it all the same"
            return _Choice(why=f"its range is {span[0]:g}..{span[1]:g}, the unit's -1..1: {way}")
    return _Choice(unit)


def _fixed(module: nn.Module) -> str:
    """Why a module that is an activation, or holds one, cannot get another; empty if it is none."""
    if isinstance(module, nn.PReLU):
        return "its parameters would be lost: put a unit into the model's source instead"
    if isinstance(module, nn.GLU):
        return "it halves the channels, which no unit does: put a unit into the model's source"
    if isinstance(module, (UnitThenLayer, CodedLayer)):
        return "its units are part of it: undo() that conversion first"
    return ""


def _check_places(modules: Mapping[str, nn.Module], targets: Mapping[str, str | None]) -> None:
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
