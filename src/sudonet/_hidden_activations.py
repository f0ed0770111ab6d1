"""Finds activations that a network computes outside of its submodules."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, fx, nn

from sudonet._trace import Trace
from sudonet.units import CONTINUOUS, SMOOTH, StaircaseUnit

# Activations of PyTorch without a name of ours. Softmax normalises and is none of them.
_OTHERS = (
    *("celu", "elu", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "leaky_relu"),
    *("logsigmoid", "mish", "prelu", "rrelu", "selu", "silu", "softplus", "softshrink"),
    *("softsign", "tanhshrink", "threshold"),
)
_CALLS = [name + ending for name in (*SMOOTH, *_OTHERS) for ending in ("", "_")]
_METHODS = {name: f"x.{name}()" for name in _CALLS if hasattr(Tensor, name)}
_HOMES = ((Tensor, "Tensor"), (nn.functional, "F"), (torch, "torch"))
_FUNCTIONS = {
    id(getattr(home, name)): f"{label}.{name}"
    for home, label in _HOMES
    for name in _CALLS
    if hasattr(home, name)
} | {
    id(getattr(torch.ops.aten, name).default): f"aten.{name}"
    for name in _CALLS
    if hasattr(torch.ops.aten, name) and hasattr(getattr(torch.ops.aten, name), "default")
}
# These are a ReLU, or a ReLU6, if they cut at 0.
_CLAMPS = ("clamp", "clamp_", "clamp_min", "clamp_min_", "clip", "clip_")
_CLAMP_FUNCTIONS = {
    id(getattr(home, name)): f"{label}.{name}"
    for home, label in _HOMES
    for name in _CLAMPS
    if hasattr(home, name)
}
_SCRIPTED = re.compile(rf"aten::({'|'.join(_CALLS)}|log_sigmoid)\(")
_USUAL: dict[str, Any] = {"torch": torch, "nn": nn, "F": nn.functional}  # If imported locally.
_EVERY_MODULE_HAS = frozenset(vars(nn.Module()))


@dataclass(frozen=True)
class NotReplaced:
    """One activation that could not be replaced.

    ``where`` is the path of the module that computes it (empty: the model itself),
    ``what`` the call, such as ``F.relu``, ``x.tanh()`` or ``LSTM``, ``why`` the
    reason, and ``at`` file and line where they are known.
    """

    where: str
    what: str
    why: str
    at: str = ""

    def __str__(self) -> str:
        return f"  {place(self.where)}: {self.what}{self.at and f' at {self.at}'}, {self.why}"


def place(path: str) -> str:
    """A module's path, in words where it is empty."""
    return path or "the model itself"


def not_replaced(
    model: nn.Module, leaves: set[str], traces: Iterable[Trace]
) -> Iterator[NotReplaced]:
    """Activations of ``model`` that are not submodules.

    ``leaves`` has the paths of those that are. What torch.fx did not trace is read in the source.
    """
    done = set(leaves)
    for trace in traces:
        done |= trace.entered
        for graph in trace.graphs:
            for node in graph.nodes:
                if what := _called(node):
                    where, at = node.meta["where"], node.meta["at"]
                    yield NotReplaced(where, what, "called as a function", at)
    modules = dict(model.named_modules())
    scripted = {path for path, m in modules.items() if isinstance(m, torch.jit.ScriptModule)}
    for path, module in modules.items():
        if isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
            yield NotReplaced(path, type(module).__name__, "computed inside the module")
        elif path in scripted:
            if not path or path.rpartition(".")[0] not in scripted:
                yield from _scripted(path, module)
        elif path not in done and not isinstance(module, StaircaseUnit):
            yield from _held(path, module)
            yield from _read(path, module)


def _called(node: fx.Node) -> str | None:
    """The activation that a node computes as a function, None if it is none."""
    if node.op == "call_method":
        name = str(node.target)
        if name in _CLAMPS:
            return f"x.{name}(min=0)" if _from_zero(node.args, node.kwargs) else None
        return _METHODS.get(name)
    if what := _CLAMP_FUNCTIONS.get(id(node.target)):
        return f"{what}(min=0)" if _from_zero(node.args, node.kwargs) else None
    return _FUNCTIONS.get(id(node.target))


