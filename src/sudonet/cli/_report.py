"""``sudonet report``: the results as a page to look at."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from sudonet.cli._fail import fail, say, stop
from sudonet.cli._options import STORE, StorePath, figures_folder
from sudonet.cli._results import rows_and_note

OUT = Path("out/report")
PATIENCE = 2.0
"""Seconds after which a progress bar appears."""


def report(
    store: StorePath = STORE,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where the page and its files go.")
    ] = OUT,
) -> None:
    """Write the results as one HTML page, with its figures and tables as files beside it.

    Example: sudonet report

    Example: sudonet report --store out/results.sqlite --out out/report
    """
    from rich.console import Console
    from rich.progress import Progress

    from sudonet.report.page import write

    rows, note = rows_and_note(store)
    begun = time.monotonic()
    console = Console(stderr=True)
    quiet = not console.is_terminal  # else an empty line would be printed
    bars = Progress(console=console, transient=True, disable=quiet)
    bar = bars.add_task("writing the report", total=None)

    def progress(done: int, total: int) -> None:
        if time.monotonic() - begun > PATIENCE:
            bars.start()
        bars.update(bar, completed=done, total=total)

    try:
        page = write(rows, figures_folder(store), out, progress, note)
    except OSError as error:
        fail(
            f"cannot write to {error.filename or out}: {error.strerror or error}. Choose another "
            "folder by --out"
        )
    except KeyboardInterrupt as error:
        stop(error, f"{out} may have some of the files; the same command writes them all")
    finally:
        if bars.live.is_started:
            bars.stop()
    say(f"wrote {page}")
