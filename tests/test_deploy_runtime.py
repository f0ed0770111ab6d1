"""Integer networks in the C core: on every path the same bits as the reference."""

import ctypes
import gc
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import runtime_networks
import test_native
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from runtime_networks import (
    FEW,
    MODELS,
    PIXELS,
    WORDS,
    by_channel,
    check,
    compiled,
    dense,
    plain_sums,
    shared,
    some_inputs,
)
from torch import nn

from sudonet import RSUDO, SUDO, deploy, native
from sudonet.deploy import Grid
from sudonet.deploy.runtime import Program, program
from sudonet.native import library

LEVELS = (2, 3, 4, 16, 17, 100, 128, 129, 256)
WEIGHTS = ("int8", "int4", "ternary", "binary")
FOUND = native.core()
PATHS = [p for p, n in library.PATHS.items() if FOUND and FOUND.functions.sudo_supports(n)]


def stack(sizes, unit):
    """Linear layers of these sizes with units between them."""
    layers = [nn.Linear(sizes[0], sizes[1])]
    for into, out in pairwise(sizes[1:]):
        layers += [unit, nn.Linear(into, out)]
    return nn.Sequential(*layers)


def core_on(path):
    return library.Core(FOUND.functions, path)


# Against the reference


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("unit", [SUDO, RSUDO])
@pytest.mark.parametrize("levels", LEVELS)
def test_dense_layers(core, weights, unit, levels):
    torch.manual_seed(levels)
    model = stack((65, 100, 63, 10), unit(levels))
    check(deploy.compile(model, weights, inputs=PIXELS), core, (1, 2, 7))


@pytest.mark.parametrize("unit", [SUDO(16), RSUDO(256)])
@pytest.mark.parametrize("features", [1, 3, 15, 17, 63, 65])
def test_odd_sizes(core, features, unit):
    for weights in ("int8", "int4"):
        model = stack((features, features, 2 * features, 3), unit)
        check(deploy.compile(model, weights, inputs=PIXELS), core)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", MODELS)
def test_every_kind_of_layer(core, name, weights):
    check(compiled(name, weights), core)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("thresholds", ["channel", "shared"])
def test_every_kind_of_thresholds(core, name, thresholds):
    check(compiled(name, thresholds=thresholds), core, (1, 7))


@pytest.mark.parametrize("grid", [WORDS, FEW, Grid(0.5, 7.0, -100_000, 100_000)])
def test_inputs_of_other_types(core, grid):
    for weights in ("int8", "int4"):
        check(deploy.compile(stack((70, 66, 5), SUDO(16)), weights, inputs=grid), core)


def test_batches_that_are_worked_on_in_pieces(core):
    network = compiled("convolutions")
    made = Program(network, core)
    for batch in (0, 1, 255, 256, 257, 600):
        x = some_inputs(network, batch)
        assert np.array_equal(made.run(x), network.raw(x))


# The hardest sums


