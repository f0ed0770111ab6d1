"""``sudonet plot-unit``: pictures of units."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sudonet.cli._fail import fail, say
from sudonet.cli._options import check_picture


def plot_unit(
    unit: Annotated[
        str,
        typer.Argument(metavar="UNIT", help="A unit's name, or several separated by commas."),
    ],
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="The file to write: .png, .svg or .pdf.")
    ],
) -> None:
    """Draw a unit: its output for each input, and the derivative that training uses.

    Example: sudonet plot-unit sudo-9 unit.png

    Example: sudonet plot-unit sudo-4,r-sudo-8,sudo-16-sigmoid units.svg
    """
    from sudonet.staircase import Staircase

    try:
        units = [Staircase.parse(name) for name in unit.split(",")]
    except ValueError as error:
        fail(str(error))
    check_picture(out)
    from sudonet.report import draw_unit

    figure = draw_unit(units)
    try:
        figure.savefig(out)
    except OSError as error:
        fail(f"cannot write {out}: {error.strerror or error}")
    say(f"wrote {out}: {', '.join(u.name for u in units)}")
