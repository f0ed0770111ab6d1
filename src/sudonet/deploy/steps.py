"""A PyTorch model as a list of steps, read from its exported graph."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx import Node

from sudonet.deploy.errors import CompileError as CompileError
from sudonet.deploy.errors import cannot_be_compiled, is_recurrent, recurrent
from sudonet.deploy.given import STORE_WEIGHTS
from sudonet.deploy.layers import Pair, Shape
from sudonet.staircase import Staircase

Real: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Products:
    """Linear, Conv1d, Conv2d or ConvTranspose2d with real weights."""

    path: str
    kind: str
    weights: Real
    bias: Real
    shape_in: Shape
    shape_out: Shape
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    output_padding: Pair = (0, 0)
    groups: int = 1


@dataclass(frozen=True)
class Norm:
    """BatchNorm in evaluation mode: ``x * factor + constant`` for every channel."""

    path: str
    factor: Real
    constant: Real


@dataclass(frozen=True)
class Unit:
    """SUDO or R-SUDO."""

    path: str
    staircase: Staircase


@dataclass(frozen=True)
class Pool:
    """Maximum or mean of windows."""

    path: str
    kind: str
    kernel: Pair
    stride: Pair
    padding: Pair
    shape_in: Shape
    shape_out: Shape


@dataclass(frozen=True)
class Output:
    """What a network may end in: tanh, softmax or argmax."""

    path: str
    kind: str


Step: TypeAlias = Products | Norm | Unit | Pool | Output


def exported(model: nn.Module, shape: Shape) -> ExportedProgram:
    """The graph of ``model`` in evaluation mode, for examples of ``shape``."""
    for path, module in model.named_modules():
        if isinstance(module, nn.RNNBase | nn.RNNCellBase):  # torch.export warns of their weights
            raise recurrent(f"{path or 'the model'} ({type(module).__name__})")
    used = copy.deepcopy(model).cpu().eval()
    kinds = {p.dtype for p in used.parameters() if p.is_floating_point()}
    kind = kinds.pop() if len(kinds) == 1 else torch.float32
    try:
        return torch.export.export(used, (torch.zeros(2, *shape, dtype=kind),))
    except Exception as error:  # torch.export raises whatever the model's own code does
        _check_runs(used, shape, kind)
        raise CompileError(
            f"torch.export cannot trace the model with an input of shape {shape}: "
            f"{_reason(error)}. Its forward must be plain tensor code, without branches that "
            "depend on the data"
        ) from error


def _check_runs(model: nn.Module, shape: Shape, kind: torch.dtype) -> None:
    try:
        with torch.no_grad():
            model(torch.zeros(2, *shape, dtype=kind))
    except Exception as error:  # whatever the model's own code raises
        raise CompileError(
            f"the model cannot run on an input of shape {shape}: {_reason(error)}; give the shape "
            "of one example that it takes, without the batch's axis"
        ) from error


def _reason(error: Exception) -> str:
    """The first line of an error's message."""
    first = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return first.rstrip(".")


def steps(program: ExportedProgram) -> tuple[Shape, list[Step]]:
    """The shape of one example, and the model's steps in order."""
    graph = _Graph(program)
    found: list[Step] = []
    node, shape = graph.input()
    made = shape
    while (following := graph.following(node)) is not None:
        read = graph.read(following)
        if any(isinstance(step, Output) for step in read):
            _check_end(node, made)
        made = next((s.shape_out for s in read if isinstance(s, Products | Pool)), made)
        found += read
        node = following
    if not found or not isinstance(found[-1], Output):
        _check_end(node, made)
    return shape, found


def _check_end(node: Node, made: Shape) -> None:
    if _shape(node) != made:
        raise CompileError(
            f"{_path(node)} reshapes the result, {made}, to {_shape(node)}: end the model before "
            "it, or in a Linear"
        )


class _Graph:
    """An exported graph, read as a chain."""

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program
        signature = program.graph_signature
        self.tensors: dict[str, str] = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        self.inputs = signature.user_inputs
        self.results = signature.user_outputs

    def input(self) -> tuple[Node, Shape]:
        for node in self.program.graph.nodes:
            if is_recurrent(str(node.target)):  # such layers have several outputs
                raise recurrent(_path(node))
        inputs = [n for n in self.program.graph.nodes if n.name in self.inputs]
        if len(inputs) != 1 or len(self.results) != 1:
            raise CompileError(
                f"the model has {len(inputs)} inputs and {len(self.results)} outputs: an integer "
                "network has one of each"
            )
        return inputs[0], _shape(inputs[0])

    def following(self, node: Node) -> Node | None:
        # Shape queries are not branches.
        sizes = [user for user in node.users if str(user.target) == "aten.sym_size.int"]
        users = [user for user in node.users if user.op != "output" and user not in sizes]
        if len(users) > 1:
            raise CompileError(
                f"the output of {_path(node)} is used {len(users)} times: branches and shortcuts "
                "cannot be compiled, only a chain of layers"
            )
        if not users:
            return None
        if len(node.users) > len(users) + len(sizes):
            raise CompileError(f"{_path(node)} is returned and used: return the last output only")
        return users[0]

    def read(self, node: Node) -> list[Step]:
        name = str(node.target).removesuffix(".default")
        reader = _READERS.get(name)
        if reader is None:
            last = all(user.op == "output" for user in node.users)
            raise cannot_be_compiled(_path(node), name, last=last)
        return reader(self, node)

    def tensor(self, argument: Any) -> Real:
        """A parameter, a buffer or a constant of the model."""
        name = self.tensors.get(argument.name)
        if name is None:
            raise CompileError(
                f"{_path(argument)} is computed and used as a weight: store it, where it is "
                f"parametrized by {STORE_WEIGHTS}"
            )
        state: dict[str, Any] = {**self.program.state_dict, **self.program.constants}
        value: Tensor = state[name]
        if not value.isfinite().all():
            raise CompileError(f"{name} has NaN or infinite values: train the model again")
        return value.detach().to(torch.float64).numpy()


