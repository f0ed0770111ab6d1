"""Scales what goes into a unit with a range, so that its levels lie where the activations are.

A unit over relu6 covers 0 to 6. Activations that stay below 0.5 meet two of its 16 levels, and
those that reach 40 are cut. Units have no parameters that could stretch them, but the layers around
them have: the layer before is multiplied by a power of two, and the layers after are divided by it.
Powers of two lose no digit, so the continuous network computes the same as before, and undoing is
exact even after training.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, fx, nn

from sudonet import functional
from sudonet._hidden_activations import place
from sudonet._trace import Trace
from sudonet.staircase import Staircase
from sudonet.units import StaircaseUnit, activation

Batch: TypeAlias = Tensor | np.ndarray[Any, Any] | tuple[Tensor | np.ndarray[Any, Any], ...]

_STEEPER = 6

_WEIGHTED: tuple[type[nn.Module], ...] = (
    *(nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d),
    *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
)
_NORMS: tuple[type[nn.Module], ...] = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm, nn.GroupNorm),
)
# A positive factor in front of these may as well stand behind them.
_TRANSPARENT: tuple[type[nn.Module], ...] = (
    *(nn.Identity, nn.Flatten, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d),
    *(nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d),
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d),
)
_METHODS = ("contiguous", "flatten", "mean", "permute", "reshape", "squeeze", "transpose", "view")
_FUNCTIONS = frozenset(
    [
        *(getattr(torch, name) for name in _METHODS if hasattr(torch, name)),
        *(F.dropout, F.max_pool1d, F.max_pool2d),
        *(F.avg_pool1d, F.avg_pool2d),
        *(F.adaptive_avg_pool1d, F.adaptive_avg_pool2d),
    ]
)


@dataclass(frozen=True)
class Scaling:
    """``layer`` was multiplied by ``factor`` and ``next_layers`` divided by it, for one unit."""

    path: str
    factor: float
    layer: str
    next_layers: tuple[str, ...]

    def __str__(self) -> str:
        after = ", ".join(self.next_layers)
        return f"  {self.path}: {self.layer} times {self.factor:g}, {after} divided by it"

    def apply(self, model: nn.Module, *, undo: bool = False) -> None:
        """Scale the layers of ``model``, or scale them back."""
        factor = 1 / self.factor if undo else self.factor
        with torch.no_grad():
            layer = model.get_submodule(self.layer)
            for tensor in (layer.weight, layer.bias):
                if isinstance(tensor, Tensor):
                    tensor.mul_(factor)
            for path in self.next_layers:
                weight = model.get_submodule(path).weight
                assert isinstance(weight, Tensor)
                weight.mul_(1 / factor)


def scalings(
    model: nn.Module, targets: Mapping[str, str], graphs: Iterable[Trace], calibration: Any
) -> tuple[list[Scaling], dict[str, str]]:
    """Factors for the units in ``targets``, and why others, which need one, get none.

    ``targets`` has the new unit's name for the paths of activations in ``model``. One after the
    other is tried out with several factors, and gets that with which the model's output on the
    batch ``calibration`` stays nearest to what it was. The error of the activation itself would be
    a poor guide: it counts many small numbers, and the next layer lives on the few large ones.
    """
    units = {path: _with_range(model.get_submodule(path), name) for path, name in targets.items()}
    ranged = {path: unit for path, unit in units.items() if unit}
    found: list[Scaling] = []
    reasons: dict[str, str] = {}
    if calibration is None or not ranged:
        return found, reasons
    sites = _Sites(model, [trace for trace in graphs if not trace.path])
    with _as_it_was(model):
        trial = _Trial(model, calibration)
        for path, unit in ranged.items():
            factor = trial.best(path, unit)
            try:
                if factor != 1:
                    found.append(Scaling(path, factor, *sites.around(path)))
            except _NoSiteError as error:
                reasons[path] = f"{factor:g} times the input would suit it, but {error}"
                factor = 1.0
            trial.put(path, unit, factor)
    return found, reasons


def _with_range(module: nn.Module, name: str) -> Staircase | None:
    unit = getattr(activation(name), "staircase", None)
    continuous = not isinstance(module, StaircaseUnit)
    return unit if unit and unit.underlying in ("relu6", "hardtanh") and continuous else None


@contextmanager
def _as_it_was(model: nn.Module) -> Iterator[None]:
    """Undo changes of modes, and of ``forward``, that single modules get."""
    before = {m: (m.training, vars(m).get("forward")) for m in model.modules()}
    try:
        yield
    finally:
        for module, (training, forward) in before.items():
            module.training = training
            _set_forward(module, forward)


def _set_forward(module: nn.Module, forward: Any) -> None:
    # As an attribute of the one module, in front of its class's: hooks go on working.
    vars(module).pop("forward", None)
    vars(module).update({} if forward is None else {"forward": forward})


class _Trial:
    """A model whose activations are exchanged for a while."""

    def __init__(self, model: nn.Module, calibration: Any) -> None:
        self.model, self.batch = model, _as_inputs(model, calibration)
        model.eval()
        self.wanted = self._run()

    def best(self, path: str, unit: Staircase) -> float:
        """The power of two in front of ``unit`` with which the output changes least."""
        highest = self._highest(path)
        if not 0 < highest < math.inf:
            return 1.0
        # With the first of them nothing is cut off; the others trade range for finer levels.
        first = math.floor(math.log2(float(unit.values[-1]) / highest))
        factors = [1.0, *(2.0**k for k in range(first, first + _STEEPER))]
        return min(factors, key=lambda factor: self._error(path, unit, factor))

    def put(self, path: str, unit: Staircase, factor: float) -> None:
        """Compute ``unit`` in the place of a module from now on."""
        module = self.model.get_submodule(path)
        _set_forward(module, lambda x: functional.apply(x * factor, unit) / factor)

    def _highest(self, path: str) -> float:
        """The largest absolute value that a module emits."""
        module, found = self.model.get_submodule(path), [0.0]
        compute = module.forward

        def watched(x: Tensor) -> Tensor:
            y: Tensor = compute(x)
            found.append(float(y.abs().amax()) if y.numel() else 0.0)
            return y

        with _as_it_was(module):
            _set_forward(module, watched)
            self._run()
        return max(found)

    def _error(self, path: str, unit: Staircase, factor: float) -> float:
        with _as_it_was(self.model.get_submodule(path)):
            self.put(path, unit, factor)
            pairs = zip(self._run(), self.wanted, strict=True)
        error = sum(float((a - b).square().mean() / b.square().mean()) for a, b in pairs)
        return math.inf if math.isnan(error) else error

    def _run(self) -> list[Tensor]:
        with torch.no_grad():
            return list(_real(self.model(*self.batch)))


def _real(value: Any) -> Iterator[Tensor]:
    """The tensors of real numbers in what a model returns."""
    if isinstance(value, Tensor) and value.is_floating_point() and value.numel():
        yield value.double()
    elif isinstance(value, Mapping):
        yield from _real(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _real(item)


def _as_inputs(model: nn.Module, calibration: Any) -> list[Tensor]:
    batch = calibration if isinstance(calibration, tuple) else (calibration,)
    if not batch or not all(isinstance(x, (Tensor, np.ndarray)) for x in batch):
        kinds = ", ".join(type(x).__name__ for x in batch) or "an empty tuple"
        raise TypeError(
            "calibration must be a batch: a tensor, an array, or a tuple of the model's inputs, "
            f"got {kinds}. Take one batch of a DataLoader: next(iter(loader))[0]"
        )
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    return [x if isinstance(x, Tensor) else _as_tensor(x, like) for x in batch]


def _as_tensor(array: Any, like: Tensor) -> Tensor:
    floating = array.dtype.kind == "f"
    return torch.as_tensor(array, dtype=like.dtype if floating else None, device=like.device)


class _NoSiteError(Exception):
    """Why a unit has no layers around it that could be scaled."""


class _Sites:
    """The layers around activations, in all graphs of a model."""

    def __init__(self, model: nn.Module, traces: list[Trace]) -> None:
        self.modules = dict(model.named_modules())
        self.graphs = [graph for trace in traces for graph in trace.graphs]
        self.counts = Counter(m for _, m in model.named_modules(remove_duplicate=False))
        self.shared = Counter(id(p) for _, p in model.named_parameters(remove_duplicate=False))

    def around(self, path: str) -> tuple[str, tuple[str, ...]]:
        """The layer before the activation at ``path``, and the layers after it."""
        if not self.graphs:
            raise _NoSiteError("torch.fx cannot trace the model")
        found = {self._in_graph(graph, path) for graph in self.graphs}
        if len(found) > 1:
            raise _NoSiteError("training and evaluation compute different graphs")
        return found.pop()

    def _in_graph(self, graph: fx.Graph, path: str) -> tuple[str, tuple[str, ...]]:
        calls = [node for node in graph.nodes if node.op == "call_module" and node.target == path]
        if len(calls) != 1 or self.counts[self.modules[path]] > 1:
            raise _NoSiteError("the activation is used in several places, or in none")
        before = self._source(calls[0])
        after = dict.fromkeys(self._sinks(calls[0]))
        return before, tuple(after)

    def _source(self, node: fx.Node) -> str:
        while True:
            (node,) = node.all_input_nodes
            if len(node.users) > 1:
                raise _NoSiteError(f"its input {_text(node)} is used elsewhere as well")
            if self._is_layer(node, _WEIGHTED + _NORMS):
                return str(node.target)
            if not self._transparent(node):
                raise _NoSiteError(f"its input comes from {_text(node)}, not from a layer")

    def _sinks(self, node: fx.Node) -> Iterator[str]:
        for user in node.users:
            if self._is_layer(user, _WEIGHTED):
                yield str(user.target)
            elif self._transparent(user):
                yield from self._sinks(user)
            else:
                raise _NoSiteError(f"its result goes to {_text(user)}, not to a layer alone")

    def _is_layer(self, node: fx.Node, kinds: tuple[type[nn.Module], ...]) -> bool:
        if node.op != "call_module":
            return False
        layer = self.modules[str(node.target)]
        return (
            type(layer) in kinds
            and isinstance(layer.weight, nn.Parameter)
            and self.counts[layer] == 1
            and sum(n.target == node.target for n in node.graph.nodes) == 1
            and all(self.shared[id(p)] == 1 for p in layer.parameters())
        )

    def _transparent(self, node: fx.Node) -> bool:
        if len(node.all_input_nodes) != 1:
            return False
        if node.op == "call_module":
            return type(self.modules[str(node.target)]) in _TRANSPARENT
        if node.op == "call_method":
            return node.target in _METHODS
        return node.op == "call_function" and node.target in _FUNCTIONS


def _text(node: fx.Node) -> str:
    return place(str(node.target)) if node.op == "call_module" else node.name
