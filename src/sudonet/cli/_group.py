"""A group of commands with the errors and the order that ``sudonet`` wants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from sudonet.cli._fail import fail


class Group(TyperGroup):
    """Wrong values end with one line, as all other errors do."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Read the command line."""
        with _one_line():
            return super().make_context(*arguments, **options)

    def invoke(self, *arguments: Any) -> Any:
        """Run the command, after the rest of the command line was read."""
        with _one_line():
            return super().invoke(*arguments)


@contextmanager
def _one_line() -> Iterator[None]:
    try:
        yield
    except typer.BadParameter as error:
        message = error.format_message().replace("Value error, ", "")  # pydantic's prefix
        fail(" ".join(message.split()))
