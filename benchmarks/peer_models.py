"""The networks that sudonet and its peers run, and the files that the peers read.

    python benchmarks/peer_models.py FOLDER

This converts in a process of its own, so that TensorFlow, which does nothing else here, is not
around when peers.py measures.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

SIZES = {"A": (784, 100, 100, 100, 100, 10), "B": (784, 1024, 1024, 10)}
BATCHES = (1, 256)
ACTIVATIONS: dict[str, Callable[[Floats], Floats]] = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
}
CALIBRATION = 256  # samples that the converters see to choose their scales


@dataclass(frozen=True)
class Case:
    """A network of known weights, how many samples it is to answer at once, and of what.

    Samples are noise, or ``"digits"``: handwritten, mostly black.
    """

    network: str
    batch: int
    shown: str = "noise"

    @property
    def sizes(self) -> tuple[int, ...]:
        return SIZES[self.network]

    def layers(self) -> list[tuple[Floats, Floats]]:
        """Weights, one row an output, and biases; the same at every call."""
        generator = np.random.default_rng(0)
        found = []
        for inputs, outputs in pairwise(self.sizes):
            # Wide enough that signals neither die out nor grow from layer to layer.
            weight = generator.normal(0, np.sqrt(2 / inputs), (outputs, inputs))
            bias = generator.normal(0, 0.1, outputs)
            found.append((weight.astype(np.float32), bias.astype(np.float32)))
        return found

    def pixels(self, samples: int | None = None) -> NDArray[np.uint8]:
        """So many samples, by default a batch, from 0 to 255."""
        shape = (samples or self.batch, self.sizes[0])
        if self.shown == "digits":
            return np.ascontiguousarray(usual_digits()[: shape[0]])
        return np.random.default_rng(1).integers(0, 256, shape, np.uint8)

    def inputs(self, samples: int | None = None) -> Floats:
        """The pixels, from 0 to 1."""
        found: Floats = self.pixels(samples).astype(np.float32) / np.float32(255)
        return found

    def answer(self, activation: str) -> Floats:
        """What the network makes of a batch in float32."""
        x = self.inputs()
        *hidden, (weight, bias) = self.layers()
        for w, b in hidden:
            x = ACTIVATIONS[activation](x @ w.T + b)
        found: Floats = x @ weight.T + bias
        return found

    def file(self, folder: Path, activation: str, kind: str) -> Path:
        """Where the network is kept for a peer, such as ``A-256-relu.int8.tflite``."""
        return folder / f"{self.network}-{self.batch}-{activation}.{kind}"


@cache
def usual_digits() -> NDArray[np.uint8]:
    """MNIST's test images, those first that have as many black pixels as most; none without it."""
    from sudonet.experiments.data import digits

    images = digits().test_images
    black = (images == 0).sum(1)
    order = np.argsort(np.abs(black - np.median(black)), kind="stable")
    return images[order] if images.shape[1] == 784 else images[:0]


def cases() -> list[Case]:
    """Every network with every batch."""
    return [Case(network, batch) for network, batch in product(SIZES, BATCHES)]


def cases_of_digits() -> list[Case]:
    """The same with handwritten digits; none where there is no MNIST."""
    return [replace(case, shown="digits") for case in cases() if len(usual_digits())]


def calibration(case: Case) -> Iterator[Floats]:
    samples = case.inputs(CALIBRATION)
    return (samples[i : i + case.batch] for i in range(0, CALIBRATION, case.batch))


def write_tflite(case: Case, activation: str, path: Path) -> None:
    """Integers throughout, the inputs and the answer too."""
    import tensorflow as tf

    f = {"tanh": tf.nn.tanh, "relu": tf.nn.relu}[activation]
    *hidden, (last, last_bias) = case.layers()

    def network(x: Any) -> Any:
        for weight, bias in hidden:
            x = f(tf.matmul(x, weight.T) + bias)
        return tf.matmul(x, last.T) + last_bias

    inputs = tf.TensorSpec((case.batch, case.sizes[0]), tf.float32)
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [tf.function(network).get_concrete_function(inputs)], tf.Module()
    )
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([x] for x in calibration(case))
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    path.write_bytes(converter.convert())


def write_onnx(case: Case, activation: str, path: Path) -> None:
    """float32, for a batch of just this size: runtimes may then choose their code for it."""
    import onnx
    from onnx import helper, numpy_helper

    operator = {"tanh": "Tanh", "relu": "Relu"}[activation]
    nodes, constants, x = [], [], "x"
    for i, (weight, bias) in enumerate(case.layers()):
        if i:
            nodes.append(helper.make_node(operator, [x], [f"f{i}"], f"activation{i}"))
            x = f"f{i}"
        names = [f"w{i}", f"b{i}"]
        arrays = np.ascontiguousarray(weight.T), bias
        constants += [numpy_helper.from_array(*pair) for pair in zip(arrays, names, strict=True)]
        nodes.append(helper.make_node("Gemm", [x, *names], [f"y{i}"], f"linear{i}"))
        x = f"y{i}"
    first, last = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (case.batch, size))
        for name, size in (("x", case.sizes[0]), (x, case.sizes[-1]))
    )
    graph = helper.make_graph(nodes, "network", [first], [last], constants)
    versions = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=versions, ir_version=8), path)


def write_static_onnx(case: Case, plain: Path, path: Path) -> None:
    """uint8 codes by int8 weights with a scale a tensor: what ONNX Runtime runs fastest."""
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        left = calibration(case)

        def get_next(self) -> dict[str, Floats] | None:
            x = next(self.left, None)
            return None if x is None else {"x": x}

    quantize_static(
        plain, path, Reader(), activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8
    )
    take_codes(path)


def take_codes(path: Path) -> None:
    """Make the network take codes, as LiteRT's does, and spare it the rounding of floats."""
    import onnx
    from onnx import helper

    model = onnx.load(path)
    graph = model.graph
    (rounding,) = (n for n in graph.node if n.op_type == "QuantizeLinear" and n.input[0] == "x")
    shape = [side.dim_value for side in graph.input[0].type.tensor_type.shape.dim]
    codes = helper.make_tensor_value_info(rounding.output[0], onnx.TensorProto.UINT8, shape)
    graph.node.remove(rounding)
    graph.input[0].CopyFrom(codes)
    onnx.save(model, path)


def write_dynamic_onnx(plain: Path, path: Path) -> None:
    """int8 weights; the scales of the inputs of a layer are found while it runs."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(plain, path, weight_type=QuantType.QInt8)


def main(folder: Path) -> None:
    for case, activation in product(cases(), ACTIVATIONS):
        plain = case.file(folder, activation, "onnx")
        write_onnx(case, activation, plain)
        write_static_onnx(case, plain, case.file(folder, activation, "static.onnx"))
        write_dynamic_onnx(plain, case.file(folder, activation, "dynamic.onnx"))
        write_tflite(case, activation, case.file(folder, activation, "int8.tflite"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
