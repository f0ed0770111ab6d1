"""Programs that test exported C; compilers and emulators for them, or a reason to skip."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from string import Template

import numpy as np
import pytest

from sudonet import deploy
from sudonet.deploy import c
from sudonet.deploy.c.tools import STRICT
from tests.deploy import microcontrollers as rig
from tests.deploy import zoo

HOST = Path(__file__).with_name("microcontrollers") / "host.c"
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")

_CHECK = Template("""
static int ${name}_check(void)
{
    uint32_t wrong = 0, sample, i;
    for (sample = 0; sample < $count; sample++) {
        uint8_t *arena = room.u8 + sample % 4; /* it may lie anywhere */
        uint32_t differs = 0, best = 0;
        if (read_input(input.u8, $bytes_in) != $bytes_in ||
            read_input(expected.u8, $bytes_out) != $bytes_out) {
            return 1;
        }
        if (sample == 0) {
            stack_clear();
            count_begin();
            ${name}_run(input.$given, output.$made, arena);
            count_end();
            stack = stack_used();
        } else {
            ${name}_run(input.$given, output.$made, arena);
        }
        for (i = 0; i < ${NAME}_OUTPUTS; i++) {
            differs |= output.$made[i] != expected.$made[i];
            best = expected.$made[i] > expected.$made[best] ? i : best;
        }
        $argmax
        wrong += differs;
    }
    write_text("$name ");
    write_number((int32_t)wrong);
    write_text(" ");
    write_number((int32_t)stack);
    write_text("\\n");
    return wrong != 0;
}
""")

_PROGRAM = Template("""
#include "rig.h"
$includes
static union { uint8_t u8[$input]; int16_t s16[$input / 2 + 1]; } input;
static union { uint8_t u8[$output]; int64_t s64[$output / 8 + 1]; } output, expected;
static union { uint8_t u8[$room]; uint32_t aligned; } room;
static uint32_t stack;
$checks
int main(void)
{
    int wrong = 0;
$calls    return wrong;
}
""")


@dataclass(frozen=True)
class Case:
    """A network, what its C is optimised for, and input integers."""

    name: str
    network: deploy.IntegerNetwork
    samples: np.ndarray
    optimise: str = "speed"

    def write(self, folder: Path) -> c.Written:
        return c.write(self.network, folder, self.name, optimise=self.optimise)

    @cached_property
    def expected(self) -> np.ndarray:
        return self.network.trace(self.samples)[-1].reshape(len(self.samples), -1)

    @property
    def stream(self) -> bytes:
        """Every sample and what is expected of it, as the program reads them."""
        flat = self.samples.reshape(len(self.samples), -1)
        pairs = zip(flat, self.expected, strict=True)
        return b"".join(sample.tobytes() + outputs.tobytes() for sample, outputs in pairs)


def zoo_cases(names: Iterable[tuple[str, str]], count: int) -> list[Case]:
    """Networks of the zoo as C that is optimised for speed, flash and RAM in turn."""
    found = []
    for place, (name, kind) in enumerate(names):
        network, mode = zoo.network(name, kind), c.plan.OPTIMISE[place % len(c.plan.OPTIMISE)]
        short = re.sub(r"\W+", "_", name)[:24]
        found.append(Case(f"{short}_{kind}_{mode}", network, zoo.samples(network, count), mode))
    return found


@dataclass(frozen=True)
class Program:
    """The files of a program that runs some cases, and what it reads."""

    cases: list[Case]
    written: list[c.Written]
    main: Path
    stream: bytes


def program(cases: list[Case], folder: Path) -> Program:
    """C for the rig: says of every case how many samples are wrong, and how much stack it takes.

    The instructions of each case's first sample are counted.
    """
    written = [case.write(folder) for case in cases]
    checks, input_bytes, output_bytes = [], 0, 0
    for case in cases:
        given, made = case.samples[0], case.expected[0]
        scores = made.dtype == np.int64
        argmax = scores and len(case.network.layers[-1].shape_out) == 1
        asked = f"if (sample % 8 == 0) differs |= {case.name}_argmax(input.@, arena) != best;"
        kind = {"uint8": "u8", "int16": "s16"}[given.dtype.name]
        checks.append(
            _CHECK.substitute(
                name=case.name,
                NAME=case.name.upper(),
                count=len(case.samples),
                bytes_in=given.nbytes,
                bytes_out=made.nbytes,
                given=kind,
                made="s64" if scores else "u8",
                argmax=asked.replace("@", kind) if argmax else "(void)best;",
            )
        )
        input_bytes, output_bytes = max(input_bytes, given.nbytes), max(output_bytes, made.nbytes)
    main = folder / "main.c"
    main.write_text(
        _PROGRAM.substitute(
            includes="".join(f'#include "{case.name}.h"\n' for case in cases),
            input=input_bytes,
            output=output_bytes,
            room=max(one.sizes.arena for one in written) + 3,
            checks="".join(checks),
            calls="".join(f"    wrong |= {case.name}_check();\n" for case in cases),
        )
    )
    return Program(cases, written, main, b"".join(case.stream for case in cases))


def answers(output: str) -> dict[str, tuple[int, int]]:
    """Wrong samples and bytes of stack, by the names of the cases."""
    lines = [line.split() for line in output.splitlines()]
    return {name: (int(wrong), int(stack)) for name, wrong, stack in lines}


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
