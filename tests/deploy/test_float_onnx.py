"""Models written as they are, against PyTorch."""

import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

import sudonet
from sudonet import Staircase
from sudonet.deploy.float_file import float_onnx
from tests.unit.families import FAMILIES

pytestmark = pytest.mark.usefixtures("one_thread")


def run(path, x):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(["output"], {"input": x})[0]


class Beside(nn.Module):
    """Units that get the same input, and what they give, side by side."""

    def __init__(self, units):
        super().__init__()
        self.units = nn.ModuleList(sudonet.activation(unit) for unit in units)

    def forward(self, x):
        return torch.cat([unit(x) for unit in self.units], 1)


def test_units_give_their_levels(tmp_path):
    units = [Staircase.parse(f.format(levels)) for f in FAMILIES for levels in (2, 9, 16, 256)]
    units.append(Staircase(300, rectified=True))
    model = Beside(units)
    float_onnx(model, torch.zeros(2, 1), tmp_path / "a.onnx")
    x = np.concatenate([u.thresholds + d for u in units for d in (-1e-4, 0, 1e-4)])
    x = np.concatenate([x, np.linspace(-8, 8, 501), [-50, 50]]).astype(np.float32)[:, None]
    found, expected = run(tmp_path / "a.onnx", x), model(torch.tensor(x)).numpy()
    for unit, ours, theirs in zip(units, found.T, expected.T, strict=True):
        apart = np.abs(x - unit.thresholds).min(1) > 5e-5
        np.testing.assert_allclose(ours[apart], theirs[apart], atol=1e-6, err_msg=unit.name)
        # On a threshold it is one of the two levels beside it.
        assert np.abs(ours - theirs).max() <= np.diff(unit.values).max() + 1e-6


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_other_types(tmp_path, dtype):
    module = sudonet.RSUDO(16)
    float_onnx(module, torch.zeros(2, 1, dtype=dtype), tmp_path / "a.onnx")
    x = torch.linspace(-3, 3, 997, dtype=dtype)[:, None]
    found, expected = run(tmp_path / "a.onnx", x.numpy()), module(x).numpy()
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_nan_stays_nan(tmp_path):
    float_onnx(sudonet.SUDO(16), torch.zeros(2, 1), tmp_path / "a.onnx")
    assert np.isnan(run(tmp_path / "a.onnx", np.array([[np.nan]], np.float32))).all()


def convolutional():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        sudonet.SUDO(16),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(),
        nn.Linear(64, 10),
        sudonet.RSUDO(8),
        nn.Linear(10, 3),
    )


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_a_model_for_any_batch(tmp_path, batch):
    model = convolutional()
    float_onnx(model, torch.zeros(batch, 1, 8, 8), tmp_path / "a.onnx")
    assert all(module.training for module in model.modules())
    written = onnx.load(tmp_path / "a.onnx")
    onnx.checker.check_model(written, full_check=True)
    assert {node.domain for node in written.graph.node} == {""}
    model.eval()
    for count in (1, 2, 50):
        x = torch.randn(count, 1, 8, 8)
        with torch.no_grad():
            expected = model(x).numpy()
        found = run(tmp_path / "a.onnx", x.numpy())
        same = np.isclose(found, expected, atol=1e-5).all(1)
        assert same.mean() > 0.95


OPERATIONS = {
    "Gemm": lambda x, w, b: nn.functional.linear(x, w, b),
    "Tanh": torch.tanh,
    "Sigmoid": torch.sigmoid,
    "Mul": torch.mul,
    "Add": torch.add,
    "Sub": torch.sub,
    "Ceil": torch.ceil,
    "Clip": torch.clamp,
    "Relu": torch.relu,
    "Less": torch.lt,
    "Where": torch.where,
}
TYPES = {onnx.TensorProto.INT64: torch.int64, onnx.TensorProto.FLOAT: torch.float32}


def read_back(path):
    """The written graph as a function of PyTorch, as a tool would read it, and its weights."""
    graph = onnx.load(path).graph
    stored = {t.name: torch.tensor(onnx.numpy_helper.to_array(t)) for t in graph.initializer}
    for name, value in stored.items():
        value.requires_grad_(name.endswith(("weight", "bias")))

    def forward(x):
        known = {**stored, "input": x}
        for node in graph.node:
            given = [known[name] for name in node.input]
            if node.op_type == "Cast":
                made = given[0].to(TYPES[node.attribute[0].i])
            else:
                made = OPERATIONS[node.op_type](*given)
            known[node.output[0]] = made
        return known["output"]

    return forward, stored


@pytest.mark.parametrize("unit", ["sudo-16", "r-sudo-8", "sudo-9-sigmoid", "r-sudo-5-relu6"])
def test_a_tool_that_differentiates_the_graph_finds_the_training_gradient(tmp_path, unit):
    torch.manual_seed(2)
    model = nn.Sequential(
        nn.Linear(4, 8),
        sudonet.activation(unit),
        nn.Linear(8, 8),
        sudonet.activation(unit),
        nn.Linear(8, 3),
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 3  # so that every unit of relu6 has a slope, too
    float_onnx(model, torch.zeros(2, 4), tmp_path / "a.onnx")
    forward, stored = read_back(tmp_path / "a.onnx")
    x = torch.randn(64, 4)
    forward(x).square().sum().backward()
    model(x).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.abs().max() > 0
        torch.testing.assert_close(stored[name].grad, parameter.grad, rtol=1e-4, atol=1e-4)


def test_nothing_is_printed(tmp_path, capfd, caplog):
    float_onnx(sudonet.SUDO(16), torch.zeros(2, 1), tmp_path / "a.onnx")
    assert capfd.readouterr() == ("", "")
    assert not [r for r in caplog.records if r.levelname in ("WARNING", "ERROR")]


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_without_a_package_one_line_says_what_to_install(tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"needs {package}: run pip install 'sudonet\[onnx\]'"):
        float_onnx(sudonet.SUDO(16), torch.zeros(2, 1), tmp_path / "a.onnx")
