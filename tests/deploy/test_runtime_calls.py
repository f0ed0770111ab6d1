"""Integer networks in the C core: calls, threads, arrays that do not fit, memory."""

import ctypes
import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from sudonet import RSUDO, SUDO, deploy
from sudonet.deploy.runtime import Program, program
from sudonet.native import library
from tests.deploy import zoo
from tests.deploy.core_check import check
from tests.deploy.random_models import PIXELS
from tests.deploy.zoo import stack
from tests.unit.sanitized import check_walk_and_overflow, each_path

pytestmark = pytest.mark.without_core


def test_threads_share_a_program(core):
    network = zoo.network("convolutions")
    made = Program(network, core)
    inputs = [zoo.samples(network, 1 + i % 9, seed=i) for i in range(60)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(made.run, inputs))
    for x, out in zip(inputs, found, strict=True):
        assert np.array_equal(out, network.raw(x))


def test_a_bound_call_reads_and_writes_the_same_arrays(core):
    network = zoo.network("convolutions")
    x, out = zoo.samples(network, 3), np.empty((3, 9), np.int64)
    call = Program(network, core).bind(x, out)
    gc.collect()
    for seed in range(3):
        x[:] = zoo.samples(network, 3, seed)
        assert call() is None
        assert np.array_equal(out, network.raw(x))


def test_only_the_output_is_written_and_any_place_will_do(core):
    for name in ("convolutions", "seen in another shape", "transposed"):
        network = zoo.network(name)
        made = Program(network, core)
        for batch, begin in ((1, 1), (3, 5), (7, 3)):
            wanted = network.raw(zoo.samples(network, batch))
            read = np.full(begin + zoo.samples(network, batch).size, 7, np.uint8)
            x = read[begin:].reshape(batch, *network.shape_in)
            x[:] = zoo.samples(network, batch)
            space = np.full(wanted.size + 2 * begin, 111, wanted.dtype)
            out = space[begin:-begin].reshape(wanted.shape)
            assert made.run(x, out) is out
            assert np.array_equal(out, wanted)
            assert (space[:begin] == 111).all()
            assert (space[-begin:] == 111).all()
            assert (read[:begin] == 7).all()


def test_inputs_that_are_not_contiguous(core):
    network = zoo.network("convolutions")
    x = zoo.samples(network, 4)[::2, :, ::-1]
    made = Program(network, core)
    assert np.array_equal(made.run(x), network.raw(x))
    with pytest.raises(ValueError, match="contiguous"):
        made.bind(x, np.empty((2, 9), np.int64))


def test_arrays_that_do_not_fit_are_errors(core):
    network = zoo.network("convolutions")
    made = Program(network, core)
    x, out = zoo.samples(network, 2), np.empty((2, 9), np.int64)
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
    assert program(zoo.network("convolutions")) is None


def test_a_program_runs_on_the_chosen_path(core):
    network = zoo.network("convolutions")
    made = program(network)
    assert made.path == core.path
    x = zoo.samples(network, 3)
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
    for core in each_path(file):
        for name in zoo.BY_HAND:
            for weights in ("int8", "int4"):
                check(zoo.network(name, weights), core, (1, 5, 13))
        for sizes in ((1, 1), (3, 17, 2), (65, 100, 129, 1), (70, 66, 24)):
            for levels in (16, 129):
                for weights in ("int8", "int4"):
                    model = stack(sizes, RSUDO(levels))
                    network = deploy.compile(model, weights, inputs=PIXELS)
                    check(network, core, range(1, 14))


def overrun(file):
    """Say that an output is one example shorter than it is: the sanitizer must notice."""
    network = deploy.compile(stack((8, 4, 3), SUDO(16)), inputs=PIXELS)
    made = Program(network, library.load(Path(file), "portable"))
    x, out = np.zeros((2, 8), np.uint8), np.empty((1, 3), np.int64)
    call = made._call(x, out, made._scratch(2))
    made._core.functions.sudo_integer_run(ctypes.addressof(call))


@pytest.mark.slow
def test_sanitizers_find_nothing(sanitized):
    walked = sanitized.run(__name__, "walk", "overrun")
    check_walk_and_overflow(walked)
    assert walked.stdout.count("done") + walked.stdout.count("cannot run") == len(library.PATHS)
