"""Networks whose C is tested, with digits as samples."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import sudonet
from sudonet import deploy
from sudonet.deploy import c
from sudonet.deploy.grid import Grid
from sudonet.experiments import data

PIXELS = Grid.of_range(0.0, 1.0)
AROUND = Grid.of_range(-1.0, 1.0)
HALF_WORDS = Grid.of_range(-1.0, 1.0, bits=16)
SAMPLES = 200
LEVELS = (2, 3, 4, 16, 100, 256)


@dataclass(frozen=True)
class Case:
    """A network, what its C is optimised for, and input integers."""

    name: str
    network: deploy.IntegerNetwork
    samples: np.ndarray
    optimise: str = "speed"

    def write(self, folder: Path) -> c.Written:
        return c.write(self.network, folder, self.name, optimise=self.optimise)

    @property
    def expected(self) -> np.ndarray:
        return self.network.trace(self.samples)[-1].reshape(len(self.samples), -1)

    @property
    def stream(self) -> bytes:
        """Every sample and what is expected of it, as the program reads them."""
        flat = self.samples.reshape(len(self.samples), -1)
        pairs = zip(flat, self.expected, strict=True)
        return b"".join(sample.tobytes() + outputs.tobytes() for sample, outputs in pairs)


@cache
def digits() -> tuple[np.ndarray, np.ndarray]:
    """8 x 8 pixels from 0 to 240, and labels; the first 200 are for tests."""
    images, labels = load_digits(return_X_y=True)
    return (images * 15).astype(np.uint8), labels


def large(images: np.ndarray) -> np.ndarray:
    """8 x 8 digits as 28 x 28: every pixel three times, and a frame."""
    small = images.reshape(-1, 8, 8)
    grown = np.repeat(np.repeat(small, 3, axis=1), 3, axis=2)
    return np.pad(grown, ((0, 0), (2, 2), (2, 2))).reshape(-1, 784)


@cache
def handwritten() -> data.Digits:
    """28 x 28 digits: MNIST where it is at hand, else scikit-learn's, grown."""
    found = data.digits()
    if found.source.stand_in_for is None:
        return found
    train, test = large(found.train_images), large(found.test_images)
    return replace(found, train_images=train, test_images=test)


def trained(model: nn.Module, images: np.ndarray, labels: np.ndarray, steps: int) -> nn.Module:
    """The model after some steps, each on 200 digits."""
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a step is too short to share, and waiting for a core takes long
    try:
        for step in range(steps):
            begin = step % (len(images) // 200) * 200
            batch = slice(begin, begin + 200)
            inputs = torch.from_numpy(images[batch] / np.float32(255))
            wanted = torch.from_numpy(labels[batch]).long()
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(inputs), wanted).backward()
            optimiser.step()
    finally:
        torch.set_num_threads(threads)
    return model.eval()


def _of_handwriting(name: str, hidden: int, unit: nn.Module) -> Case:
    """784-hidden-10 with int8 weights; its samples are digits for tests."""
    found = handwritten()
    model = nn.Sequential(nn.Linear(784, hidden), unit, nn.Linear(hidden, 10))
    trained(model, found.train_images, found.train_labels, 200)
    return Case(name, deploy.compile(model, inputs=PIXELS), found.test_images[:SAMPLES])


@cache
def reference() -> Case:
    """784-100-10, SUDO-16, int8: the network that limits are stated for."""
    torch.manual_seed(0)
    return _of_handwriting("reference", 100, sudonet.SUDO(16))


@cache
def mnist() -> list[Case]:
    """784-16-10 with every number of levels, rectified or not: all twelve fit a small board."""
    found = []
    for levels in LEVELS:
        for unit in (sudonet.SUDO(levels), sudonet.RSUDO(levels)):
            torch.manual_seed(levels)
            found.append(_of_handwriting(f"mnist_{unit.name.replace('-', '')}", 16, unit))
    return found


