"""Compilers and emulators for the tests of exported C, or a reason to skip these."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import microcontrollers as rig
import pytest
from c_networks import Program

from sudonet.deploy.c.tools import STRICT

HOST = Path(__file__).with_name("microcontrollers") / "host.c"
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def usable(name: str) -> rig.Target:
    target = next(target for target in rig.TARGETS if target.name == name)
    reason = rig.missing(target)
    if reason is not None:
        pytest.skip(reason)
    return target


def needed(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name}")
    return found


def hosted(found: Program, work: Path, options: tuple[str, ...]) -> str:
    """Compile and run a program here; what it says."""
    sources = [found.main, *(one.source for one in found.written), HOST]
    folders = [f"-I{found.main.parent}", f"-I{HOST.parent}"]
    out = work / "program"
    strict = [flag for flag in STRICT if flag != "-Wconversion"]  # the rig is not as strict
    command = [needed("gcc"), *strict, *options, *folders, *sources, "-o", out]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    done = subprocess.run([out], input=found.stream, capture_output=True)
    assert done.stderr == b""
    assert done.returncode == 0, done.stdout.decode()
    return done.stdout.decode()
