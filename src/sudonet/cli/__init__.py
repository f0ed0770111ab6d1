"""The ``sudonet`` command. Modules that load slowly are imported where they are used."""

from __future__ import annotations

from typing import Annotated

import typer

import sudonet
from sudonet.cli import _data, _deploy, _doctor, _report, _reproduce, _results, _unit

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Neural networks whose hidden units emit only a few values.",
)
app.command("plot-unit")(_unit.plot_unit)
app.command("doctor")(_doctor.doctor)
app.add_typer(_data.app, name="data")
app.add_typer(_reproduce.app, name="reproduce")
app.command("plan")(_reproduce.plan)
app.command("report")(_report.report)
app.command("table")(_results.table)
app.command("claims")(_results.claims)
app.command("export-results")(_results.export_results)
app.command("compile")(_deploy.compile_)
app.command("inspect")(_deploy.inspect)
app.command("run")(_deploy.run)
app.command("export")(_deploy.export)
app.command("size")(_deploy.size)


def main() -> None:
    """Run the command line."""
    app(prog_name="sudonet")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sudonet {sudonet.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass
