"""The place of the C core. Everything works without it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sudonet import settings

FOLDER = Path(__file__).parent
SUFFIXES = (".so", ".dylib", ".dll", ".pyd")


@dataclass(frozen=True)
class Status:
    """Whether the C core can be used.

    Parameters
    ----------
    available
        True if calls go to the C core.
    path
        The library's file, if there is one.
    reason
        Why it is used or not, in words for a person.
    """

    available: bool
    path: str | None
    reason: str


def status() -> Status:
    """What was found of the C core, and why it is used or not."""
    choice = settings.native_choice()
    libraries = sorted(p for p in FOLDER.glob("_core*") if p.suffix in SUFFIXES)
    path = str(libraries[0]) if libraries else None
    if choice == "off":
        return Status(False, path, f"switched off by {settings.NATIVE}=off")
    if path is None:
        reason = "not built: there is no _core library in sudonet/native"
    else:
        reason = "a _core library is there, but this version does not call it"
    if choice != "auto":
        reason += f" ({settings.NATIVE}={choice} asks for one)"
    return Status(False, path, reason)
