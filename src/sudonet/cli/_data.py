"""``sudonet data``: what data there is, and how to get more."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from sudonet import _settings
from sudonet._text import printable
from sudonet.cli._choices import DataSet
from sudonet.cli._fail import fail, say, stop
from sudonet.cli._group import Group

app = typer.Typer(
    cls=Group, no_args_is_help=True, help="List and fetch the experiments' data sets."
)


@app.command("list")
def list_data() -> None:
    """Show every data set: what is used now, where it is, its size, whether it is intact.

    The exit code is 1 if a data set is damaged or incomplete.

    Example: sudonet data list
    """
    from rich.console import Console
    from rich.table import Table

    from sudonet.experiments.data import DataError, listing

    try:
        lines = listing()
    except DataError as error:
        fail(str(error))
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for line in lines:
        parts = (line.used, line.files, line.advice)
        text = "\n".join(printable(part, keep="\n") for part in parts if part)
        table.add_row(printable(line.name), text, style="red" if line.wrong else None)
    Console(markup=False, highlight=False).print(table)
    if any(line.wrong for line in lines):
        raise typer.Exit(1)


@app.command()
def fetch(
    names: Annotated[
        Optional[list[DataSet]],  # noqa: UP045 (typer reads it on Python 3.10)
        typer.Argument(
            metavar="NAME",
            help="By default mnist, and imagenet32 with --accept-terms or else cifar10.",
        ),
    ] = None,
    folder: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="FOLDER", help="Where to put them. By default where the study looks for them."
        ),
    ] = None,
    accept_terms: Annotated[
        bool,
        typer.Option(
            "--accept-terms", help="Confirm that you agreed to ImageNet's terms of access."
        ),
    ] = False,
) -> None:
    """Fetch data sets. Complete files are kept; interrupted downloads are resumed.

    Example: sudonet data fetch

    Example: sudonet data fetch mnist cifar10 --folder ~/data
    """
    from sudonet.cli._bars import Bars
    from sudonet.experiments.data import DataError, wanted
    from sudonet.experiments.data import fetch as fetch_data

    usual = _settings.data_folder() or _settings.cache_folder()
    into = _settings.expanded(folder) if folder else usual
    done: list[str] = []
    failures: list[str] = []
    try:
        chosen = wanted([name.value for name in names or []], into, accept_terms=accept_terms)
    except (DataError, ValueError) as error:
        fail(str(error))
    try:
        with Bars() as bars:
            for name in chosen:
                try:
                    (fetched,) = fetch_data([name], into, bars.show, accept_terms=accept_terms)
                except DataError as error:
                    failures.append(str(error))
                    continue
                origin = f"from {fetched.source}" if fetched.source else "was there already"
                done += [f"{name}: no success with {failure}" for failure in fetched.failures]
                done.append(f"{name}: {fetched.folder}, {origin}")
    except KeyboardInterrupt as error:
        stop(error, f"what was fetched is in {into}; the same command continues")
    for line in done:
        say(line)
    if failures:
        fail(*failures)
    if into != usual:
        say(f"To have them used: export {_settings.DATA}={into.resolve()}")
