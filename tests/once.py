"""What several of pytest's processes need is made by one of them."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(
    tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]
) -> Path:
    """A folder that ``make`` fills once a run, whichever test asks first. It is for reading."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # that of a process lies in that of the run
    folder = base / name
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = base / f"{name} in the making"
            unfinished.mkdir(exist_ok=True)
            make(unfinished)
            unfinished.rename(folder)
    return folder
