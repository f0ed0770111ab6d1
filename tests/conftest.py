"""How tests are shared out; fixtures that send the work to one form of the C core, or past it."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from sudonet import _kernels, _settings, native
from sudonet.native.library import PATHS
from tests.once import made_once
from tests.unit.sanitized import Watched, sanitized_core


def pytest_collection_modifyitems(items):
    """Mark what follows from a test itself, and put files with slow tests first.

    A process that comes to a slow file last would keep the other one waiting.
    """
    slow = set()
    for item in items:
        if isinstance(item, pytest.DoctestItem):
            item.add_marker("without_core")
        if "native_path" in getattr(item, "fixturenames", ()):
            item.add_marker("chooses_core")
        if item.get_closest_marker("slow"):
            slow.add(item.path)
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session")
def c_compiler():
    """The compiler that an installation would use, by CC or else cc; None if it does not run."""
    found = shutil.which(shlex.split(os.environ.get("CC") or "cc")[0])
    runs = found and subprocess.run([found, "--version"], capture_output=True).returncode == 0
    return found if runs else None


@pytest.fixture(scope="session")
def sanitized(c_compiler, tmp_path_factory):
    """The C core with sanitizers in it; skips where there is no compiler that has them."""
    if c_compiler is None:
        pytest.skip("there is no C compiler: neither CC nor cc runs")
    said = subprocess.check_output([c_compiler, "-print-file-name=libasan.so"], text=True)
    asan = Path(said.strip())
    if not asan.is_absolute():
        pytest.skip(f"{c_compiler} has no libasan.so")
    folder = made_once(
        tmp_path_factory, "sanitized core", lambda folder: sanitized_core(c_compiler, folder)
    )
    return Watched(folder / "_core.so", asan)


@pytest.fixture
def native_path(monkeypatch, c_compiler):
    """A function: call it with a value of SUDONET_NATIVE, and the test runs with that."""

    def use(name):
        monkeypatch.setenv(_settings.NATIVE, name)
        native.core.cache_clear()
        core = native.core()
        if core is None and name != "off":
            reason = native.status().reason
            no_compiler = reason.startswith("not built") and c_compiler is None
            if "this CPU cannot run" not in reason and not no_compiler:
                pytest.fail(f"{name}: {reason}")
            pytest.skip(f"{name}: {reason}")
        return core

    yield use
    native.core.cache_clear()


@pytest.fixture(params=PATHS)
def core(request, native_path):
    """The C core on every path that this CPU runs."""
    return native_path(request.param)


@pytest.fixture(params=["small", "blocks", *PATHS])
def route(request, native_path, monkeypatch):
    """Every way through the operator, for every size: look-up, blocks, the paths in C."""
    if request.param in PATHS:
        native_path(request.param)
        return
    native_path("off")
    if request.param == "blocks":
        monkeypatch.setattr(_kernels, "SMALL", -1)
        monkeypatch.setattr(_kernels, "BLOCK", 1000)
    else:
        monkeypatch.setattr(_kernels, "SMALL", 10**9)


@pytest.fixture(params=[*PATHS, "torch", "torch without the C core"])
def engine(request, native_path):
    """The name of an engine, with the C core on one path or switched off."""
    if request.param in PATHS:
        native_path(request.param)
        return "native"
    native_path("auto" if request.param == "torch" else "off")
    return "torch"


@pytest.fixture
def one_thread():
    """For tests of many small calls: on a busy machine threads wait for one another."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
