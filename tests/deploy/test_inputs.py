"""What calibrated a network can be passed in again and means the same; codes are declared."""

import copy
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

import sudonet
from sudonet import deploy
from sudonet.deploy import Grid
from sudonet.deploy.artefact import dumps, loads

PIXELS = Grid.of_range(0, 1)


def small(inputs=4):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 8), sudonet.SUDO(16), nn.Linear(8, 3))


@pytest.fixture(scope="module")
def digits():
    """Pixels from 0 to 16 as uint8, their classes, and a model trained on them as they are."""
    found = load_digits()
    x, y = torch.from_numpy(found.data).float(), torch.from_numpy(found.target)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 40), sudonet.SUDO(16), nn.Linear(40, 10))
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(150):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()
    return model, found.data.astype(np.uint8), found.target


def accuracy(network, x, y):
    return float((np.asarray(network(x)).argmax(1) == y).mean())


@pytest.mark.parametrize("kind", [np.uint8, np.int64, np.int16, np.float32, np.float64])
def test_what_calibrated_means_the_same_in_every_type(digits, kind):
    model, x, y = digits
    network = deploy.compile(model, calibration=x)
    assert accuracy(network, x, y) > 0.98
    scores = network(x)
    assert np.array_equal(network(x.astype(kind)), scores)
    assert torch.equal(network(torch.from_numpy(x.astype(kind))), torch.from_numpy(scores))
    assert np.array_equal(network(x[3].astype(kind)), scores[3])
    taken_as_codes = network(network.codes(x))
    assert not np.array_equal(taken_as_codes, scores)


def test_a_grid_that_examples_gave_says_so(digits):
    model, x, _ = digits
    network = deploy.compile(model, calibration=x)
    for inputs in (Grid.calibrated(x), Grid.calibrated(x, bits=16)):
        assert inputs.from_examples
        other = deploy.compile(model, inputs=inputs)
        assert np.allclose(other(x), network(x), atol=2)
    assert not deploy.compile(model, calibration=x, inputs=PIXELS).inputs.from_examples
    assert "integers are real values" in str(network).splitlines()[0]


def test_declared_integers_are_codes():
    network = deploy.compile(small(), inputs=PIXELS)
    pixels = np.random.default_rng(0).integers(0, 256, (6, 4), dtype=np.uint8)
    scores = network(pixels)
    assert np.array_equal(network(pixels / 255), scores)
    assert np.array_equal(network(network.codes(pixels)), scores)
    assert np.array_equal(network(network.codes(pixels.astype(np.int64))), scores)
    assert torch.equal(network(network.codes(torch.from_numpy(pixels))), torch.from_numpy(scores))
    assert np.array_equal(network(network.codes(pixels[0])), scores[0])
    wide = deploy.compile(small(), inputs=Grid.of_range(0, 1, bits=16))
    with pytest.raises(TypeError, match=r"int16 as they are.*got uint8: use network.codes\(x\)"):
        wide(pixels)


def test_integers_of_another_type_are_not_guessed():
    network = deploy.compile(small(), inputs=PIXELS)
    for kind in (np.int32, np.int64, np.bool_):
        with pytest.raises(TypeError, match=f"got {np.dtype(kind)}: use network.codes"):
            network(np.zeros((2, 4), kind))


def test_codes_that_the_grid_lacks_are_named():
    for network in (
        deploy.compile(small(), inputs=PIXELS),
        deploy.compile(small(), calibration=np.ones((2, 4))),
    ):
        for value, found in ((300, "0 to 300"), (-2, "-2 to 0")):
            codes = np.zeros((2, 4), np.int64)
            codes[0, 0] = value
            with pytest.raises(ValueError, match=f"inputs must be from 0 to 255, got {found}"):
                network.codes(codes)
        with pytest.raises(TypeError, match="codes must be integers, got float64"):
            network.codes(np.zeros((2, 4)))
        with pytest.raises(ValueError, match=r"shape \(4,\), alone or in a batch; got \(2, 5\)"):
            network.codes(np.zeros((2, 5), int))
    with pytest.raises(TypeError, match="inputs must be an array of numbers, got <U5"):
        network("x.npy")


