"""A network's result is its own: whatever is trained beside it, and however that ends."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sudonet.native.library import PATHS
from sudonet.train import Convolution, ConvolutionalSpec, Data, Spec, train
from sudonet.train._native_engine import NativeEngine
from sudonet.train._torch_engine import flushed_denormals
from tests.train.training_reference import assert_identical, plain_loop, samples

pytestmark = [pytest.mark.without_core, pytest.mark.usefixtures("one_thread")]

ACTIVATIONS = ["tanh", "relu", "sigmoid", "relu6", "sudo-2", "sudo-8", "sudo-64", "r-sudo-64-full"]
TASKS = [("tanh", "squared_error"), ("linear", "squared_error"), ("softmax", "cross_entropy")]


@st.composite
def plans(draw):
    """Specs that share some shapes, seeds and activations, and samples for them."""
    inputs, outputs = draw(st.sampled_from([(1, 1), (3, 10), (17, 2)]))
    output, loss = draw(st.sampled_from(TASKS))
    batch_size = draw(st.sampled_from([1, 3, 16, 20, 48, 100]))
    hidden = st.lists(st.sampled_from([1, 2, 5, 7, 16, 17, 33]), max_size=3)
    shapes = draw(st.lists(hidden, min_size=1, max_size=2))
    specs = st.builds(
        lambda middle, **how: Spec(sizes=(inputs, *middle, outputs), **how),
        st.sampled_from(shapes),
        activation=st.sampled_from(ACTIVATIONS),
        output=st.just(output),
        loss=st.just(loss),
        optimiser=st.sampled_from(["adam", "momentum"]),
        learning_rate=st.sampled_from([0.001, 0.03]),
        steps=st.sampled_from([4, 7]),
        batch_size=st.just(batch_size),
        seed=st.integers(0, 2),
    )
    some = draw(st.lists(specs, min_size=1, max_size=12))
    return some, samples(some[0], draw(st.sampled_from([5, 16, 33, 50])))


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(plan=plans(), data=st.data())
def test_a_result_is_the_same_alone_and_in_any_company(engine, plan, data):
    specs, on = plan
    alone = [train([spec], on, engine=engine, threads=1)[0] for spec in specs]
    for threads in (1, 2):
        places = data.draw(st.permutations(range(len(specs))))
        together = train([specs[i] for i in places], on, engine=engine, threads=threads)
        assert [result.index for result in together] == list(range(len(specs)))
        for place, result in zip(places, together, strict=True):
            assert_identical(result, alone[place])


def test_networks_that_take_minutes_do_not_wait_for_one_another():
    small, large = ((2, *4 * (units,), 1) for units in (5, 200))
    assert NativeEngine.largest_stack(Spec(sizes=small, steps=200_000)) > 8
    assert NativeEngine.largest_stack(Spec(sizes=large, steps=200_000)) == 1
    assert NativeEngine.largest_stack(Spec(sizes=large, steps=100)) > 8


@pytest.mark.parametrize("count", [2, 3, 8, 40])
@pytest.mark.parametrize("sizes", [(3, 5, 33, 10), (2, 7, 17, 1), (3, 33, 50, 2)], ids=str)
def test_threads_do_not_round(engine, sizes, count):
    """Products of this size are shared by threads, and rounded by how, if they may be."""
    specs = [
        Spec(
            sizes=sizes,
            activation=ACTIVATIONS[i % len(ACTIVATIONS)],
            learning_rate=0.001 * (i + 1),
            steps=5,
            batch_size=100,
            seed=i % 2,
        )
        for i in range(count)
    ]
    on = samples(specs[0], 130)
    together = train(specs, on, engine=engine, threads=2)
    for i in (0, count // 2, count - 1):
        assert_identical(train([specs[i]], on, engine=engine, threads=1)[0], together[i])


@pytest.mark.parametrize("activation", [*ACTIVATIONS, "hardtanh", "sudo-40-sigmoid"])
def test_the_place_in_a_stack_does_not_round(engine, activation):
    """The last numbers of an odd stack do not fill a vector; torch rounds some of them anew."""
    specs = [
        Spec(sizes=(1, 33, 1, 10), activation=activation, steps=6, batch_size=16, seed=seed)
        for seed in range(3)
    ]
    on = samples(specs[0], 16)
    together = train(specs, on, engine=engine, threads=1)
    for spec, result in zip(specs, together, strict=True):
        assert_identical(train([spec], on, engine=engine, threads=1)[0], result)


def test_a_convolutional_network_is_the_same_in_any_company():
    specs = [
        ConvolutionalSpec(
            input_shape=(3, 16, 16),
            layers=(Convolution(8, stride=2), Convolution(3, stride=2, transposed=True)),
            activation=activation,
            steps=4,
            batch_size=16,
            seed=seed,
        )
        for activation in ("tanh", "sudo-8")
        for seed in (0, 1)
    ]
    on = samples(specs[0], 40)
    alone = [train([spec], on, threads=1)[0] for spec in specs]
    for threads in (1, 2):
        together = train(specs[::-1], on, threads=threads)
        for a, b in zip(alone, together[::-1], strict=True):
            assert_identical(a, b)


def test_the_callers_number_of_threads_stays(engine):
    seen = []
    spec = Spec(sizes=(2, 5, 1), steps=50)
    before = torch.get_num_threads()
    train(
        [spec] * 3,
        samples(spec, 10),
        engine=engine,
        threads=2,
        progress=lambda *_: seen.append(torch.get_num_threads()),
    )
    assert {before} == {torch.get_num_threads(), *seen}


NEIGHBOURS = [
    Spec(sizes=(2, 8, 1), activation=name, learning_rate=rate, optimiser=o, steps=60, batch_size=7)
    for name in ("tanh", "relu", "sudo-4")
    for rate in (0.001, 0.01)
    for o in ("adam", "momentum")
]
EXPLODING = {
    "momentum": replace(NEIGHBOURS[1], learning_rate=3.0, activation="relu"),
    "momentum of sudo": replace(NEIGHBOURS[1], learning_rate=3.0, activation="sudo-4"),
    "adam": replace(NEIGHBOURS[0], learning_rate=1e20),
    "adam of sudo": replace(NEIGHBOURS[0], learning_rate=1e20, activation="sudo-4"),
}


@pytest.mark.parametrize("exploding", EXPLODING.values(), ids=EXPLODING)
def test_a_network_that_diverges_says_when_and_disturbs_nobody(engine, exploding):
    on = samples(exploding, 20)
    peaceful = train(NEIGHBOURS, on, engine=engine, threads=1)
    specs = [*NEIGHBOURS[:4], exploding, *NEIGHBOURS[4:]]
    results = train(specs, on, engine=engine, threads=1)
    wild = results.pop(4)
    for a, b in zip(peaceful, results, strict=True):
        assert_identical(a, b)
        assert a.diverged is None
    losses = plain_loop(exploding, on, torch.float32).losses
    first = np.flatnonzero(~np.isfinite(losses))[0] + 1
    assert abs(wild.diverged - first) <= ("sudo" in exploding.activations[0])  # which is chaotic
    epoch = (wild.diverged - 1) // 3
    assert np.isfinite(wild.losses[:epoch]).all()
    assert not np.isfinite(wild.losses[epoch])
    assert np.isnan(wild.losses[epoch + 1 :]).all()
    assert len(wild.losses) == 20
    assert_identical(wild, train([exploding], on, engine=engine, threads=2)[0])


@pytest.mark.parametrize("optimiser", ["adam", "momentum"])
def test_a_rate_beyond_float32_diverges_like_any_other(engine, optimiser):
    spec = Spec(sizes=(2, 8, 1), learning_rate=1e300, optimiser=optimiser, steps=5)
    (result,) = train([spec], samples(spec, 20), engine=engine)
    assert result.diverged == 2


@pytest.mark.parametrize("optimiser", ["adam", "momentum"])
def test_nothing_counts_after_a_loss_that_is_not_finite(engine, optimiser):
    """One absurd sample: most minibatches are without it, and their losses are finite."""
    spec = Spec(sizes=(1, 3, 1), optimiser=optimiser, steps=40, batch_size=5)
    x = np.linspace(-1, 1, 20).reshape(-1, 1)
    (result,) = train([spec], (x, np.where(x == x[7], 1e30, x)), engine=engine)
    assert 1 <= result.diverged <= 4
    assert not np.isfinite(result.losses[0])
    assert np.isnan(result.losses[1:]).all()


def denormals_are_kept():
    tiny = np.float32(1e-39)
    in_numpy = (np.full(64, tiny) * np.float32(0.5)).all()
    in_torch = (torch.full((64,), 1.0) * float(tiny)).all().item()
    assert bool(in_numpy) == bool(in_torch)
    return bool(in_numpy)


@pytest.fixture
def flush():
    """torch.set_flush_denormal, which is undone."""
    before = denormals_are_kept()
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot flush denormal numbers")
    torch.set_flush_denormal(not before)
    yield torch.set_flush_denormal
    torch.set_flush_denormal(not before)


@pytest.mark.parametrize("before", [False, True])
def test_flushed_denormals_puts_back_what_was_there(flush, before):
    flush(before)
    with flushed_denormals():
        assert not denormals_are_kept()
    assert denormals_are_kept() != before
    with pytest.raises(RuntimeError, match="in the middle"), flushed_denormals():
        raise RuntimeError("in the middle")
    assert denormals_are_kept() != before


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("path", PATHS)
def test_the_c_core_leaves_the_floating_point_state_alone(native_path, flush, path, before):
    """Called from this thread, past the threads of train()."""
    core = native_path(path)
    spec = Spec(sizes=(2, 5, 1), activation="sudo-64", steps=5)
    flush(before)
    (result,) = NativeEngine(core).train([(0, spec)], samples(spec, 10), lambda steps: True)
    assert np.isfinite(result.losses).all()
    assert denormals_are_kept() != before


@pytest.mark.parametrize("before", [False, True])
def test_train_leaves_the_floating_point_state_alone(engine, flush, before):
    spec = Spec(sizes=(2, 5, 1), activation="sudo-64", steps=5)
    on = samples(spec, 10)
    flush(before)
    train([spec], on, engine=engine)
    assert denormals_are_kept() != before


@pytest.mark.parametrize("optimiser", ["adam", "momentum"])
def test_tiny_numbers_are_the_same_in_any_company(engine, optimiser):
    """Moments that decay below the smallest normal number, in stacks large enough to share."""
    specs = [
        Spec(sizes=(2, 40, 30, 1), activation="relu", optimiser=optimiser, seed=seed, steps=30)
        for seed in range(40)
    ]
    plenty = samples(specs[0], 20)
    on = Data.of(plenty.inputs * 1e-18, plenty.targets * 1e-18)
    together = train(specs, on, engine=engine, threads=2)
    for i in (0, 39):
        assert_identical(train([specs[i]], on, engine=engine, threads=1)[0], together[i])
