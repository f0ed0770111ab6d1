"""Compiles the C of a network: to check it here, or to measure its size."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from sudonet._text import aligned
from sudonet.deploy.c.write import write
from sudonet.deploy.network import IntegerNetwork

STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")
"""Options with which the C compiles without warnings."""

OPTIONS = ("-O2", "-ffreestanding", "-ffunction-sections", "-fdata-sections")
"""Options of the cross compilers."""

SECONDS = 120
"""The longest that a compiler or the program may take."""


@dataclass(frozen=True)
class Mcu:
    """A compiler for a processor, and the Debian package that has it."""

    compiler: str
    flags: tuple[str, ...]
    package: str


MCUS = {
    name: Mcu("arm-none-eabi-gcc", (f"-mcpu={name}", "-mthumb"), "gcc-arm-none-eabi")
    for name in ("cortex-m0", "cortex-m3", "cortex-m4")
} | {
    "rv32imac": Mcu(
        "riscv64-unknown-elf-gcc", ("-march=rv32imac", "-mabi=ilp32"), "gcc-riscv64-unknown-elf"
    )
}


@dataclass(frozen=True)
class Check:
    """Whether the C agrees with the reference, and what the test program printed."""

    passed: bool
    samples: int
    report: str


@dataclass(frozen=True)
class Section:
    """A part of the memory, ``flash`` or ``ram``."""

    memory: str
    name: str
    bytes: int


@dataclass(frozen=True)
class Footprint:
    """Flash and RAM that a network takes, without the stack."""

    mcu: str
    sections: tuple[Section, ...]

    @property
    def flash(self) -> int:
        """Code and tables."""
        return sum(s.bytes for s in self.sections if s.memory == "flash")

    @property
    def ram(self) -> int:
        """The input and the output included."""
        return sum(s.bytes for s in self.sections if s.memory == "ram")

    def __str__(self) -> str:
        rows = [[s.memory, s.name, f"{s.bytes:,}"] for s in self.sections]
        rows += [["flash", "in all", f"{self.flash:,}"], ["ram", "in all", f"{self.ram:,}"]]
        rows.sort(key=lambda row: row[0])
        return "\n".join(aligned([[self.mcu, "", "bytes"], *rows], left=2))


def check(
    network: IntegerNetwork,
    samples: NDArray[Any],
    folder: Path | str,
    name: str = "net",
    *,
    optimise: str = "speed",
) -> Check:
    """Write the C, compile it with this computer's ``cc``, run it on samples and compare.

    The files stay in ``folder``.

    Parameters
    ----------
    network
        What becomes C.
    samples
        A batch of inputs, integers or real values.
    folder, name, optimise
        As in :func:`write`.
    """
    made = write(network, folder, name, optimise=optimise, samples=samples)
    compiler = shutil.which("cc")
    if compiler is None:
        raise RuntimeError(
            f"there is no C compiler (cc) here: install one (Debian: gcc), or compile "
            f"{made.source.name} and {name}_main.c in {folder} elsewhere"
        )
    assert made.main is not None
    program = made.main.with_suffix("")
    sources = [str(made.source), str(made.main)]
    _run([compiler, *STRICT, "-O2", *sources, "-o", str(program)])
    ran = _ran([str(program.resolve())])
    integers, _ = network.integers(samples)
    return Check(ran.returncode == 0, len(integers), ran.stdout.strip())


def size(
    network: IntegerNetwork,
    mcu: str = "cortex-m4",
    *,
    optimise: str = "speed",
    options: Sequence[str] = OPTIONS,
) -> Footprint:
    """Flash and RAM that a network takes of a microcontroller, by its cross compiler.

    Parameters
    ----------
    network
        What becomes C.
    mcu
        ``cortex-m0``, ``cortex-m3``, ``cortex-m4`` or ``rv32imac``.
    optimise
        As in :func:`write`.
    options
        Of the compiler, besides those that choose the processor.
    """
    if mcu not in MCUS:
        raise ValueError(f"mcu must be one of {', '.join(MCUS)}, got {mcu!r}")
    tools = MCUS[mcu]
    measure = tools.compiler.removesuffix("gcc") + "size"
    for program in (tools.compiler, measure):
        if shutil.which(program) is None:
            raise RuntimeError(
                f"{program}, which {mcu} needs, is not installed: install it "
                f"(Debian: apt-get install {tools.package})"
            )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = write(network, folder, "net", optimise=optimise)
        compiled = folder / "net.o"
        call = [tools.compiler, *tools.flags, *STRICT, *options, "-c", str(made.source)]
        _run([*call, "-o", str(compiled)])
        listed = _run([measure, "-A", str(compiled)])
    found = {"code": 0, "weights": 0, "thresholds": 0, "layers": 0}
    for line in listed.splitlines():
        if line.startswith((".text", ".rodata", ".srodata")):
            section, number, _ = line.split()
            found[_part(section)] += int(number)
    inputs = network.inputs.dtype.itemsize
    for length in network.shape_in:
        inputs *= length
    ram = {"arena": made.sizes.arena, "output": made.sizes.output, "input": inputs}
    return Footprint(
        mcu,
        tuple(Section("flash", name, number) for name, number in found.items())
        + tuple(Section("ram", name, number) for name, number in ram.items()),
    )


def _part(section: str) -> str:
    if section.startswith(".text"):
        return "code"
    if "weights" in section:
        return "weights"
    tables = ("thresholds", "levels", "factor", "constant", "emitted", "offset")
    return "thresholds" if any(table in section for table in tables) else "layers"


def _run(command: list[str]) -> str:
    ran = _ran(command)
    if ran.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{ran.stderr}")
    return ran.stdout


def _ran(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(
            f"{' '.join(command)} did not finish within {SECONDS} seconds"
        ) from error
