"""Microcontrollers to run C on: compilers, boards that QEMU emulates, sizes, instruction counts.

The programs need no C library. ``microcontrollers/rig.h`` is what they may call.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

RIG = Path(__file__).with_suffix("")
FLAGS = (
    *("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"),
    *("-ffreestanding", "-ffunction-sections", "-fdata-sections"),
)
OPTIONS = ("-O2",)
FAULT = 125  # the status of a program that faulted


@dataclass(frozen=True)
class Target:
    """A processor, and the board that has it."""

    name: str
    compiler: str
    flags: tuple[str, ...]
    emulator: tuple[str, ...]
    rig: tuple[str, ...]
    script: str
    ticks: float  # of the rig's clock, for each instruction

    @property
    def size(self) -> str:
        """The program of the cross compiler that measures sections."""
        return self.compiler.removesuffix("gcc") + "size"


def _arm(name: str, machine: str, board: str, nanoseconds: float) -> Target:
    # An instruction takes 2**6 = 64 ns of the emulated time. That is longer than a tick of the
    # board's timer, so that the timer resolves single instructions.
    return Target(
        name,
        "arm-none-eabi-gcc",
        (f"-mcpu={name}", "-mthumb", "-mfloat-abi=soft"),
        ("qemu-system-arm", "-machine", machine, "-icount", "shift=6"),
        ("cortex_m.c", f"{board}.c"),
        f"{board}.ld",
        2**6 / nanoseconds,
    )


TARGETS = (
    _arm("cortex-m0", "microbit", "microbit", 62.5),
    _arm("cortex-m3", "mps2-an385", "mps2", 40),
    _arm("cortex-m4", "mps2-an386", "mps2", 40),
    Target(
        "rv32imac",
        "riscv64-unknown-elf-gcc",
        ("-march=rv32imac", "-mabi=ilp32"),
        ("qemu-system-riscv32", "-machine", "virt", "-bios", "none", "-icount", "shift=0"),
        ("virt.c",),
        "virt.ld",
        1,
    ),
)


@dataclass(frozen=True)
class Result:
    """What a run left behind.

    Attributes
    ----------
    output
        What the program wrote.
    status
        What its ``main`` returned, or ``FAULT``.
    instructions
        The executed instructions of each region between ``count_begin`` and ``count_end``.
    """

    output: str
    status: int
    instructions: tuple[int, ...]


@dataclass(frozen=True)
class Sizes:
    """Bytes by kind of section."""

    code: int
    constants: int
    data: int
    zeroed: int

    @property
    def flash(self) -> int:
        """What is kept while the power is off; the initial values of ``data`` are."""
        return self.code + self.constants + self.data

    @property
    def ram(self) -> int:
        """What is taken all the time; the stack comes on top."""
        return self.data + self.zeroed


def missing(target: Target) -> str | None:
    """Why ``target`` cannot run here; None if it can."""
    programs = (target.compiler, target.size, target.emulator[0])
    absent = [program for program in programs if shutil.which(program) is None]
    if not absent:
        return None
    return f"{target.name}: no {', '.join(absent)}: .ci/microcontrollers installs what is missing"


def compile_object(
    target: Target,
    source: Path,
    work: Path,
    *,
    include: Sequence[Path] = (),
    options: Sequence[str] = OPTIONS,
) -> Path:
    """One source as an object in ``work``, without the rig: for ``sizes``."""
    made = work / f"{source.stem}.o"
    _call([*_compiler(target, include, options), "-c", source, "-o", made])
    return made


def build(
    target: Target,
    sources: Sequence[Path],
    work: Path,
    *,
    include: Sequence[Path] = (),
    options: Sequence[str] = OPTIONS,
    libraries: Sequence[str] = (),
) -> Path:
    """The sources, or objects, and the rig as a program in ``work``."""
    made = work / "program.elf"
    rig = [RIG / name for name in ("rig.c", "memory.c", *target.rig)]
    layout = [f"-L{RIG}", f"-T{RIG / target.script}", "-Wl,--gc-sections,--fatal-warnings"]
    alone = ["-nostdlib", "-nostartfiles", "-static"]
    command = [*_compiler(target, include, options), *alone, *layout]
    _call([*command, *rig, *sources, *libraries, "-lgcc", "-o", made])
    return made


def emulate(target: Target, program: Path, inputs: bytes = b"", *, timeout: float = 60) -> Result:
    """Run a program that ``build`` made; ``read_input`` gives it the bytes of ``inputs``."""
    work = program.parent
    counts = work / "counts"
    counts.unlink(missing_ok=True)
    (work / "input").write_bytes(inputs)
    command = [
        *target.emulator,
        *("-display", "none", "-monitor", "none", "-serial", "none"),
        *("-chardev", "stdio,id=output"),
        *("-semihosting-config", "enable=on,target=native,chardev=output"),
        *("-kernel", program.name),
    ]
    ran = subprocess.run(
        command, cwd=work, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout
    )
    if ran.returncode < 0 or not counts.exists():
        raise RuntimeError(
            f"{target.name}: {' '.join(command)} in {work} ended with {ran.returncode}:\n"
            f"{ran.stdout.decode()}{ran.stderr.decode()}"
        )
    own, *ticks = (count for (count,) in struct.iter_unpack("<I", counts.read_bytes()))
    instructions = tuple(round((count - own) / target.ticks) for count in ticks)
    return Result(ran.stdout.decode(), ran.returncode, instructions)


def run(
    target: Target,
    sources: Sequence[Path],
    work: Path,
    inputs: bytes = b"",
    *,
    include: Sequence[Path] = (),
    options: Sequence[str] = OPTIONS,
    timeout: float = 60,
) -> Result:
    """Build a program and run it; all files that this takes are in ``work``."""
    program = build(target, sources, work, include=include, options=options)
    return emulate(target, program, inputs, timeout=timeout)


def sizes(target: Target, path: Path) -> Sizes:
    """What an object or a program takes; a program has the rig in it."""
    kinds = {"code": 0, "constants": 0, "data": 0, "zeroed": 0}
    for line in _call([target.size, "-A", path]).splitlines():
        if line.startswith("."):
            name, size, _ = line.split()
            kind = _KINDS.get(name.split(".")[1])
            if kind is not None:
                kinds[kind] += int(size)
    return Sizes(**kinds)


_KINDS = {
    "text": "code",
    "rodata": "constants",
    "srodata": "constants",
    "data": "data",
    "sdata": "data",
    "bss": "zeroed",
    "sbss": "zeroed",
}


def _compiler(target: Target, include: Sequence[Path], options: Sequence[str]) -> list[str | Path]:
    folders = [f"-I{folder}" for folder in (RIG, *include)]
    return [target.compiler, *target.flags, *FLAGS, *options, *folders]


def _call(command: Sequence[str | Path]) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if ran.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))} failed:\n{ran.stderr}")
    return ran.stdout
