import copy

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from sudonet import RSUDO, SUDO, deploy
from sudonet.deploy.layers import WEIGHTS, Affine
from sudonet.deploy.quantise import quantise
from sudonet.deploy.tune import tune

PIXELS = deploy.Grid.of_range(0, 1)


@pytest.fixture(autouse=True, scope="module")
def one_thread_for_all():
    """Networks this small gain nothing from more, and on a busy machine they wait."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def digits():
    """Inputs and classes, for training and for a test."""
    found = load_digits()
    inputs = torch.from_numpy(found.images / 16).float().flatten(1)
    targets = torch.from_numpy(found.target)
    return (inputs[:1400], targets[:1400]), (inputs[1400:], targets[1400:])


@pytest.fixture(scope="module")
def trained(digits):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(64, 32), SUDO(16), nn.Linear(32, 24), RSUDO(8), nn.Linear(24, 10)
    )
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(60):
        optimiser.zero_grad()
        inputs, targets = digits[0]
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimiser.step()
    return model.eval()


@pytest.fixture(scope="module")
def convolutional():
    """All kinds of layers that have weights, and BatchNorm that has seen data."""
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(2, 4, 3, padding=1, groups=2), nn.BatchNorm2d(4), SUDO(8)),
        *(nn.ConvTranspose2d(4, 6, 2, stride=2, groups=2), SUDO(4)),
        *(nn.Flatten(2), nn.Conv1d(6, 3, 5, stride=4), nn.BatchNorm1d(3), SUDO(200)),
        *(nn.Flatten(), nn.Linear(45, 2)),
    )
    for _ in range(3):
        model(torch.rand(20, 2, 4, 4))
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([1.5, -0.5, 0.25, 1.0]))
    return model


def accuracy(model, data):
    with torch.no_grad():
        return (model(data[0]).argmax(1) == data[1]).float().mean().item()


def by_channel(module):
    """The weights of a layer, as quantise takes them."""
    weight = module.weight.detach().double().numpy()
    if not isinstance(module, nn.ConvTranspose2d):
        return weight
    into, out, *kernel = weight.shape
    split = weight.reshape(module.groups, into // module.groups, out, *kernel)
    return split.swapaxes(1, 2).reshape(module.groups * out, -1)


def layers_with_weights(model):
    return [
        m for m in model.modules() if getattr(m, "weight", None) is not None and m.weight.ndim > 1
    ]


@pytest.mark.parametrize("kind", WEIGHTS)
def test_weights_lie_on_the_grid_to_the_last_bit(convolutional, kind):
    data = torch.rand(50, 2, 4, 4), torch.arange(50) % 2
    tuned = tune(convolutional, data, kind, steps=30, batch_size=10, learning_rate=0.01)
    for module in layers_with_weights(tuned):
        weights = by_channel(module)
        integers, scales = quantise(weights, kind)
        restored = integers * scales.reshape(-1, *[1] * (weights.ndim - 1))
        assert np.array_equal(restored, weights)
        assert np.abs(integers).max() == (1 if kind == "binary" else 2 ** (WEIGHTS[kind] - 1) - 1)


@pytest.mark.parametrize("kind", WEIGHTS)
def test_the_integers_are_those_that_were_tuned(trained, digits, kind):
    tuned = tune(trained, digits[0], kind, steps=30)
    network = deploy.compile(tuned, kind, inputs=PIXELS)
    for layer, module in zip(network.layers, layers_with_weights(tuned), strict=True):
        assert np.array_equal(layer.weights, quantise(by_channel(module), kind)[0])
    # With weights that are the same, float64 and integers differ in nothing that a unit sees.
    seen = []
    exact = copy.deepcopy(tuned).double()
    for module in exact:
        if isinstance(module, SUDO | RSUDO):
            module.register_forward_hook(lambda *call: seen.append(call[2].detach()))
    pixels = PIXELS.integers(digits[1][0].numpy())
    scores = exact(torch.from_numpy(PIXELS.values(pixels))).detach().numpy()
    trace = network.trace(pixels)
    assert len(seen) == 2
    for made, layer, values in zip(trace, network.layers, seen, strict=False):
        assert np.array_equal(made, layer.grid_out.integers(values.numpy()))
    assert np.allclose(network(pixels), scores, atol=1e-6)


def test_batch_norm_is_folded_without_a_loss(convolutional):
    data = torch.rand(50, 2, 4, 4), torch.arange(50) % 2
    tuned = tune(convolutional, data, "int4", steps=30, batch_size=10)
    network = deploy.compile(tuned, "int4", inputs=PIXELS, shape=(2, 4, 4), thresholds="channel")
    first = next(layer for layer in network.layers if isinstance(layer, Affine))
    integers, _ = quantise(by_channel(tuned[0]), "int4")
    signs = np.sign(tuned[1].weight.detach().numpy()).reshape(-1, 1, 1, 1)
    assert np.array_equal(first.weights, integers * signs)
    assert signs.min() == -1


def test_few_bits_get_back_what_rounding_lost(trained, digits):
    before = accuracy(trained, digits[1])
    rounded = deploy.compile(trained, "ternary", inputs=PIXELS)
    tuned = tune(trained, digits[0], "ternary", steps=200)
    network = deploy.compile(tuned, "ternary", inputs=PIXELS)
    assert accuracy(network, digits[1]) > accuracy(rounded, digits[1]) + 0.02
    assert accuracy(network, digits[1]) > before - 0.03


def test_the_model_stays_and_batch_statistics_too(convolutional):
    before = copy.deepcopy(convolutional.state_dict())
    data = torch.rand(50, 2, 4, 4), torch.arange(50) % 2
    tuned = tune(convolutional, data, steps=3)
    assert convolutional.training
    assert not tuned.training
    for name, value in convolutional.state_dict().items():
        assert torch.equal(value, before[name])
        if "running" in name or "tracked" in name:
            assert torch.equal(value, tuned.state_dict()[name])
    assert all(p.grad is None for p in tuned.parameters())


def test_a_mapping_names_the_layers(trained, digits):
    tuned = tune(trained, digits[0], {"0": "float32", "2": "binary"}, steps=5)
    assert len(tuned[0].weight[0].unique()) == 64
    assert not torch.equal(tuned[0].weight, trained[0].weight)
    assert [len(row.abs().unique()) for row in tuned[2].weight] == [1] * 24
    integers, scales = quantise(by_channel(tuned[4]), "int8")
    assert np.array_equal(integers * scales[:, None], by_channel(tuned[4]))
    with pytest.raises(deploy.CompileError, match="names 'first', but the layers are 0, 2, 4"):
        tune(trained, digits[0], {"first": "int8"}, steps=1)


def test_the_seed_decides_and_progress_is_told(trained, digits):
    told = []
    torch.manual_seed(1)
    one = tune(trained, digits[0], steps=3, progress=lambda *call: told.append(call))
    drawn = torch.rand(1)
    again = tune(trained, digits[0], steps=3)
    other = tune(trained, digits[0], steps=3, seed=1)
    torch.manual_seed(1)
    assert torch.rand(1) == drawn  # the random numbers of the program are not touched
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert torch.equal(one[0].bias, again[0].bias)
    assert not torch.equal(one[0].bias, other[0].bias)


def test_squared_error_and_a_function_as_loss():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), SUDO(16), nn.Linear(8, 1), nn.Tanh())
    inputs = torch.rand(200, 3)
    targets = inputs.sum(1, keepdim=True) / 3
    error = nn.functional.mse_loss
    tuned = tune(model, (inputs, targets), loss="squared_error", steps=200, learning_rate=0.01)
    with torch.no_grad():
        assert error(tuned(inputs), targets) < error(model(inputs), targets) / 2
    same = tune(model, (inputs, targets), loss=error, steps=200, learning_rate=0.01)
    assert torch.equal(same[0].weight, tuned[0].weight)
    with pytest.raises(ValueError, match=r"outputs have shape \(100, 1\) and targets \(100,\)"):
        tune(model, (inputs, targets[:, 0]), loss="squared_error")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0, got 0.0"),
        ({"loss": "hinge"}, "squared_error or a function, got 'hinge'"),
        ({"weights": "int5"}, "weights must be one of int8.* got 'int5'"),
        ({"data": (torch.rand(3, 64), torch.arange(2))}, "got 3 and 2"),
        ({"data": (torch.rand(0, 64), torch.arange(0))}, "at least one, got 0 and 0"),
    ],
)
def test_what_cannot_be(trained, digits, change, message):
    with pytest.raises(ValueError, match=message):
        tune(**{"model": trained, "data": digits[0], **change})


def test_layers_that_share_their_weights_learn():
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Linear(6, 6), SUDO(16), nn.Linear(6, 6), SUDO(16), nn.Linear(6, 6), SUDO(16)),
        nn.Linear(6, 3),
    )
    model[4].weight = model[2].weight
    inputs = torch.randn(300, 6)
    data = inputs, inputs[:, :3].argmax(1)
    start = tune(model, data, "ternary", steps=1, learning_rate=1e-9)
    tuned = tune(model, data, "ternary", steps=200, learning_rate=0.02)
    assert tuned[4].weight is tuned[2].weight
    assert (tuned[2].weight.sign() != start[2].weight.sign()).any()
    with pytest.raises(ValueError, match="2 and 4 share their weights"):
        tune(model, data, {"2": "int4", "4": "int8"}, steps=1)


def test_half_weights_and_a_softmax_are_refused(trained, digits):
    with pytest.raises(TypeError, match=r"0 has torch.bfloat16 weights: .* model.float\(\)"):
        tune(copy.deepcopy(trained).bfloat16(), digits[0])
    with pytest.raises(ValueError, match="ends in a softmax"):
        tune(nn.Sequential(*trained, nn.Softmax(1)), digits[0])
