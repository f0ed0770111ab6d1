"""Small models of random shape, units, inputs and weights, for the zoo."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from torch import nn

import sudonet
from sudonet.deploy import Grid

PIXELS = Grid.of_range(0.0, 1.0)
AROUND = Grid.of_range(-1.0, 1.0)
HALF_WORDS = Grid.of_range(-1.0, 1.0, bits=16)
SIZES = (1, 3, 4, 7, 32, 33, 100)
GRIDS = (PIXELS, AROUND, HALF_WORDS, Grid(0.01, -400.0, 0, 255), Grid(0.01, 7.5, 0, 40))


@dataclass(frozen=True)
class RandomModel:
    """How a model is to be compiled, and a function that makes it."""

    model: Callable[[], nn.Module]
    shape: tuple[int, ...]
    inputs: Grid
    kind: str
    thresholds: str


def random_model(seed: int) -> RandomModel:
    """The same model for the same seed."""
    draw = random.Random(seed)
    kind = draw.choice(["int8", "int4", "ternary", "binary"])
    inputs, thresholds = draw.choice(GRIDS), draw.choice(["auto", "channel", "shared"])
    if seed % 3:
        shape = (draw.choice([1, 2, 4]), draw.choice([5, 8]), draw.choice([6, 7]))
        return RandomModel(partial(_random_windows, seed, shape), shape, inputs, kind, thresholds)
    size = draw.choice(SIZES)
    return RandomModel(partial(_random_dense, seed, size), (size,), inputs, kind, thresholds)


def _random_unit(draw: random.Random) -> nn.Module:
    levels = draw.choice([2, 2, 3, 4, 5, 16, 17, 100, 255, 256])
    underlying = draw.choice(["tanh", "tanh", "sigmoid", "relu6", "hardtanh"])
    if underlying == "sigmoid" or draw.random() < 0.5:
        return sudonet.SUDO(levels, underlying)
    return sudonet.RSUDO(levels, underlying, placement=draw.choice(["paper", "full"]))


def _random_dense(seed: int, size: int) -> nn.Module:
    draw = random.Random(f"dense {seed}")
    sizes = [size, *(draw.choice(SIZES) for _ in range(draw.choice([1, 2, 3])))]
    layers: list[nn.Module] = []
    for into, out in pairwise(sizes):
        layers += [nn.Linear(into, out), _random_unit(draw)]
    return nn.Sequential(*layers[: draw.choice([-1, None])])


def _random_windows(seed: int, shape: tuple[int, ...]) -> nn.Module:
    draw = random.Random(f"windows {seed}")
    layers: list[nn.Module] = []
    x = torch.zeros(1, *shape)
    while len(layers) < 4:
        new = _random_window(draw, x.shape[1])
        if draw.random() < 0.5:
            kernel = draw.choice([1, 2]), draw.choice([2, 3])
            stride, padding = draw.choice([1, 2, None]), draw.choice([(0, 0), (0, 1)])
            largest = nn.MaxPool2d(kernel, stride, padding)
            new.append(largest if draw.random() < 0.6 else nn.AvgPool2d(kernel, stride))
        try:
            made = nn.Sequential(*new)(x)
        except RuntimeError:  # windows that do not fit
            continue
        if 0 < made.numel() <= 2000:
            layers, x = layers + new, made
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(x[0].numel(), 3))


def _random_window(draw: random.Random, channels: int) -> list[nn.Module]:
    out = draw.choice([1, 3, 4, 5, 8])
    settings = {
        "kernel_size": (draw.choice([1, 2, 3]), draw.choice([1, 3, 4])),
        "stride": (draw.choice([1, 2]), draw.choice([1, 2, 3])),
        "padding": (draw.choice([0, 1]), draw.choice([0, 2])),
        "dilation": (draw.choice([1, 2]), draw.choice([1, 1, 2])),
        "groups": draw.choice([1, math.gcd(channels, out)]),
    }
    kind = draw.choice([nn.Conv2d, nn.Conv2d, nn.ConvTranspose2d])
    return [kind(channels, out, **settings), _random_unit(draw)]
