"""Models that an integer network would read otherwise are refused; odd inputs are not."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import sudonet
from sudonet import deploy
from sudonet.deploy.grid import Grid

pytestmark = pytest.mark.without_core

PIXELS = Grid.of_range(0, 1)


def small():
    return nn.Sequential(nn.Linear(4, 4), sudonet.SUDO(4), nn.Linear(4, 2))


UNIT = sudonet.SUDO(16)
ENDS = {
    "maximum of features": (
        nn.Sequential(nn.Linear(8, 8), UNIT, nn.MaxPool1d(2), nn.Linear(4, 2)),
        (8,),
        r"shape \(8,\), it needs \(channels, length\)",
    ),
    "mean of rows": (
        nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16, 2)),
        (8, 8),
        r"shape \(8, 8\), it needs \(channels, height, width\)",
    ),
    "adaptive mean of features": (
        nn.Sequential(nn.Linear(8, 8), UNIT, nn.AdaptiveAvgPool1d(4), nn.Linear(4, 2)),
        (8,),
        r"it needs \(channels, length\)",
    ),
    "flat result": (
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten()),
        (1, 4, 4),
        r"reshapes the result, \(2, 2, 2\), to \(8,\)",
    ),
    "flat softmax": (
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Softmax(1)),
        (1, 4, 4),
        r"reshapes the result, \(2, 2, 2\), to \(8,\)",
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_shapes_that_an_integer_network_would_read_otherwise(name):
    model, shape, message = ENDS[name]
    with pytest.raises(deploy.CompileError, match=message):
        deploy.compile(model, inputs=PIXELS, shape=shape)


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def test_what_is_random_or_keeps_an_axis_is_refused():
    drop, kept = Function(nn.functional.dropout), Function(lambda x: x.argmax(1, keepdim=True))
    with pytest.raises(deploy.CompileError, match="drops values at random"):
        deploy.compile(nn.Sequential(nn.Linear(4, 4), UNIT, drop, nn.Linear(4, 2)), inputs=PIXELS)
    with pytest.raises(deploy.CompileError, match="keepdim=True"):
        deploy.compile(nn.Sequential(nn.Linear(4, 2), kept), inputs=PIXELS)
    quiet = nn.Sequential(nn.Linear(4, 4), UNIT, nn.Dropout(), nn.Linear(4, 2)).train()
    assert len(deploy.compile(quiet, inputs=PIXELS).layers) == 2


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("kind", ["int8", "float32"])
@pytest.mark.parametrize("name", ["0.weight", "0.bias", "2.weight"])
def test_weights_that_are_no_numbers_are_refused(value, kind, name):
    model = small()
    model.get_parameter(name).data.view(-1)[0] = value
    with pytest.raises(deploy.CompileError, match=f"{name} has NaN or infinite values"):
        deploy.compile(model, kind, inputs=PIXELS)


def test_a_network_can_be_copied_and_pickled_after_it_ran():
    network = deploy.compile(small(), inputs=PIXELS)
    pixels = np.arange(20, dtype=np.uint8).reshape(5, 4)
    scores = network(pixels)
    for twin in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert np.array_equal(twin(pixels), scores)


def test_tensors_of_any_kind():
    model = small()
    x = torch.rand(6, 4)
    network = deploy.compile(model, calibration=x.bfloat16().requires_grad_())
    assert torch.equal(network(x.bfloat16()), network(x.bfloat16().float()))
    deploy.report(model.bfloat16(), network, (x.bfloat16(), torch.zeros(6, dtype=torch.long)))


@pytest.mark.parametrize("output", ["real", "argmax"])
def test_a_batch_of_nothing(output):
    model = small()
    network = replace(deploy.compile(model, inputs=PIXELS), output=output)
    assert len(network(np.zeros((0, 4), np.uint8))) == 0