def _from_zero(args: Sequence[Any], named: Mapping[str, Any]) -> bool:
    """If a clamp of ``args[0]`` cuts at 0 from below."""
    low = args[1] if len(args) > 1 else named.get("min")
    return isinstance(low, (int, float)) and low == 0


def _scripted(path: str, module: nn.Module) -> Iterator[NotReplaced]:
    text = str(getattr(module, "inlined_graph", ""))
    why = "scripted, and cannot be changed: convert before torch.jit.script or torch.jit.trace"
    for name in dict.fromkeys(_SCRIPTED.findall(text)):
        yield NotReplaced(path, f"aten.{name}", why)


def _held(path: str, module: nn.Module) -> Iterator[NotReplaced]:
    """Activations in attributes that are not registered submodules."""
    for name, value in vars(module).items():
        if name in _EVERY_MODULE_HAS:
            continue
        items = [*value.values()] if isinstance(value, dict) else value
        for item in items if isinstance(items, (list, tuple)) else [items]:
            if type(item) in CONTINUOUS:
                yield NotReplaced(path, repr(item), f"not registered as a submodule, in .{name}")
            elif what := _FUNCTIONS.get(id(item)):
                yield NotReplaced(path, what, f"a function, in .{name}")


def _read(path: str, module: nn.Module) -> Iterator[NotReplaced]:
    """Activations in the source of ``forward`` and of what it uses from its own package."""
    functions = [inspect.unwrap(getattr(module.forward, "__func__", module.forward))]
    for function in functions:  # The list grows while it is walked.
        package = str(getattr(function, "__module__", "")).split(".")[0]
        if package == "torch":
            continue
        try:
            lines, first = inspect.getsourcelines(function)
            tree = ast.parse(textwrap.dedent("".join(lines)))
            scope = _USUAL | function.__globals__ | inspect.getclosurevars(function).nonlocals
        except (OSError, TypeError, ValueError, SyntaxError):
            name = getattr(function, "__qualname__", "forward")
            yield NotReplaced(path, name, "could not be searched: its source is not available")
            continue
        scope["self"] = type(module)
        for node in sorted(ast.walk(tree), key=lambda node: getattr(node, "lineno", 0)):
            used = _resolved(node, scope)
            what = _FUNCTIONS.get(id(used))
            if isinstance(node, ast.Call):
                what = what or _method(node, scope)
            if what:
                line = first + getattr(node, "lineno", 1) - 1
                at = f"{PurePath(function.__code__.co_filename).name}:{line}"
                yield NotReplaced(path, what, "called as a function", at)
            elif isinstance(used, FunctionType) and used not in functions:
                functions += [used] if str(used.__module__).split(".")[0] == package else []


def _method(call: ast.Call, scope: dict[str, Any]) -> str | None:
    """The activation that a call of a tensor's method is, as far as the source tells."""
    name = getattr(call.func, "attr", "")
    if what := _CLAMP_FUNCTIONS.get(id(_resolved(call.func, scope))):
        args = call.args
    elif name in _CLAMPS:
        what, args = f"x.{name}", [ast.Name("x"), *call.args]
    else:
        return None if call.args else _METHODS.get(name)  # self.relu(x) calls a module.
    numbers = [arg.value if isinstance(arg, ast.Constant) else None for arg in args]
    named = {
        word.arg: word.value.value
        for word in call.keywords
        if word.arg and isinstance(word.value, ast.Constant)
    }
    return f"{what}(min=0)" if _from_zero(numbers, named) else None


def _resolved(node: ast.AST, scope: dict[str, Any]) -> Any:
    """The object that a name in the source stands for, or None."""
    if isinstance(node, ast.Name):
        return scope.get(node.id)
    if isinstance(node, ast.Call) and "__class__" in scope and ast.unparse(node) == "super()":
        return super(scope["__class__"], scope["self"])
    if isinstance(node, ast.Attribute):
        home = _resolved(node.value, scope)
        if isinstance(home, ModuleType):
            return vars(home).get(node.attr)  # A module's __getattr__ may import, or fail.
        return getattr(home, node.attr, None) if isinstance(home, (type, super)) else None
    return None
