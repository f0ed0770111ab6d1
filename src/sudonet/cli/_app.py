"""All commands of ``sudonet``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import sudonet
from sudonet.cli import _data, _deploy, _doctor, _report, _reproduce, _results, _unit
from sudonet.cli._group import Group

ORDER = (
    *("reproduce", "plan", "report", "table", "claims", "export-results", "data"),
    *("compile", "inspect", "run", "export", "size"),
    *("plot-unit", "doctor"),
)
STUDY, NETWORKS, UNIT, INSTALLATION = "Study", "Integer networks", "The unit", "Installation"


class _Root(Group):
    """All commands, as the help lists them."""

    def list_commands(self, ctx: Any) -> list[str]:
        """In our order; typer puts commands with commands of their own last."""
        return sorted(super().list_commands(ctx), key=ORDER.index)


app = typer.Typer(
    cls=_Root,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Neural networks whose hidden units emit only a few values.",
)
app.add_typer(_reproduce.app, name="reproduce", rich_help_panel=STUDY)
app.command("plan", rich_help_panel=STUDY)(_reproduce.plan)
app.command("report", rich_help_panel=STUDY)(_report.report)
app.command("table", rich_help_panel=STUDY)(_results.table)
app.command("claims", rich_help_panel=STUDY)(_results.claims)
app.command("export-results", rich_help_panel=STUDY)(_results.export_results)
app.add_typer(_data.app, name="data", rich_help_panel=STUDY)
app.command("compile", rich_help_panel=NETWORKS)(_deploy.compile_)
app.command("inspect", rich_help_panel=NETWORKS)(_deploy.inspect)
app.command("run", rich_help_panel=NETWORKS)(_deploy.run)
app.command("export", rich_help_panel=NETWORKS)(_deploy.export)
app.command("size", rich_help_panel=NETWORKS)(_deploy.size)
app.command("plot-unit", rich_help_panel=UNIT)(_unit.plot_unit)
app.command("doctor", rich_help_panel=INSTALLATION)(_doctor.doctor)


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
