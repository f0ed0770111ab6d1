"""MNIST: tell digits apart with very few units, or with enough."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sudonet.experiments.data import Digits, digits
from sudonet.experiments.experiment import (
    Experiment,
    Protocol,
    Task,
    Trial,
    both_families,
    fully_connected,
)
from sudonet.train import Data, Result, Spec

CLASSES = 10
PIXELS = 28 * 28
STEPS = 18_000  # 30 epochs


class Mnist(Experiment):
    """From a digit's pixels to ten classes; accuracy on the test digits."""

    name = "mnist"
    metric = "test accuracy, %"
    higher_is_better = True
    grids = both_families("mnist", ("1", "4"), (2, 3, 4, 10, 50, 100), ("1", "4"))

    def protocol(self, shape: str, column: int) -> Protocol:
        return Protocol(steps=STEPS, replicas=5)

    def load(self) -> Digits:
        return digits()

    def task(self, loaded: Digits | None = None) -> Task:
        found = loaded or self.load()
        images = shades(found.test_images)

        def score(result: Result) -> dict[str, float]:
            right = result.predict(images).argmax(1) == found.test_labels
            return {"value": 100 * float(right.mean())}

        data = Data.of(
            shades(found.train_images), found.train_labels.astype(np.int64), classes=CLASSES
        )
        return Task(data, found.source, score, len(images))

    def spec(self, trial: Trial, data: Data | None = None) -> Spec:
        pixels = PIXELS if data is None else data.inputs.shape[1]
        return fully_connected(trial, pixels, CLASSES, output="softmax", loss="cross_entropy")


def shades(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Pixels from 0..255 to 0..1."""
    return np.asarray(images / np.float32(255), np.float32)