@cache
def dense() -> list[Case]:
    """Trained networks with every number of levels, rectified or not; all weights and modes."""
    images, labels = digits()
    found = []
    modes, kinds = ("speed", "flash", "ram"), ("int8", "int4", "ternary", "binary")
    for levels in LEVELS:
        for unit in (sudonet.SUDO(levels), sudonet.RSUDO(levels)):
            torch.manual_seed(levels)
            layers = (nn.Linear(64, 22), unit, nn.Linear(22, 13), unit, nn.Linear(13, 10))
            model = nn.Sequential(*layers)
            trained(model, images[SAMPLES:], labels[SAMPLES:], 40)
            # 3 and 4 have no common divisor: every kind meets every mode.
            mode, kind = modes[len(found) % 3], kinds[len(found) % 4]
            network = deploy.compile(model, kind, inputs=PIXELS)
            name = f"{unit.name.replace('-', '')}_{kind}_{mode}"
            found.append(Case(name, network, images[:SAMPLES], mode))
    return found


def _window_models() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    sudo, rsudo, two = sudonet.SUDO(16), sudonet.RSUDO(8), sudonet.SUDO(2)
    return {
        "pooled": (
            nn.Sequential(
                *(nn.Conv2d(1, 6, 3, padding=1), nn.MaxPool2d(2), sudo),
                *(nn.Conv2d(6, 5, 3, padding=1), nn.MaxPool2d(2), sudo),
                *(nn.Flatten(), nn.Linear(20, 10)),
            ),
            (1, 8, 8),
        ),
        "odd": (
            nn.Sequential(
                nn.Conv2d(1, 6, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2)),
                sudonet.SUDO(5),
                nn.MaxPool2d(3, stride=1, padding=1),
                nn.Conv2d(6, 4, 3, padding=1, groups=2),
                rsudo,
                nn.AvgPool2d((2, 3), stride=1),
                nn.Flatten(),
                nn.LazyLinear(7),
                nn.Softmax(1),
            ),
            (1, 8, 8),
        ),
        "grown": (
            nn.Sequential(
                nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
                sudonet.SUDO(256),
                nn.ConvTranspose2d(6, 1, (2, 3), stride=(3, 2), dilation=(2, 1)),
                nn.Tanh(),
            ),
            (4, 4, 4),
        ),
        "sequence": (
            nn.Sequential(
                *(nn.Conv1d(2, 8, 5, stride=2, padding=2), rsudo, nn.MaxPool1d(2)),
                *(nn.Conv1d(8, 8, 3, padding=2, dilation=2, groups=8), sudo),
                *(nn.AdaptiveAvgPool1d(2), nn.Flatten(), nn.Linear(16, 3), sudonet.SUDO(9)),
            ),
            (2, 32),
        ),
        "bits": (
            nn.Sequential(
                *(nn.Conv2d(1, 8, 3, padding=1), two, nn.MaxPool2d(2)),
                *(nn.Conv2d(8, 9, 3, padding=1), two),
                *(nn.ConvTranspose2d(9, 4, 2, stride=2), two),
                *(nn.Flatten(), nn.Linear(256, 37), two, nn.Linear(37, 10)),
            ),
            (1, 8, 8),
        ),
    }


@cache
def windows() -> list[Case]:
    """Convolutions of every kind with random weights, over digits of several shapes."""
    images = digits()[0][:SAMPLES]
    kinds = {
        "pooled": ("int8", "int4"),
        "odd": ("int8", "ternary"),
        "grown": ("int8", "binary"),
        "sequence": ("int8", "int4"),
        "bits": ("binary", "ternary"),
    }
    grids = (PIXELS, AROUND)
    modes = ("speed", "ram", "flash")
    found = []
    torch.manual_seed(3)
    for name, (model, shape) in _window_models().items():
        model.eval()(torch.zeros(1, *shape))  # so that lazy layers exist
        for kind in kinds[name]:
            place = len(found)
            network = deploy.compile(model, kind, inputs=grids[place % 2], shape=shape)
            samples = images.reshape(-1, *shape)
            mode = modes[place % 3]
            found.append(Case(f"{name}_{kind}_{mode}", network, samples, mode))
    return found


