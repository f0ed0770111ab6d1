"""Integer networks as ONNX files, in standard operators only."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sudonet.deploy import onnx_exact
from sudonet.deploy.layers import Affine, MaxPool, RealThresholds, Scores, SumPool, image
from sudonet.deploy.onnx_graph import (
    Graph,
    along,
    convolution_attributes,
    described,
    graph_shapes,
    network_facts,
    network_text,
    size_attributes,
)
from sudonet.deploy.real_form import FLOAT32, Ramp, of_products, regular
from sudonet.deploy.steps import CompileError
from sudonet.staircase import Staircase

if TYPE_CHECKING:
    from sudonet.deploy.network import Inputs, IntegerNetwork

TARGETS = ("onnxruntime", "openvino")
OPERATORS = {"": 17}
ROWS = 256
"""Examples that are compared at once."""
NEAR = 1e-5
"""Tolerance of an output, as a share of the largest."""

FORMS = {
    "exact": "Every number is an integer until the output, and the same as in the reference.",
    "onnxruntime": (
        "Sums are of integers; the units are computed in float32, so that a code may differ. "
        "On x86 CPUs without VNNI run it with the session's entry session.x64quantprecision "
        "set to 1, or ONNX Runtime saturates sums of large inputs."
    ),
    "openvino": (
        "Quantised as OpenVINO expects it; the units are computed in float32, so that a code may "
        "differ. Compile it with INFERENCE_PRECISION_HINT f32, or CPUs with bfloat16 use that."
    ),
}


def to_onnx(
    network: IntegerNetwork,
    path: str | Path,
    *,
    exact: bool = False,
    target: str = "onnxruntime",
) -> None:
    """Write ``network`` as a model of standard ONNX operators.

    The model takes a batch of any size of the network's own input integers: uint8 (or
    int16), not real values. What they stand for is in the model's text and in its metadata.
    The output ``output`` is what the network gives when it is called: float32, or int64
    for an argmax.

    Parameters
    ----------
    network
        A compiled network.
    path
        The file to write.
    exact
        Thresholds are compared as integers, so that codes and scores are those of the
        reference, bit by bit, on every CPU. A second output gives them: ``scores`` (int64),
        or ``codes`` if the network ends in a unit. tanh and softmax are taken in float64 and
        may differ in the last bit. Several times slower than the usual form, which computes
        the units in float32: :func:`agreement` tells how often that matters.
    target
        ``onnxruntime``, or ``openvino`` for a file with quantised tensors as OpenVINO
        expects them. Compile that with ``INFERENCE_PRECISION_HINT`` set to ``f32``, or CPUs
        that have bfloat16 compute the units in it.

    Notes
    -----
    ONNX Runtime adds up products of uint8 and int8 in 16 bits on x86 CPUs without VNNI,
    which saturates at large sums: of pixels, say, or with more than 128 levels. There the usual
    form needs ``session.x64quantprecision`` set to ``1`` in the session's options. The exact
    form stores its weights such that this cannot happen.
    """
    if target not in TARGETS:
        raise ValueError(f"target must be one of {', '.join(TARGETS)}, got {target!r}")
    if exact and target != "onnxruntime":
        raise ValueError(
            "the exact form needs 64-bit integers, which OpenVINO computes in 32: leave out "
            "exact=True, or run the file in ONNX Runtime"
        )
    graph = Graph()
    outputs = (_Exact(graph) if exact else _Real(graph, target)).write(network)
    form = "exact" if exact else target
    graph.save(
        path,
        [described("input", network.inputs.dtype, ["batch", *network.shape_in])],
        outputs,
        text=f"{network_text(network)} {FORMS[form]}",
        facts=network_facts(network) | {"form": form},
        operators=OPERATORS,
    )


def agreement(network: IntegerNetwork, path: str | Path, x: Inputs) -> float:
    """The share of examples for which a file gives what the network gives.

    ONNX Runtime runs the file with its defaults. An example agrees if the indices of an
    argmax are the same, or else if no number is off by more than 10^-5 of the largest number
    of all examples: far less than a differing code makes, and more than float32's rounding.

    Parameters
    ----------
    network
        What :func:`to_onnx` wrote.
    path
        The file.
    x
        A batch of inputs, as the network takes them.
    """
    try:
        import onnxruntime  # type: ignore[import-untyped]
    except ImportError:
        raise ImportError(
            "running ONNX needs onnxruntime: run pip install 'sudonet[onnx]'"
        ) from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    integers, _ = network.integers(x)
    if not len(integers):
        raise ValueError("agreement needs at least one example")
    parts = [integers[i : i + ROWS] for i in range(0, len(integers), ROWS)]
    found = np.concatenate([session.run(["output"], {"input": part})[0] for part in parts])
    expected = np.concatenate([network.real(network.raw(part)) for part in parts])
    allowed = 0 if network.output == "argmax" else NEAR * np.abs(expected).max()
    same = np.abs(found - expected) <= allowed
    return float(same.reshape(len(same), -1).all(1).mean())


class _Form(ABC):
    """What all forms share: shapes, pooling and the output."""

    wide: type[np.generic]
    """Between layers, the type of integers that a byte does not hold."""
    real: type[np.generic] = np.float32
    """The type in which tanh or softmax is computed."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def write(self, network: IntegerNetwork) -> list[Any]:
        """Write the whole graph; returns descriptions of its outputs."""
        x, shape = self.input("input", network.inputs.dtype), network.shape_in
        for layer in network.layers:
            self.graph.layer = layer.name
            wanted, made = graph_shapes(layer)
            x = x if shape == wanted else self.graph.reshaped(x, wanted)
            x = self.affine(layer, x) if isinstance(layer, Affine) else self.pooled(layer, x)
            shape = made
        self.graph.layer = ""
        last = network.layers[-1]
        assert isinstance(last, Affine)
        x = x if shape == last.shape_out else self.graph.reshaped(x, last.shape_out)
        return self.outputs(network, last, x)

    def input(self, x: str, dtype: np.dtype[Any]) -> str:
        return x

    @abstractmethod
    def affine(self, layer: Affine, x: str) -> str:
        """A layer's integers, or its real numbers at the end."""

    def outputs(self, network: IntegerNetwork, last: Affine, x: str) -> list[Any]:
        """From the last layer's real numbers, or from the integers of its unit."""
        graph = self.graph
        if network.output == "argmax":
            graph.rename(graph.add("ArgMax", x, axis=1, keepdims=0), "output")
            return [described("output", np.int64, ["batch"])]
        if network.output == "codes":
            assert last.grid_out is not None
            values = last.grid_out.values(np.arange(last.grid_out.high + 1)).astype(self.real)
            x = graph.add("Gather", values, graph.cast(x, np.int32))
        elif network.output == "tanh":
            x = graph.add("Tanh", x)
        elif network.output == "softmax":
            x = graph.add("Softmax", x, axis=1)
        if self.real != np.float32:
            x = graph.cast(x, np.float32)
        graph.rename(x, "output")
        return [described("output", np.float32, ["batch", *last.shape_out])]

    def pooled(self, layer: MaxPool | SumPool, x: str) -> str:
        graph, narrow = self.graph, layer.grid_out.dtype == np.uint8
        if isinstance(layer, MaxPool) and narrow:
            return graph.add("MaxPool", x, **size_attributes(layer))
        reach = layer.grid_out.reach
        if reach >= FLOAT32:
            raise CompileError(
                f"{layer.name} makes integers up to {reach:,}, and ONNX pools float32, which is "
                f"exact up to {FLOAT32:,}: use smaller windows, or inputs of 8 bits"
            )
        real = graph.cast(x, np.float32)
        if isinstance(layer, MaxPool):
            real = graph.add("MaxPool", real, **size_attributes(layer))
        else:
            # Sums of integers are exact here; a mean would be rounded.
            channels = image(layer.shape_in)[0]
            ones = np.ones((channels, 1, *layer.kernel), np.float32)
            real = graph.add("Conv", real, ones, group=channels, **size_attributes(layer))
        return self.stored(real, narrow)

    def stored(self, real: str, narrow: bool) -> str:
        """The result of a pooling, in the type that the next layer takes."""
        return self.graph.cast(real, np.uint8 if narrow else self.wide)


