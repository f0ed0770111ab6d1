"""Where training begins and what comes back: seeds, initial weights, minibatches, results."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from sudonet import RSUDO, SUDO
from sudonet.train import Convolution, ConvolutionalSpec, Spec, train
from sudonet.train._spec import INITIAL, Order, initial_weights
from tests.train.training_reference import epoch_means, reference, samples

pytestmark = [pytest.mark.without_core, pytest.mark.usefixtures("one_thread")]

SPEC = Spec(sizes=(2, 7, 5, 3), activation=("sudo-8", "r-sudo-16-full"), steps=25, batch_size=6)
CONVOLUTIONAL = ConvolutionalSpec(
    input_shape=(2, 6, 5),
    layers=(Convolution(4, stride=2), Convolution(3, kernel=5, stride=2, transposed=True)),
    steps=1,
)


@pytest.fixture(params=["native", "torch"])
def engine(request, native_path):
    native_path("auto")
    return request.param


def parameters(spec):
    return [array for layer in initial_weights(spec) for array in layer]


@pytest.mark.parametrize("spec", [SPEC, CONVOLUTIONAL], ids=["linear", "convolutional"])
@pytest.mark.parametrize("initial", INITIAL)
def test_the_seed_alone_decides_the_initial_weights(spec, initial):
    spec = replace(spec, initial=initial)
    for change in (
        {"activation": "tanh"},
        {"learning_rate": 0.5, "optimiser": "momentum", "momentum": 0.1},
        {"output": "tanh", "steps": 3, "batch_size": 1},
    ):
        for a, b in zip(parameters(spec), parameters(replace(spec, **change)), strict=True):
            np.testing.assert_array_equal(a, b)
    for a, b in zip(parameters(spec), parameters(replace(spec, seed=1)), strict=True):
        assert (a != b).all() or not (a.any() or b.any())  # biases begin at 0


def test_the_engines_begin_where_the_module_does(engine):
    """Also for steps=0, which trains nothing at all."""
    spec = replace(SPEC, initial="torch", steps=0)
    (result,) = train([spec], samples(spec, 10), engine=engine)
    assert result.losses.shape == (0,)
    model = spec.module()
    for layer, (matrix, bias) in zip(model[::2], result.weights, strict=True):
        np.testing.assert_array_equal(matrix, layer.weight.detach())
        np.testing.assert_array_equal(bias, layer.bias.detach())


def assert_uniform(values, bound):
    values = np.ravel(values) / bound
    assert np.abs(values).max() <= 1
    assert np.abs(values).max() > 0.99
    assert abs(values.mean()) < 5 * values.std() / np.sqrt(values.size)
    assert abs(values.std() - np.sqrt(1 / 3)) < 0.02


def test_glorots_bounds():
    (matrix, bias), (second, _) = initial_weights(Spec(sizes=(60, 40, 80), steps=1))
    assert_uniform(matrix, np.sqrt(6 / 100))
    assert_uniform(second, np.sqrt(6 / 120))
    assert not bias.any()
    spec = ConvolutionalSpec(input_shape=(20, 4, 4), layers=(Convolution(30),), steps=1)
    ((kernel, bias),) = initial_weights(spec)
    assert_uniform(kernel, np.sqrt(6 / (9 * 50)))
    assert not bias.any()


def test_glorots_normal_weights():
    spec = Spec(sizes=(300, 200), initial="glorot-normal", steps=1)
    ((matrix, bias),) = initial_weights(spec)
    values = np.ravel(matrix) / np.sqrt(2 / 500)
    assert abs(values.mean()) < 5 / np.sqrt(values.size)
    assert abs(values.std() - 1) < 0.02
    assert abs((np.abs(values) < 1).mean() - 0.6827) < 0.01
    assert not bias.any()


@pytest.mark.parametrize(
    "spec",
    [
        Spec(sizes=(300, 200), initial="torch", steps=1),
        ConvolutionalSpec(
            input_shape=(20, 4, 4), layers=(Convolution(60),), initial="torch", steps=1
        ),
        ConvolutionalSpec(
            input_shape=(20, 4, 4),
            layers=(Convolution(60, transposed=True),),
            initial="torch",
            steps=1,
        ),
    ],
    ids=["linear", "convolution", "transposed"],
)
def test_torchs_initialisation_is_distributed_as_a_new_modules(spec):
    ((matrix, bias),) = initial_weights(spec)
    model = spec.module()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model[0].reset_parameters()
    theirs = model[0].weight.detach().numpy()
    assert matrix.shape == theirs.shape
    bound = 1 / np.sqrt(np.prod(theirs.shape[1:]))
    assert_uniform(theirs, bound)
    assert_uniform(matrix, bound)
    assert matrix.std() == pytest.approx(theirs.std(), rel=0.02)
    assert np.abs(bias).max() == pytest.approx(bound, rel=0.1)


orders = st.builds(
    lambda seed, count, batch: {"seed": seed, "samples": count, "batch_size": batch},
    st.integers(0, 2**70),
    st.integers(1, 60),
    st.integers(1, 80),
)


@given(how=orders)
def test_every_epoch_is_a_permutation_in_minibatches(how):
    order = Order(**how)
    batch = min(how["batch_size"], how["samples"])
    assert order.steps_an_epoch == -(-how["samples"] // batch)
    epochs = []
    for _ in range(3):
        rows, counts = order.take(order.steps_an_epoch)
        assert rows.shape == (order.steps_an_epoch, batch)
        assert (counts[:-1] == batch).all()
        assert 1 <= counts[-1] <= batch
        epochs.append(np.concatenate([r[:n] for r, n in zip(rows, counts, strict=True)]))
        assert sorted(epochs[-1]) == list(range(how["samples"]))
    if how["samples"] > 20:
        assert any(a.tolist() != b.tolist() for a, b in pairwise(epochs))


@given(how=orders, slices=st.lists(st.integers(0, 30), max_size=6))
def test_the_order_does_not_depend_on_how_much_is_taken_at_once(how, slices):
    rows, counts = Order(**how).take(sum(slices))
    order = Order(**how)
    parts = [order.take(steps) for steps in slices]
    for whole, pieces in zip((rows, counts), zip(*parts, strict=True), strict=False):
        np.testing.assert_array_equal(whole, np.concatenate(pieces))


def test_another_seed_gives_another_order():
    first, second = (Order(seed=s, samples=50, batch_size=10).take(5)[0] for s in (0, 1))
    assert (first != second).any()


def test_same_seed_same_minibatches(engine):
    """Seen in the first loss of networks that cannot tell samples apart by anything else."""
    targets = np.arange(12.0).reshape(-1, 1)
    specs = [
        Spec(
            sizes=(1, 4, 1),
            activation=name,
            learning_rate=rate,
            optimiser="momentum",
            steps=1,
            batch_size=1,
            seed=seed,
        )
        for seed in range(6)
        for name, rate in (("tanh", 1e-3), ("sudo-9", 1e-6), ("relu", 1e-4))
    ]
    results = train(specs, (np.zeros((12, 1)), targets), engine=engine)
    # Inputs and biases are 0, outputs too, and the loss is the square of the only target.
    wanted = [Order(seed=s, samples=12, batch_size=1).take(1)[0].item() for s in range(6)]
    for result in results:
        assert np.sqrt(result.losses[0]) == pytest.approx(wanted[result.spec.seed], rel=1e-6)
    assert len(set(wanted)) > 1


@pytest.mark.parametrize("steps", [1, 4, 5, 25])
def test_losses_are_the_means_of_epochs_begun(engine, steps):
    spec = Spec(sizes=(2, 5, 3), steps=steps, batch_size=6, learning_rate=0.01)
    (result,) = train([spec], samples(spec, 20), engine=engine)
    wanted = epoch_means(reference(spec, 20).losses, 20, 6)
    assert len(result.losses) == -(-steps // 4)
    assert result.losses.dtype == np.float32
    np.testing.assert_allclose(result.losses, wanted, rtol=1e-5)


@pytest.fixture(scope="module")
def result():
    return train([SPEC], samples(SPEC, 20))[0]


def test_the_module_of_a_result_is_an_ordinary_one(result):
    model = result.module()
    assert [type(m) for m in model] == [nn.Linear, SUDO, nn.Linear, RSUDO, nn.Linear]
    assert [model[1].name, model[3].name] == ["sudo-8", "r-sudo-16-full"]
    for layer, (matrix, bias) in zip(model[::2], result.weights, strict=True):
        np.testing.assert_array_equal(layer.weight.detach(), matrix)
        np.testing.assert_array_equal(layer.bias.detach(), bias)
    inputs = samples(SPEC, 20).inputs
    outputs = model(torch.from_numpy(inputs)).detach().numpy()
    np.testing.assert_array_equal(result.predict(inputs), outputs)
    np.testing.assert_allclose(result.predict(inputs, rows=7), outputs, rtol=1e-6)
    assert result.predict(inputs[:0]).shape == (0, 3)


def test_the_module_of_a_result_can_be_trained_on(result):
    data = samples(SPEC, 20)
    model, x, t = result.module(), torch.from_numpy(data.inputs), torch.from_numpy(data.targets)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(30):
        losses.append(nn.functional.mse_loss(model(x), t))
        optimiser.zero_grad()
        losses[-1].backward()
        optimiser.step()
    assert losses[-1] < 0.95 * losses[0]
    unchanged = result.module()[0].weight.detach().numpy()
    np.testing.assert_array_equal(unchanged, result.weights[0][0])


@pytest.mark.parametrize("output", ["tanh", "linear", "softmax"])
def test_the_output_of_a_module(output):
    loss = "cross_entropy" if output == "softmax" else "squared_error"
    model = Spec(sizes=(2, 4, 3), output=output, loss=loss, steps=1).module()
    assert isinstance(model[-1], nn.Tanh if output == "tanh" else nn.Linear)


def test_a_result_says_what_it_is_and_compares_without_complaint(result):
    (other,) = train([SPEC], samples(SPEC, 20))
    assert result in [other, result]
    assert result != other  # two trainings, even if they came to the same
    assert "diverged=None" in repr(result)
    assert "array" not in repr(result)
    assert result.seconds > 0


def test_a_single_spec_is_named_with_the_way_out():
    data = np.zeros((4, 2)), np.zeros((4, 1))
    spec = Spec(sizes=(2, 1), steps=1)
    with pytest.raises(TypeError, match=r"got a single one: use train\(\[spec\], data\)"):
        train(spec, data)
    with pytest.raises(TypeError, match="specs must be a list of them, got generator"):
        train((s for s in [spec]), data)
    with pytest.raises(TypeError, match="Spec or ConvolutionalSpec, got 'sudo-4'"):
        train(["sudo-4"], data)
