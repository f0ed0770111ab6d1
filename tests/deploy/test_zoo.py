"""Every network of the zoo in every back end: the bits of the reference, or a refusal by name."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import onnx
import pytest

from sudonet import Staircase
from sudonet.deploy import CompileError, c, reference
from sudonet.deploy.artefact import dumps, load, save
from sudonet.deploy.layers import WEIGHTS, Affine, image
from sudonet.deploy.onnx_file import to_onnx
from sudonet.deploy.qonnx_file import to_qonnx
from sudonet.deploy.runtime import Program
from tests.deploy import float64, zoo
from tests.deploy.c_tools import SANITIZE, answers, hosted, program, zoo_cases
from tests.deploy.core_check import check
from tests.deploy.onnx_tools import assert_exact, values_inside
from tests.deploy.same import equal

FLOATS = [(name, kind) for name, kind in zoo.CASES if kind == "float32"]
REAL = "has float32 weights"

# What a back end refuses, and by which words. Everything else it must run.
REFUSED = {
    "core": dict.fromkeys(FLOATS, REAL),
    "ONNX": dict.fromkeys(FLOATS, REAL),
    "C": dict.fromkeys(FLOATS, REAL),
    "QONNX": dict.fromkeys(
        [
            (name, "int8")
            for name in (
                *("dense words", "words", "words of pixels", "pooled words", "means of words"),
                "sums of 16 and 32 bits",
            )
        ],
        r"can reach [\d,]+, and QONNX .* 16,777,216",
    ),
}

every_network = pytest.mark.parametrize(("name", "kind"), zoo.CASES)


def attempt(back_end, name, kind, write):
    """Whether the back end takes the network; if not, it must say so as it is listed."""
    words = REFUSED[back_end].get((name, kind))
    if words is None:
        write()
        return True
    with pytest.raises((CompileError, ValueError), match=words):
        write()
    return False


def test_the_zoo_has_one_of_everything():
    networks = [zoo.network(*case) for case in zoo.CASES]
    layers = [layer for network in networks for layer in network.layers]
    affine = [layer for layer in layers if isinstance(layer, Affine)]
    assert {type(layer).__name__ for layer in layers} == {"Affine", "MaxPool", "SumPool"}
    assert {layer.weight_kind for layer in affine} == {*WEIGHTS, "float32"}
    assert {type(layer.after).__name__ for layer in affine} == {
        *("ChannelThresholds", "SharedThresholds", "RealThresholds", "Scores", "RealScores")
    }
    assert {(layer.kind, layer.centred) for layer in affine} == set(
        product(("dense", "conv", "transposed"), (True, False))
    ) - {("dense", True)}
    assert {layer.kind for layer in affine if layer.groups > 1} == {"conv", "transposed"}
    assert {n.output for n in networks} == {"real", "tanh", "softmax", "argmax", "codes"}
    assert {n.inputs.dtype for n in networks} == {np.dtype(np.uint8), np.dtype(np.int16)}
    assert {len(n.shape_in) for n in networks} == {1, 2, 3}
    units = {layer.after.unit for layer in affine if hasattr(layer.after, "unit")}
    for levels in (2, 3, 4, 16, 100, 256):
        assert {Staircase(levels), Staircase(levels, rectified=True)} <= units
    assert {unit.underlying for unit in units} == {"tanh", "sigmoid", "hardtanh", "relu6"}
    assert {unit.placement for unit in units} == {"paper", "full"}


# float64


@pytest.mark.parametrize(("name", "kind"), zoo.WHOLE)
def test_every_code_of_the_reference_is_that_of_float64(name, kind):
    network = zoo.network(name, kind, "channel")
    kinds = zoo.ZOO[name].mixed if kind == "mixed" else kind
    float64.assert_codes_equal(zoo.model(name), network, kinds, zoo.samples(network, 20))


# The C core


@pytest.mark.without_core
@every_network
def test_the_core_computes_what_the_reference_does(core, name, kind):
    network = zoo.network(name, kind)
    if attempt("core", name, kind, lambda: Program(network, core)):
        check(network, core)


@pytest.mark.parametrize("thresholds", ["channel", "shared"])
@pytest.mark.parametrize("name", zoo.BY_HAND)
def test_the_core_takes_every_kind_of_thresholds(core, name, thresholds):
    check(zoo.network(name, thresholds=thresholds), core, (1, 7))


# Files


@every_network
def test_a_file_gives_the_same_network_back(name, kind, tmp_path):
    notes = {"epochs": 3, "loss": [0.1, 1e-300], "é": None}
    network = replace(zoo.network(name, kind), notes=notes)
    save(network, tmp_path / "net.sudo")
    found = load(tmp_path / "net.sudo")
    assert equal(network, found)
    x = zoo.samples(network, 20)
    for before, after in zip(network.trace(x), found.trace(x), strict=True):
        assert before.dtype == after.dtype
        np.testing.assert_array_equal(before, after)
    np.testing.assert_array_equal(network(x), found(x))
    assert dumps(found) == (tmp_path / "net.sudo").read_bytes()


# ONNX


@every_network
def test_exact_onnx_computes_what_the_reference_does(name, kind, tmp_path):
    network, path = zoo.network(name, kind), tmp_path / "a.onnx"
    if attempt("ONNX", name, kind, lambda: to_onnx(network, path, exact=True)):
        assert_exact(network, path, zoo.samples(network, 40))


@pytest.mark.parametrize(("name", "kind"), zoo.WHOLE)
def test_every_sum_and_every_code_of_qonnx_is_that_of_the_reference(name, kind, tmp_path):
    network, path = zoo.network(name, kind), tmp_path / "a.onnx"
    if not attempt("QONNX", name, kind, lambda: to_qonnx(network, path)):
        return
    x = zoo.samples(network, 9)
    model, found = values_inside(path, x)
    outputs = network.trace(x)
    for layer, given, made in zip(network.layers, [x, *outputs], outputs, strict=False):
        if not isinstance(layer, Affine):
            continue
        nodes = {n.op_type: n for n in model.graph.node if n.name.startswith(f"{layer.name}/")}
        (products,) = nodes.keys() & {"MatMul", "Conv", "ConvTranspose"}
        total = reference.accumulate(layer, given.reshape(len(x), *image(layer.shape_in)))
        sums = found[nodes[products].output[0]]
        np.testing.assert_array_equal(sums.reshape(total.shape), total)
        unit = nodes.get("MultiThreshold")
        if unit is not None and unit.output[0] != "output":
            scale, bias = (
                onnx.helper.get_node_attr_value(unit, f"out_{w}") for w in ("scale", "bias")
            )
            integers = (found[unit.output[0]] - bias) / scale
            np.testing.assert_array_equal(integers.reshape(made.shape), made)
    assert found["output"].shape == network(x).shape
    np.testing.assert_allclose(found["output"], network(x), atol=1e-6)


@pytest.mark.parametrize(("name", "kind"), FLOATS)
def test_qonnx_with_float32_weights_rounds_otherwise(name, kind, tmp_path):
    network = zoo.network(name, kind)
    to_qonnx(network, tmp_path / "a.onnx")
    x = zoo.samples(network, 20)
    _, found = values_inside(tmp_path / "a.onnx", x)
    assert np.isclose(found["output"], network(x), atol=1e-5).all(1).mean() >= 0.9


# C


@pytest.fixture(scope="module")
def in_c(tmp_path_factory):
    """One program of all networks that C takes."""
    folder = tmp_path_factory.mktemp("zoo")
    taken = [case for case in zoo.CASES if case not in REFUSED["C"]]
    return program(zoo_cases(taken, 20), folder)


@pytest.mark.slow
def test_c_computes_what_the_reference_does(in_c, tmp_path):
    said = answers(hosted(in_c, tmp_path, ("-O0", *SANITIZE)))
    assert {name: wrong for name, (wrong, _) in said.items()} == {
        case.name: 0 for case in in_c.cases
    }


@pytest.mark.parametrize(("name", "kind"), REFUSED["C"])
def test_c_refuses_some_networks_by_name(name, kind, tmp_path):
    assert not attempt("C", name, kind, lambda: c.write(zoo.network(name, kind), tmp_path))
