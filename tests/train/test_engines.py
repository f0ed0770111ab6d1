"""Both engines, on every path in C, against a plain autograd loop in float64."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sudonet.native.library import PATHS
from sudonet.train import Convolution, ConvolutionalSpec, Data, Spec, train
from tests.train.training_reference import (
    CLEARANCE,
    assert_close,
    clear_of_thresholds,
    plain_loop,
    reference,
    samples,
)
from tests.unit.families import FAMILIES

pytestmark = [pytest.mark.without_core, pytest.mark.usefixtures("one_thread")]

TOLERANCE = 5e-6
"""Ten times the float32 engines' error after ten steps; a wrong formula is off by far more."""

SAMPLES = 23
SMOOTH = ["tanh", "relu", "sigmoid", "hardtanh", "relu6"]
# Units with few thresholds are compared with each of them, the others are guessed; where one
# turns into the other depends on the path in C: 4, 8 or 16 levels.
DISCRETE = [
    *(f"sudo-{levels}" for levels in (2, 3, 4, 5, 8, 9, 16, 17, 64, 256)),
    *(family.format(levels) for levels in (2, 5, 40) for family in FAMILIES[1:]),
]
TASKS = [("tanh", "squared_error"), ("linear", "squared_error"), ("softmax", "cross_entropy")]
RATES = {"adam": 0.005, "momentum": 0.1}


def task(output, loss, optimiser="adam", **how):
    how = {"sizes": (3, 7, 5, 2), "steps": 10, "batch_size": 7, "initial": "torch"} | how
    how = {"momentum": 0.8, "learning_rate": RATES[optimiser]} | how
    return Spec(output=output, loss=loss, optimiser=optimiser, **how)


def check(specs, engine, count=SAMPLES, scale=1):
    specs = [clear_of_thresholds(spec, count, scale) for spec in specs]
    results = train(specs, samples(specs[0], count, scale), engine=engine, threads=1)
    assert [result.spec for result in results] == specs
    for result in results:
        assert result.engine.startswith(engine)
        assert_close(result, reference(result.spec, count, scale), count, TOLERANCE)


@pytest.mark.parametrize(("output", "loss"), TASKS)
@pytest.mark.parametrize("optimiser", RATES)
def test_every_activation_output_loss_and_optimiser(engine, optimiser, output, loss):
    check(
        [
            task(output, loss, optimiser, activation=activation)
            for activation in [*SMOOTH, *DISCRETE]
        ],
        engine,
    )


@pytest.mark.parametrize("optimiser", RATES)
def test_every_activation_where_it_saturates(engine, optimiser):
    """Beyond 6 a relu6 is flat, beyond 1 a hardtanh, beyond 10 a tanh very nearly."""
    check(
        [
            task("tanh", "squared_error", optimiser, activation=activation, learning_rate=0.002)
            for activation in [*SMOOTH, *DISCRETE]
        ],
        engine,
        scale=10,
    )


@pytest.mark.parametrize("initial", ["glorot", "glorot-normal", "torch"])
@pytest.mark.parametrize("activation", ["tanh", "sudo-8"])
def test_every_initialisation(engine, initial, activation):
    check([task("tanh", "squared_error", activation=activation, initial=initial)], engine)


def test_an_activation_for_every_layer(engine):
    names = ("sudo-3", "relu", "r-sudo-40-full", "sigmoid", "sudo-5-hardtanh")
    check(
        [
            task("linear", "squared_error", sizes=(2, 9, 8, 9, 6, 7, 1), activation=some)
            for some in (names, names[::-1], names[2:] + names[:2])
        ],
        engine,
    )


SHAPES = [
    # no hidden layer, and one to five of them; narrow, odd and wide layers
    (1, 1),
    (3, 2),
    (17, 10),
    (1, 1, 1),
    (2, 3, 1),
    (11, 12, 1),
    (12, 11, 3),
    (15, 16, 17, 1),
    (7, 33, 3, 5),
    (1, 17, 1, 7, 2),
    (2, 3, 7, 17, 33, 1),
    (3, 5, 1, 6, 4, 9, 3),
    # sums longer than the C core's tiles, and more rows than fit one
    (127, 3, 2),
    (128, 3, 2),
    (2, 129, 140, 1),
]


