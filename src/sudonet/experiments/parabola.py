"""Parabola: watch a handful of units learn y = x^2."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sudonet.experiments.data import Source
from sudonet.experiments.experiment import Task
from sudonet.train import Data, Result, Spec

UNITS = (2, 4, 10)
"""Hidden units, one figure each."""

ACTIVATIONS = ("tanh", "relu", "sudo-2", "sudo-4", "sudo-8", "sudo-128", "sudo-256")
SAMPLES = 200
MOMENTS = (0, 100, 300, 1_000, 10_000)
"""Steps after which the fit is drawn. From each to the next, the fit of tanh or of relu
changes visibly; after the last one, neither does."""

RATE, MOMENTUM = 0.01, 0.9


def samples() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Inputs, evenly spaced in -1..1, and their squares; a row each."""
    x = np.linspace(-1, 1, SAMPLES, dtype=np.float32).reshape(-1, 1)
    return x, x**2


def task() -> Task:
    """The samples; a network's value is its mean squared error on them."""
    x, squares = samples()

    def score(result: Result) -> dict[str, float]:
        error = result.predict(x) - squares
        return {"value": float(np.square(error, dtype=np.float64).mean())}

    return Task(Data(x, squares), SOURCE, score, len(x))


def specs(units: int, seed: int = 0) -> list[Spec]:
    """Every activation, trained up to every moment: one network in five states.

    A seed fixes the order of samples, so that a short training is the beginning of a
    longer one.
    """
    return [
        Spec(
            sizes=(1, units, 1),
            activation=activation,
            optimiser="momentum",
            momentum=MOMENTUM,
            learning_rate=RATE,
            batch_size=20,
            steps=steps,
            seed=seed,
        )
        for activation in ACTIVATIONS
        for steps in MOMENTS
    ]


SOURCE = Source.of(f"y = x^2 at {SAMPLES} even places", *samples())
