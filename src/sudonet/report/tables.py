"""A table of ours beside the paper's: for the terminal, and as text for files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from rich.table import Table
from rich.text import Text

from sudonet._text import printable
from sudonet.experiments.experiment import TableGrid
from sudonet.report import published
from sudonet.report._escaping import csv_text, latex, markdown
from sudonet.report.agreement import (
    ROUNDING,
    Agreement,
    Comparison,
    agreement,
    compare,
    is_one_by_definition,
)
from sudonet.report.cell import Cell, Place
from sudonet.report.published import PublishedTable

METRICS = {
    "accuracy_percent": "accuracy, %",
    "mse_x100": "100 x mean squared error",
    "sse": "sum of squared errors",
    "sse_relative_to_conv_tanh_scale_1": (
        "squared error relative to the convolutional tanh network of scale 1"
    ),
}

WITHIN, NEAR, BEYOND = ("=", "green"), ("~", "yellow"), ("!", "red")
"""Mark and colour of a cell within noise, within three times noise, and beyond."""

NARROWEST = 72
"""Characters; in a narrower table the lines below it would be hard to read."""


@dataclass(frozen=True)
class Shown:
    """A cell as a person reads it: lines of text, and a colour."""

    lines: list[str]
    style: str


def table(grid: TableGrid, cells: Mapping[Place, Cell]) -> Table:
    """The table for a terminal: ours, and the paper's in brackets.

    Colour and mark show how far a cell is off, in units of the paper's noise. The second line
    of a cell has the spread over its replicas, their number, and a label if there is a note
    below the table.

    Parameters
    ----------
    grid
        The table, or a part of it.
    cells
        What was run, from :func:`sudonet.report.agreement.cells`.
    """
    about, shown, notes = _shown(grid, cells)
    found = Table(
        title=Text(f"{grid.id}: {_metric(about)}"),
        caption=Text("\n".join(_caption(grid, cells, notes))),
        caption_justify="left",
        min_width=NARROWEST,
    )
    found.add_column("")
    for column in grid.columns:
        found.add_column(about.column_name(column), justify="right")
    for row in grid.rows:
        texts = [shown[row, column] for column in grid.columns]
        found.add_row(row, *(Text("\n".join(one.lines), style=one.style) for one in texts))
    return found


def render(grid: TableGrid, cells: Mapping[Place, Cell], format: str) -> str:  # noqa: A002
    """The table as text.

    Parameters
    ----------
    grid, cells
        As for :func:`table`.
    format
        ``"md"`` and ``"latex"`` are for people and show what the terminal shows; ``"csv"``
        and ``"json"`` have everything that is known, cell by cell, also of cells that were
        not run.
    """
    formats: dict[str, Callable[[TableGrid, Mapping[Place, Cell]], str]] = {
        "md": _markdown,
        "csv": _csv,
        "json": _json,
        "latex": _latex,
    }
    if format not in formats:
        raise ValueError(f"format must be one of {', '.join(formats)}, got {format!r}")
    return formats[format](grid, cells)


def _shown(
    grid: TableGrid, cells: Mapping[Place, Cell]
) -> tuple[PublishedTable, dict[Place, Shown], dict[str, str]]:
    """Every cell of the grid as text, and the notes that their labels stand for."""
    about = published.table(grid.id)
    comparisons = compare(grid, cells)
    notes: dict[str, str] = {}
    shown = {}
    for place in grid.cells:
        cell = cells.get(place)
        label = "" if cell is None else _label(cell, notes)
        shown[place] = _cell(about, place, cell, comparisons.get(place), label)
    return about, shown, {label: note for note, label in notes.items()}


def _cell(
    about: PublishedTable, place: Place, cell: Cell | None, found: Comparison | None, label: str
) -> Shown:
    digits = about.decimals
    theirs = f"({about.value(*place):.{digits}f})"
    if cell is None:
        return Shown([f"- {theirs}"], "dim")
    if cell.value is None:
        return Shown([f"none {theirs}", label], BEYOND[1])
    mark, style = "", ""
    if found is not None and not is_one_by_definition(about, place):
        off = abs(found.in_noise)
        mark, style = WITHIN if off <= 1 + ROUNDING else NEAR if off <= 3 + ROUNDING else BEYOND
    value = f"{cell.value:.{digits}f}"
    if about.compared_by_ratio and found is not None:
        ratio = f"/tanh {found.ours:.2f}{mark} ({found.published:.2f})"
        lines = [f"{value} {theirs}", ratio]
    else:
        lines = [f"{value}{mark} {theirs}"]
    spread = "" if cell.spread is None else f"±{cell.spread:.{digits}f} "
    return Shown([*lines, f"{spread}n={cell.replicas} {label}".rstrip()], style)


def _label(cell: Cell, notes: dict[str, str]) -> str:
    """The label of a cell's note, which begins with r for a reduced protocol, else with d."""
    parts = [] if cell.full else [cell.protocol]
    if cell.reason is not None:
        parts.append(" ".join(cell.reason.split()))
    else:
        if cell.diverged:
            parts.append(f"{cell.diverged} of {cell.trials} networks diverged")
        if cell.failed:
            parts.append(f"{cell.failed} networks could not be trained")
    if not parts:
        return ""
    return notes.setdefault("; ".join(parts), f"{'d' if cell.full else 'r'}{len(notes) + 1}")


def _metric(about: PublishedTable) -> str:
    return f"{METRICS[about.metric]}, {'higher' if about.higher_is_better else 'lower'} is better"