@pytest.mark.parametrize("sizes", SHAPES, ids=str)
def test_every_shape(engine, sizes):
    specs = [
        task(
            "linear",
            "squared_error",
            optimiser,
            sizes=sizes,
            activation=activation,
            learning_rate=0.002,
        )
        for optimiser in RATES
        for activation in ("tanh", "sudo-4")
    ]
    check(specs, engine)


@pytest.mark.parametrize(
    ("count", "batch_size"),
    [
        (23, 7),  # the last minibatch has 2 samples
        (23, 23),
        (23, 100),  # no more than there are
        (5, 1),
        (1, 1),
        (48, 16),
        (49, 16),
        (40, 17),
        (70, 33),
        (130, 112),
        (130, 113),
        (140, 128),
        (140, 129),
        (260, 241),
    ],
)
@pytest.mark.parametrize(("output", "loss"), TASKS)
def test_every_batch_size(engine, count, batch_size, output, loss):
    check([task(output, loss, activation="tanh", batch_size=batch_size)], engine, count)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=2, max_size=6),
    count=st.integers(1, 150),
    batch_size=st.integers(1, 150),
    output_and_loss=st.sampled_from(TASKS),
    momentum=st.sampled_from([0.0, 0.5, 0.9]),
    seed=st.integers(0, 2**40),
)
def test_any_shape_and_batch(engine, sizes, count, batch_size, output_and_loss, momentum, seed):
    """Smooth and without Adam, whose quotients make much of tiny gradients: any seed will do."""
    spec = task(
        *output_and_loss,
        "momentum",
        sizes=tuple(sizes),
        batch_size=batch_size,
        momentum=momentum,
        learning_rate=0.02,
        seed=seed,
        steps=5,
    )
    (result,) = train([spec], samples(spec, count), engine=engine, threads=1)
    assert_close(result, plain_loop(spec, samples(spec, count)), count, TOLERANCE)


def test_adams_epsilon_counts_where_gradients_are_tiny(engine):
    spec = task("linear", "squared_error", sizes=(3, 2))
    plenty = samples(spec, SAMPLES)
    data = Data.of(plenty.inputs * 1e-7, plenty.targets)
    (result,) = train([spec], data, engine=engine)
    assert_close(result, plain_loop(spec, data), SAMPLES, TOLERANCE)
    moved = np.abs(result.weights[0][0] - spec.module()[0].weight.detach().numpy()).max()
    assert moved < 0.9 * spec.learning_rate * spec.steps  # all of it without the epsilon


def test_probabilities_as_targets_of_a_cross_entropy(engine):
    spec = task("softmax", "cross_entropy", sizes=(3, 7, 4))
    odds = np.random.default_rng(3).uniform(size=(SAMPLES, 4))
    data = Data.of(samples(spec, SAMPLES).inputs, odds / odds.sum(1, keepdims=True))
    (result,) = train([spec], data, engine=engine)
    assert_close(result, plain_loop(spec, data), SAMPLES, TOLERANCE)


def test_large_logits_do_not_overflow_a_cross_entropy(engine):
    spec = task("softmax", "cross_entropy", "momentum", sizes=(1, 3), learning_rate=1e-5)
    data = Data.of(np.linspace(-400, 400, 20).reshape(-1, 1), np.arange(20) % 3, classes=3)
    (result,) = train([spec], data, engine=engine)
    assert_close(result, plain_loop(spec, data), 20, TOLERANCE)


@pytest.mark.parametrize("activation", ["tanh", "relu", "sudo-2", "sudo-16", "sudo-64", "r-sudo-8"])
@pytest.mark.parametrize("path", PATHS)
def test_the_engines_agree_in_the_first_ten_steps(native_path, path, activation):
    spec = task("tanh", "squared_error", sizes=(2, 20, 20, 1), activation=activation)
    spec = clear_of_thresholds(replace(spec, batch_size=10), 100)
    native_path(path)
    in_c, in_torch = (
        train([spec], samples(spec, 100), engine=engine, threads=1)[0]
        for engine in ("native", "torch")
    )
    np.testing.assert_allclose(in_c.losses, in_torch.losses, rtol=1e-5)
    for a, b in zip(in_c.weights, in_torch.weights, strict=True):
        np.testing.assert_allclose(a[0], b[0], rtol=0, atol=1e-5)
        np.testing.assert_allclose(a[1], b[1], rtol=0, atol=1e-5)


