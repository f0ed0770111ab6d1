"""train() and stream(): engines, progress, interrupts and memory."""

import gc
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from sudonet.train import Convolution, ConvolutionalSpec, Result, Spec, stream, train
from sudonet.train._native_engine import NativeEngine
from sudonet.train._torch_engine import TorchEngine

pytestmark = pytest.mark.without_core

X = np.linspace(-1, 1, 12).reshape(-1, 1)
QUICK = Spec(sizes=(1, 3, 1), steps=5)
ENDLESS = Spec(sizes=(1, 50, 50, 1), steps=10**6)
CONVOLUTIONAL = ConvolutionalSpec(input_shape=(1, 4, 4), layers=(Convolution(1),), steps=2)
IMAGES = np.zeros((5, 1, 4, 4))


@pytest.fixture(params=["native", "torch"])
def engine(request, native_path):
    native_path("auto")
    return request.param


@pytest.mark.parametrize("path", ["portable", "avx2", "avx512"])
def test_auto_takes_the_c_core_where_there_is_one(native_path, path):
    native_path(path)
    for choice in ("auto", "native"):
        assert train([QUICK], (X, X), engine=choice)[0].engine == f"native-{path}"
    assert train([QUICK], (X, X), engine="torch")[0].engine == "torch-cpu"


def test_auto_takes_torch_where_there_is_no_core(native_path):
    native_path("off")
    assert train([QUICK], (X, X))[0].engine == "torch-cpu"
    with pytest.raises(ValueError, match=r"SUDONET_NATIVE=off: use engine='torch'"):
        train([QUICK], (X, X), engine="native")


def test_auto_trains_convolutions_in_torch_and_native_refuses_them(native_path):
    native_path("auto")
    assert train([CONVOLUTIONAL], (IMAGES, IMAGES))[0].engine == "torch-cpu"
    with pytest.raises(ValueError, match=r"engine='native' .*convolutions: use engine='auto'"):
        train([CONVOLUTIONAL], (IMAGES, IMAGES), engine="native")


def test_auto_trains_networks_too_deep_for_the_c_core_in_torch(native_path):
    """Its workspace has room for 64 layers; the 65th would be written past the end."""
    native_path("auto")
    deepest, too_deep = (Spec(sizes=(1,) * (n + 1), steps=3) for n in (64, 65))
    assert train([deepest], (X, X))[0].engine.startswith("native")
    results = train([too_deep, QUICK], (X, X))
    assert [result.engine[:5] for result in results] == ["torch", "nativ"]
    assert np.isfinite(results[0].losses).all()
    with pytest.raises(ValueError, match=r"at most 64 layers, got 65: use engine='auto'"):
        train([too_deep], (X, X), engine="native")


def test_unknown_engines_are_refused():
    with pytest.raises(ValueError, match="one of auto, native, torch, got 'jax'"):
        train([QUICK], (X, X), engine="jax")
    with pytest.raises(ValueError, match="it cannot use meta: use engine='torch'"):
        train([QUICK], (X, X), engine="native", device="meta")


def test_no_specs_no_results():
    assert train([], (X, X)) == []
    assert list(stream([], (X, X))) == []


@pytest.mark.parametrize("threads", [1, 2])
def test_results_come_in_the_order_of_their_specs(engine, threads):
    specs = [Spec(sizes=(1, 2 + i % 3, 1), steps=1 + 7 * i % 5, seed=i) for i in range(20)]
    results = train(specs, (X, X), engine=engine, threads=threads)
    assert [result.spec for result in results] == specs
    assert [result.index for result in results] == list(range(20))


@pytest.mark.parametrize("threads", [1, 2])
def test_progress_is_told_to_the_caller_up_to_the_end(engine, threads):
    told = []

    def progress(done, total):
        told.append((done, total, threading.get_ident()))

    specs = [Spec(sizes=(1, 20, 1), steps=50 + i, seed=i) for i in range(10)]
    total = sum(spec.steps for spec in specs)
    train(specs, (X, X), engine=engine, threads=threads, progress=progress)
    done = [d for d, _, _ in told]
    assert done == sorted(done)
    assert done[0] < done[-1] == total
    assert {(t, i) for _, t, i in told} == {(total, threading.get_ident())}


def test_progress_of_both_engines_together():
    told = []
    wide = Spec(sizes=(1,) * 70, steps=3)
    train([QUICK, wide, QUICK], (X, X), progress=lambda *now: told.append(now))
    assert told[-1] == (13, 13)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_in_the_callers_progress_ends_the_training(engine, threads):
    def progress(done, total):
        raise RuntimeError("no more")

    before = threading.active_count()
    with pytest.raises(RuntimeError, match="no more"):
        train([QUICK] * 50, (X, X), engine=engine, threads=threads, progress=progress)
    assert threading.active_count() == before


