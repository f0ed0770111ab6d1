"""Networks for tests of the C core: every kind of layer, and layers made by hand."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from sudonet import RSUDO, SUDO, Staircase, deploy
from sudonet.deploy import Grid, IntegerNetwork
from sudonet.deploy.layers import Affine, ChannelThresholds, Scores, SharedThresholds
from sudonet.deploy.runtime import Program


class View(nn.Module):
    """Examples in another shape."""

    def __init__(self, *shape):
        super().__init__()
        self.shape = shape

    def forward(self, x):
        return x.reshape(-1, *self.shape)


PIXELS = Grid.of_range(0, 1)
UNEVEN = Grid.calibrated([-0.7, 1.0])
WORDS = Grid.calibrated([-1.0, 1.0], bits=16)
FEW = Grid(0.1, 3.0, 0, 9)

# By name: the model, the shape of an example, and what the input's integers stand for.
MODELS = {
    "convolutions": lambda: (
        nn.Sequential(
            *[nn.Conv2d(3, 8, 3, padding=1), SUDO(16), nn.MaxPool2d(2)],
            *[nn.Conv2d(8, 20, 3, stride=2, padding=1), RSUDO(8), nn.Flatten(), nn.Linear(80, 9)],
        ),
        (3, 8, 8),
        PIXELS,
    ),
    "stride, dilation, other sides": lambda: (
        nn.Sequential(
            *[nn.Conv2d(2, 5, (2, 3), stride=(1, 2), padding=(0, 2), dilation=(3, 1)), SUDO(16)],
            *[nn.Conv2d(5, 70, (1, 4), padding=(1, 0)), SUDO(3), nn.Conv2d(70, 3, 1)],
        ),
        (2, 7, 9),
        UNEVEN,
    ),
    "groups": lambda: (
        nn.Sequential(
            *[nn.Conv2d(6, 6, 3, padding=1, groups=6), SUDO(16), nn.Conv2d(6, 40, 1, groups=2)],
            *[SUDO(16), nn.Conv2d(40, 40, 3, padding=2, dilation=2, groups=20), RSUDO(16)],
            *[nn.Conv2d(40, 8, 3, groups=4)],
        ),
        (6, 5, 6),
        UNEVEN,
    ),
    "transposed": lambda: (
        nn.Sequential(
            *[nn.Linear(6, 80), SUDO(16), View(5, 4, 4)],
            *[nn.ConvTranspose2d(5, 7, 4, stride=2, padding=1), SUDO(16)],
            *[nn.ConvTranspose2d(7, 3, 3, stride=3, padding=1, output_padding=1, dilation=2)],
        ),
        (6,),
        PIXELS,
    ),
    "transposed, groups, wider strides than kernels": lambda: (
        nn.Sequential(
            *[nn.ConvTranspose2d(4, 6, (1, 2), stride=(3, 4), groups=2), RSUDO(16)],
            *[nn.ConvTranspose2d(6, 2, 3, padding=2), SUDO(16), View(32), nn.Linear(32, 4)],
        ),
        (4, 2, 3),
        UNEVEN,
    ),
    "sequences": lambda: (
        nn.Sequential(
            *[nn.Conv1d(4, 6, 5, dilation=2, padding=3), SUDO(16), nn.AvgPool1d(3)],
            *[nn.Conv1d(6, 6, 3, groups=6), SUDO(4), nn.MaxPool1d(2, padding=1)],
            *[nn.Flatten(), nn.Linear(18, 3)],
        ),
        (4, 24),
        PIXELS,
    ),
    "pools": lambda: (
        nn.Sequential(
            *[nn.MaxPool2d(3, stride=2, padding=1), nn.Conv2d(2, 17, 3, padding=1), SUDO(16)],
            *[nn.AvgPool2d(3, stride=1), nn.Conv2d(17, 6, 1), SUDO(100), nn.AdaptiveAvgPool2d(1)],
            *[nn.Flatten(), nn.Linear(6, 3)],
        ),
        (2, 9, 9),
        PIXELS,
    ),
    "sums of 16 and 32 bits": lambda: (
        nn.Sequential(
            *[nn.AvgPool2d(2), nn.Conv2d(3, 4, 3, padding=1), SUDO(256), nn.AvgPool2d(17, 1)],
            *[nn.Conv2d(4, 5, 2, padding=1), SUDO(16), nn.Flatten(), nn.Linear(45, 3)],
        ),
        (3, 36, 36),
        Grid.calibrated([0.0, 1.0]),
    ),
    "words": lambda: (
        nn.Sequential(
            *[nn.Conv2d(2, 6, 3, padding=1), SUDO(16), nn.AvgPool2d(2)],
            *[nn.Flatten(), nn.Linear(54, 3)],
        ),
        (2, 6, 6),
        WORDS,
    ),
    "pooled words": lambda: (
        nn.Sequential(
            *[nn.MaxPool2d(2, stride=1, padding=1), nn.AvgPool2d(2), nn.Conv2d(2, 5, 2, padding=1)],
            *[SUDO(16), nn.ConvTranspose2d(5, 4, 3, stride=2)],
        ),
        (2, 6, 6),
        WORDS,
    ),
    "seen in another shape": lambda: (
        nn.Sequential(
            *[nn.Conv2d(2, 6, 3, padding=1), SUDO(16), View(4, 6, 6), nn.MaxPool2d(2)],
            *[View(6, 6), nn.Conv1d(6, 5, 3, padding=1), SUDO(16), View(30), nn.Linear(30, 12)],
            *[SUDO(16), View(3, 2, 2), nn.AvgPool2d(2), View(3), nn.Linear(3, 6), SUDO(5)],
        ),
        (2, 4, 6),
        PIXELS,
    ),
}


def stack(sizes, unit):
    """Linear layers of these sizes with units between them."""
    layers = [layer for pair in pairwise(sizes) for layer in (nn.Linear(*pair), unit)]
    return nn.Sequential(*layers[:-1])


def compiled(name, weights="int8", **settings):
    torch.manual_seed(0)
    model, shape, grid = MODELS[name]()
    return deploy.compile(model, weights, inputs=grid, shape=shape, **settings)


def some_inputs(network, batch, seed=0):
    """Integers of the whole grid, its ends among them."""
    grid = network.inputs
    x = np.random.default_rng(seed).integers(grid.low, grid.high + 1, (batch, *network.shape_in))
    x.flat[:2] = grid.low, grid.high
    return x.astype(grid.dtype)


def beginnings(network):
    """The network up to each of its layers."""
    for end in range(1, len(network.layers) + 1):
        yield replace(network, layers=network.layers[:end], output="codes")


def check(network, core, batches=(1, 2, 3, 4, 5, 33)):
    """What C makes of a network is what the reference does, layer by layer."""
    programs = [Program(some, core) for some in beginnings(network)]
    for batch in batches:
        x = some_inputs(network, batch, seed=batch)
        for place, wanted in enumerate(network.trace(x)):
            found = programs[place].run(x)
            assert found.dtype == wanted.dtype, (batch, place)
            assert np.array_equal(found, wanted), (batch, place)


def dense(weights, after, grid=PIXELS, kind="int8"):
    """A network of one dense layer."""
    shape_in, shape_out = (weights.shape[1],), (weights.shape[0],)
    layer = Affine("0", "dense", weights, kind, shape_in, shape_out, grid, after)
    return IntegerNetwork(grid, shape_in, (layer,), "codes")


def plain_sums(outputs):
    """Scores that are the accumulators themselves."""
    return Scores(np.ones(outputs, np.int32), np.zeros(outputs, np.int64), 0)


def by_channel(table, levels):
    return ChannelThresholds(Staircase(levels), np.array(table, np.int32))


def shared(table, factor, constant):
    unit = Staircase(len(table) + 1)
    table = np.array(table, np.int64)
    return SharedThresholds(unit, np.array(factor, np.int32), np.array(constant), table, 0)
