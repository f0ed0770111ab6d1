"""The tables and descriptions of every layer, and the calls that run them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sudonet.deploy.c import drivers, storage, tables
from sudonet.deploy.c.code import Code
from sudonet.deploy.c.plan import Plan, Planned, Rows, offsets
from sudonet.deploy.c.products import LONGEST
from sudonet.deploy.c.windows import Axis, Pass
from sudonet.deploy.layers import (
    Affine,
    ChannelThresholds,
    MaxPool,
    Scores,
    SharedThresholds,
    emitted,
    image,
)

BYTES = {"uint8_t": 1, "int32_t": 4, "uint32_t": 4, "int64_t": 8}

ROWS = {
    "rows": "uint32_t rows; /* outputs of a group */",
    "plane": "uint32_t plane; /* from a channel to the next one in the output */",
    "count": "uint32_t count; /* thresholds of a channel */",
    "thresholds": "const int32_t *thresholds;",
    "narrow": "const uint8_t *narrow; /* thresholds of width bytes, the highest first */",
    "width": "uint32_t width;",
    "lift": "uint32_t lift; /* added to them before they are compared */",
    "factor": "const int32_t *factor;",
    "constant": "const int64_t *constant;",
    "levels": "const int64_t *levels; /* thresholds that all channels share */",
    "emitted": "const uint8_t *emitted; /* the output of every code */",
    "doubled": "uint32_t doubled; /* factor of the sums */",
}


@dataclass
class Parts:
    """The parts of a source file."""

    code: Code
    tables: list[str] = field(default_factory=list)
    descriptions: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    rows: list[dict[str, str]] = field(default_factory=list)
    weights: int = 0
    thresholds: int = 0

    def table(self, name: str, values: NDArray[Any], kind: str) -> str:
        """Add a table of thresholds or the like; returns its name."""
        values = _some(values, 1)
        text = tables.numbers(values.reshape(-1).tolist(), kind)
        self.tables.append(f"static const {kind} {name}[{values.size}] = {{\n{text}\n}};\n")
        self.thresholds += values.size * BYTES[kind]
        return name

    def weight_table(self, name: str, values: NDArray[Any]) -> str:
        """Add a table of weights; returns the expression of its first element."""
        values = _some(values, BYTES["uint32_t"] // values.itemsize)
        self.weights += values.nbytes
        if values.dtype != np.uint8:
            text = tables.numbers(values.tolist(), "uint32_t")
            self.tables.append(f"static const uint32_t {name}[{values.size}] = {{\n{text}\n}};\n")
            return name
        text = tables.numbers(values.tolist(), "uint8_t")
        # The word makes the compiler align the bytes.
        self.tables.append(
            f"static const union {{ uint8_t bytes[{values.size}]; uint32_t word; }} {name} = {{{{\n"
            f"{text}\n}}}};\n"
        )
        return f"{name}.bytes"


def _some(values: NDArray[Any], least: int) -> NDArray[Any]:
    """The same, or ``least`` zeros in place of none: C99 has no arrays of length 0.

    A transposed convolution whose padding cuts off all that meets an input has no weights.
    """
    return values if values.size else np.zeros(least, values.dtype)


def parts(plan: Plan) -> Parts:
    """All parts of a network's C."""
    found = Parts(
        Code(
            1 if plan.optimise == "flash" else 4,
            frozenset(_keys(plan, lambda rows, n: n % rows.per_word != 0)),
            frozenset(_keys(plan, lambda rows, n: n > LONGEST)),
        )
    )
    first = storage.OF_INPUTS[plan.network.inputs.dtype.name]
    for place, one in enumerate(plan.layers):
        source = one.source.storage if one.source else first
        x = f"arena + {one.source.offset}" if one.source else "input"
        end = "output" if one.rows is not None and one.rows.out else "result"
        y = f"arena + {one.target.offset}" if one.target else end
        if one.rows is None:
            _pool(found, one, place, source, x, y)
        else:
            _affine(found, one, place, source, x, y)
    return found


def _keys(plan: Plan, wanted: Callable[[Rows, int], bool]) -> list[tuple[str, int]]:
    """Vectors and bits of the rows that are ``wanted``."""
    return [
        (one.rows.vector, one.rows.bits)
        for one in plan.layers
        if one.rows is not None
        for n in ([_rounded(one, p) for p in one.passes] or [one.inputs(None)])
        if wanted(one.rows, n)
    ]


def _rounded(one: Planned, p: Pass) -> int:
    """Inputs of a window, rounded up to whole words."""
    assert one.rows is not None
    return one.rows.words(one.inputs(p)) * one.rows.per_word


def _pool(found: Parts, one: Planned, place: int, source: str, x: str, y: str) -> None:
    layer = one.layer
    assert not isinstance(layer, Affine)
    assert one.target is not None
    channels, height, width = image(layer.shape_in)
    _, out_height, out_width = image(layer.shape_out)
    padding = layer.padding if isinstance(layer, MaxPool) else (0, 0)
    numbers = (
        *(channels, height, width, out_height, out_width),
        *(*layer.kernel, *layer.stride, *padding),
    )
    text = ", ".join(f"{number}u" for number in numbers)
    found.descriptions.append(f"static const net_pool net_pool{place} = {{{text}}};\n")
    function = drivers.pool_function(found.code, layer, source, one.target.storage)
    found.calls.append(f"{function}(&net_pool{place}, {x}, {y});")