@pytest.mark.parametrize("largest", [1, 7, 127, 128])
def test_sums_of_the_largest_products(core, largest):
    for terms in (1, 2, 3, 4, 5, 16, 63, 64, 257, 1025):
        signs = np.resize([[1], [-1]], (70, terms))
        signs[2:, ::2] *= -1
        signs[4:, : terms // 2] *= -1
        weights = np.clip(signs * largest, -128, 127).astype(np.int8)
        network = dense(weights, plain_sums(70))
        x = np.full((7, terms), 255, np.uint8)
        x[1:, ::3] = 0
        x[2:, 1::3] = 254
        wanted = x.astype(np.int64) @ weights.T.astype(np.int64)
        assert np.array_equal(Program(network, core).run(x), wanted), terms


def test_the_largest_sums_that_32_bits_hold(core):
    """4-bit weights among them, whose sums get too large for the way that unpacks them."""
    for largest, terms in ((127, 66_000), (7, 80_000)):
        weights = np.full((17, terms), largest, np.int8)
        weights[1::2] *= -1
        x = np.full((1, terms), 255, np.uint8)
        network = dense(weights, plain_sums(17))
        wanted = 255 * weights.astype(np.int64).sum(1)
        assert 2**27 < wanted[0] < 2**31
        assert np.array_equal(Program(network, core).run(x)[0], wanted)


# Thresholds

small = st.integers(-(2**17), 2**17)


@pytest.mark.parametrize("path", PATHS)
@given(
    table=st.lists(st.lists(small, min_size=5, max_size=5), min_size=1, max_size=20),
    spread=st.sampled_from([1, 100, 10_000]),
)
@settings(deadline=None, max_examples=30)
def test_channel_thresholds_are_passed_strictly(path, table, spread):
    """At every threshold, and one to each side of it."""
    table = np.sort(np.array(table) // spread, axis=1)
    grid = Grid(1.0, 0.0, -(2**17) - 2, 2**17 + 2)
    network = dense(np.ones((len(table), 1), np.int8), by_channel(table, 6), grid)
    x = (np.unique(table)[:, None] + [-1, 0, 1]).reshape(-1, 1).astype(np.int32)
    assert np.array_equal(Program(network, core_on(path)).run(x), network.trace(x)[0])


@pytest.mark.parametrize("path", PATHS)
@given(
    table=st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=40, unique=True),
    shift=st.integers(0, 60),
    factors=st.lists(st.integers(1, 2**31 - 1), min_size=1, max_size=20),
    constant=st.integers(-(2**40), 2**40),
)
@settings(deadline=None, max_examples=60)
def test_shared_thresholds_are_passed_strictly(path, table, shift, factors, constant):
    table = sorted({t >> shift for t in table})
    after = shared(table, factors, np.full(len(factors), constant >> min(shift, 40)))
    grid = Grid(1.0, 0.0, -(2**20), 2**20)
    network = dense(np.ones((len(factors), 1), np.int8), after, grid)
    near = [(t - (constant >> min(shift, 40))) // f for t in table for f in factors]
    x = np.clip(np.unique(near)[:, None] + [-1, 0, 1, 2], grid.low, grid.high).reshape(-1, 1)
    x = x.astype(np.int32)
    assert np.array_equal(Program(network, core_on(path)).run(x), network.trace(x)[0])


def test_thresholds_that_differ_in_the_last_bits_only(core):
    table = np.array([0, 1, 2, 2**40, 2**40 + 1, 2**61])
    network = dense(
        np.ones((9, 1), np.int8),
        shared(table, np.full(9, 2**20), np.arange(9)),
        Grid(1.0, 0.0, -(2**21), 2**21),
    )
    x = np.array([-1, 0, 1, 2**20 - 1, 2**20, 2**20 + 1, 2**21], np.int32)[:, None]
    assert np.array_equal(Program(network, core).run(x), network.trace(x)[0])


# Any shape

few = st.integers(1, 4)


@st.composite
def convolutions(draw):
    """A convolution of any kind, and the size of what it sees."""
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    into, out = groups * draw(few), groups * draw(st.integers(1, 9))
    kernel, stride, dilation = (draw(st.tuples(few, few)) for _ in range(3))
    padding = draw(st.tuples(st.integers(0, 4), st.integers(0, 4)))
    size = draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    kind = draw(st.sampled_from([nn.Conv2d, nn.ConvTranspose2d]))
    return kind(into, out, kernel, **options), (into, *size)


@pytest.mark.parametrize("path", PATHS)
@given(made=convolutions(), grid=st.sampled_from([PIXELS, FEW, WORDS]), batch=few)
@settings(deadline=None, max_examples=40)
def test_any_convolution(path, made, grid, batch):
    layer, shape = made
    model = nn.Sequential(layer, SUDO(16))
    try:
        network = deploy.compile(model, inputs=grid, shape=shape)
    except deploy.CompileError as error:
        nothing = "cannot be followed" in str(error) or "makes nothing" in str(error)
        assume(not nothing)
        raise
    check(network, core_on(path), (batch,))


@pytest.mark.parametrize("path", PATHS)
@given(
    sizes=st.lists(st.integers(1, 150), min_size=2, max_size=4),
    batch=st.integers(1, 20),
    weights=st.sampled_from(WEIGHTS),
    levels=st.sampled_from(LEVELS),
)
@settings(deadline=None, max_examples=40)
def test_any_dense_network(path, sizes, batch, weights, levels):
    network = deploy.compile(stack(sizes, SUDO(levels)), weights, inputs=PIXELS)
    check(network, core_on(path), (batch,))


# Calls


def test_threads_share_a_program(core):
    network = compiled("convolutions")
    made = Program(network, core)
    inputs = [some_inputs(network, 1 + i % 9, seed=i) for i in range(60)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(made.run, inputs))
    for x, out in zip(inputs, found, strict=True):
        assert np.array_equal(out, network.raw(x))


def test_a_bound_call_reads_and_writes_the_same_arrays(core):
    network = compiled("convolutions")
    x, out = some_inputs(network, 3), np.empty((3, 9), np.int64)
    call = Program(network, core).bind(x, out)
    gc.collect()
    for seed in range(3):
        x[:] = some_inputs(network, 3, seed)
        assert call() is None
        assert np.array_equal(out, network.raw(x))


def test_only_the_output_is_written_and_any_place_will_do(core):
    for name in ("convolutions", "seen in another shape", "transposed"):
        network = compiled(name)
        made = Program(network, core)
        for batch, begin in ((1, 1), (3, 5), (7, 3)):
            wanted = network.raw(some_inputs(network, batch))
            read = np.full(begin + some_inputs(network, batch).size, 7, np.uint8)
            x = read[begin:].reshape(batch, *network.shape_in)
            x[:] = some_inputs(network, batch)
            space = np.full(wanted.size + 2 * begin, 111, wanted.dtype)
            out = space[begin:-begin].reshape(wanted.shape)
            assert made.run(x, out) is out
            assert np.array_equal(out, wanted)
            assert (space[:begin] == 111).all()
            assert (space[-begin:] == 111).all()
            assert (read[:begin] == 7).all()


def test_inputs_that_are_not_contiguous(core):
    network = compiled("convolutions")
    x = some_inputs(network, 4)[::2, :, ::-1]
    made = Program(network, core)
    assert np.array_equal(made.run(x), network.raw(x))
    with pytest.raises(ValueError, match="contiguous"):
        made.bind(x, np.empty((2, 9), np.int64))


def test_arrays_that_do_not_fit_are_errors(core):
    network = compiled("convolutions")
    made = Program(network, core)
    x, out = some_inputs(network, 2), np.empty((2, 9), np.int64)
    read_only = out.copy()
    read_only.flags.writeable = False
    words = np.zeros((2, 9 * 22), np.int64)
    for call in (made.run, made.bind):
        with pytest.raises(ValueError, match=r"input must be uint8 of shape \(2, 3, 8, 8\), got i"):
            call(x.astype(np.int16), out)
        with pytest.raises(ValueError, match=r"got uint8 of shape \(2, 3, 8, 7\)"):
            call(x[..., 1:], out)
        with pytest.raises(ValueError, match=r"output must be int64 of shape \(2, 9\), got int64"):
            call(x, np.empty((3, 9), np.int64))
        for unfit in (read_only, words[:, ::22]):
            with pytest.raises(ValueError, match="contiguous and writeable"):
                call(x, unfit)
        overlapping = words.view(np.uint8).ravel()[: x.size].reshape(x.shape)
        with pytest.raises(ValueError, match="overlap"):
            call(overlapping, words.ravel()[:18].reshape(2, 9))


def test_float_weights_are_left_to_numpy(core):
    network = deploy.compile(stack((5, 4, 3), SUDO(16)), "float32", inputs=PIXELS)
    assert program(network) is None
    with pytest.raises(ValueError, match="0 has float32 weights"):
        Program(network, core)


def test_there_is_no_program_without_the_core(native_path):
    native_path("off")
    assert program(compiled("convolutions")) is None


def test_a_program_runs_on_the_chosen_path(core):
    network = compiled("convolutions")
    made = program(network)
    assert made.path == core.path
    x = some_inputs(network, 3)
    assert np.array_equal(made.run(x), network.raw(x))


def test_small_weights_take_half_the_bytes(native_path):
    core = native_path("auto")
    if core.path == "portable":
        pytest.skip("plain C takes bytes")
    model = stack((512, 512, 10), SUDO(16))
    sizes = [
        Program(deploy.compile(model, weights, inputs=PIXELS), core).nbytes
        for weights in ("int8", "int4")
    ]
    assert sizes[0] - sizes[1] >= 512 * 512 / 2


# Memory


def walk(file):
    """Run every kind of layer on every path; a sanitizer watches."""
    for path in library.PATHS:
        try:
            core = library.load(Path(file), path)
        except library.CoreError as error:
            print(error)
            continue
        for name in MODELS:
            for weights in ("int8", "int4"):
                runtime_networks.check(compiled(name, weights), core, (1, 5, 13))
        for sizes in ((1, 1), (3, 17, 2), (65, 100, 129, 1), (70, 66, 16)):
            for levels in (16, 129):
                for weights in ("int8", "int4"):
                    model = stack(sizes, RSUDO(levels))
                    network = deploy.compile(model, weights, inputs=PIXELS)
                    runtime_networks.check(network, core, range(1, 14))
        print(path, "done")


def overrun(file):
    """Say that an output is one example shorter than it is: the sanitizer must notice."""
    network = deploy.compile(stack((8, 4, 3), SUDO(16)), inputs=PIXELS)
    made = Program(network, library.load(Path(file), "portable"))
    x, out = np.zeros((2, 8), np.uint8), np.empty((1, 3), np.int64)
    call = made._call(x, out, made._space(2))
    made._core.functions.sudo_integer_run(ctypes.addressof(call))


@pytest.mark.slow
def test_sanitizers_find_nothing(tmp_path, c_compiler):
    if c_compiler is None:
        pytest.skip("there is no C compiler: neither CC nor cc runs")
    asan = Path(
        subprocess.check_output([c_compiler, "-print-file-name=libasan.so"], text=True).strip()
    )
    if not asan.is_absolute():
        pytest.skip(f"{c_compiler} has no libasan.so")
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g"]
    objects, libraries = test_native.compile_core(c_compiler, tmp_path, *flags, "-O1")
    file = tmp_path / "_core.so"
    subprocess.run([c_compiler, "-shared", *flags, "-o", file, *objects, *libraries], check=True)
    environment = os.environ | {
        "LD_PRELOAD": str(asan),
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONMALLOC": "malloc",  # the sanitizer knows where such memory ends
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
    }

    def run(function):
        code = f"import sys, test_deploy_runtime; test_deploy_runtime.{function}(sys.argv[1])"
        return subprocess.run(
            [sys.executable, "-c", code, file],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    walked = run("walk")
    assert walked.returncode == 0, walked.stderr
    assert walked.stdout.count("done") == len(PATHS)
    for sign in ("AddressSanitizer", "runtime error"):
        assert sign not in walked.stderr
    spilled = run("overrun")
    assert spilled.returncode != 0
    assert "ERROR: AddressSanitizer: heap-buffer-overflow" in spilled.stderr
