"""ONNX files against the reference, in ONNX Runtime."""

import sys

import numpy as np
import onnx
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

import sudonet
from sudonet import deploy
from sudonet.deploy import Grid, reference
from sudonet.deploy.layers import accumulator_bounds
from sudonet.deploy.onnx_file import agreement, to_onnx
from sudonet.deploy.real_form import straight, whole_thresholds
from tests.deploy import zoo
from tests.deploy.onnx_tools import assert_exact, run, session

FORMS = {"exact": {"exact": True}, "onnxruntime": {}, "openvino": {"target": "openvino"}}


@pytest.mark.parametrize("thresholds", ["channel", "shared"])
@pytest.mark.parametrize("unit", ["sudo-2", "sudo-17", "sudo-18", "sudo-256", "r-sudo-16-full"])
def test_exact_at_every_threshold(tmp_path, unit, thresholds):
    # One input with every integer that it can be: what lies on a threshold is among them.
    torch.manual_seed(5)
    layer = nn.Linear(1, 30)
    with torch.no_grad():
        layer.weight *= 3
        layer.bias[:10] = 0
    model = nn.Sequential(layer, sudonet.activation(unit))
    network = deploy.compile(model, inputs=Grid(0.02, 128, 0, 255), thresholds=thresholds)
    every = np.arange(256, dtype=np.uint8)[:, None]
    assert len(np.unique(network.raw(every))) == sudonet.Staircase.parse(unit).outputs
    to_onnx(network, tmp_path / "a.onnx", exact=True)
    assert_exact(network, tmp_path / "a.onnx", every)


@pytest.mark.parametrize("weights", ["int8", "ternary", "float32"])
@pytest.mark.parametrize("target", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("name", zoo.BY_HAND)
def test_the_fast_forms_agree(tmp_path, name, target, weights):
    network = zoo.network(name, weights)
    to_onnx(network, tmp_path / "a.onnx", target=target)
    assert agreement(network, tmp_path / "a.onnx", zoo.samples(network, 200)) >= 0.98


@pytest.fixture(scope="module")
def digits():
    """Pixels of handwritten digits from 0 to 1, and a network trained on them."""
    torch.manual_seed(0)
    pictures, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pictures / 16, dtype=torch.float32), torch.tensor(labels)
    model = nn.Sequential(
        nn.Linear(64, 48), sudonet.SUDO(16), nn.Linear(48, 48), sudonet.SUDO(16), nn.Linear(48, 10)
    )
    steps = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(60):
        steps.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        steps.step()
    network = deploy.compile(model, inputs=Grid.of_range(0, 1))
    assert (network(x.numpy()).argmax(1) == labels).mean() > 0.9
    return network, x.numpy()


@pytest.mark.parametrize("form", FORMS)
def test_agreement_on_digits(tmp_path, digits, form):
    network, x = digits
    to_onnx(network, tmp_path / "a.onnx", **FORMS[form])
    found = agreement(network, tmp_path / "a.onnx", x)
    assert found == 1 if form == "exact" else found >= 0.996


def test_agreement_sees_codes_that_differ(tmp_path):
    torch.manual_seed(6)
    model = nn.Sequential(nn.Linear(64, 48), sudonet.SUDO(16), nn.Linear(48, 10))
    first = deploy.compile(model, inputs=Grid.of_range(0, 1))
    with torch.no_grad():
        model[0].bias[0] += 0.01
    other = deploy.compile(model, inputs=Grid.of_range(0, 1))
    to_onnx(other, tmp_path / "a.onnx", exact=True)
    x = zoo.samples(first, 500)
    same = (first.trace(x)[0] == other.trace(x)[0]).all(1).mean()
    assert 0.5 < same < 1
    assert agreement(first, tmp_path / "a.onnx", x) == same
    assert agreement(other, tmp_path / "a.onnx", x) == 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", zoo.BY_HAND)
def test_standard_operators_any_batch_and_a_text(tmp_path, name, form):
    network = zoo.network(name)
    path = tmp_path / "a.onnx"
    to_onnx(network, path, **FORMS[form])
    model = onnx.load(path)
    assert {node.domain for node in model.graph.node} == {""}
    assert [entry.domain for entry in model.opset_import] == [""]
    facts = {entry.key: entry.value for entry in model.metadata_props}
    grid = network.inputs
    assert float(facts["input_scale"]) == grid.scale
    assert float(facts["input_zero"]) == grid.zero
    assert (facts["input_low"], facts["input_high"]) == (str(grid.low), str(grid.high))
    assert (facts["output"], facts["form"]) == (network.output, form)
    assert f"integers from {grid.low} to {grid.high}, as they are" in model.doc_string
    taken = session(path).get_inputs()[0]
    assert taken.type == f"tensor({network.inputs.dtype})"
    assert taken.shape == ["batch", *network.shape_in]
    x = zoo.samples(network, 7)
    for count in (0, 1, 7):
        assert run(path, x[:count])["output"].shape == network(x)[:count].shape


