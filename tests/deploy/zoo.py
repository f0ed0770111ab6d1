"""The zoo: small networks with every kind of layer, which every back end runs bit by bit.

An entry is a model, the shape of an example, what the input's integers stand for, and the kinds
of weights that it is compiled with. test_zoo.py takes every entry to every back end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn

from sudonet import RSUDO, SUDO, deploy
from sudonet.deploy import Grid, IntegerNetwork
from sudonet.deploy.layers import WEIGHTS
from tests.deploy.random_models import AROUND, HALF_WORDS, PIXELS, random_model

KINDS = tuple(WEIGHTS)


def covering(values: ArrayLike, bits: int = 8) -> Grid:
    """The grid that covers some values. It counts as declared: its integers are codes."""
    return replace(Grid.calibrated(values, bits), from_examples=False)


UNEVEN = covering([-0.7, 1.0])
WORDS = covering([-1.0, 1.0], bits=16)
LEVELS = (2, 3, 4, 16, 100, 256)
RANDOM = 24


@dataclass(frozen=True)
class Entry:
    """A model and how it becomes integers."""

    model: Callable[[], nn.Module]
    shape: tuple[int, ...]
    inputs: Grid
    kinds: tuple[str, ...] = KINDS
    """Of the weights: the model is compiled with each. "mixed" are those of ``mixed``."""
    mixed: dict[str, str] | None = None
    thresholds: str = "auto"


class View(nn.Module):
    """Examples in another shape."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(-1, *self.shape)