def _path(node: Node) -> str:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, kind = stack[-1] if stack else ("", "")
    kind = kind if isinstance(kind, str) else kind.__name__
    return f"{path or 'the model'} ({kind.rsplit('.', 1)[-1]})" if kind else node.name


def _shape(node: Node) -> Shape:
    value = node.meta["val"]
    return tuple(int(n) for n in value.shape[1:])


def _module(node: Node) -> str:
    """The module's path, which names the layer; a function's name where there is no module."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return (stack[-1][0] if stack else "") or node.name


def _arguments(node: Node) -> dict[str, Any]:
    """The arguments of a call by name, with the operator's own defaults."""
    target: Any = node.target
    schema = target._schema.arguments
    found = {argument.name: argument.default_value for argument in schema}
    found |= {a.name: value for a, value in zip(schema, node.args, strict=False)}
    return found | dict(node.kwargs)


def _pair(value: Any) -> Pair:
    numbers = [value] if isinstance(value, int) else list(value)
    if len(numbers) == 1:
        numbers = [numbers[0], numbers[0]]
    return int(numbers[0]), int(numbers[1])


def _line(value: Any, filler: int) -> Pair:
    """A setting of a 1D layer, which is read as a 2D layer of height 1."""
    return filler, int(value if isinstance(value, int) else value[0])


def _linear(graph: _Graph, node: Node) -> list[Step]:
    a = _arguments(node)
    weights = graph.tensor(a["weight"])
    into: Node = a["input"]
    if len(_shape(into)) != 1:
        raise CompileError(
            f"{_path(node)} gets examples of shape {_shape(into)}: put nn.Flatten() before it"
        )
    bias = graph.tensor(a["bias"]) if a["bias"] is not None else np.zeros(len(weights))
    return [Products(_module(node), "dense", weights, bias, _shape(into), _shape(node))]


def _planes(node: Node, into: Node, flat: bool) -> Shape:
    """The input shape of a convolution or pooling, which must have channels."""
    shape = _shape(into)
    if len(shape) != (2 if flat else 3):
        needed = "(channels, length)" if flat else "(channels, height, width)"
        raise CompileError(f"{_path(node)} gets examples of shape {shape}, it needs {needed}")
    return shape


