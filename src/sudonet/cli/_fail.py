"""What commands say, and how they end when what was asked for cannot be done."""

from __future__ import annotations

from typing import NoReturn

import typer

from sudonet._text import printable
from sudonet.cli._ends import stopped_code


def say(text: object, err: bool = False) -> None:
    """Print text that may come from a file: nothing in it controls the terminal."""
    typer.echo(printable(str(text), keep="\n"), err=err)


def fail(*messages: str, code: int = 2) -> NoReturn:
    """Say what is wrong, a line for each message, and end with an exit code."""
    for message in messages:
        say(f"sudonet: {printable(message)}", err=True)
    raise typer.Exit(code)


def stop(error: KeyboardInterrupt, kept: str) -> NoReturn:
    """End after Ctrl-C or another signal, and say what was kept."""
    fail(f"stopped: {kept}", code=stopped_code(error))
