"""A compiled network compared with its model: accuracy, codes and sizes, layer by layer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from sudonet._text import aligned, readable
from sudonet.deploy.comparison import compare
from sudonet.deploy.given import Data
from sudonet.deploy.layers import Affine, Layer, MaxPool
from sudonet.deploy.network import IntegerNetwork
from sudonet.deploy.sizes import (
    FLOAT32_BYTES,
    Buffer,
    arena_lines,
    packed_total,
    size_text,
    sizes,
    threshold_bytes,
)

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


@dataclass(frozen=True)
class LayerReport:
    """One layer of the integer network: a row of the table.

    Parameters
    ----------
    name
        The layer's path in the model.
    kind
        ``dense``, ``conv``, ``transposed``, ``max`` or ``sum``.
    unit, weight_kind
        The unit after the layer, and what its weights are; None where there is none.
    same_codes
        Share of the unit's codes that the model's unit has too; None where there is no
        unit, or where the model does not call it as a module.
    float64_codes
        For shared thresholds, which round: share of the codes that the same integer weights
        give in float64.
    weight_float32_bytes, weight_bytes, threshold_bytes
        Weights in the model, weights in the network's file, and the tables after them.
    output
        The layer's output.
    """

    name: str
    kind: str
    unit: str | None
    weight_kind: str | None
    same_codes: float | None
    float64_codes: float | None
    weight_float32_bytes: int
    weight_bytes: int
    threshold_bytes: int
    output: Buffer


@dataclass(frozen=True, repr=False)
class Report:
    """What :func:`report` found: a table to read, and the same as attributes.

    Parameters
    ----------
    metric
        ``accuracy``, a share of the rows, or ``mean squared error``.
    before, after
        The metric of the model and of the integer network.
    rows
        How many examples there were.
    same_answers
        Share of the rows for which both give the same class; None without classes.
    same_codes
        Share of the rows for which all units of both give the same codes, as far as known.
    layers
        A row for every layer.
    input
        The network's input.
    arena_bytes, arena_packed_bytes
        RAM between input and output in exported C with ``optimise="speed"`` and
        ``optimise="ram"``; None if the network cannot be exported as C.
    """

    metric: str
    before: float
    after: float
    rows: int
    same_answers: float | None
    same_codes: float | None
    layers: tuple[LayerReport, ...]
    input: Buffer
    arena_bytes: int | None
    arena_packed_bytes: int | None

    @property
    def first_difference(self) -> str | None:
        """The first layer with a code that is not the model's; None if there is none."""
        unequal = (row.name for row in self.layers if row.same_codes not in (None, 1.0))
        return next(unequal, None)

    @property
    def weight_float32_bytes(self) -> int:
        """Weights of all layers in float32."""
        return sum(row.weight_float32_bytes for row in self.layers)

    @property
    def weight_bytes(self) -> int:
        """Weights of all layers in the network's file."""
        return sum(row.weight_bytes for row in self.layers)

    @property
    def threshold_bytes(self) -> int:
        """Tables of all layers."""
        return sum(row.threshold_bytes for row in self.layers)

    def __repr__(self) -> str:
        return "\n".join([*_lines(self), *_notes(self)])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.rule import Rule
        from rich.text import Text

        heading, *rows, total = _lines(self, options.max_width)
        yield Text(heading, "bold")
        yield Rule(style="dim")
        for layer, row in zip(self.layers, rows, strict=True):
            yield Text(row, "yellow" if layer.name == self.first_difference else "")
        yield Rule(style="dim")
        yield Text(total, "bold")
        yield from map(Text, _notes(self))


