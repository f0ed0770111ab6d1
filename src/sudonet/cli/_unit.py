"""``sudonet plot-unit``: pictures of units."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sudonet.cli._fail import fail
from sudonet.staircase import Staircase

FORMATS = (".png", ".svg", ".pdf")


def plot_unit(
    unit: Annotated[
        str,
        typer.Argument(metavar="UNIT", help="A unit's name, or several with commas between them."),
    ],
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="The file to write: .png, .svg or .pdf.")
    ],
) -> None:
    """Draw a unit: what it emits for each input, and the derivative it trains with.

    Example: sudonet plot-unit sudo-9 unit.png

    Example: sudonet plot-unit sudo-4,r-sudo-8,sudo-16-sigmoid units.svg
    """
    try:
        units = [Staircase.parse(name) for name in unit.split(",")]
    except ValueError as error:
        fail(str(error))
    if out.suffix.lower() not in FORMATS:
        fail(f"cannot write {out}: its name must end in one of {', '.join(FORMATS)}")
    from sudonet.report import draw_unit

    figure = draw_unit(units)
    try:
        figure.savefig(out)
    except OSError as error:
        fail(f"cannot write {out}: {error.strerror or error}")
    typer.echo(f"wrote {out}: {', '.join(u.name for u in units)}")
