"""The C core: every path against the definition, how it is loaded, how it is built."""

import contextlib
import ctypes
import ctypes.util
import gc
import itertools
import json
import os
import platform
import shutil
import subprocess
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from sudonet import Staircase, _kernels, _settings, cli, functional, native, staircase
from sudonet.native import library
from sudonet.native.library import address as at
from tests import ROOT
from tests.unit.families import FAMILIES
from tests.unit.sanitized import check_walk_and_overflow, compile_core, each_path

pytestmark = pytest.mark.without_core

families = pytest.mark.parametrize("family", FAMILIES)
GRAIN = 131_072  # of csrc/train/dispatch.c: elements from which on a second thread is worth it
SIZES = [GRAIN - 1, 2 * GRAIN - 1, 2 * GRAIN, 2 * GRAIN + 1, 3 * GRAIN, 3 * GRAIN + 77, 500_003]


def any_bits(n, seed=0):
    """float32 numbers of every kind: normal, denormal, infinite, not a number."""
    bits = np.random.default_rng(seed).integers(0, 1 << 32, n, dtype=np.uint32)
    return bits.view(np.float32)


def usual(n, seed=0):
    return np.random.default_rng(seed).normal(0, 2, n).astype(np.float32)


def run_forward(core, unit, x, y=None, threads=1):
    y = np.empty_like(x) if y is None else y
    address, _kept = _kernels.native_unit(unit)
    core.functions.sudo_forward(core.path_number, address, at(x), at(y), len(x), threads)
    return y


def run_backward(core, unit, grad, x, out=None, threads=1):
    out = np.empty_like(x) if out is None else out
    address, _kept = _kernels.native_unit(unit)
    core.functions.sudo_backward(
        core.path_number, address, at(grad), at(x), at(out), len(x), threads
    )
    return out


def check_forward(x, y, unit):
    number = ~np.isnan(x)
    wanted = unit.values_of(unit.codes(x[number]), np.float32)
    assert np.array_equal(y[number].view(np.uint32), wanted.view(np.uint32)), unit
    assert np.isnan(y[~number]).all(), unit


def check_backward(grad, x, out, unit):
    number = ~np.isnan(x)
    wanted = grad[number].astype(float) * unit.derivative(x[number].astype(float))
    # what is below the smallest normal number may become 0
    np.testing.assert_allclose(out[number], wanted, rtol=5e-7, atol=5e-37, err_msg=str(unit))
    assert not out[np.isinf(x)].any(), unit
    assert np.isnan(out[~number]).all(), unit
    if unit.rectified:
        assert not out[x < 0].any(), unit


# Against the definition


@families
def test_forward_of_any_bits_is_the_staircase(core, family):
    for levels in (2, 3, 8, 9, 16, 17, 31, 32, 33, 255, 1000, 65_536):
        unit = Staircase.parse(family.format(levels))
        thresholds = np.resize(unit.narrowed(np.float32)[0], 5000)
        x = np.concatenate([thresholds, any_bits(30_000), usual(10_007)])
        check_forward(x, run_forward(core, unit, x), unit)


@families
def test_backward_of_any_bits_is_the_derivative(core, family):
    spread = np.linspace(-60, 60, 100_001, dtype=np.float32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45], np.float32)
    x = np.concatenate([any_bits(30_000), usual(10_007), spread, special])
    grad = usual(len(x), seed=1)
    for levels in (2, 16, 300):
        unit = Staircase.parse(family.format(levels))
        check_backward(grad, x, run_backward(core, unit, grad, x), unit)


@pytest.mark.parametrize("underlying", ["hardtanh", "relu6"])
def test_backward_of_a_ramp_is_exact(core, underlying):
    unit = Staircase(8, underlying)
    low, high = np.array(unit.ramp, np.float32)
    ends = [low, high, np.nextafter(low, high), np.nextafter(high, low)]
    x = np.concatenate([usual(10_007), np.array(ends, np.float32)])
    grad = usual(len(x), seed=1)
    inside = (low < x) & (x < high)
    assert np.array_equal(run_backward(core, unit, grad, x), np.where(inside, grad, 0))


