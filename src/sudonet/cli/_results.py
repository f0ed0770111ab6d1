"""``sudonet table``, ``claims`` and ``export-results``: what came out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sudonet._text import printable
from sudonet.cli import _options
from sudonet.cli._choices import TABLES, TableFormat
from sudonet.cli._fail import fail, say
from sudonet.cli._options import STORE, StorePath, figures_folder

if TYPE_CHECKING:
    from sudonet.study.store import Row


def table(
    name: Annotated[
        str,
        typer.Argument(
            metavar="TABLE",
            help=f"One of {', '.join(TABLES)}; with r- before it, such as r-mnist-4, that of the "
            "rectified units.",
        ),
    ],
    store: StorePath = STORE,
    form: Annotated[
        TableFormat, typer.Option("--format", help="csv and json have every cell in full.")
    ] = TableFormat.TERMINAL,
) -> None:
    """Show one table: our cells beside the published ones.

    Example: sudonet table checkerboard-2

    Example: sudonet table r-mnist-4 --format latex > table.tex
    """
    from rich.console import Console

    from sudonet.experiments import EXPERIMENTS, GRIDS
    from sudonet.report import tables
    from sudonet.report.agreement import cells

    if name not in GRIDS:
        fail(f"no table is called {name!r}: choose from {', '.join(GRIDS)}")
    grid = GRIDS[name]
    rows, _ = rows_and_note(store)
    found = cells(grid, rows, EXPERIMENTS[grid.experiment].protocol)
    if form is TableFormat.TERMINAL:
        Console(highlight=False).print(tables.table(grid, found))
    else:
        say(tables.render(grid, found, form.value).removesuffix("\n"))


def claims(store: StorePath = STORE) -> None:
    """Show which of the paper's 14 claims the results support.

    Example: sudonet claims
    """
    from rich.console import Console

    from sudonet.report.claims import judge
    from sudonet.report.summary import all_cells
    from sudonet.study.figures import FigureError, histograms

    console = Console(highlight=False)
    colours = {"supported": "green", "not supported": "red", "undecided": "yellow"}
    rows, _ = rows_and_note(store)
    tables = all_cells(rows)
    try:
        counts = histograms(figures_folder(store))
    except FigureError as error:
        fail(str(error))
    for verdict in judge(tables, counts):
        colour = colours[verdict.verdict]
        console.print(
            f"{verdict.number:>2}. {verdict.claim} [{colour}]{verdict.verdict}[/{colour}]"
        )
        for number in verdict.numbers:
            console.print(f"      {printable(number)}", style="dim", markup=False)


def export_results(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A .csv or .parquet file.")],
    store: StorePath = STORE,
) -> None:
    """Write every trial in the store as one flat table.

    Example: sudonet export-results results.csv
    """
    from sudonet.report.export import export

    rows, _ = rows_and_note(store)
    try:
        export(rows, out)
    except (ValueError, ImportError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot write {out}: {error.strerror or error}")
    say(f"wrote {out}: {len(rows):,} trials")


def rows_and_note(path: Path) -> tuple[list[Row], str]:
    """All rows of a store that must be there, and its note, which goes to standard error too."""
    rows, note = _options.rows_and_note(path)
    if note:
        say(note, err=True)
    return rows, note
