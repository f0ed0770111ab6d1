"""Integer networks as QONNX files, the format of FINN and hls4ml.

QONNX carries integers in float32 tensors and annotates each tensor with the bits it needs. A
unit is a ``MultiThreshold`` node. It compares with ``>=`` where a staircase has ``>``, so that
each threshold is written as the next number above it: t + 1 among integers, the next float32
among real numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sudonet.deploy.grid import Grid
from sudonet.deploy.layers import (
    Affine,
    ChannelThresholds,
    Layer,
    MaxPool,
    RealThresholds,
    Shape,
    SharedThresholds,
    SumPool,
    accumulator_bounds,
)
from sudonet.deploy.onnx_graph import (
    Graph,
    along,
    annotated,
    convolution_attributes,
    described,
    graph_shapes,
    network_facts,
    network_text,
    size_attributes,
)
from sudonet.deploy.real_form import FLOAT32, straight, whole_thresholds
from sudonet.deploy.steps import CompileError
from sudonet.staircase import Staircase

if TYPE_CHECKING:
    from sudonet.deploy.network import IntegerNetwork

DOMAIN = "qonnx.custom_op.general"
OPERATORS = {"": 11, DOMAIN: 1}
REAL = "FLOAT32"
WEIGHTS = {"int8": "INT8", "int4": "INT4", "ternary": "TERNARY", "binary": "BIPOLAR"}


def to_qonnx(network: IntegerNetwork, path: str | Path) -> None:
    """Write ``network`` with a ``MultiThreshold`` node for every unit.

    The model takes the network's own input integers, carried in float32, one example at a
    time; ``ChangeBatchSize`` of the package qonnx changes that. All sums and all codes are
    those of the reference, and the output is computed from them in float32. Layers with
    float32 weights are computed in float32, and a code may differ there.

    Padding is always 0. In front of a layer that pads, the unit therefore gives
    ``2 * n - twice_zero`` for its integers n, which is -1 and 1 for two levels.

    Parameters
    ----------
    network
        A compiled network. Its sums must stay below 2^24, where float32 holds all integers.
    path
        The file to write.
    """
    writer = _Writer(_kind(network.inputs.low, network.inputs.high), network.shape_in)
    for place, layer in enumerate(network.layers):
        writer.layer(layer, network.layers[place + 1 :])
    writer.output(network)
    writer.save(path, network_text(network), network_facts(network))


def unit_to_qonnx(unit: Staircase, path: str | Path, shape: Shape = (1,)) -> None:
    """Write one unit alone: float32 numbers in, the values of its levels out.

    Parameters
    ----------
    unit
        Any staircase.
    path
        The file to write.
    shape
        Of one example.
    """
    writer = _Writer(REAL, shape)
    writer.unit(unit, _above(unit), REAL)
    writer.end()
    writer.save(path, f"The unit {unit}.", {"unit": unit})


class _Writer:
    """A graph, the shapes and types of its values, and the present value."""

    def __init__(self, kind: str, shape: Shape) -> None:
        self.graph = Graph()
        self.known: dict[str, tuple[Shape, DTypeLike]] = {}
        self.kinds: dict[str, str] = {}
        self.doubled = False
        self.advance("input", shape, kind)

    def advance(self, name: str, shape: Shape, kind: str, dtype: DTypeLike = np.float32) -> None:
        self.x, self.shape = name, shape
        self.known[name] = (shape, dtype)
        self.kinds[name] = kind

    def add(self, operator: str, *others: Any, shape: Shape, kind: str, **attributes: Any) -> None:
        self.advance(self.graph.add(operator, self.x, *others, **attributes), shape, kind)

    def constant(self, array: NDArray[Any], kind: str) -> str:
        name = self.graph.constant(array.astype(np.float32))
        self.kinds[name] = kind
        return name

    def layer(self, layer: Layer, following: Iterable[Layer]) -> None:
        self.graph.layer = layer.name
        wanted, made = graph_shapes(layer)
        if self.shape != wanted:
            self.advance(self.graph.reshaped(self.x, wanted), wanted, self.kinds[self.x])
        if isinstance(layer, Affine):
            self._sums(layer, made)
            self._after(layer, following)
        else:
            self._pooled(layer, made)

    def unit(
        self, unit: Staircase, table: NDArray[Any], kind: str, later: Affine | None = None
    ) -> None:
        """A unit with a table whose numbers are of ``kind``, for the layer that comes ``later``.

        Without such a layer the unit gives its real values.
        """
        grid = Grid.of_unit(unit)
        if later is None:
            scale, bias, emits = grid.scale, -grid.scale * grid.zero, REAL
        else:
            scale, bias = (2, -round(2 * grid.zero)) if later.centred else (1, 0)
            emits = _kind(bias, scale * grid.high + bias, step=scale)
            self.doubled = later.centred
        # Where the unit's integers skip one, the threshold counts twice.
        integers = grid.integers(unit.values).astype(np.int64)
        repeated = np.repeat(table, np.diff(integers), axis=1)
        self.add(
            "MultiThreshold",
            self.constant(repeated, kind),
            shape=self.shape,
            kind=emits,
            domain=DOMAIN,
            out_dtype=emits,
            out_scale=float(scale),
            out_bias=float(bias),
            data_layout="NCHW" if len(self.shape) == 3 else "NC",
        )

    def output(self, network: IntegerNetwork) -> None:
        self.graph.layer = ""
        shape = network.layers[-1].shape_out
        if network.output == "argmax":
            place = self.graph.add("ArgMax", self.x, axis=1, keepdims=0)
            self.advance(place, (), "INT64", np.int64)
        elif network.output == "tanh":
            self.add("Tanh", shape=self.shape, kind=REAL)
        elif network.output == "softmax":
            self.add("Softmax", shape=self.shape, kind=REAL, axis=1)
        if network.output != "argmax" and self.shape != shape:
            self.advance(self.graph.reshaped(self.x, shape), shape, REAL)
        self.end()

    def end(self) -> None:
        """Make the present value the model's output."""
        shape, dtype = self.known.pop(self.x)
        kind = self.kinds.pop(self.x)
        self.graph.rename(self.x, "output")
        self.advance("output", shape, kind, dtype)

    def save(self, path: str | Path, text: str, facts: dict[str, Any]) -> None:
        known = {
            name: described(name, dtype, [1, *shape]) for name, (shape, dtype) in self.known.items()
        }
        self.graph.save(
            path,
            [known.pop("input")],
            [known.pop("output")],
            text=text,
            facts=facts,
            operators=OPERATORS,
            between=list(known.values()),
            annotations=[annotated(name, kind) for name, kind in self.kinds.items()],
        )

    def _sums(self, layer: Affine, made: Shape) -> None:
        """The layer's accumulators."""
        whole, reach = layer.weight_kind != "float32", 0
        if whole:
            reach = int(accumulator_bounds(layer, layer.by_output).max())
            if reach >= FLOAT32:
                raise CompileError(
                    f"{layer.name} can reach {reach:,}, and QONNX carries integers in float32, "
                    f"which holds them up to {FLOAT32:,}: use inputs of 8 bits, fewer levels, or "
                    "weights with fewer bits"
                )
        if layer.centred and not self.doubled:
            grid, zero = layer.grid_in, layer.twice_zero
            self.add(
                "Mul", np.float32(2), shape=self.shape, kind=_kind(2 * grid.low, 2 * grid.high)
            )
            kind = _kind(2 * grid.low - zero, 2 * grid.high - zero)
            self.add("Add", np.float32(-zero), shape=self.shape, kind=kind)
        weights = layer.weights.T if layer.kind == "dense" else layer.weights
        stored = self.constant(weights, WEIGHTS.get(layer.weight_kind, REAL))
        operator = {"dense": "MatMul", "conv": "Conv", "transposed": "ConvTranspose"}[layer.kind]
        attributes = {} if layer.kind == "dense" else convolution_attributes(layer)
        kind = _kind(-reach, reach) if whole else REAL
        self.add(operator, stored, shape=made, kind=kind, **attributes)

    def _after(self, layer: Affine, following: Iterable[Layer]) -> None:
        later = next((one for one in following if isinstance(one, Affine)), None)
        after = layer.after
        if isinstance(after, ChannelThresholds | SharedThresholds):
            self.unit(after.unit, whole_thresholds(layer) + 1, "INT32", later)
            return
        slope, constant = (along(n, self.shape).astype(np.float32) for n in straight(layer))
        self.add("Mul", slope, shape=self.shape, kind=REAL)
        self.add("Add", constant, shape=self.shape, kind=REAL)
        if isinstance(after, RealThresholds):
            self.unit(after.unit, _above(after.unit), REAL, later)

    def _pooled(self, layer: MaxPool | SumPool, made: Shape) -> None:
        attributes = size_attributes(layer)
        if isinstance(layer, MaxPool):
            self.add("MaxPool", shape=made, kind=self.kinds[self.x], **attributes)
            return
        grid, channels = layer.grid_out, made[0]
        scale, zero = (2, round(2 * grid.zero)) if self.doubled else (1, 0)
        low, high = scale * grid.low - zero, scale * grid.high - zero
        if max(-low, high) >= FLOAT32:
            raise CompileError(
                f"{layer.name} makes integers up to {max(-low, high):,}, and QONNX carries them "
                f"in float32, which holds them up to {FLOAT32:,}: use smaller windows"
            )
        # Sums of integers are exact; a mean would be rounded.
        ones = self.constant(np.ones((channels, 1, *layer.kernel)), "BINARY")
        self.add("Conv", ones, shape=made, kind=_kind(low, high), group=channels, **attributes)


def _above(unit: Staircase) -> NDArray[np.float32]:
    """The next float32 above each threshold, as a table for all channels."""
    above: NDArray[np.float32] = np.nextafter(unit.narrowed(np.float32)[0], np.float32(np.inf))
    return above[None]


def _kind(low: int, high: int, step: int = 1) -> str:
    """QONNX's name for the smallest type that holds the integers from ``low`` to ``high``.

    Examples
    --------
    >>> _kind(0, 15), _kind(0, 1), _kind(-15, 15), _kind(-1, 1, step=2)
    ('UINT4', 'BINARY', 'INT5', 'BIPOLAR')
    """
    if (low, high, step) == (-1, 1, 2):
        return "BIPOLAR"
    if low >= 0:
        return "BINARY" if high == 1 else f"UINT{high.bit_length()}"
    return f"INT{max((-low - 1).bit_length(), high.bit_length()) + 1}"
