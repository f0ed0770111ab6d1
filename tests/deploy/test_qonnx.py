"""QONNX files in the package qonnx, which computes every node by itself."""

import sys

import numpy as np
import onnx
import pytest
from qonnx.core.modelwrapper import ModelWrapper
from qonnx.core.onnx_exec import execute_onnx
from torch import nn

import sudonet
from sudonet import Staircase, deploy
from sudonet.deploy import Grid
from sudonet.deploy.qonnx_file import to_qonnx, unit_to_qonnx
from tests.deploy import zoo
from tests.deploy.onnx_tools import values_inside

UNITS = ("sudo-{}", "r-sudo-{}", "r-sudo-{}-full")
EVERY_L = range(2, 257)


@pytest.mark.parametrize("name", UNITS)
def test_the_unit_beside_each_of_its_thresholds_for_every_number_of_levels(tmp_path, name):
    for levels in (*EVERY_L, 1000):
        unit = Staircase.parse(name.format(levels))
        thresholds, values = unit.narrowed(np.float32)
        infinity = np.float32(np.inf)
        x = np.concatenate(
            [
                np.nextafter(thresholds, -infinity),
                thresholds,
                np.nextafter(thresholds, infinity),
                np.float32([-9, 9]),
            ]
        )
        unit_to_qonnx(unit, tmp_path / "a.onnx", shape=x.shape)
        model = ModelWrapper(str(tmp_path / "a.onnx"))
        found = execute_onnx(model, {"input": x[None]})["output"][0]
        codes = np.abs(found[:, None] - values).argmin(1)
        np.testing.assert_array_equal(codes, unit.codes(x), err_msg=unit.name)
        np.testing.assert_allclose(found, values[codes], atol=1e-6, err_msg=unit.name)


def test_scale_and_bias_are_those_of_the_paper(tmp_path):
    unit_to_qonnx(Staircase(16), tmp_path / "a.onnx")
    (node,) = onnx.load(tmp_path / "a.onnx").graph.node
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    assert (node.op_type, node.domain) == ("MultiThreshold", "qonnx.custom_op.general")
    assert given["out_scale"] == np.float32(2 / 15)
    assert given["out_bias"] == -1


@pytest.mark.parametrize("thresholds", ["channel", "shared"])
@pytest.mark.parametrize("unit", ["sudo-16", "sudo-256", "r-sudo-16", "r-sudo-99-full"])
def test_codes_at_every_threshold(tmp_path, unit, thresholds):
    layer = nn.Linear(1, 20)
    model = nn.Sequential(layer, sudonet.activation(unit), nn.Linear(20, 2))
    network = deploy.compile(model, inputs=Grid(0.05, 128, 0, 255), thresholds=thresholds)
    every = np.arange(256, dtype=np.uint8)[:, None]
    to_qonnx(network, tmp_path / "a.onnx")
    model, found = values_inside(tmp_path / "a.onnx", every)
    (node,) = model.get_nodes_by_op_type("MultiThreshold")
    np.testing.assert_array_equal(found[node.output[0]], network.trace(every)[0])


def test_tensors_say_how_few_bits_they_need(tmp_path):
    network = deploy.compile(
        zoo.model("convolutions, softmax"),
        {"0": "int4", "3": "binary", "7": "ternary"},
        inputs=zoo.UNEVEN,
        shape=(2, 8, 8),
    )
    to_qonnx(network, tmp_path / "a.onnx")
    model = ModelWrapper(str(tmp_path / "a.onnx"))
    assert model.get_tensor_datatype("input").name == "UINT8"
    convolution = model.get_nodes_by_op_type("Conv")
    (product,) = model.get_nodes_by_op_type("MatMul")
    kinds = [model.get_tensor_datatype(n.input[1]).name for n in (*convolution, product)]
    assert kinds == ["INT4", "BIPOLAR", "BINARY", "TERNARY"]
    # Before a layer that pads, 16 levels lie around 0; before one that does not, 5 are codes.
    units = [n.output[0] for n in model.get_nodes_by_op_type("MultiThreshold")]
    assert [model.get_tensor_datatype(name).name for name in units] == ["INT5", "UINT3"]


def test_one_example_as_written(tmp_path):
    network = zoo.network("dense")
    to_qonnx(network, tmp_path / "a.onnx")
    x = zoo.samples(network, 1)
    model = ModelWrapper(str(tmp_path / "a.onnx"))
    assert model.get_tensor_shape("input") == [1, 20]
    found = execute_onnx(model, {"input": x.astype(np.float32)})["output"]
    np.testing.assert_allclose(found, network(x), atol=1e-6)
    facts = {entry.key: entry.value for entry in model.model.metadata_props}
    assert float(facts["input_scale"]) == network.inputs.scale


def test_sums_that_float32_does_not_hold_are_refused_by_name(tmp_path):
    with pytest.raises(deploy.CompileError, match=r"^1 can reach [\d,]+, and QONNX .* 16,777,216"):
        to_qonnx(zoo.network("means of words"), tmp_path / "a.onnx")
    large = nn.Sequential(nn.AvgPool2d(32), nn.Flatten(), nn.Linear(1, 2))
    network = deploy.compile(large, "ternary", inputs=Grid(1, 0, 0, 2**15), shape=(1, 32, 32))
    with pytest.raises(deploy.CompileError, match=r"^0 makes integers up to 33,554,432.*windows"):
        to_qonnx(network, tmp_path / "a.onnx")


def test_without_onnx_one_line_says_what_to_install(tmp_path, monkeypatch):
    network = zoo.network("dense")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"^writing ONNX needs onnx: run pip install 'sudonet\["):
        to_qonnx(network, tmp_path / "a.onnx")
