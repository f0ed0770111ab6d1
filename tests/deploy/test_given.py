"""What users give in other forms than expected is taken, or named in one clear line."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch.utils.data import DataLoader, TensorDataset

import sudonet
from sudonet import deploy
from sudonet.deploy import CompileError, Grid
from sudonet.deploy.listing import listing

PIXELS = Grid.of_range(0, 1)
X = np.random.default_rng(0).random((40, 4)).astype(np.float32)
Y = np.arange(40) % 2


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), sudonet.SUDO(4), nn.Linear(4, 2))


def with_end(*layers):
    return nn.Sequential(*small(), *layers)


def same(one, other):
    return np.array_equal(one(X), other(X))


def test_a_pair_is_a_range():
    wanted = deploy.compile(small(), inputs=PIXELS)
    for pair in ((0, 1), [0.0, 1.0], np.array([0, 1])):
        found = deploy.compile(small(), inputs=pair)
        assert found.inputs == PIXELS
        assert same(found, wanted)
    for wrong in ("0,1", 3, (0, 1, 2), ("a", "b")):
        with pytest.raises(TypeError, match=r"a Grid or a range such as \(0, 1\), got"):
            deploy.compile(small(), inputs=wrong)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("m.pt2", "got the path 'm.pt2': load it first, or run sudonet compile m.pt2"),
        ("m.pt", "got the path 'm.pt': load it first"),
        ("m.sudo", "got the path 'm.sudo': deploy.load reads it"),
        (nn.Linear, r"got the class Linear: make one by Linear\(...\)"),
        ({"weight": 1}, "got a mapping: make the model, then model.load_state_dict"),
        (len, "got builtin_function_or_method"),
    ],
)
def test_what_is_no_model(model, message):
    with pytest.raises(TypeError, match=message):
        deploy.compile(model, inputs=PIXELS)
    with pytest.raises(TypeError, match=message):
        deploy.tune(model, (X, Y))
    with pytest.raises(TypeError, match=message):
        deploy.report(model, deploy.compile(small(), inputs=PIXELS), (X, Y))


def test_report_needs_a_network():
    with pytest.raises(TypeError, match=r"what deploy.compile made of the model, got Sequential"):
        deploy.report(small(), small(), (X, Y))


def test_types_are_words_for_weights():
    wanted = deploy.compile(small(), "int8", inputs=PIXELS)
    for kind in (torch.int8, np.int8, np.dtype("int8"), {"0": torch.int8}):
        assert same(deploy.compile(small(), kind, inputs=PIXELS), wanted)
    real = deploy.compile(small(), torch.float32, inputs=PIXELS)
    assert {layer.weight_kind for layer in real.layers} == {"float32"}
    deploy.tune(small(), (X, Y), torch.int8, steps=2)
    for wrong in (8, torch.int16, None):
        with pytest.raises(CompileError, match="one of int8, int4, ternary, binary, float32, got"):
            deploy.compile(small(), wrong, inputs=PIXELS)


def sets():
    data = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    return {
        "numpy": (X, Y),
        "float64": (X.astype(np.float64), Y.astype(np.int32)),
        "read-only": (np.broadcast_to(X, X.shape), Y),
        "list": [X.tolist(), Y.tolist()],
        "loader": DataLoader(data, batch_size=7),
        "set": data,
    }


@pytest.mark.parametrize("name", sets())
def test_data_in_every_form(name):
    data, tensors = sets()[name], (torch.from_numpy(X), torch.from_numpy(Y))
    model = small()
    network = deploy.compile(model, inputs=PIXELS)
    assert repr(deploy.report(model, network, data)) == repr(deploy.report(model, network, tensors))
    found, wanted = (deploy.tune(model, given, "int4", steps=5) for given in (data, tensors))
    for ours, theirs in zip(found.parameters(), wanted.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (X, r"data must be inputs and targets, \(x, y\), or a DataLoader .* got ndarray"),
        ((X, Y, Y), "got tuple of 3"),
        (DataLoader(TensorDataset(torch.zeros(4, 4))), "a batch of the DataLoader .* list of 1"),
    ],
)
def test_data_that_is_no_pair(data, message):
    with pytest.raises(TypeError, match=message):
        deploy.tune(small(), data)
    with pytest.raises(TypeError, match=message):
        deploy.report(small(), deploy.compile(small(), inputs=PIXELS), data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X[:, :3], Y), r"the model cannot run on inputs of shape \(40, 3\)"),
        ((X, Y + 1), "classes from 0 to 1, as the model has 2 outputs, got 1 to 2"),
        ((X, Y / 2), r"integers of shape \(40,\), got torch.float64 of \(40,\)"),
        ((X, Y[:, None]), r"integers of shape \(40,\), got torch.int64 of \(40, 1\)"),
        ((X, Y[:5]), "inputs and as many targets, at least one, got 40 and 5"),
    ],
)
def test_tune_names_wrong_shapes(data, message):
    with pytest.raises(ValueError, match=message):
        deploy.tune(small(), data)


def test_report_names_targets_that_are_no_classes():
    network = deploy.compile(small(), inputs=PIXELS)
    with pytest.raises(ValueError, match=r"classes must have shape \(40,\), got \(40, 2\)"):
        deploy.report(small(), network, (X, np.eye(2, dtype=int)[Y]))


def test_losses_are_called_as_in_train():
    deploy.tune(small(), (X, Y), steps=1, loss="cross_entropy")
    deploy.tune(small(), (X, X[:, :2]), steps=1, loss="squared_error")
    for old in ("cross-entropy", "squared error"):
        with pytest.raises(ValueError, match="must be cross_entropy, squared_error or a function"):
            deploy.tune(small(), (X, Y), loss=old)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shape": (5,)}, r"cannot run on an input of shape \(5,\): .*; give the shape of one"),
        ({"shape": "4"}, r"shape must be sizes such as \(1, 28, 28\), got '4'"),
        ({"shape": (0,)}, r"shape must be sizes"),
        ({"calibration": X[0]}, r"a batch of inputs, got an array of shape \(4,\)"),
        ({"calibration": X, "shape": (5,)}, r"shape is \(5,\), but .* calibration have \(4,\)"),
    ],
)
def test_wrong_shapes_of_inputs(settings, message):
    inputs = {} if "calibration" in settings else {"inputs": PIXELS}
    with pytest.raises(CompileError, match=message):
        deploy.compile(small(), **inputs, **settings)


def test_a_shape_may_be_one_number():
    assert deploy.compile(small(), inputs=PIXELS, shape=4).shape_in == (4,)


@pytest.mark.parametrize("calibration", ["x.npy", np.array([None]), DataLoader([1])])
def test_calibration_must_be_numbers(calibration):
    with pytest.raises(TypeError, match="a batch of inputs, an array of numbers, got"):
        deploy.compile(small(), calibration=calibration)


def test_lazy_layers_must_have_run():
    model = nn.Sequential(nn.LazyLinear(4), sudonet.SUDO(4), nn.Linear(4, 2))
    message = r"0 \(LazyLinear\) has no weights yet: run the model once on an example"
    with pytest.raises(CompileError, match=message):
        deploy.compile(model, inputs=PIXELS, shape=4)
    with pytest.raises(CompileError, match=message):
        deploy.tune(model, (X, Y))
    model(torch.from_numpy(X))
    deploy.compile(model, inputs=PIXELS)


def test_parametrized_weights_must_be_stored():
    model = small()
    parametrizations.weight_norm(model[0])
    message = r"0 .* computes its weight: store it by .*remove_parametrizations\(module, 'weight'\)"
    with pytest.raises(CompileError, match=message):
        deploy.compile(model, inputs=PIXELS)
    with pytest.raises(CompileError, match=message):
        deploy.tune(model, (X, Y))
    program = torch.export.export(model.eval(), (torch.zeros(2, 4),))
    with pytest.raises(CompileError, match="remove_parametrizations"):
        deploy.compile(program, inputs=PIXELS)
    parametrize.remove_parametrizations(model[0], "weight")
    deploy.compile(model, inputs=PIXELS)


def test_older_ways_to_compute_weights_are_named():
    pruned, normed = small(), small()
    prune.l1_unstructured(pruned[0], "weight", amount=0.5)
    with pytest.raises(CompileError, match=r"prune.remove\(module, 'weight'\)"):
        deploy.compile(pruned, inputs=PIXELS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nn.utils.weight_norm(normed[0])
    with pytest.raises(CompileError, match=r"remove_weight_norm\(module\)"):
        deploy.compile(normed, inputs=PIXELS)


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cells = kind(4, 4, batch_first=True)
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        return self.out(self.cells(x)[0][:, -1])


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_are_called_that(kind):
    message = rf"\({kind.__name__}\) cannot be compiled: it is recurrent.* a chain of Linear"
    for model in (Recurrent(kind), kind(4, 4, batch_first=True)):
        with pytest.raises(CompileError, match=message) as error:
            deploy.compile(model, inputs=PIXELS, shape=(3, 4))
        assert "convert" not in str(error.value)


class ArgmaxOfSoftmax(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = small()

    def forward(self, x):
        return self.model(x).softmax(1).argmax(1)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (with_end(nn.Sigmoid()), "leave it out at the end .* above 0.5 where its score is above 0"),
        (with_end(nn.LogSoftmax(1)), "leave it out at the end, or use Softmax"),
        (with_end(nn.ReLU()), "leave it out at the end, and apply it to the scores"),
        (ArgmaxOfSoftmax(), "leave it out, the argmax of the scores is the same"),
    ],
)
def test_ends_that_are_not_needed(model, message):
    with pytest.raises(CompileError, match=message) as error:
        deploy.compile(model, inputs=PIXELS, shape=4)
    assert "convert" not in str(error.value)


def test_only_activations_are_to_be_converted():
    hidden = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), nn.Linear(4, 2))
    with pytest.raises(CompileError, match=r"sudonet\.convert replaces other activations"):
        deploy.compile(hidden, inputs=PIXELS)
    normed = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), sudonet.SUDO(4), nn.Linear(4, 2))
    with pytest.raises(CompileError, match="LayerNorm") as error:
        deploy.compile(normed, inputs=PIXELS)
    assert "convert" not in str(error.value)


def pooled(*middle):
    torch.manual_seed(0)
    ends = [sudonet.SUDO(4), nn.Flatten(), nn.Linear(8, 2)]
    return nn.Sequential(nn.Conv2d(1, 2, 3), *middle, *ends)


@pytest.mark.parametrize("weight", [1.0, -1.0])
def test_a_norm_after_a_maximum(weight):
    """The advice holds: with weights above 0 the two may change places."""
    norm = nn.BatchNorm2d(2)
    norm.weight.data[1] = weight
    model = pooled(nn.MaxPool2d(2), norm).eval()
    way = "which gives the same result" if weight > 0 else "and train again"
    with pytest.raises(CompileError, match=f"put it before the pooling, 1, {way}"):
        deploy.compile(model, inputs=PIXELS, shape=(1, 6, 6))
    swapped = pooled(norm, nn.MaxPool2d(2)).eval()
    x = torch.rand(5, 1, 6, 6)
    with torch.no_grad():
        assert torch.equal(model(x), swapped(x)) == (weight > 0)
    deploy.compile(swapped, inputs=PIXELS, shape=(1, 6, 6))


def test_print_shows_the_table_and_repr_is_short():
    network = deploy.compile(small(), inputs=PIXELS)
    assert str(network).splitlines() == listing(network)
    assert "multiply-adds" in str(network)
    assert repr(network) == "IntegerNetwork(2 layers, 24 B of weights, takes 4 of uint8)"
