"""Small integer networks with every kind of layer, weights, table and output."""

import numpy as np
import torch
from torch import nn

from sudonet import RSUDO, SUDO, Staircase, deploy
from sudonet.deploy import Grid, IntegerNetwork
from sudonet.deploy.layers import Affine, ChannelThresholds, MaxPool, Scores, SharedThresholds

PIXELS = Grid.of_range(0, 1)


def networks():
    """By name. Made anew at each call; the weights are random, but the same."""
    torch.manual_seed(0)
    examples = np.linspace(-1.5, 2.0, 24).reshape(2, 3, 4)
    wide = Grid.of_range(-1, 1, bits=16)
    models = {
        "dense": (nn.Sequential(nn.Linear(5, 4), SUDO(4), nn.Linear(4, 3)), {}),
        "ternary": (
            nn.Sequential(nn.Linear(5, 3), RSUDO(8), nn.Linear(3, 2), nn.Softmax(1)),
            {"weights": "ternary"},
        ),
        "conv": (
            nn.Sequential(
                nn.Conv2d(2, 4, 3, padding=1, groups=2),
                nn.BatchNorm2d(4),
                SUDO(16),
                nn.MaxPool2d(3, 2, 1),
                nn.Conv2d(4, 2, (1, 2), dilation=(1, 2)),
                RSUDO(6),
                nn.Flatten(),
                nn.Linear(4, 3),
            ),
            {"weights": {"0": "int4", "4": "binary"}, "shape": (2, 4, 5)},
        ),
        "transposed": (
            nn.Sequential(
                nn.Conv2d(1, 2, 2, stride=2),
                SUDO(5, "relu6"),
                nn.ConvTranspose2d(2, 4, 3, stride=2, padding=1, output_padding=1, groups=2),
                nn.Tanh(),
            ),
            {"weights": "int4", "shape": (1, 4, 4)},
        ),
        "sequence": (
            nn.Sequential(
                nn.Conv1d(3, 4, 3, padding=1),
                SUDO(9, "hardtanh"),
                nn.MaxPool1d(2),
                nn.Flatten(),
                nn.Linear(8, 2),
                SUDO(200, "sigmoid"),
            ),
            {"weights": "binary", "inputs": None, "calibration": examples},
        ),
        "many levels": (
            nn.Sequential(
                nn.Conv2d(1, 2, 2),
                RSUDO(40, placement="full"),
                nn.AvgPool2d((2, 1)),
                nn.Flatten(),
                nn.Linear(4, 3),
            ),
            {"inputs": wide, "shape": (1, 3, 3)},
        ),
        "float32": (
            nn.Sequential(nn.Conv2d(1, 2, 2, padding=1), SUDO(8), nn.Flatten(), nn.Linear(18, 2)),
            {"weights": {"0": "float32", "3": "float32"}, "shape": (1, 2, 2)},
        ),
        "argmax": (
            _Argmax(nn.Linear(4, 3), SUDO(3), nn.Linear(3, 4)),
            {"weights": {"0": "ternary", "2": "binary"}, "inputs": Grid.of_range(-3, 5)},
        ),
    }
    made = {}
    for name, (model, options) in models.items():
        made[name] = deploy.compile(model.eval(), **{"inputs": PIXELS, **options})
    return made


class _Argmax(nn.Sequential):
    def forward(self, x):
        return super().forward(x).argmax(1)


def example(network, batch=2, seed=0):
    """Integers that the network takes."""
    made = np.random.default_rng(seed).integers(
        network.inputs.low, network.inputs.high, (batch, *network.shape_in), endpoint=True
    )
    return made.astype(network.inputs.dtype)


def golden():
    """A network of fixed numbers, whatever training and compiling do."""
    pixels = Grid(1 / 255, 0.0, 0, 255)
    first, second = Staircase(4), Staircase(8, rectified=True)
    return IntegerNetwork(
        inputs=pixels,
        shape_in=(1, 3, 3),
        layers=(
            Affine(
                name="conv",
                kind="conv",
                weights=np.array([[1, -1, 0, 1], [0, 1, 1, -1]], np.int8).reshape(2, 1, 2, 2),
                weight_kind="ternary",
                shape_in=(1, 3, 3),
                shape_out=(2, 4, 4),
                grid_in=pixels,
                padding=(1, 1),
                after=ChannelThresholds(first, np.array([[-9, 0, 80], [5, 5, 200]], np.int32)),
            ),
            MaxPool("pool", (2, 2), (2, 2), (0, 0), (2, 4, 4), (2, 2, 2), Grid.of_unit(first)),
            Affine(
                name="dense",
                kind="dense",
                weights=np.arange(-7, 9, dtype=np.int8).reshape(2, 8).clip(-7, 7),
                weight_kind="int4",
                shape_in=(8,),
                shape_out=(2,),
                grid_in=Grid.of_unit(first),
                after=SharedThresholds(
                    second,
                    np.array([3, 2**31 - 1], np.int32),
                    np.array([2**10, -(2**30)], np.int64),
                    np.array([-5, 0, 2**33, 2**36], np.int64),
                    31,
                ),
            ),
            Affine(
                name="out",
                kind="dense",
                weights=np.array([[-127, 100], [3, 5]], np.int8),
                weight_kind="int8",
                shape_in=(2,),
                shape_out=(2,),
                grid_in=Grid.of_unit(second),
                after=Scores(np.array([1, 2], np.int32), np.array([10, -(2**62)], np.int64), 8),
            ),
        ),
        output="argmax",
        notes={"made": "by hand", "accuracy": 0.1},
    )
