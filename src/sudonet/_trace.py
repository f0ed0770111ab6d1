"""Graphs of a model that is not run: torch.fx, on a copy without data and hooks."""

from __future__ import annotations

import random
import sys
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np
import torch
from torch import fx, nn
from torch.nn.parameter import is_lazy

from sudonet.units import StaircaseUnit

_ATTEMPTS = 20


@dataclass(frozen=True)
class Trace:
    """The graphs of one module, in train and in eval mode.

    ``path`` is the module's path (empty: the model itself), ``entered`` has the paths of the
    modules whose ``forward`` is part of the graphs. Paths in the graphs are relative.
    """

    path: str
    graphs: tuple[fx.Graph, ...]
    entered: frozenset[str]


def join(*names: str) -> str:
    """A path of its parts, of which some may be empty."""
    return ".".join(name for name in names if name)


def traces(model: nn.Module, leaves: AbstractSet[str]) -> list[Trace]:
    """Graphs of ``model``, or of those parts that torch.fx can trace.

    ``leaves`` are paths of modules that stay calls in the graphs. A part that cannot be traced,
    mostly because its control flow depends on data, stays a call as well; what lies inside of it
    is traced on its own. Neither the model nor random numbers are touched.
    """
    with _random_numbers_kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(_traces(model, "", leaves))


def _traces(model: nn.Module, path: str, leaves: AbstractSet[str]) -> Iterator[Trace]:
    if isinstance(model, torch.jit.ScriptModule):
        return
    opaque: set[str] = set()
    for _ in range(_ATTEMPTS):
        tracer = _Tracer(path, leaves, opaque)
        graphs = []
        try:
            twin = _without_data(model)
            for mode in (True, False):
                twin.train(mode)
                graphs.append(tracer.trace(twin))
        except Exception:  # Tracing runs the user's code, which may raise anything.
            where = next(reversed(tracer.module_stack.values()), ("",))[0]
            if not where or where in opaque:
                break
            opaque.add(where)
        else:
            entered = frozenset(join(path, name) for name in tracer.entered)
            yield Trace(path, tuple(graphs), entered)
            break
    for parent in opaque if graphs and len(graphs) == 2 else {""}:
        for name, child in model.get_submodule(parent).named_children():
            inner = join(path, parent, name)
            if isinstance(child, (nn.ModuleList, nn.ModuleDict)) or not tracer.leaf(child, inner):
                yield from _traces(child, inner, leaves)


class _Tracer(fx.Tracer):
    """Notes with every node the module and the line that it comes from."""

    proxy_buffer_attributes = True

    def __init__(self, path: str, leaves: AbstractSet[str], opaque: AbstractSet[str]) -> None:
        super().__init__()
        self.path, self.leaves, self.opaque = path, leaves, opaque
        self.entered = {""}

    def leaf(self, module: nn.Module, path: str) -> bool:
        known = isinstance(module, (StaircaseUnit, torch.jit.ScriptModule)) or path in self.leaves
        return known or super().is_leaf_module(module, path)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if module_qualified_name in self.opaque or self.leaf(
            m, join(self.path, module_qualified_name)
        ):
            return True
        self.entered.add(module_qualified_name)
        return False

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        node = super().create_node(*args, **kwargs)
        inner = next(reversed(self.module_stack.values()), ("",))[0]
        node.meta.update(where=join(self.path, inner), at=_user_line())
        return node


def _user_line() -> str:
    """File and line of the innermost frame that is not PyTorch's."""
    frame = sys._getframe(2)
    while frame.f_back and str(frame.f_globals.get("__name__")).startswith("torch."):
        frame = frame.f_back
    ours = frame.f_globals is globals()  # Then there is no frame of the user's.
    return "" if ours else f"{PurePath(frame.f_code.co_filename).name}:{frame.f_lineno}"


@contextmanager
def _random_numbers_kept() -> Iterator[None]:
    cuda = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(cuda):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


def _without_data(model: nn.Module) -> nn.Module:
    """A copy that may be traced: its tensors hold nothing and its hooks are gone."""
    memo: dict[int, Any] = {}
    for module in model.modules():
        for name, value in vars(module).items():
            if "_hook" in name and isinstance(value, OrderedDict):
                memo[id(value)] = OrderedDict()
        for parameter in module.parameters(recurse=False):
            if is_lazy(parameter):
                continue
            empty = torch.empty_like(parameter, device="meta", requires_grad=False)
            memo[id(parameter)] = nn.Parameter(empty, parameter.requires_grad)
        for buffer in module.buffers(recurse=False):
            memo[id(buffer)] = torch.empty_like(buffer, device="meta")
    return deepcopy(model, memo)
