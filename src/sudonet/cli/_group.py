"""A group of commands with the errors and the order that ``sudonet`` wants."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from sudonet._text import printable
from sudonet.cli._ends import stopped_code
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
    except KeyboardInterrupt as error:
        fail("stopped", code=stopped_code(error))
    except OSError as error:
        if error.errno == errno.EPIPE:  # typer's answer to it, for callers that have no main
            raise
        place = f"{error.filename}: " if error.filename else ""
        fail(f"{place}{error.strerror or error}")
    except RuntimeError as error:
        if "Symlink loop" not in str(error):  # pathlib's, before Python 3.13
            raise
        fail(str(error))
    except MemoryError:
        fail("there is not enough memory")
    except Exception as error:
        said = getattr(error, "message", None)
        if isinstance(said, str):  # typer's own, of arguments that may be names of files
            error.message = printable(said)  # type: ignore[attr-defined]
        raise
