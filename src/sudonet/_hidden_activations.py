"""Finds activations that a network computes outside of its submodules."""

from __future__ import annotations

import ast
import inspect
import random
import sys
import textwrap
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import PurePath
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from sudonet.units import SMOOTH, StaircaseUnit

_CALLS = [name + ending for name in SMOOTH for ending in ("", "_")]
_METHODS = {name: f"x.{name}()" for name in _CALLS if hasattr(Tensor, name)}
_FUNCTIONS = {
    id(getattr(home, name)): f"{label}.{name}"
    for home, label in ((Tensor, "Tensor"), (nn.functional, "F"), (torch, "torch"))
    for name in _CALLS
    if hasattr(home, name)
} | {id(getattr(torch.ops.aten, name).default): f"aten.{name}" for name in _CALLS}
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


def not_replaced(model: nn.Module, replaced: set[str]) -> Iterator[NotReplaced]:
    """Activations of ``model`` that are not submodules; ``replaced`` has the paths of those."""
    tracer = _Tracer(replaced)
    cuda = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(cuda), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            twin = _without_data(model)
            for mode in (True, False):
                twin.train(mode)
                tracer.trace(twin)
        found, done = tracer.found, replaced | tracer.entered
    except Exception:  # Mostly control flow that depends on data: read the source instead.
        found, done = [], replaced
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
    yield from found
    for path, module in model.named_modules():
        if isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
            yield NotReplaced(path, type(module).__name__, "computed inside the module")
        elif path not in done and not isinstance(module, StaircaseUnit):
            yield from _held(path, module)
            yield from _read(path, module)


class _Tracer(fx.Tracer):
    """Records activations that are called as functions, and the modules that it enters."""

    proxy_buffer_attributes = True

    def __init__(self, replaced: set[str]) -> None:
        super().__init__()
        self.replaced = replaced
        self.entered = {""}
        self.found: list[NotReplaced] = []

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        leaf = isinstance(m, StaircaseUnit) or module_qualified_name in self.replaced
        if leaf or super().is_leaf_module(m, module_qualified_name):
            return True
        self.entered.add(module_qualified_name)
        return False

    def create_node(self, kind: str, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        what = _METHODS.get(target) if kind == "call_method" else _FUNCTIONS.get(id(target))
        if what:
            where = next(reversed(self.module_stack.values()), ("",))[0]
            self.found.append(NotReplaced(where, what, "called as a function", _user_line()))
        return super().create_node(kind, target, *args, **kwargs)


def _user_line() -> str:
    """File and line of the innermost frame that is not PyTorch's."""
    frame = sys._getframe(2)
    while frame.f_back and str(frame.f_globals.get("__name__")).startswith("torch."):
        frame = frame.f_back
    ours = frame.f_globals is globals()  # Then there is no frame of the user's.
    return "" if ours else f"{PurePath(frame.f_code.co_filename).name}:{frame.f_lineno}"


def _without_data(model: nn.Module) -> nn.Module:
    """A copy that may be traced: its tensors hold nothing and its hooks are gone."""
    memo: dict[int, Any] = {}
    for module in model.modules():
        for name, value in vars(module).items():
            if "_hook" in name and isinstance(value, OrderedDict):
                memo[id(value)] = OrderedDict()
        for parameter in module.parameters(recurse=False):
            empty = torch.empty_like(parameter, device="meta", requires_grad=False)
            memo[id(parameter)] = nn.Parameter(empty, parameter.requires_grad)
        for buffer in module.buffers(recurse=False):
            memo[id(buffer)] = torch.empty_like(buffer, device="meta")
    return deepcopy(model, memo)


def _held(path: str, module: nn.Module) -> Iterator[NotReplaced]:
    """Activations in attributes that are not registered submodules."""
    for name, value in vars(module).items():
        if name in _EVERY_MODULE_HAS:
            continue
        items = [*value.values()] if isinstance(value, dict) else value
        for item in items if isinstance(items, (list, tuple)) else [items]:
            if type(item) in SMOOTH.values():
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
            if isinstance(node, ast.Call) and not node.args:  # self.relu(x) calls a module.
                what = what or _METHODS.get(getattr(node.func, "attr", ""))
            if what:
                line = first + getattr(node, "lineno", 1) - 1
                at = f"{PurePath(function.__code__.co_filename).name}:{line}"
                yield NotReplaced(path, what, "called as a function", at)
            elif isinstance(used, FunctionType) and used not in functions:
                functions += [used] if str(used.__module__).split(".")[0] == package else []


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
