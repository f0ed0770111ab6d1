"""Train a network on MNIST, make integers of it, and compare what that costs and saves.

The network has 784 inputs, four hidden layers of 100 SUDO-16 units and 10 outputs. It is
trained in float32, compiled to 8-bit weights and, after a short fine-tuning, to 4-bit
weights. Between the layers the integer networks keep codes: a byte each, or 4 bits in C for
microcontrollers that is exported with --optimise ram.

    python examples/mnist_integer.py

prints a table and writes out/mnist.sudo and, where ONNX is installed, out/mnist.onnx. Times
are for one digit: those of integers are of the C core, or of numpy where there is none, the
row of ONNX is one of ONNX Runtime.
"""

import argparse
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor, nn

import sudonet
from sudonet import deploy
from sudonet.deploy.report import Report, report
from sudonet.deploy.tune import tune
from sudonet.experiments.data import Digits, digits

SEED = 1
UNIT = "sudo-16"
HIDDEN = (100, 100, 100, 100)
CLASSES = 10
BATCH = 100
LEARNING_RATE = 0.002
STEPS = 2_400  # four epochs
PIXELS = deploy.Grid.of_range(0, 1)  # uint8 pixels, which stand for 0..1
TIMED = 200  # calls, of which the middle one counts


class Row(NamedTuple):
    name: str
    accuracy: float
    weight_bytes: int
    activation_bytes: int
    microseconds: float


def network(pixels: int) -> nn.Sequential:
    torch.manual_seed(SEED)
    layers: list[nn.Module] = []
    inputs = pixels
    for units in HIDDEN:
        layers += [nn.Linear(inputs, units), sudonet.activation(UNIT)]
        inputs = units
    return nn.Sequential(*layers, nn.Linear(inputs, CLASSES))


def train(
    model: nn.Module, data: tuple[Tensor, Tensor], steps: int, after_step: Callable[[], object]
) -> None:
    """Ordinary PyTorch: nothing here knows that there will be integers."""
    images, labels = data
    optimiser = torch.optim.Adam(model.parameters(), LEARNING_RATE, fused=True)
    slower = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, steps)
    order = torch.Generator().manual_seed(SEED)
    done = 0
    while done < steps:
        for batch in torch.randperm(len(images), generator=order).split(BATCH)[: steps - done]:
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            slower.step()
            done += 1
            after_step()


def microseconds(call: Callable[[], object]) -> float:
    """The usual time of one call."""
    times = []
    for _ in range(TIMED):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e6 * float(np.median(times))


def float_row(model: nn.Module, found: Report, image: Tensor) -> Row:
    activations = sum(row.output.float32_bytes for row in found.layers if row.unit)
    with torch.no_grad():
        taken = microseconds(lambda: model(image))
    return Row("float32", found.before, found.weight_float32_bytes, activations, taken)


def integer_row(
    name: str, network: deploy.IntegerNetwork, found: Report, image: NDArray[np.uint8]
) -> Row:
    taken = microseconds(lambda: network(image))
    return Row(name, found.after, found.weight_bytes, code_bytes(found), taken)


def code_bytes(found: Report) -> int:
    """What the C core and ONNX Runtime keep between the layers: a byte a code."""
    return sum(row.output.plain_bytes for row in found.layers if row.unit)


def onnx_row(path: Path, found: Report, test: Digits) -> Row:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    # Pixels up to 255 times weights up to 127 need more than the 16 bits of older CPUs.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (outputs,) = session.run(["output"], {"input": test.test_images})
    taken = microseconds(lambda: session.run(["output"], {"input": test.test_images[:1]}))
    accuracy = float((outputs.argmax(1) == test.test_labels).mean())
    return Row("int8, ONNX", accuracy, found.weight_bytes, code_bytes(found), taken)


def table(rows: list[Row], data: str) -> Table:
    shown = Table(title=f"{data}, {len(HIDDEN)} x {HIDDEN[0]} {UNIT} units")
    shown.add_column("network")
    for heading in ("accuracy", "weights", "activations", "microseconds"):
        shown.add_column(heading, justify="right")
    whole = rows[0]
    for row in rows:
        shown.add_row(
            row.name,
            f"{100 * row.accuracy:.2f} %",
            f"{row.weight_bytes:,} B ({whole.weight_bytes / row.weight_bytes:.1f} x)",
            f"{row.activation_bytes:,} B ({whole.activation_bytes / row.activation_bytes:.1f} x)",
            f"{row.microseconds:.0f}",
        )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=STEPS, help="default: %(default)s")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the files")
    options = parser.parse_args()
    if options.steps < 2:
        parser.error(f"--steps must be at least 2, got {options.steps}")

    torch.set_num_threads(1)  # networks this small gain nothing from more
    torch.set_flush_denormal(True)  # numbers near 1e-40 would slow the optimiser down
    console = Console(highlight=False)
    found = digits()
    source = found.source
    data = f"{source.name} in place of MNIST" if source.stand_in_for else source.name
    pixels, labels = torch.from_numpy(found.train_images), torch.from_numpy(found.train_labels)
    training = pixels.float() / 255, labels.long()
    test = torch.from_numpy(found.test_images), torch.from_numpy(found.test_labels).long()

    model = network(pixels.shape[1])
    with Progress(console=console) as progress:
        task = progress.add_task("training", total=options.steps)
        train(model, training, options.steps, lambda: progress.advance(task))
        short = options.steps // 2
        task = progress.add_task("4 bits", total=short)
        tuned = tune(
            *(model, training, "int4"),
            steps=short,
            batch_size=BATCH,
            progress=lambda done, _: progress.update(task, completed=done),
        )

    small = deploy.compile(model, "int8", inputs=PIXELS)
    smaller = deploy.compile(tuned, "int4", inputs=PIXELS)
    one, image = report(model, small, test), found.test_images[0]
    rows = [float_row(model, one, training[0][:1]), integer_row("int8", small, one, image)]
    options.out.mkdir(parents=True, exist_ok=True)
    small.save(options.out / "mnist.sudo")
    has_onnx = find_spec("onnx") is not None and find_spec("onnxruntime") is not None
    if has_onnx:
        small.to_onnx(options.out / "mnist.onnx")
        rows.append(onnx_row(options.out / "mnist.onnx", one, found))
    rows.append(integer_row("int4, tuned", smaller, report(tuned, smaller, test), image))

    console.print(table(rows, data))
    console.print(
        f"int8 exported as C: {one.arena_bytes} B of RAM between input and output, "
        f"{one.arena_packed_bytes} B with --optimise ram",
        soft_wrap=True,
    )
    console.print(f"the network: {options.out / 'mnist.sudo'}", soft_wrap=True)
    if not has_onnx:
        console.print("no row for ONNX: install sudonet[onnx]", markup=False)


if __name__ == "__main__":
    main()
