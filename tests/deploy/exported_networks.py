"""Networks that go through every layer and every output, for tests of what is written of them."""

import numpy as np
import torch
from torch import nn

from sudonet import RSUDO, SUDO, deploy
from sudonet.deploy import Grid


class LargestPlace(nn.Module):
    """The place of the largest of a model's outputs."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x).argmax(1)


UNEVEN = Grid.calibrated([-0.7, 1.0])
WORDS = Grid.calibrated([-1.0, 1.0], bits=16)

# By name: the model, the shape of an example, and what the input's integers stand for.
MODELS = {
    "dense": lambda: (
        nn.Sequential(nn.Linear(20, 30), SUDO(16), nn.Linear(30, 9), RSUDO(16), nn.Linear(9, 4)),
        (20,),
        UNEVEN,
    ),
    "many levels, tanh": lambda: (
        nn.Sequential(
            nn.Linear(20, 30), SUDO(256), nn.Linear(30, 9), RSUDO(99), nn.Linear(9, 4), nn.Tanh()
        ),
        (20,),
        Grid.of_range(0, 1),
    ),
    "argmax": lambda: (
        LargestPlace(nn.Sequential(nn.Linear(20, 30), SUDO(2), nn.Linear(30, 4))),
        (20,),
        UNEVEN,
    ),
    "convolutions, softmax": lambda: (
        nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1),
            SUDO(16),
            nn.MaxPool2d(2, padding=1),
            nn.Conv2d(4, 6, 3, padding=2, dilation=2, groups=2),
            SUDO(5),
            nn.AvgPool2d(3, 1),
            nn.Flatten(),
            nn.Linear(54, 5),
            nn.Softmax(1),
        ),
        (2, 8, 8),
        UNEVEN,
    ),
    "transposed, tanh": lambda: (
        nn.Sequential(
            nn.Conv2d(2, 4, 3, stride=2),
            SUDO(16),
            nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1, output_padding=1),
            RSUDO(8),
            nn.ConvTranspose2d(3, 2, 4, stride=(3, 1), padding=(0, 1), dilation=(1, 2)),
            nn.Tanh(),
        ),
        (2, 8, 8),
        UNEVEN,
    ),
    "transposed in groups, codes": lambda: (
        nn.Sequential(
            nn.Conv2d(2, 4, 3, stride=2),
            RSUDO(16),
            nn.ConvTranspose2d(4, 6, 1, stride=2, groups=2),
            RSUDO(16),
        ),
        (2, 8, 8),
        UNEVEN,
    ),
    "a sequence": lambda: (
        nn.Sequential(
            nn.Conv1d(2, 4, 5, padding="same"),
            SUDO(33),
            nn.AvgPool1d(2),
            nn.Conv1d(4, 3, 3, padding=1),
        ),
        (2, 10),
        UNEVEN,
    ),
    "sums wider than a byte": lambda: (
        nn.Sequential(
            nn.Conv2d(2, 3, 3),
            SUDO(256),
            nn.AvgPool2d(2),
            nn.MaxPool2d(2, 1),
            nn.Flatten(),
            nn.Linear(12, 4),
        ),
        (2, 8, 8),
        UNEVEN,
    ),
    "16 bits": lambda: (
        nn.Sequential(
            nn.AvgPool2d(2), nn.ConvTranspose2d(2, 4, 3, padding=1), SUDO(16), nn.Conv2d(4, 2, 1)
        ),
        (2, 8, 8),
        WORDS,
    ),
    "integers below 0": lambda: (
        nn.Sequential(
            nn.MaxPool2d(3, 1, 1), nn.Conv2d(2, 4, 3, padding=1), SUDO(16), nn.Conv2d(4, 4, 1)
        ),
        (2, 8, 8),
        Grid(0.01, 3.0, -100, 100),
    ),
}


def compiled(name, weights="int8", thresholds="auto"):
    """A network of :data:`MODELS` with random weights."""
    torch.manual_seed(3)
    model, shape, grid = MODELS[name]()
    return deploy.compile(model.eval(), weights, inputs=grid, shape=shape, thresholds=thresholds)


def inputs(network, count=40):
    """Random integers, among them the smallest and the largest of all."""
    grid = network.inputs
    x = np.random.default_rng(4).integers(grid.low, grid.high + 1, (count, *network.shape_in))
    x[0], x[-1] = grid.low, grid.high
    return x.astype(grid.dtype)
