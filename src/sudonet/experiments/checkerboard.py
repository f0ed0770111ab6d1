"""Checkerboard: learn the colour of a board's squares from 5,000 points of it."""

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

SQUARES = 5
"""A side of the board, which covers [-1, 1]^2."""

SAMPLES = 5_000
GRID = 500
"""Accuracy is measured on 500 x 500 points, evenly spaced."""

STEPS = {"1": 450_000, "2": 800_000, "4": 800_000}
"""By the number of hidden layers: see docs/recipe.md."""

DATA_SEED = 2


class Checkerboard(Experiment):
    """Two inputs, 1, 2 or 4 hidden layers, one tanh output; accuracy on the whole board."""

    name = "checkerboard"
    metric = "accuracy, %"
    higher_is_better = True
    grids = both_families("checkerboard", ("1", "2", "4"), (5, 10, 50, 100, 200), ("1", "2", "4"))

    def protocol(self, shape: str, column: int) -> Protocol:
        return Protocol(STEPS[shape], replicas=3, rates=RATES)

    def task(self, loaded: None = None) -> Task:
        points = samples()
        board = even_grid(GRID)
        colour = colours(board)

        def score(result: Result) -> dict[str, float]:
            right = np.sign(result.predict(board)) == colour
            return {"value": 100 * float(right.mean())}

        return Task(Data(points, colours(points)), SOURCE, score, len(board))

    def spec(self, trial: Trial, data: Data | None = None) -> Spec:
        return fully_connected(trial, 2, 1, output="tanh", optimiser="momentum")


def samples() -> NDArray[np.float32]:
    """The points that all networks train on."""
    return random_points(SAMPLES, DATA_SEED)


def colours(points: NDArray[np.float32], squares: int = SQUARES) -> NDArray[np.float32]:
    """-1 or +1: the colour of the square in which each point lies, of ``squares`` a side."""
    square = np.floor((points + 1) / 2 * squares).clip(0, squares - 1)
    return np.asarray(square.sum(1, keepdims=True) % 2 * 2 - 1, np.float32)


SOURCE = Source.computed(f"{SQUARES} x {SQUARES} board, {SAMPLES:,} points", DATA_SEED)