def test_the_engines_agree_in_distribution_afterwards(native_path):
    """SUDO training is chaotic: after a while only the statistics of many seeds agree."""
    native_path("auto")
    x = np.linspace(-1, 1, 60).reshape(-1, 1)
    specs = [
        Spec(
            sizes=(1, 12, 1),
            activation="sudo-8",
            learning_rate=0.01,
            steps=1000,
            batch_size=20,
            seed=s,
        )
        for s in range(24)
    ]

    def final(engine, **changes):
        changed = [replace(spec, **changes) for spec in specs]
        results = train(changed, (x, np.sin(3 * x) / 2), engine=engine, threads=1)
        return np.log([result.losses[-20:].mean() for result in results])

    def errors_apart(a, b):
        return abs(a.mean() - b.mean()) / np.sqrt((a.var() + b.var()) / len(a))

    in_c, in_torch = final("native"), final("torch")
    assert errors_apart(in_c, in_torch) < 3
    assert np.abs(in_c - in_torch).max() > 1e-3  # chaotic indeed
    # The comparison is able to tell: a slightly different training is farther away.
    assert errors_apart(in_c, final("torch", learning_rate=0.003)) > 3
    assert errors_apart(in_c, final("torch", activation="sudo-16")) > 3


ENCODER = (
    Convolution(4, stride=2),
    Convolution(3, kernel=1),
    Convolution(5, kernel=5, stride=2, transposed=True),
    Convolution(2),
)
LAYERS = [
    (ENCODER, (2, 8, 6)),
    ((Convolution(3, kernel=5, stride=3), Convolution(2, stride=2)), (1, 9, 7)),
    ((Convolution(2, stride=2, transposed=True),), (3, 3, 5)),
    ((Convolution(3, kernel=1, stride=2), Convolution(1, kernel=7, transposed=True)), (1, 5, 5)),
]


@pytest.mark.parametrize(("layers", "shape"), LAYERS)
def test_convolutional_shapes_and_parameters_are_those_of_the_module(layers, shape):
    spec = ConvolutionalSpec(input_shape=shape, layers=layers, steps=1)
    model = spec.module()
    assert model(torch.zeros(2, *shape)).shape[1:] == spec.output_shape
    assert spec.parameters == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("native", ["auto", "off"])
@pytest.mark.parametrize("optimiser", RATES)
@pytest.mark.parametrize("activation", ["tanh", "sudo-8", "r-sudo-8-full"])
def test_convolutions_against_the_plain_loop(native_path, native, activation, optimiser):
    native_path(native)
    specs = [
        ConvolutionalSpec(
            input_shape=shape,
            layers=layers,
            activation=activation,
            output=output,
            optimiser=optimiser,
            learning_rate=0.002,
            momentum=0.8,
            initial=initial,
            steps=5,
            batch_size=4,
        )
        for (layers, shape), output, initial in zip(
            LAYERS,
            ["tanh", "linear", "tanh", "linear"],
            # Without biases, what is rectified is often 0, where its slope jumps.
            ["torch"] * 4 if activation.startswith("r-") else ["glorot", "torch"] * 2,
            strict=True,
        )
    ]
    for spec in specs:
        spec = clear_of_thresholds(spec, 10)
        (result,) = train([spec], samples(spec, 10), threads=1)
        assert result.engine == "torch-cpu"
        assert_close(result, reference(spec, 10), 10, 1e-5)


def test_the_reference_stays_clear_of_thresholds():
    """What the comparisons above rest on; a unit with very many levels has no such place."""
    spec = task("linear", "squared_error", activation="sudo-64")
    assert reference(clear_of_thresholds(spec, SAMPLES), SAMPLES).clearance > CLEARANCE
    assert reference(replace(spec, activation="sudo-60000"), SAMPLES).clearance < CLEARANCE
