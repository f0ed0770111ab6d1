"""What goes in: specs and data of every form, and how bad ones are refused."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sudonet.train import Convolution, ConvolutionalSpec, Data, Spec, stream, train
from tests.train.training_reference import epoch_means, plain_loop

pytestmark = [pytest.mark.without_core, pytest.mark.usefixtures("one_thread")]

CONVOLUTIONAL = ConvolutionalSpec(
    input_shape=(2, 6, 5),
    layers=(Convolution(4, stride=2), Convolution(3, kernel=5, stride=2, transposed=True)),
    steps=1,
)
X = np.linspace(-1, 1, 12).reshape(-1, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sizes": (3,)}, "inputs and outputs at least, got (3,)"),
        ({"sizes": (3, 0, 1)}, "a layer size must be an integer >= 1, got 0"),
        ({"sizes": (3, 2.5, 1)}, "a layer size must be an integer >= 1, got 2.5"),
        ({"sizes": (3, True, 1)}, "a layer size must be an integer >= 1, got True"),
        ({"output": "relu"}, "output must be one of tanh, linear, softmax, got 'relu'"),
        ({"loss": "hinge"}, "loss must be one of squared_error, cross_entropy, got 'hinge'"),
        ({"optimiser": "sgd"}, "optimiser must be one of adam, momentum, got 'sgd'"),
        ({"initial": "he"}, "initial must be one of glorot, glorot-normal, torch, got 'he'"),
        ({"output": "softmax"}, "go together, got output='softmax' and loss='squared_error'"),
        ({"loss": "cross_entropy"}, "go together, got output='linear' and loss='cross_entropy'"),
        ({"activation": ("tanh",)}, "a tuple of 2 names, one for each hidden layer, got ('tanh',)"),
        ({"activation": ["tanh", "tanh"]}, "a tuple of 2 names"),
        ({"activation": "gelu"}, "unknown unit 'gelu'"),
        ({"activation": "sudo-1"}, "from 2 to 65,536, got 1"),
        ({"steps": -1}, "steps must be an integer >= 0, got -1"),
        ({"steps": 1.5}, "steps must be an integer >= 0, got 1.5"),
        ({"batch_size": 0}, "batch_size must be an integer >= 1, got 0"),
        ({"batch_size": True}, "batch_size must be an integer >= 1, got True"),
        ({"seed": -1}, "seed must be an integer >= 0, got -1"),
        ({"seed": None}, "seed must be an integer >= 0, got None"),
        ({"learning_rate": 0}, "learning_rate must be a number > 0, got 0"),
        ({"learning_rate": -0.1}, "learning_rate must be a number > 0, got -0.1"),
        ({"learning_rate": float("nan")}, "learning_rate must be a number > 0, got nan"),
        ({"learning_rate": float("inf")}, "learning_rate must be a number > 0, got inf"),
        ({"learning_rate": "0.1"}, "learning_rate must be a number > 0, got '0.1'"),
        ({"momentum": 1.0}, "momentum must be a number in [0, 1), got 1.0"),
        ({"momentum": -0.1}, "momentum must be a number in [0, 1), got -0.1"),
        ({"momentum": float("nan")}, "momentum must be a number in [0, 1), got nan"),
        ({"momentum": "0.9"}, "momentum must be a number in [0, 1), got '0.9'"),
    ],
)
def test_bad_specs_are_refused(change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Spec(**{"sizes": (2, 3, 3, 1), "steps": 1} | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_shape": (3, 4)}, "(channels, height, width) and layers, got (3, 4)"),
        ({"input_shape": (3, 4, 0)}, "a size of input_shape must be an integer >= 1, got 0"),
        ({"layers": ()}, "and layers, got (2, 6, 5) and ()"),
        ({"activation": ("tanh", "tanh")}, "a tuple of 1 names"),
        ({"steps": -1}, "steps must be an integer >= 0, got -1"),
    ],
)
def test_bad_convolutional_specs_are_refused(change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        replace(CONVOLUTIONAL, **change)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"channels": 0}, "channels must be an integer >= 1, got 0"),
        ({"channels": 3, "stride": 0}, "stride must be an integer >= 1, got 0"),
        ({"channels": 3, "kernel": -1}, "kernel must be an integer >= 1, got -1"),
        ({"channels": 3, "kernel": 4}, "kernel must be odd, got 4"),
    ],
)
def test_bad_convolutions_are_refused(how, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Convolution(**how)


def test_lists_do_as_well_as_tuples():
    assert Spec(sizes=[2, 3, 1], steps=1) == Spec(sizes=(2, 3, 1), steps=1)
    spec = replace(CONVOLUTIONAL, input_shape=[2, 6, 5], layers=list(CONVOLUTIONAL.layers))
    assert spec == CONVOLUTIONAL
    assert hash(spec) == hash(CONVOLUTIONAL)


def test_names_are_made_canonical():
    spec = Spec(sizes=(1, 2, 2, 1), activation=(" SUDO-8 ", "ReLU"), steps=1)
    assert spec.activations == ("sudo-8", "relu")
    assert spec == replace(spec, activation=("sudo-8", "relu"))


@pytest.mark.parametrize(
    ("inputs", "targets", "message"),
    [
        (X[:, 0], X, "inputs must have a row a sample, got shape (12,): use x.reshape(-1, 1)"),
        (X, X[:, 0], "targets must have a row a sample, got shape (12,)"),
        (X, np.arange(12), "targets must have a row a sample, got shape (12,)"),
        (X, X[:5], "as many targets as inputs, at least one, got 5 and 12"),
        (X[:0], X[:0], "at least one, got 0 and 0"),
        (np.where(X[3] == X, np.nan, X), X, "inputs contain NaN or infinity: remove"),
        (X, np.where(X[3] == X, -np.inf, X), "targets contain NaN or infinity: remove"),
        (X, X * 1e200, "targets contain NaN or infinity"),  # in float32
        (np.hstack([X, X]), X, "inputs of shape (2,) do not fit a network that needs (1,)"),
        (X, np.hstack([X, X]), "targets of shape (2,) do not fit a network that needs (1,)"),
        (X.reshape(-1, 2, 1), X[::2], "inputs of shape (2,) do not fit"),
    ],
)
@pytest.mark.parametrize("make", [lambda x, t: (x, t), Data], ids=["arrays", "Data"])
def test_bad_data_is_refused(inputs, targets, message, make):
    with pytest.raises(ValueError, match=re.escape(message)):
        train([Spec(sizes=(1, 1), steps=1)], make(inputs, targets))


CLASSIFIER = Spec(sizes=(1, 3), output="softmax", loss="cross_entropy", steps=4, batch_size=5)


@pytest.mark.parametrize(
    "labels",
    [
        np.arange(12) % 3,
        (np.arange(12) % 3).astype(np.uint8),
        torch.arange(12) % 3,
        (np.arange(12) % 3).tolist(),
        np.eye(3)[np.arange(12) % 3],
        np.eye(3, dtype=int)[np.arange(12) % 3],
    ],
    ids=["int64", "uint8", "tensor", "list", "one-hot", "one-hot integers"],
)
def test_labels_are_made_one_hot(labels):
    wanted = np.eye(3, dtype=np.float32)[[0, 1, 2] * 4]
    data = Data.of(X, labels, classes=3)
    np.testing.assert_array_equal(data.targets, wanted)
    assert data.targets.dtype == np.float32
    (result,) = train([CLASSIFIER], (X, labels))
    losses = plain_loop(CLASSIFIER, Data(X, wanted)).losses
    np.testing.assert_allclose(result.losses, epoch_means(losses, 12, 5), rtol=1e-5)


@pytest.mark.parametrize("wrong", [3, -1, 1000])
def test_labels_without_an_output_are_refused(wrong):
    labels = np.arange(12) % 3
    labels[5] = wrong
    with pytest.raises(ValueError, match=f"integers from 0 to 2, got {wrong}: the network needs"):
        train([CLASSIFIER], (X, labels))


@pytest.mark.parametrize("value", [0.5, -1.0, 0.0])
def test_targets_of_a_cross_entropy_must_be_probabilities(value):
    targets = np.eye(3)[np.arange(12) % 3]
    targets[4, 0] += value or 1
    with pytest.raises(ValueError, match=r"probabilities that add up to 1.*squared_error"):
        train([CLASSIFIER], (X, targets))


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_what_cannot_be_written_to_is_data_all_the_same(engine):
    frozen = X.astype(np.float32)
    frozen.setflags(write=False)
    spec = Spec(sizes=(1, 3, 1), steps=3)
    (result,) = train([spec], (frozen, frozen), engine=engine)
    np.testing.assert_array_equal(result.predict(frozen), result.predict(X))


@settings(max_examples=20, deadline=None)
@given(
    layout=st.sampled_from(["float64", "fortran", "sliced", "tensor", "gradient", "list"]),
    engine=st.sampled_from(["auto", "torch"]),
)
def test_data_of_any_type_and_layout(layout, engine):
    x = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
    forms = {
        "float64": x.astype(np.float64),
        "fortran": np.asfortranarray(x),
        "sliced": np.repeat(x, 2, axis=1)[:, ::2],
        "tensor": torch.from_numpy(x),
        "gradient": torch.from_numpy(x).requires_grad_(),
        "list": x.tolist(),
    }
    spec = Spec(sizes=(4, 3, 4), steps=3)
    (plain,) = train([spec], (x, x), engine=engine)
    (other,) = train([spec], (forms[layout], forms[layout]), engine=engine)
    np.testing.assert_array_equal(plain.losses, other.losses)
    np.testing.assert_array_equal(plain.predict(x), other.predict(forms[layout]))


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", True])
@pytest.mark.parametrize("function", [train, lambda *a, **k: list(stream(*a, **k))])
def test_bad_threads_are_refused(function, threads):
    message = re.escape(f"threads must be an integer >= 1, got {threads!r}")
    with pytest.raises(ValueError, match=message):
        function([Spec(sizes=(1, 1), steps=1)], (X, X), threads=threads)


def test_fully_connected_networks_take_images_as_rows(engine):
    images = np.random.default_rng(0).uniform(-1, 1, (40, 3, 4, 4)).astype(np.float32)
    flat = images.reshape(40, -1)
    spec = Spec(sizes=(48, 5, 48), steps=20, batch_size=10)
    (one,), (other,) = (train([spec], (x, x), engine=engine) for x in (images, flat))
    assert np.array_equal(one.losses, other.losses)
    assert all(np.array_equal(a, b) for a, b in zip(one.weights[0], other.weights[0], strict=True))
