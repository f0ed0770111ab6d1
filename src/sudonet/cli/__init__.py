"""The ``sudonet`` command. Modules that load slowly are imported where they are used."""

from __future__ import annotations

from typing import Annotated

import typer

import sudonet
from sudonet.cli import data, deploy, doctor, report, reproduce, results, unit

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Neural networks whose hidden units emit only a few values.",
)
app.command("plot-unit")(unit.plot_unit)
app.command("doctor")(doctor.doctor)
app.add_typer(data.app, name="data")
app.add_typer(reproduce.app, name="reproduce")
app.command("plan")(reproduce.plan)
app.command("report")(report.report)
app.command("table")(results.table)
app.command("claims")(results.claims)
app.command("export-results")(results.export_results)
app.command("compile")(deploy.compile_)
app.command("inspect")(deploy.inspect)
app.command("run")(deploy.run)
app.command("export")(deploy.export)
app.command("size")(deploy.size)


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
