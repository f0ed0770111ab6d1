"""Networks on microcontrollers: instructions, flash and RAM, and the same by emlearn.

    .venv/bin/python benchmarks/microcontrollers.py

Needs the cross compilers and QEMU, which .ci/microcontrollers installs. The comparison needs
the packages emlearn (Python) and libnewlib-arm-none-eabi (Debian) too; without them it is left
out. Instructions are counted exactly, so that a run on a busy machine gives the same numbers.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from timing import table
from torch import nn

import sudonet
from sudonet import deploy
from sudonet.deploy import c


def _rig() -> ModuleType:
    """The tests' rig, which has the name of this file."""
    path = Path(__file__).resolve().parents[1] / "tests" / "deploy" / "microcontrollers.py"
    spec = importlib.util.spec_from_file_location("rig", path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules["rig"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


rig = _rig()

PIXELS = deploy.Grid.of_range(0.0, 1.0)
SAMPLES = 5

OURS = """
#include "net.h"
#include "rig.h"
static uint8_t input[NET_INPUTS];
static int64_t expected[NET_OUTPUTS], output[NET_OUTPUTS];
static union { uint8_t bytes[NET_ARENA_BYTES]; uint32_t word; } arena;

int main(void)
{
    while (read_input(input, sizeof input) > 0 && read_input(expected, sizeof expected) > 0) {
        uint32_t i;
        stack_clear();
        count_begin();
        net_run(input, output, arena.bytes);
        count_end();
        write_number((int32_t)stack_used());
        write_text(" ");
        for (i = 0; i < NET_OUTPUTS; i++) {
            if (output[i] != expected[i]) return 1;
        }
    }
    return 0;
}
"""

EMLEARN = """
#include <stdint.h>
#include "emlearn_net.c"
#include "rig.h"
static float input[784];

int main(void)
{
    while (read_input(input, sizeof input) > 0) {
        stack_clear();
        count_begin();
        volatile int32_t found = net_predict(input, 784);
        count_end();
        write_number(found);
        write_text(" ");
        write_number((int32_t)stack_used());
        write_text(" ");
    }
    return 0;
}
"""


@dataclass(frozen=True)
class Measured:
    """One network on one microcontroller, in bytes and instructions of one run."""

    instructions: float
    flash: int
    ram: int
    stack: int


def dense(levels: int = 16) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(784, 100), sudonet.SUDO(levels), nn.Linear(100, 10))


def convolutional() -> nn.Module:
    torch.manual_seed(0)
    unit = sudonet.SUDO(16)
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.MaxPool2d(2), unit),
        *(nn.Conv2d(8, 16, 3, padding=1), nn.MaxPool2d(2), unit),
        *(nn.Flatten(), nn.Linear(784, 10)),
    )


def ours(
    network: deploy.IntegerNetwork, target: rig.Target, optimise: str = "speed"
) -> tuple[Measured, int]:
    """What our C takes, and its multiply-adds; a wrong output ends the benchmark."""
    pixels = np.random.default_rng(0).integers(0, 256, (SAMPLES, *network.shape_in))
    samples = pixels.astype(np.uint8)
    outputs = network.trace(samples)[-1]
    stream = b"".join(x.tobytes() + y.tobytes() for x, y in zip(samples, outputs, strict=True))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = c.write(network, folder, optimise=optimise)
        main = folder / "main.c"
        main.write_text(OURS)
        result = rig.run(target, [main, made.source], folder, stream, include=[folder])
        if result.status != 0:
            raise SystemExit(f"{target.name} computes something else than the reference")
        size = rig.sizes(target, rig.compile_object(target, made.source, folder))
    stack = max(int(word) for word in result.output.split())
    measured = Measured(float(np.mean(result.instructions)), size.flash, made.sizes.arena, stack)
    return measured, made.sizes.multiply_adds


def networks() -> str:
    """A line a network, a column a microcontroller."""
    targets = [target for target in rig.TARGETS if rig.missing(target) is None]
    cases = [
        (f"784-100-10, {kind}, {mode}", deploy.compile(dense(), kind, inputs=PIXELS), mode)
        for kind in ("int8", "int4", "ternary", "binary")
        for mode in (("speed", "flash", "ram") if kind == "int8" else ("speed",))
    ]
    two = nn.Sequential(*dense(2)[:2], nn.Linear(100, 100), sudonet.SUDO(2), nn.Linear(100, 10))
    mixed = {"0": "int8", "2": "binary", "4": "int8"}
    cases += [
        ("784-100-100-10, SUDO-2, bits counted", deploy.compile(two, mixed, inputs=PIXELS), "speed")
    ]
    shape = (1, 28, 28)
    network = deploy.compile(convolutional(), inputs=PIXELS, shape=shape)
    cases += [(f"2 convolutions, int8, {mode}", network, mode) for mode in ("speed", "ram")]
    rows = []
    for name, network, mode in cases:
        found = [ours(network, target, mode) for target in targets]
        first = found[0][0]
        instructions = [f"{one.instructions / products:.2f}" for one, products in found]
        flash = f"{min(one.flash for one, _ in found):,}-{max(one.flash for one, _ in found):,}"
        stack = max(one.stack for one, _ in found)
        rows.append([name, *instructions, flash, f"{first.ram:,}", f"{stack:,}"])
    names = [target.name for target in targets]
    return table(["instructions per multiply-add", *names, "flash", "arena", "stack"], rows)


