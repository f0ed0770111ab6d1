"""Networks with nothing in them: tables without entries, weights that are all 0."""

import shutil
import subprocess

import numpy as np
import pytest
import torch
from torch import nn

import sudonet
from sudonet import deploy
from sudonet.deploy import c
from sudonet.deploy.c.tools import STRICT
from sudonet.deploy.grid import Grid

PIXELS = Grid.of_range(0, 1)


def cut_off():
    """A transposed convolution whose padding cuts off all that meets an input."""
    torch.manual_seed(0)
    layers = [nn.ConvTranspose2d(2, 3, 1, stride=2, padding=1), sudonet.SUDO(4)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(3, 2))


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("optimise", ["speed", "flash", "ram"])
@pytest.mark.parametrize("kind", ["int8", "ternary"])
def test_c_of_a_layer_without_weights_is_c99(compiler, optimise, kind, tmp_path):
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    network = deploy.compile(cut_off(), kind, inputs=PIXELS, shape=(2, 2, 2))
    samples = np.random.default_rng(0).integers(0, 256, (3, 2, 2, 2), dtype=np.uint8)
    made = network.to_c(tmp_path, optimise=optimise, samples=samples)
    program = tmp_path / "program"
    sources = [str(made.source), str(made.main)]
    subprocess.run([compiler, *STRICT, *sources, "-o", str(program)], check=True)
    subprocess.run([str(program)], check=True)


@pytest.mark.parametrize("kind", ["int8", "int4", "ternary", "binary", "float32"])
@pytest.mark.parametrize("thresholds", ["channel", "shared"])
@pytest.mark.parametrize("bias", [0.0, 0.5])
def test_weights_that_are_all_0(kind, thresholds, bias, tmp_path):
    """Warnings are errors here, numpy's too."""
    model = nn.Sequential(nn.Linear(4, 3), sudonet.SUDO(64), nn.Linear(3, 2))
    for parameter in model.parameters():
        parameter.data.fill_(bias if parameter.ndim == 1 else 0.0)
    network = deploy.compile(model, kind, inputs=PIXELS, thresholds=thresholds)
    x = torch.rand(5, 4)
    with torch.no_grad():
        # Binary weights have no 0: their factor is the smallest that there is.
        assert torch.allclose(network(x), model(x), rtol=0, atol=1e-15)
    if kind != "float32":
        assert c.check(network, x.numpy(), tmp_path).passed
