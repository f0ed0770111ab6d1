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

SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g1")
EMULATED = f'-DSUDO_TILES="{ROOT / "tests" / "deploy" / "amx_emulated.h"}"'
OVER = "the walk is over"


def knows_amx(compiler: str) -> bool:
    command = [compiler, "-mamx-tile", "-mamx-int8", "-x", "c", "-fsyntax-only", "/dev/null"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


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

    def run(self, module: str, *functions: str) -> subprocess.CompletedProcess[str]:
        """Call functions of a test module with the core's file, in a Python of their own.

        After each of them a line says that it is over, so that what the sanitizers say has a place.
        """
        environment = os.environ | {
            "LD_PRELOAD": str(self.asan),
            "ASAN_OPTIONS": "detect_leaks=0",
            "PYTHONMALLOC": "malloc",  # the sanitizer knows where such memory ends
            "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        }
        calls = "".join(
            f"{function}(sys.argv[1])\nprint({OVER!r}, file=sys.stderr, flush=True)\n"
            for function in functions
        )
        code = f"import sys\nfrom {module} import {', '.join(functions)}\n{calls}"
        return subprocess.run(
            [sys.executable, "-c", code, self.file],
            env=environment,
            cwd=self.file.parent,
            capture_output=True,
            text=True,
            check=False,
        )


def sanitized_core(compiler: str, folder: Path) -> None:
    """Compile the core into a folder, its tiles in plain C where the compiler knows AMX.

    Without optimisation: that takes a quarter of the time, and the sanitizers see more.
    """
    tiles = [EMULATED] if knows_amx(compiler) else []
    objects, libraries = compile_core(compiler, folder, *SANITIZERS, *tiles, "-O0")
    file = folder / "_core.so"
    subprocess.run([compiler, "-shared", *SANITIZERS, "-o", file, *objects, *libraries], check=True)


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


def check_walk(done: subprocess.CompletedProcess[str]) -> str:
    """The portable path was walked at least, and the sanitizers found nothing until it was over.

    Returns what came afterwards.
    """
    during, over, afterwards = done.stderr.partition(OVER)
    assert over, done.stderr
    assert "portable done" in done.stdout, done.stdout
    for sign in ("AddressSanitizer", "runtime error"):
        assert sign not in during, during
    return afterwards


def check_walk_and_overflow(done: subprocess.CompletedProcess[str]) -> None:
    """After a walk without fault the sanitizers found memory that is written past its end."""
    afterwards = check_walk(done)
    assert done.returncode != 0, done.stdout
    assert "ERROR: AddressSanitizer: heap-buffer-overflow" in afterwards, afterwards
