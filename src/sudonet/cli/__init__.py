"""The ``sudonet`` command. Modules that load slowly are imported where they are used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from sudonet.cli._ends import orderly_end

if TYPE_CHECKING:
    from sudonet.cli._app import ORDER as ORDER
    from sudonet.cli._app import app as app
else:

    def __getattr__(name):
        if name not in ("ORDER", "app"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module("sudonet.cli._app"), name)


def main() -> None:
    """Run the command line."""
    with orderly_end():  # before the commands are imported, so that Ctrl-C is met there, too
        from sudonet.cli._app import app

        app(prog_name="sudonet")
