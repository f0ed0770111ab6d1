"""Integer networks by sudonet and by its peers: LiteRT, ONNX Runtime, OpenVINO; one thread.

    .venv-peers/bin/python benchmarks/peers.py [--seconds 15] [--json FILE]

All take turns in one process. What favours the peers is done: networks of tanh and of relu are
both measured, and the faster counts; inputs are in place before the clock starts; integer
networks take codes where they can, so that none rounds floats; files are made for one size of
batch; and the calls skip the checks of the Python interfaces, which is why private names appear
below and why peers.txt pins versions.
"""

from __future__ import annotations

import os

# Before the libraries start, or they count the cores for themselves.
os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import argparse
import json
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np
import peer_models
import torch
from numpy.typing import NDArray
from peer_models import ACTIVATIONS, Case, Floats, cases, cases_of_digits
from timing import compare, repeated, table
from torch import nn
from torch.nn.functional import linear
from training import pinned

import sudonet
from sudonet import deploy

# Seconds that a contender runs when its turn comes: its first call finds the caches cold, and
# must not count for much.
ROUND_SECONDS = 0.02

# Least correlation with the answer in float32: a network that is wrong may well be fast.
AGREEMENT = 0.98

OURS = "sudo-16"

PACKAGES = ("torch", "ai-edge-litert", "onnxruntime", "openvino", "tensorflow-cpu")


class Ready(NamedTuple):
    """A network with its inputs in place; ``answer`` is what the last ``run`` found."""

    run: Callable[[], object]
    answer: Callable[[], Floats]
    kept: object = None  # what must live on because the library only points to it


@dataclass(frozen=True)
class Contender:
    """A way to run networks of one activation."""

    name: str
    activation: str
    build: Callable[[Case], Ready]


@dataclass(frozen=True)
class Row:
    """Microseconds of one contender for one batch."""

    name: str
    activation: str
    network: str
    batch: int
    shown: str
    least: float
    median: float
    correlation: float

    @property
    def case(self) -> Case:
        return Case(self.network, self.batch, self.shown)


def ours(weights: str) -> Contender:
    """Sudonet itself, with 16 levels; what it answers is compared with its reference bit by bit."""

    def build(case: Case) -> Ready:
        layers: list[nn.Module] = []
        for weight, bias in case.layers():
            layer = nn.Linear(weight.shape[1], weight.shape[0])
            layer.weight.data, layer.bias.data = map(torch.from_numpy, (weight, bias))
            layers += [layer, sudonet.SUDO(16)]
        network = deploy.compile(
            nn.Sequential(*layers[:-1]), weights, inputs=deploy.Grid.of_range(0, 1)
        )
        if network.program is None:
            raise SystemExit("sudonet has no C core here: see sudonet doctor")
        pixels = case.pixels()
        out = np.empty((case.batch, 10), np.int64)
        run = network.program.bind(pixels, out)
        run()
        if not np.array_equal(out, network.trace(pixels)[-1]):
            raise SystemExit(f"sudonet, {weights}: {case} differs from the reference")
        return Ready(run, lambda: network.real(out))

    return Contender(f"sudonet {weights}", OURS, build)


def litert(folder: Path, activation: str) -> Contender:
    def build(case: Case) -> Ready:
        from ai_edge_litert.interpreter import Interpreter

        path = case.file(folder, activation, "int8.tflite")
        interpreter = Interpreter(str(path), num_threads=1)
        interpreter.allocate_tensors()
        (inputs,), (outputs,) = interpreter.get_input_details(), interpreter.get_output_details()
        scale, zero = inputs["quantization"]
        codes = np.clip(np.rint(case.inputs() / scale) + zero, -128, 127).astype(np.int8)
        interpreter.set_tensor(inputs["index"], codes)

        def answer() -> Floats:
            scale, zero = outputs["quantization"]
            codes = interpreter.get_tensor(outputs["index"]).astype(np.float32)
            found: Floats = (codes - np.float32(zero)) * np.float32(scale)
            return found

        return Ready(interpreter._interpreter.Invoke, answer)

    return Contender("LiteRT int8", activation, build)


def given(case: Case, floats: bool) -> Floats | NDArray[np.uint8]:
    return case.inputs() if floats else case.pixels()


def onnx_runtime(name: str, kind: str, folder: Path, activation: str) -> Contender:
    def build(case: Case) -> Ready:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(
            case.file(folder, activation, kind), options, providers=["CPUExecutionProvider"]
        )
        (inputs,), (outputs,) = session.get_inputs(), session.get_outputs()
        value = onnxruntime.OrtValue.ortvalue_from_numpy
        found = value(np.zeros(outputs.shape, np.float32))
        samples = value(given(case, floats=inputs.type == "tensor(float)"))
        binding = session.io_binding()
        binding.bind_ortvalue_input(inputs.name, samples)
        binding.bind_ortvalue_output(outputs.name, found)
        inner, bound = session._sess.run_with_iobinding, binding._iobinding
        kept = session, binding, samples, found
        return Ready(lambda: inner(bound, None), found.numpy, kept)

    return Contender(f"ONNX Runtime {name}", activation, build)


