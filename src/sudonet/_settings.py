"""Settings from environment variables. No other module reads the environment."""

from __future__ import annotations

import os
from pathlib import Path

DATA = "SUDONET_DATA"
NATIVE = "SUDONET_NATIVE"
CACHE = "XDG_CACHE_HOME"
NATIVE_CHOICES = ("auto", "off", "portable", "avx2", "avx512", "amx")


def data_folder() -> Path | None:
    """The folder with data sets, from ``SUDONET_DATA``; None where it is not set.

    Whether the folder exists is not asked here: ``sudonet doctor`` tells.
    """
    text = os.environ.get(DATA, "").strip()
    return expanded(text) if text else None


def expanded(path: str | Path) -> Path:
    """A path without ~; that of a user who does not exist stays as it is."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 (Path.expanduser raises)


def cache_folder() -> Path:
    """The folder for data sets where ``SUDONET_DATA`` is not set.

    ``$XDG_CACHE_HOME/sudonet``, or ``~/.cache/sudonet`` where that variable is unset or, as
    its specification asks, where it is no absolute path.
    """
    base = Path(os.environ.get(CACHE, ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "sudonet"


def native_choice() -> str:
    """Which form of the C core to use, from ``SUDONET_NATIVE``; ``auto`` by default."""
    text = os.environ.get(NATIVE, "").strip()
    choice = text.lower() or "auto"
    if choice not in NATIVE_CHOICES:
        raise ValueError(
            f"{NATIVE} must be one of {', '.join(NATIVE_CHOICES)}, got {text!r}: "
            "correct it, or unset it to mean auto"
        )
    return choice


def quiet_ray() -> None:
    """Keep Ray's C++ log off the terminal, unless its own variable asks for it."""
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