def _caption(grid: TableGrid, cells: Mapping[Place, Cell], notes: Mapping[str, str]) -> list[str]:
    """The lines below the table."""
    found = agreement(grid, cells)
    ratio = "; compared by ratio to tanh" if published.table(grid.id).compared_by_ratio else ""
    by_protocol = f"{found.cells_full} by the full protocol"
    marks = f"{NEAR[0]} within three times, {BEYOND[0]} beyond"
    lines = [
        f"Ours, in brackets the paper's{ratio}",
        f"{WITHIN[0]} within the paper's noise ({found.noise:.3g}), {marks}",
        *_agreement(found),
        f"{found.cells_run} of {found.cells_published} cells, {by_protocol}",
    ]
    if cells:
        sources = dict.fromkeys(map(_source, cells.values()))
        engines = dict.fromkeys(cell.engine for cell in cells.values())
        lines += [f"Data: {'; '.join(sources)}", f"Engine: {', '.join(engines)}"]
    lines += [f"{label}: {note}" for label, note in notes.items()]
    return [printable(line) for line in lines]


def _agreement(found: Agreement) -> list[str]:
    if found.within_noise is None or found.within_three is None:
        return ["No cell can be compared"]
    raw = ""
    if published.table(found.table).compared_by_ratio and found.spearman_raw is not None:
        raw = f" (of the errors themselves {found.spearman_raw:.2f})"
    spearman = "not defined" if found.spearman is None else f"{found.spearman:.2f}"
    shares = [f"{100 * share:.0f} %" for share in (found.within_noise, found.within_three)]
    mean = f"mean difference {found.mean_difference:+.2g}"
    return [
        f"Spearman {spearman}{raw}, ceiling {found.ceiling:.2f}; {mean}",
        f"{shares[0]} of the cells within noise, {shares[1]} within three times",
    ]


def _source(cell: Cell) -> str:
    if cell.stand_in_for is None:
        return cell.source
    return f"{cell.source}, which stands in for {cell.stand_in_for}"


def _markdown(grid: TableGrid, cells: Mapping[Place, Cell]) -> str:
    about, shown, notes = _shown(grid, cells)
    heads = [markdown(about.column_name(column)) for column in grid.columns]
    lines = [f"### {grid.id}: {_metric(about)}", "", f"| | {' | '.join(heads)} |"]
    lines.append("|---|" + "---:|" * len(heads))
    for row in grid.rows:
        texts = ["<br>".join(map(markdown, shown[row, column].lines)) for column in grid.columns]
        lines.append(f"| {row} | {' | '.join(texts)} |")
    lines.append("")
    lines += [f"- {markdown(line)}" for line in _caption(grid, cells, notes)]
    return "\n".join(lines) + "\n"


def _latex(grid: TableGrid, cells: Mapping[Place, Cell]) -> str:
    about, shown, notes = _shown(grid, cells)
    heads = [about.column_name(column) for column in grid.columns]
    lines = [
        r"\begin{table}",
        rf"\caption{{{latex(f'{grid.id}: {_metric(about)}')}}}",
        rf"\begin{{tabular}}{{l{'r' * len(heads)}}}",
        r"\hline",
        " & ".join(["", *map(latex, heads)]) + r" \\",
        r"\hline",
    ]
    for row in grid.rows:
        texts = [shown[row, column].lines for column in grid.columns]
        for number in range(max(map(len, texts))):
            parts = [latex(text[number]) if number < len(text) else "" for text in texts]
            lines.append(" & ".join([latex(row) if number == 0 else "", *parts]) + r" \\")
    lines += [r"\hline", r"\end{tabular}", ""]
    lines += [rf"{latex(line)} \\" for line in _caption(grid, cells, notes)]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _csv(grid: TableGrid, cells: Mapping[Place, Cell]) -> str:
    records = _records(grid, cells)
    return "".join(csv_text(list(records[0]), records))


def _json(grid: TableGrid, cells: Mapping[Place, Cell]) -> str:
    about = published.table(grid.id)
    found = {
        "table": grid.id,
        "experiment": grid.experiment,
        "shape": grid.shape,
        "metric": about.metric,
        "higher_is_better": about.higher_is_better,
        "column_meaning": about.column_meaning,
        "compared_by_ratio": about.compared_by_ratio,
        "agreement": asdict(agreement(grid, cells)),
        "cells": _records(grid, cells),
    }
    return json.dumps(found, indent=1, allow_nan=False) + "\n"


_FIELDS = [field.name for field in fields(Cell) if field.name != "others"]


def _records(grid: TableGrid, cells: Mapping[Place, Cell]) -> list[dict[str, Any]]:
    """Everything about every cell of the grid; None where nothing was run."""
    about, comparisons = published.table(grid.id), compare(grid, cells)
    records = []
    for place in grid.cells:
        cell, found = cells.get(place), comparisons.get(place)
        record: dict[str, Any] = {"table": grid.id, "activation": place[0], "column": place[1]}
        record |= {name: None if cell is None else getattr(cell, name) for name in _FIELDS}
        record |= {"published": about.value(*place)}
        record |= {
            name: None if found is None else getattr(found, field)
            for name, field in (
                ("ours_as_compared", "ours"),
                ("published_as_compared", "published"),
                ("difference", "difference"),
                ("difference_in_noise", "in_noise"),
            )
        }
        records.append(record)
    return records
