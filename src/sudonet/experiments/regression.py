"""Regression: fit the surface z = sin(10 x) cos(5 y) on [-1, 1]^2."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sudonet.experiments.data import Source
from sudonet.experiments.experiment import (
    RATES,
    Experiment,
    Protocol,
    Task,
    Trial,
    both_families,
    fully_connected,
)
from sudonet.experiments.square import even_grid, random_points
from sudonet.train import Data, Result, Spec

SAMPLES = 5_000
GRID = 100
"""The error is measured on 100 x 100 points, evenly spaced."""

STEPS = 100_000  # 2,000 epochs
DATA_SEED = 3


class Regression(Experiment):
    """Two inputs, 2 or 4 hidden layers, one linear output; 100 x the mean squared error."""

    name = "regression"
    metric = "100 x mean squared error"
    higher_is_better = False
    grids = both_families("regression", ("2", "4"), (10, 20, 50), ("2", "4"))

    def protocol(self, shape: str, column: int) -> Protocol:
        return Protocol(steps=STEPS, replicas=5, rates=RATES)

    def task(self, loaded: None = None) -> Task:
        points = samples()
        grid = even_grid(GRID)
        heights = surface(grid)

        def score(result: Result) -> dict[str, float]:
            error = result.predict(grid) - heights
            return {"value": 100 * float(np.square(error, dtype=np.float64).mean())}

        return Task(Data(points, surface(points)), SOURCE, score, len(grid))

    def spec(self, trial: Trial, data: Data | None = None) -> Spec:
        return fully_connected(trial, 2, 1)


def samples() -> NDArray[np.float32]:
    """The points that all networks train on."""
    return random_points(SAMPLES, DATA_SEED)


def surface(points: NDArray[np.float32]) -> NDArray[np.float32]:
    """The height of the surface at each point, one row a point."""
    x, y = points[:, :1], points[:, 1:]
    return np.asarray(np.sin(10 * x) * np.cos(5 * y), np.float32)


SOURCE = Source.computed(f"sin(10 x) cos(5 y), {SAMPLES:,} points", DATA_SEED)