def test_an_error_in_an_engine_reaches_the_caller(engine, monkeypatch):
    def fail(self, stack, data, tick):
        raise MemoryError("too large")

    before = threading.active_count()
    monkeypatch.setattr(NativeEngine if engine == "native" else TorchEngine, "train", fail)
    with pytest.raises(MemoryError, match="too large"):
        train([ENDLESS, QUICK], (X, X), engine=engine, threads=2)
    assert threading.active_count() == before


def test_stream_checks_its_arguments_when_it_is_called():
    with pytest.raises(ValueError, match="engine must be one of"):
        stream([], (np.zeros((2, 1)), np.zeros((2, 1))), engine="none")


def test_stream_gives_what_is_finished_and_stops_when_closed(engine):
    before = threading.active_count()
    results = stream([ENDLESS, QUICK], (X, X), engine=engine, threads=2)
    begun = time.monotonic()
    first = next(results)
    assert (first.index, first.spec) == (1, QUICK)
    results.close()
    assert time.monotonic() - begun < 3
    assert threading.active_count() == before


def test_a_slow_caller_does_not_fill_the_memory(engine):
    """Workers wait for the caller; results do not pile up."""

    def alive():
        gc.collect()
        return sum(type(thing) is Result for thing in gc.get_objects())

    before = alive()
    results = stream(
        [Spec(sizes=(1, 3, 1), steps=1 + i % 500) for i in range(3000)],
        (X, X),
        engine=engine,
        threads=2,
    )
    kept = next(results)
    time.sleep(1.5)
    at_once = alive() - before
    results.close()
    assert kept is not None
    assert at_once <= 60  # stacks of 6: one here, some that wait; in all this time, hundreds


INTERRUPTED = """
import signal, sys, time
import numpy as np
from sudonet.train import Spec, train

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have switched it off
x = np.linspace(-1, 1, 1000).reshape(-1, 1)
quick = [Spec(sizes=(1, 3, 1), activation="sudo-8", steps=20, seed=i) for i in range(3)]
endless = Spec(sizes=(1, 50, 50, 1), activation="sudo-8", steps=10**7)
first = None

def progress(done, total):
    global first
    first = first or time.monotonic()
    if done > 100 and time.monotonic() - first > 0.5:
        print("begun", flush=True)
        first = float("inf")

results = train([endless, *quick], (x, x), engine=sys.argv[1], threads=2, progress=progress)
print([r.index for r in results], all(np.isfinite(r.losses).all() for r in results))
"""


def test_an_interrupt_ends_the_training_and_keeps_what_is_finished(engine):
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, engine],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGINT)
            begun = time.monotonic()
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert time.monotonic() - begun < 3  # a second, and the end of Python itself
    assert out == "[1, 2, 3] True\n"
    assert "UserWarning: interrupted: 3 of 4 networks are finished" in err
    assert "Traceback" not in err
    assert process.returncode == 0


ABANDONED = """
import sys
import numpy as np
from sudonet.train import Spec, stream

x = np.linspace(-1, 1, 100).reshape(-1, 1)
specs = [Spec(sizes=(1, 3 + i % 50, 1), steps=5, seed=i) for i in range(1000)]
results = stream(specs, (x, x), engine=sys.argv[1])
next(results)
sys.last_value = results  # as a traceback keeps it that a person looks at
"""


def test_results_that_nobody_wants_do_not_keep_python_from_ending(engine):
    subprocess.run([sys.executable, "-c", ABANDONED, engine], check=True, timeout=60)


MANY = """
import resource, sys, time
import numpy as np
from sudonet.train import Spec, stream

def peak():  # MB; macOS counts bytes
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit

x = np.linspace(-1, 1, 32 * 16).reshape(32, 16)
specs = [Spec(sizes=(16, 64, 1), activation="sudo-8", steps=2, seed=i) for i in range(10_000)]
seen, after_some = 0, 0.0
for result in stream(specs, (x, x[:, :1]), engine=sys.argv[1]):
    seen += 1
    if seen == 1500:
        after_some = peak()
print(seen, peak() - after_some)
"""


@pytest.mark.slow
def test_ten_thousand_networks_take_no_more_memory_than_a_few(engine):
    """Their weights alone would be 39 MB, and as much again for each moment."""
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MANY), engine],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    seen, grown = done.stdout.split()
    assert int(seen) == 10_000
    assert float(grown) < 15  # MB
    assert time.monotonic() - begun < 60
