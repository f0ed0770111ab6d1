"""Finds and loads the C core. Everything works without it, but slower."""

from __future__ import annotations

import platform
import sysconfig
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from sudonet import _settings
from sudonet.native.library import Core, CoreError, load

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
        The instruction set that it uses: ``avx512``, ``avx2`` or ``portable``.
    reason
        Why it is used or not, in words for a person; also whether integer networks use AMX.
    """

    available: bool
    path: str | None
    reason: str


@lru_cache(maxsize=1)
def core() -> Core | None:
    """The C core, or None where there is none or it is switched off.

    The environment is read once; after ``core.cache_clear()`` the next call reads it again.
    """
    return _find()[0]


def status() -> Status:
    """Whether the C core was found, and why it is used or not."""
    found, reason = _find()
    return Status(found is not None, found.path if found else None, reason)


def _find() -> tuple[Core | None, str]:
    choice = _settings.native_choice()
    if choice == "off":
        return None, f"switched off by {_settings.NATIVE}=off"
    built_for_us = sysconfig.get_config_var("EXT_SUFFIX") or ""
    libraries = sorted(
        (p for p in FOLDER.glob("_core*") if p.suffix in SUFFIXES),
        key=lambda p: not p.name.endswith(built_for_us),  # one of another Python may be older
    )
    if not libraries:
        return None, (
            "not built: there was no C compiler, or it failed, when sudonet was installed "
            "(pip install --verbose shows why)"
        )
    try:
        found = load(libraries[0], choice)
    except CoreError as error:
        return None, f"found, but {error}"
    chosen = "chosen for this CPU" if choice == "auto" else f"asked for by {_settings.NATIVE}"
    also = ", integer networks with amx (experimental)" if found.amx else ""
    return found, f"{libraries[0].name} on {platform.machine()}, {chosen}{also}"