class _Exact(_Form):
    """Integers throughout."""

    wide = np.int32
    real = np.float64

    def affine(self, layer: Affine, x: str) -> str:
        return onnx_exact.affine(self.graph, layer, x)

    def outputs(self, network: IntegerNetwork, last: Affine, x: str) -> list[Any]:
        name, dtype = ("codes", np.uint8) if network.output == "codes" else ("scores", np.int64)
        self.graph.rename(x, name)
        x = name
        if isinstance(last.after, Scores) and network.output != "argmax":
            unit = np.float64(math.ldexp(1.0, -last.after.fraction))
            x = self.graph.add("Mul", self.graph.cast(x, np.float64), unit)
        found = super().outputs(network, last, x)
        return [*found, described(name, dtype, ["batch", *last.shape_out])]


class _Real(_Form):
    """Sums of integers, or of quantised tensors, and units in float32."""

    wide = np.float32

    def __init__(self, graph: Graph, target: str) -> None:
        super().__init__(graph)
        self.quantised = target == "openvino"

    def input(self, x: str, dtype: np.dtype[Any]) -> str:
        if not self.quantised:
            return x
        return self._dequantise(x) if dtype == np.uint8 else self.graph.cast(x, np.float32)

    def affine(self, layer: Affine, x: str) -> str:
        slope, constant = of_products(layer)
        _, shape = graph_shapes(layer)
        constant = constant if constant.ndim > 1 else along(constant, shape)
        if self.quantised:
            scaled = self._quantised_products(layer, x, slope)
        else:
            scaled = self.graph.add(
                "Mul", self._products(layer, x), along(slope.astype(np.float32), shape)
            )
        y = self.graph.add("Add", scaled, constant.astype(np.float32))
        unit = getattr(layer.after, "unit", None)
        if unit is None:
            return y
        # Sums of integers never lie on a threshold, by the choice of the constant.
        codes = self._staircase(y, unit, ties=isinstance(layer.after, RealThresholds))
        return self._dequantise(codes) if self.quantised else codes

    def stored(self, real: str, narrow: bool) -> str:
        if not self.quantised:
            return super().stored(real, narrow)
        return self._dequantise(self._quantise(real)) if narrow else real

    def _products(self, layer: Affine, x: str) -> str:
        """float32 sums of weight * integer."""
        graph = self.graph
        whole = layer.weight_kind != "float32" and layer.grid_in.dtype == np.uint8
        if whole and layer.kind == "dense":
            # int8 is several times faster than uint8 here, and enough on CPUs with VNNI.
            matrix = np.ascontiguousarray(layer.weights.T)
            return graph.cast(graph.add("MatMulInteger", x, matrix), np.float32)
        if whole and layer.kind == "conv":
            sums = onnx_exact.integer_products(graph, layer, x, largest=layer.grid_in.high)
            return graph.cast(sums, np.float32)
        return self._real_products(layer, graph.cast(x, np.float32), layer.weights)

    def _real_products(self, layer: Affine, x: str, weights: NDArray[Any] | str) -> str:
        if not isinstance(weights, str):
            weights = weights.astype(np.float32)
        if layer.kind == "dense":
            matrix = weights if isinstance(weights, str) else weights.T
            return self.graph.add("MatMul", x, matrix)
        operator = "Conv" if layer.kind == "conv" else "ConvTranspose"
        return self.graph.add(operator, x, weights, **convolution_attributes(layer))

    def _quantised_products(self, layer: Affine, x: str, slope: NDArray[np.float64]) -> str:
        """The same times the slope, which is the scale of the weights."""
        scales, dense = slope.astype(np.float32), layer.kind == "dense"
        in_groups = layer.kind == "transposed" and layer.groups > 1  # no axis of scales
        if layer.weight_kind == "float32" or layer.grid_in.dtype != np.uint8 or in_groups:
            _, shape = graph_shapes(layer)
            sums = self._real_products(layer, x, layer.weights)
            return self.graph.add("Mul", sums, along(scales, shape))
        weights = self.graph.add(
            "DequantizeLinear",
            np.ascontiguousarray(layer.weights.T) if dense else layer.weights,
            scales,
            np.zeros(len(scales), np.int8),
            axis=0 if layer.kind == "conv" else 1,
        )
        return self._real_products(layer, x, weights)

    def _staircase(self, y: str, unit: Staircase, *, ties: bool) -> str:
        """uint8 integers of the unit's grid."""
        graph, ramp = self.graph, Ramp.of(unit)
        real = np.float32
        if unit.underlying == "tanh":
            y = graph.add("Tanh", y)
        elif unit.underlying == "sigmoid":
            y = graph.add("Sigmoid", y)
        steps = graph.add("Mul", y, real(ramp.gain))
        if regular(unit) and not ties:
            # QuantizeLinear rounds to the nearest: half a step more makes that a ceiling.
            raised = graph.add("Add", steps, real(ramp.offset + 0.5))
            clipped = graph.add("Clip", raised, real(0), real(ramp.top))
        else:
            ceiling = graph.add("Ceil", graph.add("Add", steps, real(ramp.offset)))
            clipped = graph.add("Clip", ceiling, real(0), real(ramp.top))
        if not regular(unit):
            # 0, 1, 3, 5 and so on: a rectified unit with an even number of levels.
            doubled = graph.add("Sub", graph.add("Mul", clipped, real(2)), real(1))
            clipped = graph.add("Relu", doubled)
        return self._quantise(clipped)

    def _quantise(self, x: str) -> str:
        """The nearest uint8 integers."""
        return self.graph.add("QuantizeLinear", x, np.float32(1), np.uint8(0))

    def _dequantise(self, x: str) -> str:
        """The integers of a uint8 tensor as float32, marked as quantised."""
        return self.graph.add("DequantizeLinear", x, np.float32(1), np.uint8(0))