@pytest.mark.parametrize("name", ["sudo-8-hardtanh", "sudo-8-relu6", "r-sudo-8", "r-sudo-8-full"])
def test_no_gradient_passes_where_the_slope_is_zero_by_definition(core, name):
    """Not even infinity, as in torch's own hardtanh and relu, and without the C core."""
    x = torch.tensor([-3.0, -2.0])
    grad = torch.tensor([torch.inf, torch.nan])
    unit = Staircase.parse(name)
    assert _kernels.backward(grad, x, unit).tolist() == [0, 0]


@families
def test_tails_and_odd_starts_write_nothing_but_the_output(core, family):
    guard = np.float32(12345.0)
    for levels in (2, 6, 40):
        unit = Staircase.parse(family.format(levels))
        for length in range(71):
            start, begin = length % 7, 17 + length % 5
            x, grad = any_bits(start + length)[start:], usual(begin + length)[begin:]
            for backward in (False, True):
                space = np.full(begin + length + 40, guard)
                out = space[begin : begin + length]
                if backward:
                    run_backward(core, unit, grad, x, out)
                    check_backward(grad, x, out, unit)
                else:
                    run_forward(core, unit, x, out)
                    check_forward(x, out, unit)
                assert (space[:begin] == guard).all()
                assert (space[begin + length :] == guard).all()


def test_views_at_odd_offsets(core):
    whole = torch.from_numpy(usual(300))
    for offset in range(1, 20, 2):
        x = whole[offset : offset + 101].requires_grad_()
        y = functional.sudo(x, 40)
        check_forward(x.detach().numpy(), y.detach().numpy(), Staircase(40))


def test_a_lazily_negated_tensor(core):
    """Such as the imaginary part of a conjugate: its memory holds the opposite."""
    for dtype in (torch.float32, torch.float64):
        x = torch._neg_view(torch.linspace(-3, 2, 5000, dtype=dtype))
        assert torch.equal(functional.sudo(x, 8), functional.sudo(x.clone(), 8))


def test_a_gradient_of_zeros_without_memory(core):
    x = torch.ones(3, requires_grad=True)
    zeros = torch._efficientzerotensor((3,))
    (grad,) = torch.autograd.grad(functional.sudo(x, 8), x, zeros)
    assert grad.tolist() == [0, 0, 0]


def test_zeros_without_memory(core):
    zeros = torch._efficientzerotensor((3,))
    assert torch.equal(functional.sudo(zeros, 8), functional.sudo(torch.zeros(3), 8))


# Threads


@pytest.mark.parametrize("name", ["sudo-2", "sudo-8", "r-sudo-100", "sudo-100-relu6"])
def test_bits_do_not_depend_on_threads(core, name):
    unit = Staircase.parse(name)
    for n in SIZES:
        x, grad = usual(n), usual(n, seed=1)
        forward = run_forward(core, unit, x)
        backward = run_backward(core, unit, grad, x)
        check_forward(x, forward, unit)
        for threads in (2, 3):
            assert run_forward(core, unit, x, threads=threads).tobytes() == forward.tobytes()
            again = run_backward(core, unit, grad, x, threads=threads)
            assert again.tobytes() == backward.tobytes()


def test_more_threads_than_the_core_starts(core):
    x = np.resize(usual(100_003), 66 * GRAIN)
    alone = run_forward(core, Staircase(2), x)
    assert np.array_equal(run_forward(core, Staircase(2), x, threads=1000), alone)


@pytest.fixture
def recorded(monkeypatch):
    """In place of the C core: what it would have been called with."""
    calls = {}
    functions = SimpleNamespace(
        sudo_forward=lambda *arguments: calls.update(forward=arguments),
        sudo_backward=lambda *arguments: calls.update(backward=arguments),
    )
    monkeypatch.setattr(native, "core", lambda: library.Core(functions, "avx2"))
    calls["functions"] = functions
    return calls


def test_the_core_is_called_with_as_many_threads_as_torch_uses(monkeypatch, recorded):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    x = torch.zeros(5, 7, requires_grad=True)
    functional.sudo(x, 8).sum().backward()
    for name in ("forward", "backward"):
        path, *_, elements, threads = recorded[name]
        assert (path, elements, threads) == (library.PATHS["avx2"], 35, 3)


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_a_unit_stays_in_memory_while_the_core_reads_it(recorded, way):
    unit = Staircase(77)
    kept = weakref.ref(_kernels.native_unit(unit)[1])
    alive = []

    def other_units_fill_the_caches(*arguments):
        _kernels.native_unit.cache_clear()
        staircase._narrowed.cache_clear()
        gc.collect()
        alive.append(kept() is not None)

    setattr(recorded["functions"], f"sudo_{way}", other_units_fill_the_caches)
    x = torch.zeros(3)
    if way == "forward":
        _kernels.forward(x, unit)
    else:
        _kernels.backward(x, x, unit)
    assert alive == [True]