def emlearn(target: rig.Target, activation: str, option: str) -> Measured:
    """The same network in float32, by the generator that emlearn uses unless told otherwise."""
    from emlearn import net
    from emlearn.common import get_include_dir

    model = dense()
    layers = [model[0], model[2]]
    weights = [layer.weight.detach().numpy().T for layer in layers]
    biases = [layer.bias.detach().numpy() for layer in layers]
    text = net.c_generate_net_loadable([activation, "softmax"], weights, biases, "net")
    x = np.random.default_rng(0).integers(0, 256, (SAMPLES, 784)) / 255
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "emlearn_net.c").write_text(text)
        main = folder / "main.c"
        main.write_text(EMLEARN)
        options = (option, "-w")  # warnings of its headers are not ours to mend
        include = [folder, Path(get_include_dir())]
        program = rig.build(
            target, [main], folder, include=include, options=options, libraries=("-lm", "-lc")
        )
        result = rig.emulate(target, program, x.astype(np.float32).tobytes())
        size = rig.sizes(target, program)
        main.write_text("int main(void) { return 0; }\n")
        rest = rig.sizes(target, rig.build(target, [main], folder))
    said = np.array([int(word) for word in result.output.split()]).reshape(SAMPLES, 2)
    function = {"tanh": torch.tanh, "relu": torch.relu}[activation]
    hidden = function(model[0](torch.tensor(x, dtype=torch.float32)))
    expected = model[2](hidden).argmax(1).numpy()
    if not (said[:, 0] == expected).all():
        raise SystemExit("emlearn's network computes something else than PyTorch")
    return Measured(
        float(np.mean(result.instructions)),
        size.flash - rest.flash,
        size.ram - rest.ram - 4 * 784,  # without its input
        int(said[:, 1].max()),
    )


def comparison() -> str:
    """Ours against emlearn's float network on a Cortex-M4 with a floating-point unit."""
    target = next(target for target in rig.TARGETS if target.name == "cortex-m4")
    library = subprocess.run(
        [target.compiler, "-print-file-name=libm.a"], capture_output=True, text=True, check=True
    )
    if "/" not in library.stdout:
        return "emlearn is left out: apt-get install libnewlib-arm-none-eabi"
    if importlib.util.find_spec("emlearn") is None:
        return "emlearn is left out: pip install emlearn"
    flags = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")
    with_fpu = replace(target, flags=flags)
    theirs = {
        (activation, option): emlearn(with_fpu, activation, option)
        for activation in ("tanh", "relu")
        for option in ("-O2", "-O3", "-Os")
    }
    our, products = ours(deploy.compile(dense(), inputs=PIXELS), target)
    best = min(theirs, key=lambda key: theirs[key].instructions)
    smallest = min(theirs, key=lambda key: theirs[key].flash)
    rows = [
        [
            name,
            f"{one.instructions / products:.2f}",
            f"{one.flash:,}",
            f"{one.ram:,}",
            f"{one.stack:,}",
        ]
        for name, one in (
            ("sudonet, SUDO-16, int8", our),
            (f"emlearn, fastest ({', '.join(best)})", theirs[best]),
            (f"emlearn, smallest ({', '.join(smallest)})", theirs[smallest]),
        )
    ]
    heading = ["784-100-10 on a Cortex-M4F", "instructions per multiply-add"]
    text = table([*heading, "flash", "RAM besides input and output", "stack"], rows)
    fewer = theirs[best].instructions / our.instructions
    less = theirs[smallest].flash / our.flash
    return f"{text}\n\nsudonet: {fewer:.1f} times fewer instructions, {less:.1f} times less flash"


def main() -> None:
    for target in rig.TARGETS:
        reason = rig.missing(target)
        if reason is not None:
            print(reason)
    print(networks(), flush=True)
    if rig.missing(next(t for t in rig.TARGETS if t.name == "cortex-m4")) is None:
        print(f"\n{comparison()}")


if __name__ == "__main__":
    main()