def test_a_file_keeps_how_integers_are_taken(digits, tmp_path):
    model, x, _ = digits
    network = deploy.compile(model, calibration=x)
    network.save(tmp_path / "net.sudo")
    found = deploy.load(tmp_path / "net.sudo")
    assert np.array_equal(found(x), network(x))
    assert dumps(found) == dumps(network)
    assert dumps(network)[8] == 2
    declared = replace(network, inputs=replace(network.inputs, from_examples=False))
    assert dumps(declared)[8] == 1  # which every reader takes
    assert np.array_equal(loads(dumps(declared))(x), network(network.codes(x)))
    for twin in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert np.array_equal(twin(x), network(x))


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_report_takes_inputs_as_the_network_does(digits, kind):
    model, x, y = digits
    network = deploy.compile(model, calibration=x)
    found = deploy.report(model, network, (x.astype(kind), y))
    assert found.before > 0.98
    assert abs(found.after - found.before) < 0.02
    codes = deploy.report(model, network, (network.codes(network.integers(x)[0]), y))
    assert codes.after == found.after
    declared = deploy.compile(model, inputs=Grid(1.0, 0.0, 0, 255))
    assert deploy.report(model, declared, (x, y)).before == found.before


def test_tune_takes_what_calibrates(digits):
    model, x, y = digits
    one = deploy.tune(model, (x, y), "int4", steps=3)
    other = deploy.tune(model, (torch.from_numpy(x).float(), torch.from_numpy(y)), "int4", steps=3)
    for ours, theirs in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    network = deploy.compile(model, calibration=x)
    with pytest.raises(TypeError, match="tune takes real values, got codes"):
        deploy.tune(model, (network.codes(x), y))


def test_agreement_and_c_take_what_calibrated(digits, tmp_path):
    model, x, _ = digits
    network = deploy.compile(model, calibration=x)
    pytest.importorskip("onnxruntime")
    network.to_onnx(tmp_path / "net.onnx", exact=True)
    assert deploy.agreement(network, tmp_path / "net.onnx", x[:50]) == 1
    codes, _ = network.integers(x[:3])
    as_real, as_codes = (
        network.to_c(tmp_path, name, samples=samples).main.read_text()
        for name, samples in (("net", x[:3]), ("net", network.codes(codes)))
    )
    assert as_real == as_codes


def test_bind_reads_codes(digits):
    model, x, _ = digits
    network = deploy.compile(model, calibration=x)
    if network.program is None:
        pytest.skip("there is no C core")
    codes, _ = network.integers(x[:5])
    out = np.empty((5, *network.program.shape_out), network.program.dtype_out)
    network.program.bind(codes, out)()
    assert np.array_equal(network.real(out), network(x[:5]))


def test_real_values_far_outside_are_counted_once():
    network = deploy.compile(small(), inputs=PIXELS)
    pixels = np.linspace(0, 255, 400).reshape(100, 4)
    message = (
        "398 of 400 inputs lie outside of the network's range, 0 to 1, and are clipped; they run "
        "from 0 to 255: scale them as in training"
    )
    with pytest.warns(UserWarning, match=message) as seen:
        network(pixels)
    assert [warning.filename for warning in seen] == [__file__]
    network(pixels)  # without a warning, which would be an error here
    with pytest.warns(UserWarning, match="398 of 400"):
        deploy.compile(small(), inputs=PIXELS)(pixels)
    with pytest.warns(UserWarning, match="1 of 4 inputs"):
        deploy.compile(small(), inputs=PIXELS)(np.array([0.0, 0.0, 0.0, -np.inf]))


def test_few_values_or_values_near_the_ends_need_no_warning():
    network = deploy.compile(small(), inputs=PIXELS)
    near = np.full((250, 4), 1 + 0.9 / 255)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network(near)
        near[0, 0] = 9.0  # one in 1,000
        network(near)
        near[0, 1] = -9.0
        with pytest.raises(UserWarning, match="2 of 1,000 inputs"):
            network(near)