@cache
def wide() -> list[Case]:
    """Inputs of 16 bits, and sums of windows that a byte does not hold."""
    images = digits()[0][:SAMPLES]
    halves = (images.astype(np.int32) * 273 - 2**15).astype(np.int16)
    torch.manual_seed(4)
    unit = sudonet.SUDO(16)
    flat = nn.Sequential(nn.Linear(64, 9), unit, nn.Linear(9, 3))
    image = nn.Sequential(
        *(nn.Conv2d(1, 4, 3, padding=1), sudonet.SUDO(256), nn.AvgPool2d(2)),
        *(nn.Conv2d(4, 6, 3, padding=1), unit, nn.Flatten(), nn.Linear(96, 4)),
    )
    first = nn.Sequential(
        *(nn.AvgPool2d(2), nn.Conv2d(1, 5, 2, padding=1), unit, nn.Flatten(), nn.Linear(125, 2))
    )
    network = deploy.compile(first, inputs=PIXELS, shape=(1, 8, 8))
    found = [Case("pool_comes_first", network, images.reshape(-1, 1, 8, 8))]
    for kind, mode in (("int8", "speed"), ("int4", "speed"), ("binary", "ram")):
        network = deploy.compile(flat, kind, inputs=HALF_WORDS)
        found.append(Case(f"wide_{kind}_{mode}", network, halves, mode))
        network = deploy.compile(image, kind, inputs=HALF_WORDS, shape=(1, 8, 8))
        found.append(Case(f"image_{kind}_{mode}", network, halves.reshape(-1, 1, 8, 8), mode))
    return found


def random_case(seed: int) -> Case:
    """A small network of random shape, weights, units, inputs and mode."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    model, shape = _random_windows(draw) if seed % 3 else _random_dense(draw)
    grids = [PIXELS, AROUND, HALF_WORDS, Grid(0.01, -400.0, 0, 255), Grid(0.01, 7.5, 0, 40)]
    kind = draw.choice(["int8", "int4", "ternary", "binary"])
    network = deploy.compile(
        model,
        kind,
        inputs=draw.choice(grids),
        shape=shape,
        thresholds=draw.choice(["auto", "channel", "shared"]),
    )
    grid = network.inputs
    samples = np.random.default_rng(seed).integers(grid.low, grid.high + 1, (10, *shape))
    samples[0], samples[1] = grid.low, grid.high
    mode = draw.choice(["speed", "flash", "ram"])
    return Case(f"random{seed}_{kind}_{mode}", network, samples.astype(grid.dtype), mode)


def _random_unit(draw: random.Random) -> nn.Module:
    levels = draw.choice([2, 2, 3, 4, 5, 16, 17, 100, 255, 256])
    underlying = draw.choice(["tanh", "tanh", "sigmoid", "relu6", "hardtanh"])
    if underlying == "sigmoid" or draw.random() < 0.5:
        return sudonet.SUDO(levels, underlying)
    return sudonet.RSUDO(levels, underlying, placement=draw.choice(["paper", "full"]))


def _random_dense(draw: random.Random) -> tuple[nn.Module, tuple[int, ...]]:
    sizes = [draw.choice([1, 3, 4, 7, 32, 33, 100]) for _ in range(draw.choice([2, 3, 4]))]
    layers: list[nn.Module] = []
    for into, out in pairwise(sizes):
        layers += [nn.Linear(into, out), _random_unit(draw)]
    return nn.Sequential(*layers[: draw.choice([-1, None])]), (sizes[0],)


def _random_windows(draw: random.Random) -> tuple[nn.Module, tuple[int, ...]]:
    shape = (draw.choice([1, 2, 4]), draw.choice([5, 8]), draw.choice([6, 7]))
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
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(x[0].numel(), 3)), shape


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
