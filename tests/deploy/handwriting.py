"""Networks that are trained on handwritten digits, for C and its limits on microcontrollers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import torch
from torch import nn

import sudonet
from sudonet import deploy
from sudonet.experiments import data
from tests.deploy.c_tools import Case
from tests.deploy.random_models import PIXELS
from tests.deploy.zoo import LEVELS

SAMPLES = 200


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
