"""Memorization: learn one picture by heart, from a pixel's coordinates to its brightness."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sudonet.experiments.data import Picture, Source, picture
from sudonet.experiments.experiment import (
    Experiment,
    Protocol,
    Task,
    Trial,
    both_families,
    fully_connected,
)
from sudonet.experiments.square import even_grid
from sudonet.train import Data, Result, Spec

SIDE = 150
"""Pixels a side."""

SPAN = 4
"""Coordinates go from 0 to 4 on both axes."""

PROTOCOL = Protocol(steps=13_500, replicas=3, rates=(0.01,))  # 60 epochs


class Memorization(Experiment):
    """From coordinates to brightness, by a tanh output; summed squared error of all pixels.

    Parameters
    ----------
    file
        A picture to learn instead of the stand-in for the paper's, which was never published.
    """

    name = "memorization"
    metric = "sum of squared errors"
    higher_is_better = False
    grids = both_families(
        "memorization", ("1", "2", "4", "10"), (50, 100, 200), rectified=("2", "4", "10")
    )

    def __init__(self, file: Path | None = None) -> None:
        self.file = file

    def protocol(self, shape: str, column: int) -> Protocol:
        return PROTOCOL

    def load(self) -> Picture:
        return picture(self.file)

    def task(self, loaded: Picture | None = None) -> Task:
        found = loaded or self.load()
        coordinates = (even_grid(SIDE) + 1) * np.float32(SPAN / 2)
        brightness = pixel_targets(found.pixels)

        def score(result: Result) -> dict[str, float]:
            error = result.predict(coordinates) - brightness
            return {"value": float(np.square(error, dtype=np.float64).sum())}

        ours = found.source
        source = Source.of(ours.name, coordinates, brightness, stand_in_for=ours.stand_in_for)
        return Task(Data(coordinates, brightness), source, score, len(coordinates))

    def spec(self, trial: Trial, data: Data | None = None) -> Spec:
        return fully_connected(trial, 2, 1, output="tanh", optimiser="momentum")


def pixel_targets(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    """Brightness from 0..1 to -1..1, tanh's range, in the order of the coordinates."""
    # In the grid y varies fastest, in the rows of a picture x does.
    return np.asarray(pixels.T.reshape(-1, 1) * 2 - 1, np.float32)