def _affine(found: Parts, one: Planned, place: int, source: str, x: str, y: str) -> None:
    layer, rows = one.layer, one.rows
    assert isinstance(layer, Affine)
    assert rows is not None
    table, groups = tables.weights(one, found.code.rows)
    weights = found.weight_table(f"net_weights{place}", table)
    values = _rows_values(found, one, place)
    found.rows.append(values)
    if layer.kind == "dense":
        function = drivers.rows_function(found.code, rows)
        n = one.inputs(None)
        found.calls.append(f"{function}(&net_rows{place}, {n}u, {weights}, 0u, {x}, 0u, {y});")
        return
    _window_descriptions(found, one, place, groups)
    assert one.patch is not None
    function = drivers.windows_function(found.code, source, one)
    rooms = [f"arena + {room.offset}" for room in (one.patch, one.kept) if room]
    arguments = ", ".join([f"&net_windows{place}", weights, x, y, *rooms])
    found.calls.append(f"{function}({arguments});")


def _rows_values(found: Parts, one: Planned, place: int) -> dict[str, str]:
    """The fields of a layer's net_rows that it needs."""
    layer, rows = one.layer, one.rows
    assert isinstance(layer, Affine)
    assert rows is not None
    _, height, width = image((one.pool or layer).shape_out)
    values = {
        "place": str(place),
        "rows": f"{layer.channels // layer.groups}u",
        "plane": f"{height * width}u",
    }
    after = layer.after
    if isinstance(after, ChannelThresholds):
        values["count"] = f"{after.table.shape[1]}u"
        if rows.after == "narrow":
            table, size = tables.narrow(layer)
            values["narrow"] = found.table(f"net_thresholds{place}", table, "uint8_t")
            values["width"] = f"{size}u"
            values["lift"] = f"0x{2**31 - 2 ** (8 * size - 1):08x}u"
        else:
            name = f"net_thresholds{place}"
            values["thresholds"] = found.table(name, after.table, "int32_t")
    else:
        assert isinstance(after, SharedThresholds | Scores)
        values["factor"] = found.table(f"net_factor{place}", after.factor, "int32_t")
        values["constant"] = found.table(f"net_constant{place}", after.constant, "int64_t")
    if isinstance(after, SharedThresholds):
        values["count"] = f"{after.table.size}u"
        values["levels"] = found.table(f"net_levels{place}", after.table, "int64_t")
    if rows.mapped:
        assert not isinstance(after, Scores)
        codes = emitted(after.unit)
        values["emitted"] = found.table(f"net_emitted{place}", codes, "uint8_t")
    if rows.centred:
        values["doubled"] = f"{one.doubled}u"
    return values


def _window_descriptions(found: Parts, one: Planned, place: int, groups: list[int]) -> None:
    layer, rows, patch = one.layer, one.rows, one.patch
    assert isinstance(layer, Affine)
    assert rows is not None
    assert patch is not None
    lines = []
    for number, (p, weights) in enumerate(zip(one.passes, groups, strict=True)):
        inputs = _rounded(one, p)
        size = storage.size(patch.storage, inputs) * (2 if rows.count == "xor" else 1)
        offset = "0"
        if rows.centred:
            name = f"net_offset{place}_{number}"
            offset = found.table(name, offsets(one, p), "int32_t")
        lines.append(
            f"    {{{_axis(p.rows)}, {_axis(p.columns)}, {inputs}u, {size}u, {weights}u, "
            f"{offset}}},\n"
        )
    channels, height, width = image(layer.shape_in)
    _, out_height, out_width = image((one.pool or layer).shape_out)
    pool = (*one.pool.kernel, *one.pool.stride) if one.pool else (1, 1, 1, 1)
    pooling = ", ".join(f"{number}u" for number in pool)
    pad = one.pad % 2**32
    found.descriptions.append(
        f"static const net_pass net_pass{place}[{len(lines)}] = {{\n{''.join(lines)}}};\n"
    )
    found.descriptions.append(
        f"static const net_windows net_windows{place} = {{\n"
        f"    {channels // layer.groups}u, {height}u, {width}u, {layer.groups}u, {out_height}u, "
        f"{out_width}u,\n    {pooling}, 0x{pad:x}u,\n"
        f"    {len(lines)}u, net_pass{place}, &net_rows{place},\n}};\n"
    )


def _axis(axis: Axis) -> str:
    numbers = (axis.step, len(axis.taps), axis.distance, axis.outputs, axis.out_first)
    text = ", ".join(f"{number}u" for number in (*numbers, axis.out_step))
    return f"{{{axis.first}, {text}}}"


def rows_text(found: Parts) -> tuple[str, str]:
    """The type of descriptions of rows with the fields that are in use, and all of them."""
    used = [name for name in ROWS if any(name in values for values in found.rows)]
    fields = "".join(f"    {ROWS[name]}\n" for name in used)
    kind = f"typedef struct {{\n{fields}}} net_rows;\n"
    described = [
        f"static const net_rows net_rows{values['place']} = {{\n"
        + "".join(f"    .{name} = {values.get(name, '0')},\n" for name in used)
        + "};\n"
        for values in found.rows
    ]
    return kind, "\n".join(described)
