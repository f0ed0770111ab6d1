"""Put discrete units into a network that exists, and take them out again.

Only activations that are modules can be replaced. Those that a network calls as
functions are searched for and named, so that a half-converted network does not pass
for a converted one.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from sudonet._fusion import fused
from sudonet._hidden_activations import NotReplaced, place
from sudonet._ranges import Batch, Scaling, scalings
from sudonet._replacements import Kind, Unit, planned
from sudonet.lean import CodedLayer, UnitThenLayer
from sudonet.units import StaircaseUnit, activation

# While these attributes are true, evaluation computes a fused ReLU and never calls the
# activation module: the network would be discrete in training and continuous in use.
_SHORTCUTS: tuple[tuple[Kind, str], ...] = (
    (nn.TransformerEncoderLayer, "activation_relu_or_gelu"),
    (nn.TransformerEncoder, "use_nested_tensor"),
)


@dataclass(frozen=True)
class Change:
    """One module that was replaced: its path, the module before, the module after."""

    path: str
    before: nn.Module
    after: nn.Module

    def __str__(self) -> str:
        return f"  {place(self.path)}: {self.before} -> {self.after}"


@dataclass(frozen=True)
class Conversion:
    """What :func:`convert` did. ``print`` shows all of it.

    Attributes
    ----------
    changes
        The activations that were replaced.
    kept
        Activation modules that are outputs or gates, or of a kind that ``to`` does not name.
    not_replaced
        What else stayed continuous, and why.
    unclear
        Paths of ``changes`` that may be outputs or gates: torch.fx could not trace the model.
    layers
        Layers that were replaced to keep less for the backward pass.
    not_lean
        Units that keep what they kept in spite of ``memory``, and why.
    scalings
        Layers that were scaled for the range of a unit between them.
    not_scaled
        Units whose range does not suit the calibration batch and could not be scaled, and why.
    """

    changes: tuple[Change, ...]
    kept: tuple[NotReplaced, ...]
    not_replaced: tuple[NotReplaced, ...]
    unclear: tuple[str, ...]
    layers: tuple[Change, ...]
    not_lean: tuple[NotReplaced, ...]
    scalings: tuple[Scaling, ...]
    not_scaled: tuple[NotReplaced, ...]
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
        changes = (*self.changes, *self.layers)
        for change in changes:
            try:
                present = self._holder.get_submodule(_full(change.path))
            except AttributeError:
                present = None
            if present is not change.after:
                raise RuntimeError(
                    f"cannot undo: {place(change.path)} holds {present}, not the {change.after} "
                    "that convert put there. Undo later conversions first, and each only once"
                )
        for change in changes:
            if isinstance(change.after, (UnitThenLayer, CodedLayer)):
                # Load with assign=True, or pruning, may have put in other ones.
                change.before._parameters.update(change.after._parameters)
            _inherit(change.before, change.after)
            self._holder.set_submodule(_full(change.path), change.before)
        for scaling in self.scalings:
            scaling.apply(self.model, undo=True)
        for module, name, value in self._shortcuts:
            setattr(module, name, value)
        return self.model

    def __str__(self) -> str:
        lines: list[object] = [f"activations replaced: {len(self.changes)}", *self.changes]
        if self.unclear:
            lines += [
                f"perhaps outputs or gates: {len(self.unclear)}",
                *(f"  {place(path)}" for path in self.unclear),
                "  Tracing the model would tell, but failed: overrides={path: None} keeps one.",
            ]
        if self.kept:
            lines += [f"kept: {len(self.kept)}", *self.kept]
            lines.append("  overrides={path: unit} replaces one all the same.")
        if self.not_replaced:
            lines += [f"not replaced: {len(self.not_replaced)}", *_told(self.not_replaced)]
        if self.layers:
            lines += [f"layers that keep less: {len(self.layers)}", *self.layers]
        if self.not_lean:
            lines += [f"units that keep no less: {len(self.not_lean)}", *self.not_lean]
        if self.scalings:
            lines += [f"ranges scaled: {len(self.scalings)}", *self.scalings]
        if self.not_scaled:
            lines += [f"ranges not scaled: {len(self.not_scaled)}", *self.not_scaled]
        return "\n".join(map(str, lines))


def convert(
    model: nn.Module,
    to: Unit | Mapping[str | Kind, Unit | None] | None = None,
    *,
    levels: int | None = None,
    overrides: Mapping[str, Unit | None] | None = None,
    copy: bool = False,
    memory: str = "plain",
    calibration: Batch | None = None,
) -> Conversion:
    """Replace the hidden activation modules of a network.

    Weights stay as they are, unless ``calibration`` scales them by powers of two, and
    ``state_dict`` keeps its keys. Give either ``to``, the unit, or
    ``levels``, which keeps each activation's own function. Discrete units that are there
    already are converted too.

    Outputs and gates are no hidden activations and stay, unless ``overrides`` names them: an
    activation whose result is the model's output (perhaps reshaped), and one whose result
    multiplies another tensor, such as the sigmoid of a squeeze-excite block. In a product with a
    sigmoid the sigmoid is the gate. The model's graph tells, which torch.fx traces on a copy
    without data and hooks; where it cannot, ``.unclear`` names what was replaced on trust.

    A module is replaced if its class is exactly one of PyTorch's; a class derived from one of
    them may compute something else and is left alone. One module registered under several paths
    stays one module where the paths get the same unit. Hooks of a replaced module keep working.

    Parameters
    ----------
    model
        The network. It is changed in place unless ``copy=True``.
    to
        The unit for every activation module of PyTorch without parameters, in any form that
        :func:`sudonet.activation` reads, or a mapping from kind to unit. A kind is ``"tanh"``,
        ``"relu"``, ``"sigmoid"``, ``"hardtanh"``, ``"relu6"`` or any module class without
        parameters. Kinds that are not in the mapping, or map to None, stay.
    levels
        The number of levels of a staircase over each activation's own function: Tanh, Sigmoid,
        ReLU6, and Hardtanh from -1 to 1. ReLU gets that over ReLU6. Others stay. Units that are
        there keep their form and change their levels.
    overrides
        Units for single places, by module path or by a pattern such as
        ``"encoder.*"``, where ``*`` also crosses dots. None leaves the place as it
        is; if several match, the last wins. Overrides reach outputs and gates too.
    copy
        Convert a deep copy, which is ``.model`` of the result.
    memory
        What units keep for the backward pass together with a linear layer or a convolution
        that follows them directly in an nn.Sequential: ``"plain"`` 8 bytes an element,
        ``"lean"`` 4, ``"codes"`` 1 at the price of one more product. Gradients are the same to
        the last bit. The layers become :class:`sudonet.SUDOLinear`, :class:`sudonet.CodedConv2d`
        and the like with the same parameters, and contain the units.
    calibration
        A batch on which the model is run before the change, in eval mode: a tensor, an array, or
        a tuple of the model's inputs. Units over relu6 and hardtanh have a fixed range. For each,
        some powers of two are tried as a factor of its input, and the one with which the model's
        output changes least is taken: the layer before the unit is multiplied by it, and the
        layers after it are divided by it. ``.scalings`` names the layers, ``undo()`` scales them
        back exactly, and ``.not_scaled`` says where no layers could be scaled.

    Returns
    -------
    Conversion
        The model, what was changed, what was not and why, and ``undo()``.

    Warns
    -----
    UserWarning
        Before any change, if activations stay continuous that ``to`` or ``levels`` could not
        reach: ``F.relu`` in ``forward``, an ``nn.LSTM``, an ``nn.PReLU``. Modules that
        torch.fx cannot trace or does not reach are read in the source.

    Examples
    --------
    >>> network = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 8), nn.ReLU(),
    ...                         nn.Linear(8, 1), nn.Sigmoid())
    >>> conversion = convert(network, levels=16)
    >>> print(conversion)
    activations replaced: 2
      1: Tanh() -> SUDO(sudo-16)
      3: ReLU() -> SUDO(sudo-16-relu6)
    kept: 1
      5: Sigmoid(), its result is the model's output
      overrides={path: unit} replaces one all the same.
    >>> conversion.undo()[1]
    Tanh()
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    plan = planned(model, to, levels, overrides or {})
    if "" in plan.targets and not copy:
        raise ValueError(
            f"the model itself is the activation {model}, which cannot be replaced in place: "
            "use copy=True and take .model of the result"
        )
    if plan.not_replaced:
        # Before the first change: where warnings are errors, the model stays as it was.
        lines = "\n".join(_told(plan.not_replaced))
        warnings.warn(f"convert leaves activations continuous:\n{lines}", stacklevel=2)
    holder = nn.Module()
    holder.model = deepcopy(model) if copy else model
    units: dict[tuple[nn.Module, str], nn.Module] = {}
    changes = []
    for path, target in plan.targets.items():
        before = holder.get_submodule(_full(path))
        after = units.setdefault((before, target), activation(target))
        if repr(after) != repr(before):
            changes.append(Change(path, before, after))
    scaled, not_scaled = scalings(holder.model, plan.targets, plan.traces, calibration)
    changes, layers, not_lean = _fused(holder, changes, memory)
    for change in (*changes, *layers):
        _inherit(change.after, change.before)
        holder.set_submodule(_full(change.path), change.after)
    for scaling in scaled:
        scaling.apply(holder.model)
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
    return Conversion(
        tuple(changes),
        plan.kept,
        plan.not_replaced,
        tuple(change.path for change in changes if change.path in plan.unclear),
        tuple(layers),
        tuple(not_lean),
        tuple(scaled),
        tuple(NotReplaced(p, plan.targets[p], why) for p, why in not_scaled.items()),
        holder,
        tuple(shortcuts),
    )