class Argmax(nn.Module):
    """The place of the largest feature."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.argmax(1)


def stack(sizes: tuple[int, ...], unit: nn.Module) -> nn.Sequential:
    """Linear layers of these sizes with units between them."""
    layers = [layer for pair in pairwise(sizes) for layer in (nn.Linear(*pair), unit)]
    return nn.Sequential(*layers[:-1])


def _lively(model: nn.Sequential) -> nn.Sequential:
    """With weights so large that units reach all of their levels."""
    for layer in model:
        if isinstance(layer, nn.Linear):
            layer.weight.data *= 4
    return model


def _mixed(model: Callable[[], nn.Module], shape: tuple[int, ...], grid: Grid, **kinds: str):
    """An entry with other weights in every layer, named by their places (``at0="int4"``)."""
    named = {place.removeprefix("at"): kind for place, kind in kinds.items()}
    return Entry(model, shape, grid, ("mixed",), named)


DENSE = {
    "dense": Entry(
        lambda: nn.Sequential(
            *(nn.Linear(20, 30), SUDO(16), nn.Linear(30, 9), RSUDO(16), nn.Linear(9, 4)),
        ),
        (20,),
        UNEVEN,
        (*KINDS, "float32"),
    ),
    "many levels, tanh": Entry(
        lambda: nn.Sequential(
            *(nn.Linear(20, 30), SUDO(256), nn.Linear(30, 9), RSUDO(99), nn.Linear(9, 4)),
            nn.Tanh(),
        ),
        (20,),
        PIXELS,
    ),
    "softmax": Entry(
        lambda: nn.Sequential(nn.Linear(5, 3), RSUDO(8), nn.Linear(3, 2), nn.Softmax(1)),
        (5,),
        PIXELS,
    ),
    "argmax": Entry(
        lambda: nn.Sequential(nn.Linear(20, 30), SUDO(2), nn.Linear(30, 4), Argmax()),
        (20,),
        UNEVEN,
    ),
    "argmax of other weights in every layer": _mixed(
        lambda: nn.Sequential(nn.Linear(4, 3), SUDO(3), nn.Linear(3, 4), Argmax()),
        (4,),
        Grid.of_range(-3, 5),
        at0="ternary",
        at2="binary",
    ),
    "dense words": Entry(
        lambda: nn.Sequential(nn.Linear(64, 9), SUDO(16), nn.Linear(9, 3)), (64,), HALF_WORDS
    ),
}

WINDOWS = {
    "convolutions": Entry(
        lambda: nn.Sequential(
            *(nn.Conv2d(3, 8, 3, padding=1), SUDO(16), nn.MaxPool2d(2)),
            *(nn.Conv2d(8, 20, 3, stride=2, padding=1), RSUDO(8), nn.Flatten(), nn.Linear(80, 9)),
        ),
        (3, 8, 8),
        PIXELS,
        (*KINDS, "float32"),
    ),
    "convolutions, softmax": Entry(
        lambda: nn.Sequential(
            *(nn.Conv2d(2, 4, 3, padding=1), SUDO(16), nn.MaxPool2d(2, padding=1)),
            *(nn.Conv2d(4, 6, 3, padding=2, dilation=2, groups=2), SUDO(5), nn.AvgPool2d(3, 1)),
            *(nn.Flatten(), nn.Linear(54, 5), nn.Softmax(1)),
        ),
        (2, 8, 8),
        UNEVEN,
        (*KINDS, "float32"),
    ),
    "a norm, other weights in every layer": _mixed(
        lambda: nn.Sequential(
            *(nn.Conv2d(2, 4, 3, padding=1, groups=2), nn.BatchNorm2d(4), SUDO(16)),
            *(nn.MaxPool2d(3, 2, 1), nn.Conv2d(4, 2, (1, 2), dilation=(1, 2)), RSUDO(6)),
            *(nn.Flatten(), nn.Linear(4, 3)),
        ),
        (2, 4, 5),
        PIXELS,
        at0="int4",
        at4="binary",
    ),
    "pooled before the unit": Entry(
        lambda: nn.Sequential(
            *(nn.Conv2d(1, 6, 3, padding=1), nn.MaxPool2d(2), SUDO(16)),
            *(nn.Conv2d(6, 5, 3, padding=1), nn.MaxPool2d(2), SUDO(16)),
            *(nn.Flatten(), nn.Linear(20, 10)),
        ),
        (1, 8, 8),
        PIXELS,
    ),
    "stride, dilation, other sides": Entry(
        lambda: nn.Sequential(
            *(nn.Conv2d(2, 5, (2, 3), stride=(1, 2), padding=(0, 2), dilation=(3, 1)), SUDO(16)),
            *(nn.Conv2d(5, 70, (1, 4), padding=(1, 0)), SUDO(3), nn.Conv2d(70, 3, 1)),
        ),
        (2, 7, 9),
        UNEVEN,
    ),
    "odd windows": Entry(
        lambda: nn.Sequential(
            *(nn.Conv2d(1, 6, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2)), SUDO(5)),
            *(nn.MaxPool2d(3, stride=1, padding=1), nn.Conv2d(6, 4, 3, padding=1, groups=2)),
            *(RSUDO(8), nn.AvgPool2d((2, 3), stride=1), nn.Flatten()),
            *(nn.Linear(96, 7), nn.Softmax(1)),
        ),
        (1, 8, 8),
        AROUND,
    ),
    "groups": Entry(
        lambda: nn.Sequential(
            *(nn.Conv2d(6, 6, 3, padding=1, groups=6), SUDO(16), nn.Conv2d(6, 40, 1, groups=2)),
            *(SUDO(16), nn.Conv2d(40, 40, 3, padding=2, dilation=2, groups=20), RSUDO(16)),
            nn.Conv2d(40, 8, 3, groups=4),
        ),
        (6, 5, 6),
        UNEVEN,
    ),
    "bits": Entry(
        lambda: nn.Sequential(
            *(nn.Conv2d(1, 8, 3, padding=1), SUDO(2), nn.MaxPool2d(2)),
            *(nn.Conv2d(8, 9, 3, padding=1), SUDO(2)),
            *(nn.ConvTranspose2d(9, 4, 2, stride=2), SUDO(2)),
            *(nn.Flatten(), nn.Linear(256, 37), SUDO(2), nn.Linear(37, 10)),
        ),
        (1, 8, 8),
        PIXELS,
    ),
    "integers below 0": Entry(
        lambda: nn.Sequential(
            *(nn.MaxPool2d(3, 1, 1), nn.Conv2d(2, 4, 3, padding=1), SUDO(16), nn.Conv2d(4, 4, 1)),
        ),
        (2, 8, 8),
        Grid(0.01, 3.0, -100, 100),
    ),
    "seen in another shape": Entry(
        lambda: nn.Sequential(
            *(nn.Conv2d(2, 6, 3, padding=1), SUDO(16), View(4, 6, 6), nn.MaxPool2d(2)),
            *(View(6, 6), nn.Conv1d(6, 5, 3, padding=1), SUDO(16), View(30), nn.Linear(30, 12)),
            *(SUDO(16), View(3, 2, 2), nn.AvgPool2d(2), View(3), nn.Linear(3, 6), SUDO(5)),
        ),
        (2, 4, 6),
        PIXELS,
    ),
    "a maximum of reshaped codes": Entry(
        lambda: nn.Sequential(
            *(nn.Conv2d(1, 4, 3), SUDO(16), nn.Flatten(2), nn.MaxPool1d(2)),
            *(nn.Flatten(), nn.Linear(72, 3)),
        ),
        (1, 8, 8),
        PIXELS,
    ),
}

TRANSPOSED = {
    "transposed": Entry(
        lambda: nn.Sequential(
            *(nn.Linear(6, 80), SUDO(16), View(5, 4, 4)),
            *(nn.ConvTranspose2d(5, 7, 4, stride=2, padding=1), SUDO(16)),
            nn.ConvTranspose2d(7, 3, 3, stride=3, padding=1, output_padding=1, dilation=2),
        ),
        (6,),
        PIXELS,
    ),
    "transposed, tanh": Entry(
        lambda: nn.Sequential(
            *(nn.Conv2d(2, 4, 3, stride=2), SUDO(16)),
            *(nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1, output_padding=1), RSUDO(8)),
            *(nn.ConvTranspose2d(3, 2, 4, stride=(3, 1), padding=(0, 1), dilation=(1, 2)),),
            nn.Tanh(),
        ),
        (2, 8, 8),
        UNEVEN,
    ),
    "transposed, relu6": Entry(
        lambda: nn.Sequential(
            *(nn.Conv2d(1, 2, 2, stride=2), SUDO(5, "relu6")),
            nn.ConvTranspose2d(2, 4, 3, stride=2, padding=1, output_padding=1, groups=2),
            nn.Tanh(),
        ),
        (1, 4, 4),
        PIXELS,
    ),
    "transposed in groups, codes": Entry(
        lambda: nn.Sequential(
            *(nn.Conv2d(2, 4, 3, stride=2), RSUDO(16)),
            *(nn.ConvTranspose2d(4, 6, 1, stride=2, groups=2), RSUDO(16)),
        ),
        (2, 8, 8),
        UNEVEN,
    ),
    "transposed, groups, wider strides than kernels": Entry(
        lambda: nn.Sequential(
            *(nn.ConvTranspose2d(4, 6, (1, 2), stride=(3, 4), groups=2), RSUDO(16)),
            *(nn.ConvTranspose2d(6, 2, 3, padding=2), SUDO(16), View(32), nn.Linear(32, 4)),
        ),
        (4, 2, 3),
        UNEVEN,
    ),
    "grown": Entry(
        lambda: nn.Sequential(
            nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
            SUDO(256),
            *(nn.ConvTranspose2d(6, 1, (2, 3), stride=(3, 2), dilation=(2, 1)), nn.Tanh()),
        ),
        (4, 4, 4),
        AROUND,
    ),
}

SEQUENCES = {
    "sequences": Entry(
        lambda: nn.Sequential(
            *(nn.Conv1d(4, 6, 5, dilation=2, padding=3), SUDO(16), nn.AvgPool1d(3)),
            *(nn.Conv1d(6, 6, 3, groups=6), SUDO(4), nn.MaxPool1d(2, padding=1)),
            *(nn.Flatten(), nn.Linear(18, 3)),
        ),
        (4, 24),
        PIXELS,
    ),
    "a sequence of as many scores": Entry(
        lambda: nn.Sequential(
            *(nn.Conv1d(2, 4, 5, padding="same"), SUDO(33), nn.AvgPool1d(2)),
            nn.Conv1d(4, 3, 3, padding=1),
        ),
        (2, 10),
        UNEVEN,
    ),
    "sequences, codes": Entry(
        lambda: nn.Sequential(
            *(nn.Conv1d(3, 4, 3, padding=1), SUDO(9, "hardtanh"), nn.MaxPool1d(2)),
            *(nn.Flatten(), nn.Linear(8, 2), SUDO(200, "sigmoid")),
        ),
        (3, 4),
        covering(np.linspace(-1.5, 2.0, 24)),
    ),
    "sequences of single channels, codes": Entry(
        lambda: nn.Sequential(
            *(nn.Conv1d(2, 8, 5, stride=2, padding=2), RSUDO(8), nn.MaxPool1d(2)),
            *(nn.Conv1d(8, 8, 3, padding=2, dilation=2, groups=8), SUDO(16)),
            *(nn.AdaptiveAvgPool1d(2), nn.Flatten(), nn.Linear(16, 3), SUDO(9)),
        ),
        (2, 32),
        PIXELS,
    ),
}

POOLS = {
    "pools": Entry(
        lambda: nn.Sequential(
            *(nn.MaxPool2d(3, stride=2, padding=1), nn.Conv2d(2, 17, 3, padding=1), SUDO(16)),
            *(nn.AvgPool2d(3, stride=1), nn.Conv2d(17, 6, 1), SUDO(100), nn.AdaptiveAvgPool2d(1)),
            *(nn.Flatten(), nn.Linear(6, 3)),
        ),
        (2, 9, 9),
        PIXELS,
    ),
    "a pool comes first": Entry(
        lambda: nn.Sequential(
            *(nn.AvgPool2d(2), nn.Conv2d(1, 5, 2, padding=1), SUDO(16)),
            *(nn.Flatten(), nn.Linear(125, 2)),
        ),
        (1, 8, 8),
        PIXELS,
    ),
    "sums wider than a byte": Entry(
        lambda: nn.Sequential(
            *(nn.Conv2d(2, 3, 3), SUDO(256), nn.AvgPool2d(2), nn.MaxPool2d(2, 1)),
            *(nn.Flatten(), nn.Linear(12, 4)),
        ),
        (2, 8, 8),
        UNEVEN,
    ),
    "sums of 16 and 32 bits": Entry(
        lambda: nn.Sequential(
            *(nn.AvgPool2d(2), nn.Conv2d(3, 4, 3, padding=1), SUDO(256), nn.AvgPool2d(17, 1)),
            *(nn.Conv2d(4, 5, 2, padding=1), SUDO(16), nn.Flatten(), nn.Linear(45, 3)),
        ),
        (3, 36, 36),
        covering([0.0, 1.0]),
    ),
    "many levels, words": Entry(
        lambda: nn.Sequential(
            *(nn.Conv2d(1, 2, 2), RSUDO(40, placement="full"), nn.AvgPool2d((2, 1))),
            *(nn.Flatten(), nn.Linear(4, 3)),
        ),
        (1, 3, 3),
        HALF_WORDS,
    ),
    "words": Entry(
        lambda: nn.Sequential(
            *(nn.Conv2d(2, 6, 3, padding=1), SUDO(16), nn.AvgPool2d(2)),
            *(nn.Flatten(), nn.Linear(54, 3)),
        ),
        (2, 6, 6),
        WORDS,
    ),
    "words of pixels": Entry(
        lambda: nn.Sequential(
            *(nn.Conv2d(1, 4, 3, padding=1), SUDO(256), nn.AvgPool2d(2)),
            *(nn.Conv2d(4, 6, 3, padding=1), SUDO(16), nn.Flatten(), nn.Linear(96, 4)),
        ),
        (1, 8, 8),
        HALF_WORDS,
    ),
    "pooled words": Entry(
        lambda: nn.Sequential(
            *(nn.MaxPool2d(2, stride=1, padding=1), nn.AvgPool2d(2), nn.Conv2d(2, 5, 2, padding=1)),
            *(SUDO(16), nn.ConvTranspose2d(5, 4, 3, stride=2)),
        ),
        (2, 6, 6),
        WORDS,
    ),
    "means of words": Entry(
        lambda: nn.Sequential(
            *(nn.AvgPool2d(2), nn.ConvTranspose2d(2, 4, 3, padding=1), SUDO(16)),
            nn.Conv2d(4, 2, 1),
        ),
        (2, 8, 8),
        WORDS,
    ),
}


def _of_levels() -> dict[str, Entry]:
    """Every number of levels, rectified or not; their weights are of all kinds in turn."""
    units = [unit(levels) for levels in LEVELS for unit in (SUDO, RSUDO)]
    return {
        unit.name: Entry(
            lambda unit=unit: _lively(stack((64, 22, 13, 10), unit)),
            (64,),
            PIXELS,
            (KINDS[place % len(KINDS)],),
        )
        for place, unit in enumerate(units)
    }


def _random(seed: int) -> Entry:
    made = random_model(seed)
    return Entry(made.model, made.shape, made.inputs, (made.kind,), None, made.thresholds)


OF_LEVELS = _of_levels()
DRAWN = {f"random {seed}": _random(seed) for seed in range(RANDOM)}
BY_HAND = DENSE | WINDOWS | TRANSPOSED | SEQUENCES | POOLS
ZOO = BY_HAND | OF_LEVELS | DRAWN
CASES = [(name, kind) for name, entry in ZOO.items() for kind in entry.kinds]
"""Every network of the zoo: the name of its entry and the kind of its weights."""

WHOLE = [(name, kind) for name, kind in CASES if kind != "float32"]
"""Those that compute with integers alone."""


@cache
def model(name: str) -> nn.Module:
    """The entry's model with random weights, and with norms that do something."""
    torch.manual_seed(3)
    entry = ZOO[name]
    made = entry.model()
    made.train()(torch.randn(8, *entry.shape))
    return made.eval()


@cache
def network(name: str, kind: str = "int8", thresholds: str | None = None) -> IntegerNetwork:
    """The entry as integers; ``kind`` may be one that it does not list."""
    entry = ZOO[name]
    return deploy.compile(
        model(name),
        entry.mixed if kind == "mixed" else kind,
        inputs=entry.inputs,
        shape=entry.shape,
        thresholds=thresholds or entry.thresholds,
    )


def samples(network: IntegerNetwork, count: int, seed: int = 0) -> np.ndarray:
    """Random integers that the network takes, the smallest and the largest among them."""
    grid = network.inputs
    drawn = np.random.default_rng(seed).integers
    x = drawn(grid.low, grid.high, (count, *network.shape_in), endpoint=True)
    x.flat[:2] = grid.low, grid.high
    if count > 2:
        x[-2], x[-1] = grid.low, grid.high
    return x.astype(grid.dtype)
