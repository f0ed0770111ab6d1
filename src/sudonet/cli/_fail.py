"""How commands end when what was asked for cannot be done."""

from __future__ import annotations

from typing import NoReturn

import typer


def fail(message: str) -> NoReturn:
    """Say what is wrong and end with exit code 2."""
    typer.echo(f"sudonet: {message}", err=True)
    raise typer.Exit(2)