def _told(left: Iterable[NotReplaced]) -> list[str]:
    """Lines for what was not replaced, and the way out for functions."""
    lines = [str(item) for item in left]
    if any("function" in item.why for item in left):
        lines.append(
            "Make each function a module: self.act = nn.ReLU() in __init__, self.act(x) in forward."
        )
    return lines


def _full(path: str) -> str:
    return f"model.{path}" if path else "model"


def _fused(
    holder: nn.Module, changes: list[Change], memory: str
) -> tuple[list[Change], list[Change], list[NotReplaced]]:
    """Changes of activations and of layers, with units that move where ``memory`` asks for it."""
    model = holder.get_submodule("model")
    places = dict(model.named_modules(remove_duplicate=False))
    after = places | {change.path: change.after for change in changes}
    units = {path: m.staircase for path, m in after.items() if isinstance(m, StaircaseUnit)}
    fusion = fused(model, units, memory)
    after |= fusion.places
    changed = [Change(path, places[path], m) for path, m in after.items() if m is not places[path]]
    layers = [c for c in changed if isinstance(c.after, (UnitThenLayer, CodedLayer))]
    moved = {c.path for c in changed} - {c.path for c in layers} - {c.path for c in changes}
    layers += [c for c in changed if c.path in moved]
    not_lean = [NotReplaced(path, units[path].name, why) for path, why in fusion.left.items()]
    return [c for c in changed if c not in layers], layers, not_lean


def _inherit(heir: nn.Module, module: nn.Module) -> None:
    # The dictionaries themselves are shared, so that a hook's handle still removes it.
    hooks = {name: value for name, value in vars(module).items() if "_hook" in name}
    vars(heir).update(hooks, training=module.training)
