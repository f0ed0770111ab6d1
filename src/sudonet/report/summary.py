"""All tables at once: how much was run, and how well it agrees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.table import Table

from sudonet.experiments import EXPERIMENTS, GRIDS
from sudonet.report.agreement import Agreement, agreement, cells
from sudonet.report.cell import Cell, Place
from sudonet.study.store import Row


def all_cells(rows: Iterable[Row]) -> dict[str, dict[Place, Cell]]:
    """The cells of every table that have been run, by its name."""
    rows = list(rows)
    return {
        name: cells(grid, rows, EXPERIMENTS[grid.experiment].protocol)
        for name, grid in GRIDS.items()
    }


def agreements(tables: Mapping[str, Mapping[Place, Cell]]) -> list[Agreement]:
    """How well each table agrees with the paper's, of those that have a cell."""
    return [agreement(GRIDS[name], found) for name, found in tables.items() if found]


def summary(found: Iterable[Agreement]) -> Table:
    """One line a table for the terminal."""
    table = Table(title="Agreement with the paper")
    table.add_column("table", no_wrap=True)
    for heading in HEADINGS[1:]:
        table.add_column(heading, justify="right")
    for one in found:
        table.add_row(*line(one))
    return table


HEADINGS = (
    "table",
    "cells",
    "full protocol",
    "rank correlation",
    "noise ceiling",
    "within noise",
    "within 3 x noise",
)


def line(one: Agreement) -> list[str]:
    """The cells of a table's line under :data:`HEADINGS`."""
    return [
        one.table,
        f"{one.cells_run} of {one.cells_published}",
        str(one.cells_full),
        "-" if one.spearman is None else f"{one.spearman:.2f}",
        f"{one.ceiling:.2f}",
        "-" if one.within_noise is None else f"{one.within_noise:.0%}",
        "-" if one.within_three is None else f"{one.within_three:.0%}",
    ]