def _convolution(graph: _Graph, node: Node, flat: bool, kind: str = "conv") -> list[Step]:
    a = _arguments(node)
    weights = graph.tensor(a["weight"])
    pair: Callable[[Any, int], Pair] = _line if flat else lambda value, _: _pair(value)
    if flat:
        weights = weights[:, :, None]
    dilation, padding = pair(a["dilation"], 1), a["padding"]
    if isinstance(padding, str):
        reach = [
            0 if padding == "valid" else d * (k - 1)
            for d, k in zip(dilation, weights.shape[2:], strict=True)
        ]
        if any(r % 2 for r in reach):
            raise CompileError(
                f"{_path(node)} pads one side more than the other: use an odd kernel, or "
                "padding given as a number"
            )
        padding = [r // 2 for r in reach][-1 if flat else 0 :]
    into: Node = a["input"]
    groups = int(a["groups"])
    out = weights.shape[1] * groups if kind == "transposed" else len(weights)
    return [
        Products(
            _module(node),
            kind,
            weights,
            graph.tensor(a["bias"]) if a["bias"] is not None else np.zeros(out),
            _planes(node, into, flat),
            _shape(node),
            stride=pair(a["stride"], 1),
            padding=pair(padding, 0),
            dilation=dilation,
            output_padding=pair(a.get("output_padding", 0), 0),
            groups=groups,
        )
    ]


def _norm(graph: _Graph, node: Node) -> list[Step]:
    a = _arguments(node)
    if a["running_mean"] is None or a["training"]:
        raise CompileError(
            f"{_path(node)} takes its mean from the batch: it needs track_running_stats=True and "
            "a model in eval() mode"
        )
    mean, variance = graph.tensor(a["running_mean"]), graph.tensor(a["running_var"])
    factor = 1 / np.sqrt(variance + a["eps"])
    if a["weight"] is not None:
        factor = factor * graph.tensor(a["weight"])
    constant = -mean * factor
    if a["bias"] is not None:
        constant = constant + graph.tensor(a["bias"])
    return [Norm(_module(node), factor, constant)]


def _pool(graph: _Graph, node: Node, flat: bool, kind: str) -> list[Step]:
    a = _arguments(node)
    pair: Callable[[Any, int], Pair] = _line if flat else lambda value, _: _pair(value)
    kernel, padding = pair(a["kernel_size"], 1), pair(a["padding"], 0)
    stride = pair(a["stride"], 1) if a["stride"] else kernel
    if kind == "max" and pair(a["dilation"], 1) != (1, 1):
        raise CompileError(f"{_path(node)} has a dilation: pooling must have dilation=1")
    if kind == "mean" and (padding != (0, 0) or a.get("divisor_override")):
        raise CompileError(
            f"{_path(node)} has padding or a divisor_override: average pooling must have neither"
        )
    if a["ceil_mode"]:
        raise CompileError(f"{_path(node)} has ceil_mode=True: use False and padding")
    into: Node = a.get("self") or a["input"]
    shape_in = _planes(node, into, flat)
    return [Pool(_module(node), kind, kernel, stride, padding, shape_in, _shape(node))]


def _adaptive_pool(graph: _Graph, node: Node, flat: bool) -> list[Step]:
    a = _arguments(node)
    shape_in, shape_out = _planes(node, a["self"], flat), _shape(node)
    sizes = list(zip(shape_in[1:], shape_out[1:], strict=True))
    if any(into % out for into, out in sizes):
        raise CompileError(
            f"{_path(node)} pools {shape_in[1:]} to {shape_out[1:]}: sizes must divide evenly"
        )
    kernel = (
        _line([into // out for into, out in sizes], 1)
        if flat
        else _pair([into // out for into, out in sizes])
    )
    return [Pool(_module(node), "mean", kernel, kernel, (0, 0), shape_in, shape_out)]


def _reshaped(graph: _Graph, node: Node) -> list[Step]:
    into: Node = node.args[0]  # type: ignore[assignment]
    value, before = node.meta["val"], into.meta["val"]
    if value.shape[0] != before.shape[0]:
        raise CompileError(f"{_path(node)} mixes examples of a batch: keep the first axis")
    return []


def _dropout(graph: _Graph, node: Node) -> list[Step]:
    a = _arguments(node)
    if a["train"] and a["p"] > 0:
        raise CompileError(
            f"{_path(node)} drops values at random in eval() mode, too: use nn.Dropout, or "
            "F.dropout(x, p, self.training), and a model in eval() mode"
        )
    return []


def _unit(graph: _Graph, node: Node) -> list[Step]:
    return [Unit(_module(node), Staircase.parse(str(_arguments(node)["unit"])))]


def _output(kind: str) -> Callable[[_Graph, Node], list[Step]]:
    def read(graph: _Graph, node: Node) -> list[Step]:
        axis = _arguments(node).get("dim", 1)
        if kind != "tanh" and (axis not in (1, -1) or len(_shape(node.args[0])) != 1):  # type: ignore[arg-type]
            raise CompileError(f"{_path(node)} must be over the features of each example")
        if _arguments(node).get("keepdim"):
            raise CompileError(f"{_path(node)} has keepdim=True: use False")
        return [Output(_module(node), kind)]

    return read


_READERS: dict[str, Callable[[_Graph, Node], list[Step]]] = {
    "aten.linear": _linear,
    "aten.conv1d": lambda g, n: _convolution(g, n, True),
    "aten.conv1d.padding": lambda g, n: _convolution(g, n, True),
    "aten.conv2d": lambda g, n: _convolution(g, n, False),
    "aten.conv2d.padding": lambda g, n: _convolution(g, n, False),
    "aten.conv_transpose2d.input": lambda g, n: _convolution(g, n, False, "transposed"),
    "aten.batch_norm": _norm,
    "aten.max_pool1d": lambda g, n: _pool(g, n, True, "max"),
    "aten.max_pool2d": lambda g, n: _pool(g, n, False, "max"),
    "aten.avg_pool1d": lambda g, n: _pool(g, n, True, "mean"),
    "aten.avg_pool2d": lambda g, n: _pool(g, n, False, "mean"),
    "aten.adaptive_avg_pool1d": lambda g, n: _adaptive_pool(g, n, True),
    "aten.adaptive_avg_pool2d": lambda g, n: _adaptive_pool(g, n, False),
    "aten.flatten.using_ints": _reshaped,
    "aten.view": _reshaped,
    "aten.reshape": _reshaped,
    "aten.dropout": _dropout,
    "aten.dropout_": _dropout,
    "sudonet.staircase": _unit,
    "aten.tanh": _output("tanh"),
    "aten.softmax.int": _output("softmax"),
    "aten.argmax": _output("argmax"),
}
