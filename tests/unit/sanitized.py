"""The C core compiled here, also with sanitizers in it, and Python that runs on such a core."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sudonet.native import library
from tests import ROOT

FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g")


def extension() -> Any:
    """What setup.py tells setuptools of the C core."""
    setuptools = pytest.importorskip("setuptools")
    told: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(setuptools, "setup", lambda **arguments: told.update(arguments))
        patch.chdir(ROOT)
        runpy.run_path("setup.py")
    (found,) = told["ext_modules"]
    return found


def compile_flags() -> list[str]:
    """The compiler's options for a file of the core."""
    built = extension()
    return [
        "-fPIC",
        *(f"-I{ROOT / folder}" for folder in built.include_dirs),
        *built.extra_compile_args,
    ]


def object_name(source: str | Path) -> str:
    """A file of the core as an object; files of two folders may share a name."""
    return "_".join(Path(source).with_suffix(".o").parts[-2:])


def compile_core(compiler: str, folder: Path, *flags: str) -> tuple[list[Path], list[str]]:
    """Object files of the core, two compilers at a time, and what they are linked with."""
    built, common = extension(), compile_flags()

    def one(source: str) -> Path:
        target = folder / object_name(source)
        command = [compiler, *common, *flags, "-c", source, "-o", target]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return target

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(one, built.sources)), [f"-l{name}" for name in built.libraries]


@dataclass(frozen=True)
class Watched:
    """A core with sanitizers in it, and the library that must be loaded before it."""

    file: Path
    asan: Path

    def run(self, module: str, function: str) -> subprocess.CompletedProcess[str]:
        """Call a function of a test module with the core's file, in a Python of its own."""
        environment = os.environ | {
            "LD_PRELOAD": str(self.asan),
            "ASAN_OPTIONS": "detect_leaks=0",
            "PYTHONMALLOC": "malloc",  # the sanitizer knows where such memory ends
            "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        }
        code = f"import sys; from {module} import {function}; {function}(sys.argv[1])"
        return subprocess.run(
            [sys.executable, "-c", code, self.file],
            env=environment,
            cwd=self.file.parent,
            capture_output=True,
            text=True,
            check=False,
        )


def sanitized_core(compiler: str, folder: Path) -> Watched:
    """Compile the core in a folder; skip the test where the compiler has no sanitizers."""
    said = subprocess.check_output([compiler, "-print-file-name=libasan.so"], text=True)
    asan = Path(said.strip())
    if not asan.is_absolute():
        pytest.skip(f"{compiler} has no libasan.so")
    objects, libraries = compile_core(compiler, folder, *FLAGS, "-O1")
    file = folder / "_core.so"
    subprocess.run([compiler, "-shared", *FLAGS, "-o", file, *objects, *libraries], check=True)
    return Watched(file, asan)


def each_path(file: str) -> Iterator[library.Core]:
    """The core by every path that it has here; what became of each is printed."""
    for path in library.PATHS:
        try:
            core = library.load(Path(file), path)
        except library.CoreError as error:
            print(error)
            continue
        yield core
        print(path, "done")


def check_walk(done: subprocess.CompletedProcess[str]) -> None:
    """The portable path was walked at least, and the sanitizers found nothing."""
    assert done.returncode == 0, done.stderr
    assert "portable done" in done.stdout, done.stdout
    for sign in ("AddressSanitizer", "runtime error"):
        assert sign not in done.stderr, done.stderr


def check_overflow(done: subprocess.CompletedProcess[str]) -> None:
    """The sanitizers found memory that is written past its end."""
    assert done.returncode != 0, done.stdout
    assert "ERROR: AddressSanitizer: heap-buffer-overflow" in done.stderr, done.stderr
