"""What convert makes of a model compiles, whatever its layers keep and however they were scaled."""

import numpy as np
import pytest
import torch
from torch import nn

import sudonet
from sudonet import deploy


def network() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 3),
    )
    with torch.no_grad():
        model[0].weight.mul_(40)
    return model.eval()


@pytest.mark.parametrize("memory", ["lean", "codes"])
def test_the_same_integers_for_any_memory(memory):
    x = torch.rand(20, 1, 8, 8)
    integers = []
    for kind in ("plain", memory):
        conversion = sudonet.convert(network(), levels=16, calibration=x, memory=kind)
        assert conversion.scalings
        compiled = deploy.compile(
            conversion.model, inputs=deploy.Grid.of_range(0, 1), shape=(1, 8, 8)
        )
        integers.append(compiled(x.numpy()))
        wanted = conversion.model(x).detach().numpy()
    np.testing.assert_array_equal(*integers)
    assert (integers[0].argmax(1) == wanted.argmax(1)).mean() >= 0.8
