"""Which activations of a network are outputs or gates, read from its graph.

A final sigmoid in front of a loss and the sigmoid of a squeeze-excite block are no hidden units:
a staircase there changes what the network promises, or multiplies every rounding by a tensor.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from sudonet._trace import Trace, join
from sudonet.units import StaircaseUnit

_SHAPES = (
    *("chunk", "clone", "contiguous", "detach", "expand", "expand_as", "flatten", "movedim"),
    *("narrow", "permute", "reshape", "select", "split", "squeeze", "swapaxes", "t", "transpose"),
    *("unbind", "unflatten", "unsqueeze", "view", "view_as"),
)
_TYPES = ("bfloat16", "cpu", "cuda", "double", "float", "half", "to", "type", "type_as")
_PASSING_METHODS = frozenset(_SHAPES + _TYPES)
_PASSING_FUNCTIONS = frozenset(
    [
        *(getattr(torch, name) for name in _SHAPES if hasattr(torch, name)),
        *(torch.cat, torch.concat, torch.stack, operator.getitem),
        *(functional.dropout, functional.alpha_dropout),
    ]
)
_PASSING_MODULES = (
    *(nn.Identity, nn.Flatten, nn.Unflatten),
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout),
)
_ADDING = frozenset(
    [operator.add, operator.sub, operator.neg, operator.iadd, operator.isub, torch.add, torch.sub]
)
_SCALING = frozenset(
    [
        *(operator.mul, operator.imul, operator.truediv, operator.itruediv),
        *(torch.mul, torch.multiply, torch.div),
    ]
)
_PRODUCTS = frozenset([operator.mul, operator.imul, torch.mul, torch.multiply])
_SIGMOIDS = frozenset(
    [torch.sigmoid, functional.sigmoid, functional.hardsigmoid, functional.softmax, torch.softmax]
)


@dataclass(frozen=True)
class Roles:
    """Outputs and gates with the reason in ``kept``; in ``hidden``, paths that are neither."""

    kept: Mapping[str, str]
    hidden: frozenset[str]


def roles(model: nn.Module, traces: Iterable[Trace]) -> Roles:
    """What the activations in the graphs of ``model`` are there for."""
    modules = dict(model.named_modules(remove_duplicate=False))
    kept: dict[nn.Module, str] = {}
    seen: set[nn.Module] = set()
    unclear: set[nn.Module] = set()
    for trace in traces:
        for graph in trace.graphs:
            for node in graph.nodes:
                if node.op != "call_module":
                    continue
                module = modules[join(trace.path, str(node.target))]
                ends = _Ends(modules, trace.path, node)
                seen.add(module)
                if ends.gates:
                    kept.setdefault(module, "a gate, its result multiplies another tensor")
                elif ends.output and not trace.path:
                    kept[module] = "its result is the model's output"
                elif ends.output:  # Of a part, whose place in the model is not known.
                    unclear.add(module)
    # PyTorch's own layers are not entered; their activations lie between two linear layers.
    layers = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
    inner = (m._modules.get("activation") for m in modules.values() if isinstance(m, layers))
    seen |= {module for module in inner if module}
    return Roles(
        {path: kept[m] for path, m in modules.items() if m in kept},
        frozenset(path for path, m in modules.items() if m in seen - unclear - kept.keys()),
    )


class _Ends:
    """Where the result of a node goes, unchanged but for shape, type and constants."""

    def __init__(self, modules: Mapping[str, nn.Module], path: str, node: fx.Node) -> None:
        self.modules, self.path = modules, path
        self.output = self.gates = False
        reached = [node]
        for carrier in reached:  # The list grows while it is walked.
            for user in carrier.users:
                if user.op == "output":
                    self.output = True
                elif self._passes(user):
                    reached += [] if user in reached else [user]
                elif _is(user, _PRODUCTS, ("mul", "mul_", "multiply")):
                    (other,) = [x for x in _tensors(user) if x is not carrier] or [carrier]
                    factor = other is not carrier
                    self.gates |= factor and (self._squashes(node) or not self._squashes(other))

    def _passes(self, node: fx.Node) -> bool:
        if node.op == "call_module":
            return isinstance(self._module(node), _PASSING_MODULES)
        if _is(node, _PASSING_FUNCTIONS, _PASSING_METHODS):
            return True
        by_constant = len(_tensors(node)) == 1
        return by_constant and _is(
            node, _ADDING | _SCALING, ("add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_")
        )

    def _squashes(self, node: fx.Node) -> bool:
        """If a node is a sigmoid, or passes on the result of one."""
        while self._passes(node) and _tensors(node):
            node = _tensors(node)[0]
        if node.op != "call_module":
            return _is(node, _SIGMOIDS, ("sigmoid", "sigmoid_", "softmax"))
        module = self._module(node)
        if isinstance(module, StaircaseUnit):
            return module.staircase.underlying == "sigmoid"
        return isinstance(module, (nn.Sigmoid, nn.Hardsigmoid, nn.Softmax))

    def _module(self, node: fx.Node) -> nn.Module:
        return self.modules[join(self.path, str(node.target))]


def _is(node: fx.Node, functions: frozenset[Any], methods: Iterable[str]) -> bool:
    if node.op == "call_method":
        return str(node.target) in methods
    return node.op == "call_function" and node.target in functions


def _tensors(node: fx.Node) -> list[fx.Node]:
    """The operands that are no constants: numbers, weights and buffers of the model are."""
    return [x for x in node.all_input_nodes if x.op != "get_attr"]