# The state of the processor


def control_bits():
    """MXCSR without its flags, which lies behind the x87 state in glibc's environment."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    environment = ctypes.create_string_buffer(32)
    ctypes.CDLL(ctypes.util.find_library("m")).fegetenv(environment)
    return int.from_bytes(environment.raw[28:32], sys.byteorder) & 0xFFC0


def denormals_work():
    return bool(np.float32(1e-40) * np.float32(1) != 0)


@contextlib.contextmanager
def flushed_denormals(flush):
    if flush and not torch.set_flush_denormal(True):
        pytest.skip("torch cannot flush denormals on this CPU")
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def test_the_smallest_number_is_above_the_threshold_zero(core):
    x = np.array([1e-45, -1e-45, 0.0, 1e-39], np.float32)
    for n in range(1, 40):
        y = run_forward(core, Staircase(2), np.resize(x, n))
        assert y.tolist() == np.resize([1, -1, -1, 1], n).tolist()
    for levels in (16, 32, 300):
        check_forward(x, run_forward(core, Staircase(levels), x), Staircase(levels))


@pytest.mark.parametrize("flush", [False, True])
def test_calls_leave_the_floating_point_state_alone(core, flush):
    x = np.resize(any_bits(1000), 2 * GRAIN + 5)
    stack = Stack(core, (2, 5, 1), ["sudo-8", "tanh"], lanes=32)
    calls = {
        "forward": lambda: run_forward(core, Staircase(40), x, threads=2),
        "backward": lambda: run_backward(core, Staircase(40), x, x, threads=2),
        "train": lambda: stack.train(batch=17),
        "predict": lambda: stack.predict(usual(20).reshape(-1, 2)),
    }
    with flushed_denormals(flush):
        before = control_bits()
        assert denormals_work() != flush
        for name, call in calls.items():
            call()
            assert denormals_work() != flush, name
            assert control_bits() == before, name


@pytest.mark.parametrize("flush", [False, True])
def test_threads_see_denormals_as_their_caller_does(core, flush):
    x = np.resize(np.array([1e-45, -1e-45, 1e-39, 0.1, 0.0], np.float32), 3 * GRAIN)
    with flushed_denormals(flush):
        alone = run_forward(core, Staircase(2), x)
        assert np.array_equal(run_forward(core, Staircase(2), x, threads=3), alone)
        assert alone[0] == (-1 if flush else 1)


# Loading


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Where the package looks for its C core: empty at first."""
    monkeypatch.setattr(native, "FOLDER", tmp_path)
    monkeypatch.delenv(_settings.NATIVE, raising=False)
    monkeypatch.setenv("COLUMNS", "400")  # so that no line of the doctor is folded
    native.core.cache_clear()
    yield tmp_path
    native.core.cache_clear()


def doctor():
    result = CliRunner().invoke(cli.app, ["doctor"])
    (line,) = (row for row in result.stdout.splitlines() if row.startswith("C core"))
    return result.exit_code, line.removeprefix("C core").strip()


def check_that_torch_does_the_work(*words):
    status = native.status()
    assert (status.available, status.path, native.core()) == (False, None, None)
    for word in words:
        assert word in status.reason
    x = torch.from_numpy(usual(5000)).requires_grad_()
    y = functional.sudo(x, 8)
    y.sum().backward()
    check_forward(x.detach().numpy(), y.detach().numpy(), Staircase(8))
    check_backward(np.ones(5000), x.detach().numpy(), x.grad.numpy(), Staircase(8))
    assert doctor() == (0, f"{status.reason}; PyTorch does the work")


@pytest.fixture
def compiler(c_compiler):
    if c_compiler is None:
        pytest.skip("there is no C compiler: neither CC nor cc runs")
    return c_compiler