def report(model: nn.Module, integer: IntegerNetwork, data: Data) -> Report:
    """Compare a model with the integer network that was compiled from it.

    Parameters
    ----------
    model
        It runs in evaluation mode and is left as it is.
    integer
        The network from :func:`~sudonet.deploy.compile`.
    data
        Inputs as the network takes them, and targets: integers are classes, anything else is
        what the outputs should be. Arrays, tensors, or a DataLoader of such pairs.

    Examples
    --------
    >>> import torch
    >>> from sudonet import SUDO, deploy
    >>> model = nn.Sequential(nn.Linear(64, 20), SUDO(16), nn.Linear(20, 10))
    >>> integer = deploy.compile(model, inputs=deploy.Grid.of_range(0, 1))
    >>> found = report(model, integer, (torch.rand(50, 64), torch.arange(50) % 10))
    >>> found.weight_float32_bytes / found.weight_bytes
    4.0
    >>> found.layers[0].output
    Buffer(values=20, float32_bytes=80, plain_bytes=20, packed_bytes=12)
    """
    found = compare(model, integer, data)
    between = sizes(integer)
    return Report(
        metric="accuracy" if found.same_answers is not None else "mean squared error",
        before=found.before,
        after=found.after,
        rows=found.rows,
        same_answers=found.same_answers,
        same_codes=found.same_codes,
        layers=tuple(
            _row(layer, output, found.codes.get(place), found.float64_codes.get(place))
            for place, (layer, output) in enumerate(
                zip(integer.layers, between.buffers[1:], strict=True)
            )
        ),
        input=between.buffers[0],
        arena_bytes=between.arena_bytes,
        arena_packed_bytes=between.arena_packed_bytes,
    )


def _row(layer: Layer, output: Buffer, codes: float | None, exact: float | None) -> LayerReport:
    if not isinstance(layer, Affine):
        kind = "max" if isinstance(layer, MaxPool) else "sum"
        return LayerReport(layer.name, kind, None, None, None, None, 0, 0, 0, output)
    return LayerReport(
        name=layer.name,
        kind=layer.kind,
        unit=None if layer.grid_out is None else layer.after.unit.name,  # type: ignore[union-attr]
        weight_kind=layer.weight_kind,
        same_codes=codes,
        float64_codes=exact,
        weight_float32_bytes=FLOAT32_BYTES * layer.weights.size,
        weight_bytes=layer.weight_bytes,
        threshold_bytes=threshold_bytes(layer.after),
        output=output,
    )


_HEADINGS = (
    *("layer", "kind", "unit", "weights", "same codes", "as float64"),
    *("weights float32", "stored", "tables", "output float32", "bytes", "packed"),
)
_TEXT_COLUMNS = 4
_FIRST_LINE = 6


def _lines(found: Report, width: float = math.inf) -> list[str]:
    cells = [_HEADINGS, *map(_cells, found.layers), _total_cells(found)]
    return aligned(cells, _TEXT_COLUMNS, width, _FIRST_LINE)


def _cells(row: LayerReport) -> tuple[str, ...]:
    return (
        *(row.name, row.kind, row.unit or "-", row.weight_kind or "-"),
        *(_percent(row.same_codes), _percent(row.float64_codes)),
        *(
            readable(size) if row.weight_kind else "-"
            for size in (row.weight_float32_bytes, row.weight_bytes, row.threshold_bytes)
        ),
        readable(row.output.float32_bytes),
        readable(row.output.plain_bytes),
        size_text(row.output.packed_bytes),
    )


def _total_cells(found: Report) -> tuple[str, ...]:
    outputs = [row.output for row in found.layers]
    return (
        *("total", "", "", "", "", ""),
        readable(found.weight_float32_bytes),
        readable(found.weight_bytes),
        readable(found.threshold_bytes),
        readable(sum(output.float32_bytes for output in outputs)),
        readable(sum(output.plain_bytes for output in outputs)),
        size_text(packed_total(outputs)),
    )


def _notes(found: Report) -> list[str]:
    if found.metric == "accuracy":
        metric = f"accuracy: {_percent(found.before)} before, {_percent(found.after)} after"
    else:
        metric = f"mean squared error: {found.before:.4g} before, {found.after:.4g} after"
    notes = [f"{metric}, {found.rows:,} rows"]
    if found.same_answers is not None:
        notes.append(f"the same class: {_percent(found.same_answers)} of the rows")
    if found.same_codes is None:
        notes.append("codes cannot be compared, the model calls no units: make them modules")
    else:
        first = found.first_difference
        notes.append(
            f"the same codes throughout: {_percent(found.same_codes)} of the rows; "
            + (f"the first layer that differs is {first}" if first else "no layer differs")
        )
    return notes + arena_lines(found.arena_bytes, found.arena_packed_bytes)


def _percent(share: float | None) -> str:
    """A share in per cent, never rounded up to 100 %."""
    if share is None:
        return "-"
    return f"{100 * share if share == 1 else min(100 * share, 99.99):.2f} %"