def test_weights_are_stored_such_that_no_cpu_cuts_off_their_sums(tmp_path):
    # Two products of a byte and an int8 exceed 16 bits; of a code below 16 they do not.
    network = zoo.network("dense")
    to_onnx(network, tmp_path / "a.onnx", exact=True)
    graph = onnx.load(tmp_path / "a.onnx").graph
    kinds = {tensor.name: tensor.data_type for tensor in graph.initializer}
    products = [node for node in graph.node if node.op_type == "MatMulInteger"]
    assert [kinds[node.input[1]] for node in products] == [
        onnx.TensorProto.UINT8,
        onnx.TensorProto.INT8,
        onnx.TensorProto.INT8,
    ]


@pytest.mark.parametrize("thresholds", ["channel", "shared"])
@pytest.mark.parametrize("unit", ["sudo-2", "sudo-3", "sudo-16", "r-sudo-15", "sudo-8-relu6"])
@pytest.mark.parametrize("weights", ["int8", "ternary"])
def test_the_line_passes_between_the_accumulators(unit, weights, thresholds):
    torch.manual_seed(7)
    layer = nn.Linear(3, 9)
    with torch.no_grad():
        layer.weight[0] = 0  # never anything but its bias
        layer.weight[1] *= 1000  # all thresholds between the same two accumulators
        layer.weight[2] *= 0.001  # no threshold within reach
        layer.bias[3], layer.bias[4] = 50, -50  # always above all of them, always below
        layer.bias[5] = 0
    model = nn.Sequential(layer, sudonet.activation(unit))
    network = deploy.compile(model, weights, inputs=Grid(0.2, 4, 0, 9), thresholds=thresholds)
    (made,) = network.layers
    slope, constant = straight(made)
    assert (slope > 0).all()
    assert np.isfinite(slope).all()
    assert np.isfinite(constant).all()
    table, steps = whole_thresholds(made), sudonet.Staircase.parse(unit).thresholds
    bounds = accumulator_bounds(made, made.by_output).astype(int)
    for channel, bound in enumerate(bounds):
        every = np.arange(-bound, bound + 1)
        y = slope[channel] * every + constant[channel]
        codes = np.searchsorted(steps, y, side="left")
        np.testing.assert_array_equal(codes, np.searchsorted(table[channel], every, side="left"))
        total = np.broadcast_to(every, (1, made.channels, 1, len(every)))
        np.testing.assert_array_equal(codes, reference.codes_of(made, total)[0, channel, 0])


def test_a_layer_that_cannot_be_written_is_named(tmp_path):
    path = tmp_path / "a.onnx"
    with pytest.raises(deploy.CompileError, match=r"^0 has float32 weights.*leave out exact=True"):
        to_onnx(zoo.network("dense", "float32"), path, exact=True)
    large = nn.Sequential(nn.AvgPool2d(32), nn.Flatten(), nn.Linear(1, 2))
    network = deploy.compile(large, "ternary", inputs=Grid(1, 0, 0, 2**15), shape=(1, 32, 32))
    with pytest.raises(deploy.CompileError, match=r"^0 makes integers up to 33,554,432.*8 bits"):
        to_onnx(network, path)
    assert not path.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"target": "tensorrt"}, r"target must be one of onnxruntime, openvino, got 'tensorrt'"),
        ({"target": "openvino", "exact": True}, r"64-bit integers.*leave out exact=True"),
    ],
)
def test_a_form_that_does_not_exist(tmp_path, arguments, words):
    with pytest.raises(ValueError, match=words):
        to_onnx(zoo.network("dense"), tmp_path / "a.onnx", **arguments)


def test_without_the_packages_one_line_says_what_to_install(tmp_path, monkeypatch):
    network = zoo.network("dense")
    to_onnx(network, tmp_path / "a.onnx")
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match=r"^writing ONNX needs onnx: run pip install 'sudonet\["):
        to_onnx(network, tmp_path / "b.onnx")
    with pytest.raises(ImportError, match=r"^running ONNX needs onnxruntime: .*'sudonet\[onnx\]'"):
        agreement(network, tmp_path / "a.onnx", zoo.samples(network, 40))


def test_nothing_is_printed(tmp_path, capfd):
    network = zoo.network("convolutions, softmax")
    for form in FORMS.values():
        to_onnx(network, tmp_path / "a.onnx", **form)
        agreement(network, tmp_path / "a.onnx", zoo.samples(network, 40))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", zoo.BY_HAND)
def test_openvino_agrees(tmp_path, name):
    openvino = pytest.importorskip("openvino")
    network = zoo.network(name)
    to_onnx(network, tmp_path / "a.onnx", target="openvino")
    model = openvino.compile_model(
        str(tmp_path / "a.onnx"), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )
    x = zoo.samples(network, 100)
    expected = network(x)
    near = np.abs(model([x])[0] - expected) <= 1e-5 * np.abs(expected).max()
    assert near.reshape(len(x), -1).all(1).mean() >= 0.98
