"""ONNX graphs, written node by node."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sudonet.deploy.layers import Affine, Layer, MaxPool, Shape, SumPool, image

if TYPE_CHECKING:
    from sudonet.deploy.network import IntegerNetwork

Value: TypeAlias = str | NDArray[Any] | np.generic

FORMAT = 8
"""The version of the file format: the oldest that has all operators used."""


class Graph:
    """Nodes in the order in which they run, and the constants that they share.

    A value is the name of what a node made, or a constant array. Names begin with ``layer``,
    the name of the layer that is being written.
    """

    def __init__(self) -> None:
        self.onnx = _onnx()
        self.layer = ""
        self._nodes: list[Any] = []
        self._constants: dict[tuple[str, Shape, bytes], tuple[str, NDArray[Any]]] = {}

    def add(self, operator: str, *inputs: Value, domain: str = "", **attributes: Any) -> str:
        """Add a node with one output; returns the name of that."""
        made = self._named(operator, len(self._nodes))
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        self._nodes.append(
            self.onnx.helper.make_node(
                operator, names, [made], name=made, domain=domain, **attributes
            )
        )
        return made

    def constant(self, value: NDArray[Any] | np.generic) -> str:
        """The name of a constant; equal ones are kept once."""
        array = np.asarray(value)
        key = (array.dtype.str, array.shape, array.tobytes())
        named = (self._named("constant", len(self._constants)), array)
        return self._constants.setdefault(key, named)[0]

    def cast(self, value: Value, dtype: DTypeLike) -> str:
        return self.add("Cast", value, to=_number(dtype))

    def reshaped(self, value: Value, shape: Sequence[int]) -> str:
        """Reshape every example of the batch."""
        return self.add("Reshape", value, np.array([0, *shape], np.int64))

    def rename(self, old: str, new: str) -> None:
        for node in self._nodes:
            for names in (node.input, node.output):
                for place, name in enumerate(names):
                    if name == old:
                        names[place] = new

    def save(
        self,
        path: str | Path,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        *,
        text: str,
        facts: Mapping[str, Any],
        operators: Mapping[str, int],
        between: Sequence[Any] = (),
        annotations: Sequence[Any] = (),
    ) -> None:
        """Check the model and write it.

        Parameters
        ----------
        path
            The file.
        inputs, outputs, between
            What :func:`described` gives, of values that go in, come out or stay inside.
        text
            A description of the model for people.
        facts
            The same for programs: names and values.
        operators
            Versions of the operator sets, by their domains.
        annotations
            What :func:`annotated` gives.
        """
        helper = self.onnx.helper
        graph = helper.make_graph(
            self._nodes,
            "sudonet",
            inputs,
            outputs,
            [self.onnx.numpy_helper.from_array(a, name) for name, a in self._constants.values()],
            value_info=between,
        )
        graph.quantization_annotation.extend(annotations)
        model = helper.make_model(
            graph,
            producer_name="sudonet",
            doc_string=text,
            ir_version=FORMAT,
            opset_imports=[helper.make_opsetid(*pair) for pair in operators.items()],
        )
        helper.set_model_props(model, {key: str(value) for key, value in facts.items()})
        self.onnx.checker.check_model(model, full_check=True)
        Path(path).write_bytes(model.SerializeToString())

    def _named(self, what: str, number: int) -> str:
        return f"{self.layer}/{what}_{number}" if self.layer else f"{what}_{number}"


def described(name: str, dtype: DTypeLike, shape: Sequence[int | str]) -> Any:
    """The type and the shape of a value."""
    return _onnx().helper.make_tensor_value_info(name, _number(dtype), shape)


def annotated(name: str, kind: str) -> Any:
    """QONNX's type of a value, which may have fewer bits than its tensor."""
    onnx = _onnx()
    entry = onnx.StringStringEntryProto(key="finn_datatype", value=kind)
    return onnx.TensorAnnotation(tensor_name=name, quant_parameter_tensor_names=[entry])


def network_text(network: IntegerNetwork) -> str:
    """The network's input and output, for people."""
    grid = network.inputs
    return (
        f"Input: integers from {grid.low} to {grid.high}, as they are; n stands for "
        f"{grid.scale!r} * (n - {grid.zero!r}). Output: {network.output}."
    )


def network_facts(network: IntegerNetwork) -> dict[str, Any]:
    """The same for programs."""
    grid = network.inputs
    return {
        "input_low": grid.low,
        "input_high": grid.high,
        "input_scale": repr(grid.scale),
        "input_zero": repr(grid.zero),
        "output": network.output,
    }


def graph_shapes(layer: Layer) -> tuple[Shape, Shape]:
    """Shapes of a layer's input and output: vectors for dense layers, images for all others."""
    if isinstance(layer, Affine) and layer.kind == "dense":
        return (math.prod(layer.shape_in),), (math.prod(layer.shape_out),)
    return image(layer.shape_in), image(layer.shape_out)


def size_attributes(layer: Affine | MaxPool | SumPool) -> dict[str, Any]:
    """Kernel, stride and padding as ONNX names them."""
    padding = (0, 0) if isinstance(layer, SumPool) else layer.padding
    return {
        "kernel_shape": list(layer.kernel),
        "strides": list(layer.stride),
        "pads": [*padding, *padding],
    }


def convolution_attributes(layer: Affine) -> dict[str, Any]:
    """The same, with dilation, groups and output padding."""
    made = size_attributes(layer) | {"dilations": list(layer.dilation), "group": layer.groups}
    if layer.kind == "transposed":
        made["output_padding"] = list(layer.output_padding)
    return made


def along(numbers: NDArray[Any], shape: Shape) -> NDArray[Any]:
    """One number a channel, reshaped to broadcast against ``shape``."""
    return numbers.reshape(-1, *[1] * (len(shape) - 1))


def _number(dtype: DTypeLike) -> int:
    number: int = _onnx().helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return number


def _onnx() -> Any:
    try:
        import onnx
    except ImportError:
        raise ImportError("writing ONNX needs onnx: run pip install 'sudonet[onnx]'") from None
    return onnx