def compile_library(compiler, file, text, *more):
    file.with_suffix(".c").write_text(text)
    command = [compiler, "-shared", "-fPIC", "-o", file, file.with_suffix(".c"), *more]
    subprocess.run(command, check=True)


def stubs(*, without=()):
    names = set(library._SIGNATURES).difference(without)
    return "".join(f"int {name}(void) {{ return 0; }}\n" for name in sorted(names))


def test_the_core_in_use_is_named(core, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    status = native.status()
    assert (status.available, status.path) == (True, core.path)
    assert status.reason.endswith("asked for by SUDONET_NATIVE")
    assert doctor() == (0, f"in use: {core.path} ({status.reason})")


def test_auto_takes_the_fastest_path_of_this_cpu(native_path):
    core = native_path("auto")
    runs = [n for n, number in library.PATHS.items() if core.functions.sudo_supports(number)]
    assert core.path == runs[-1]
    assert runs[0] == "portable"
    assert "chosen for this CPU" in native.status().reason


def test_a_core_that_was_not_built(folder):
    check_that_torch_does_the_work("not built", "pip install --verbose")


def test_a_file_that_is_no_library(folder):
    (folder / "_core.so").write_text("no library")
    check_that_torch_does_the_work("found, but _core.so cannot be loaded")


def test_a_library_of_something_else(folder, compiler):
    compile_library(compiler, folder / "_core.so", "int other(void) { return 1; }")
    check_that_torch_does_the_work("found, but _core.so cannot be loaded", "sudo_")


@pytest.mark.parametrize("complete", [True, False])
def test_a_library_of_another_version(folder, compiler, complete):
    text = "int sudo_abi(void) { return 999; }\n"
    if complete:
        text += stubs(without=["sudo_abi"])
    compile_library(compiler, folder / "_core.so", text)
    needed = f"interface 999, this version needs {library.ABI}: install sudonet again"
    check_that_torch_does_the_work(f"_core.so has {needed}")


def compile_stub_of_this_version(compiler, folder, sources=ROOT / "csrc"):
    """A core that has the layouts of these sources, and nothing else."""
    text = (
        f"int sudo_abi(void) {{ return {library.ABI}; }}\n"
        "int sudo_supports(int path) { return path == 0; }\n"
    )
    text += stubs(without=["sudo_abi", "sudo_supports", "sudo_layouts"])
    layouts = [f"-I{sources}", sources / "common" / "layout.c"]
    compile_library(compiler, folder / "_core.so", text, *layouts)


def test_a_path_that_the_cpu_lacks(folder, compiler, monkeypatch):
    compile_stub_of_this_version(compiler, folder)
    monkeypatch.setenv(_settings.NATIVE, "avx512")
    check_that_torch_does_the_work("this CPU cannot run avx512, only portable")
    monkeypatch.delenv(_settings.NATIVE)
    assert native.status().path == "portable"


def test_a_core_whose_structures_differ(folder, compiler):
    sources = shutil.copytree(ROOT / "csrc", folder / "csrc")
    header = sources / "sudonet.h"
    header.write_text(header.read_text().replace("double rate,", "float rate,"))
    compile_stub_of_this_version(compiler, folder, sources)
    words = (
        "field rate of sudo_network is 4 bytes at offset 36 in the core and 8 bytes at offset 40"
    )
    check_that_torch_does_the_work("_core.so does not fit this version", words, "install sudonet")


def test_a_core_that_is_switched_off(folder, monkeypatch):
    monkeypatch.undo()  # the real folder
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setenv(_settings.NATIVE, "off")
    check_that_torch_does_the_work("SUDONET_NATIVE=off")


def test_a_bad_choice_is_an_error_wherever_it_matters(folder, monkeypatch):
    monkeypatch.setenv(_settings.NATIVE, "sse4")
    for use in (native.core, native.status, lambda: functional.sudo(torch.zeros(3), 8)):
        with pytest.raises(ValueError, match=r"SUDONET_NATIVE must be .* got 'sse4'"):
            use()
    code, line = doctor()
    assert (code, "got 'sse4'" in line) == (1, True)


# Networks


def padded(n):
    return -(-n // 16) * 16


def structure_of(name):
    if name in library.UNDERLYING:
        return library.smooth_unit(name)
    return _kernels.native_unit(Staircase.parse(name))[1]


class Stack:
    """Networks of one shape, in arrays that are exactly as long as they must be."""

    def __init__(self, core, sizes, units, lanes, *, networks=1, **settings):
        self.core, self.sizes, self.lanes = core, sizes, lanes
        self.kept = [structure_of(name) for name in units], np.array(sizes, np.int32)
        self.units = (library.Unit * len(units))(*self.kept[0])
        self.random = np.random.default_rng(0)
        common = {
            "layers": len(units),
            "sizes": at(self.kept[1]),
            "units": ctypes.addressof(self.units),
            "lanes": lanes,
            "diverged": -1,
            "rate": 0.01,
            "beta1": 0.9,
            "beta2": 0.999,
            "epsilon": 1e-8,
            "beta1_power": 1,
            "beta2_power": 1,
            **settings,
        }
        self.memory = [
            {"weights": weights, "moment1": 0 * weights, "moment2": 0 * weights}
            for weights in (self.initial_weights() for _ in range(networks))
        ]
        self.networks = (library.Network * networks)(
            *(
                library.Network(**common, **{k: at(a) for k, a in arrays.items()})
                for arrays in self.memory
            )
        )
        self.address = ctypes.addressof(self.networks)
        self.scratch = np.empty(core.functions.sudo_scratch(self.address), np.float32)

    def initial_weights(self):
        layers = []
        for inputs, outputs in itertools.pairwise(self.sizes):
            rows = np.zeros((outputs, padded(inputs + 1)), np.float32)
            rows[:, : inputs + 1] = self.random.normal(0, 0.5, (outputs, inputs + 1))
            layers.append(rows.ravel())
        return np.concatenate(layers)

    def train(self, batch, steps=3):
        """Losses of some steps, the first on a full batch and the last on one sample."""
        inputs, outputs = self.sizes[0], self.sizes[-1]
        samples = batch + 3
        x = self.random.normal(size=(samples, inputs)).astype(np.float32)
        t = np.eye(outputs, dtype=np.float32)[self.random.integers(outputs, size=samples)]
        order = self.random.integers(samples, size=(steps, batch), dtype=np.int32)
        counts = np.linspace(batch, 1, steps).astype(np.int32)
        losses = np.empty((len(self.networks), steps), np.float32)
        data, path = [at(a) for a in (x, t)], self.core.path_number
        shape, chosen = (inputs, outputs, self.lanes), (at(order), at(counts), batch, steps)
        buffer = np.empty(steps * self.core.functions.sudo_prepared(*shape), np.float32)
        self.core.functions.sudo_prepare(path, *data, *shape, *chosen, at(buffer))
        prepared, found = (at(buffer), at(counts), steps), (at(losses), at(self.scratch))
        self.core.functions.sudo_train(path, self.address, len(self.networks), *prepared, *found)
        return losses

    def predict(self, x):
        """What the first network makes of ``x``."""
        out = np.empty((len(x), self.sizes[-1]), np.float32)
        self.core.functions.sudo_predict(
            self.core.path_number, self.address, at(x), len(x), at(out), at(self.scratch)
        )
        return out


@families
def test_a_unit_inside_a_network_is_the_staircase(core, family):
    """A layer whose weight is 1 and whose bias is 0 gives the unit itself."""
    for levels in (2, 3, 5, 6, 9, 16, 17, 33, 100, 1000):
        unit = Staircase.parse(family.format(levels))
        thresholds = unit.narrowed(np.float32)[0]
        beside = [np.nextafter(thresholds, np.float32(end)) for end in (np.inf, -np.inf)]
        x = np.concatenate([thresholds, *beside, usual(101)])
        x = x[(x == 0) | (np.abs(x) > np.finfo(np.float32).tiny)]  # others are 0 in training
        stack = Stack(core, (1, 1), [unit.name], lanes=16)
        stack.memory[0]["weights"][:2] = 1, 0
        check_forward(x, stack.predict(x.reshape(-1, 1)).ravel(), unit)


def walk(file):
    """Call every exported function on every path; a sanitizer watches."""
    for core in each_path(file):
        for family in FAMILIES:
            for levels in (2, 5, 17, 40):
                unit = Staircase.parse(family.format(levels))
                for n in range(41):
                    x, grad = any_bits(n, n), usual(n)
                    check_forward(x, run_forward(core, unit, x), unit)
                    check_backward(grad, x, run_backward(core, unit, grad, x), unit)
            x = usual(3 * GRAIN + 5)
            check_forward(x, run_forward(core, unit, x, threads=3), unit)
            run_backward(core, unit, x, x, threads=3)
        names = [*library.UNDERLYING, "sudo-2", "sudo-9-sigmoid", "sudo-40", "r-sudo-40-full"]
        shapes = [(1, 1), (1, 1, 1), (3, 7, 2), (15, 16, 17, 1), (2, 33, 31, 10), (140, 5, 3)]
        kinds = itertools.product(names, shapes, (1, 17, 100), (0, 1), (0, 1))
        for name, sizes, batch, loss, optimiser in kinds:
            units = [name] * (len(sizes) - 2) + ["linear"]
            chosen = {"loss": loss, "optimiser": optimiser}
            stack = Stack(core, sizes, units, padded(batch), networks=2, **chosen)
            assert np.isfinite(stack.train(batch)).all()
            for n in (0, 1, padded(batch) - 1, 2 * padded(batch) + 5):
                x = usual(n * sizes[0]).reshape(n, sizes[0])
                assert np.isfinite(stack.predict(x)).all()


def spill(file):
    """Write one element too many: the sanitizer must notice."""
    x, y = usual(33), np.empty(32, np.float32)
    run_forward(library.load(Path(file), "portable"), Staircase(8), x, y)


# Building


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gcc", "clang"])
def test_the_core_compiles_without_a_warning(tmp_path, name):
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name}")
    objects, _ = compile_core(found, tmp_path, "-Wall", "-Wextra", "-Werror")
    assert len(objects) >= len(library.PATHS)


@pytest.mark.slow
def test_sanitizers_find_nothing(sanitized):
    check_walk_and_overflow(sanitized.run(__name__, "walk", "spill"))


INSTALLED = """
import json, sudonet, torch
from sudonet import native
model = torch.nn.Sequential(torch.nn.Linear(2, 9), sudonet.SUDO(8), torch.nn.Linear(9, 1))
optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.linspace(-1, 1, 200).view(100, 2)
losses = []
for _ in range(2):
    loss = (model(x) - x.prod(dim=1, keepdim=True)).square().mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    losses.append(loss.item())
status = native.status()
print(json.dumps([sudonet.__file__, losses[0] != losses[1], status.available, status.reason]))
"""


def installed(tmp_path, **environment):
    """Install a copy of the project with pip, without any index, and use it."""
    pytest.importorskip("setuptools", minversion="77")
    copy, site = tmp_path / "project", tmp_path / "site"
    copy.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    left_out = shutil.ignore_patterns("_core*", "*.egg-info", "__pycache__")
    for name in ("csrc", "src"):
        shutil.copytree(ROOT / name, copy / name, ignore=left_out)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-index"]
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--target", site]
    plain = {k: v for k, v in os.environ.items() if k not in ("CC", _settings.NATIVE)}
    done = subprocess.run(
        [*pip, *options, copy], env=plain | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    output = subprocess.check_output(
        [sys.executable, "-c", INSTALLED],
        env=plain | {"PYTHONPATH": str(site)},
        cwd=tmp_path,
        text=True,
    )
    file, trained, available, reason = json.loads(output)
    assert Path(file).is_relative_to(site)
    assert trained
    return available, reason


@pytest.mark.slow
def test_the_package_installs_and_works_without_a_compiler(tmp_path):
    available, reason = installed(tmp_path, CC="false")
    assert not available
    assert reason.startswith("not built")


@pytest.mark.slow
def test_the_package_installs_with_its_core_where_there_is_a_compiler(tmp_path, compiler):
    quick = tmp_path / "cc"  # optimising takes most of the time, and is not what is tested
    quick.write_text(f'#!/bin/sh\nexec {compiler} "$@" -O1\n')
    quick.chmod(0o755)
    available, reason = installed(tmp_path, CC=str(quick))
    assert available
    assert "chosen for this CPU" in reason


def test_a_tensor_whose_storage_was_freed_is_an_error_and_no_crash(core):
    x = torch.ones(3)
    x.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="not allocated"):
        functional.sudo(x, 8)