def openvino(folder: Path, activation: str) -> Contender:
    def build(case: Case) -> Ready:
        from openvino import Core, Tensor, Type
        from openvino._pyopenvino import InferRequest

        path = case.file(folder, activation, "static.onnx")
        options = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"}
        model = Core().compile_model(path, "CPU", options)
        request = model.create_infer_request()
        samples = Tensor(given(case, floats=model.inputs[0].element_type == Type.f32))
        request.set_input_tensor(samples)

        # In the thread that calls: start_async and wait take about 10 us longer.
        def run() -> None:
            InferRequest.infer(request, {}, True, False)

        return Ready(run, lambda: np.array(request.get_output_tensor().data), samples)

    return Contender("OpenVINO int8", activation, build)


def torch_float32(activation: str) -> Contender:
    f = {"tanh": torch.tanh_, "relu": torch.relu_}[activation]

    def build(case: Case) -> Ready:
        *hidden, last = [tuple(map(torch.from_numpy, layer)) for layer in case.layers()]
        inputs = torch.from_numpy(case.inputs())

        # Neither modules nor torch.compile: for networks as small as these both take longer.
        def run() -> torch.Tensor:
            x = inputs
            for weight, bias in hidden:
                x = f(linear(x, weight, bias))
            return linear(x, *last)

        return Ready(run, lambda: run().numpy())

    return Contender("torch float32", activation, build)


def peers(folder: Path) -> list[Contender]:
    """Every peer, with either activation; ``folder`` has the files that they read."""
    kinds = {"float32": "onnx", "int8 static": "static.onnx", "int8 dynamic": "dynamic.onnx"}
    return [
        contender
        for activation in ACTIVATIONS
        for contender in (
            litert(folder, activation),
            *(onnx_runtime(name, kind, folder, activation) for name, kind in kinds.items()),
            openvino(folder, activation),
            torch_float32(activation),
        )
    ]


def agreement(contender: Contender, case: Case, ready: Ready) -> float:
    ready.run()
    if contender.activation == OURS:
        return 1.0  # it was compared with its reference when it was built
    expected = case.answer(contender.activation)
    found = float(np.corrcoef(ready.answer().ravel(), expected.ravel())[0, 1])
    if not found >= AGREEMENT:
        raise SystemExit(
            f"{contender.name} ({contender.activation}) runs {case} wrongly: its answer correlates "
            f"{found:.3f} with that in float32, and {AGREEMENT} is the least to be measured"
        )
    return found


def calls_a_turn(run: Callable[[], object]) -> int:
    seconds = []
    for _ in range(5):
        begun = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begun)
    return max(1, round(ROUND_SECONDS / min(seconds)))


def measure(case: Case, contenders: list[Contender], seconds: float) -> list[Row]:
    """Build all contenders for one case, check their answers and let them take turns."""
    ready = [contender.build(case) for contender in contenders]
    correlations = [agreement(c, case, r) for c, r in zip(contenders, ready, strict=True)]
    calls = [calls_a_turn(r.run) for r in ready]
    turns = {f"{i}": repeated(r.run, n) for i, (r, n) in enumerate(zip(ready, calls, strict=True))}
    times = compare(turns, seconds=seconds).values()
    return [
        Row(
            c.name,
            c.activation,
            case.network,
            case.batch,
            case.shown,
            1e6 * t.least / n,
            1e6 * t.median / n,
            r,
        )
        for c, t, n, r in zip(contenders, times, calls, correlations, strict=True)
    ]


def convert(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, peer_models.__file__, folder], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"the networks could not be converted for the peers:\n{done.stderr}")


def machine() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*:\s*(.+)", cpuinfo.read_text()) if cpuinfo.exists() else []
    versions = ", ".join(f"{package} {version(package)}" for package in PACKAGES)
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{names[0] if names else platform.machine()} ({capability}); {versions}"


def report(rows: list[Row]) -> str:
    """A line a contender: least and median microseconds with the faster activation."""

    def cell(name: str, case: Case) -> str:
        found = [row for row in rows if row.name == name and row.case == case]
        best = min(found, key=lambda row: row.median)
        return f"{best.least:,.1f} / {best.median:,.1f} ({best.activation})"

    run = list(dict.fromkeys(row.case for row in rows))
    heading = ["us, least / median"]
    heading += [f"{case.network}, batch {case.batch}, {case.shown}" for case in run]
    names = dict.fromkeys(row.name for row in rows)
    return table(heading, [[name, *(cell(name, case) for case in run)] for name in names])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=15.0, help="for each network and batch")
    parser.add_argument("--json", type=Path, help="write every row to this file too")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        convert(folder)
        pinned(1)
        for case in [*cases(), *cases_of_digits()]:
            rows += measure(case, [ours("int8"), ours("int4"), *peers(folder)], arguments.seconds)
    print(f"{machine()}\n\n{report(rows)}")
    if not cases_of_digits():
        print("\nMNIST is not there: sudonet data fetch mnist, or set SUDONET_DATA")
    if arguments.json:
        found = {"machine": machine(), "rows": [asdict(row) for row in rows]}
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
