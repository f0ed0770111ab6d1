"""Rows of a study that was never run: the published numbers and some noise. For tests alone."""

from dataclasses import replace

import numpy as np

from sudonet.experiments import EXPERIMENTS, GRIDS
from sudonet.report import published
from tests.report.report_rows import row

ERROR_OF_REFERENCE = 210.0
"""Of the convolutional tanh network of scale 1; the tables are relative to it."""


def rows(lost=True, seed=0):
    """Every network of the full protocol, as if it had come near to the paper's cell.

    Rates below the first are worse. Unless ``lost`` is False, a few networks diverge and a few
    could not be trained.
    """
    generator = np.random.default_rng(seed)
    found = {}
    for grid in GRIDS.values():
        table = published.table(grid.id)
        noise = published.noise(grid.id)
        for place in grid.cells:
            activation, column = place
            protocol = EXPERIMENTS[grid.experiment].protocol(grid.shape, column)
            value = table.value(*place)
            for number, rate in enumerate(protocol.rates):
                for replica in range(protocol.replicas):
                    spread = max(noise.column_mean[column], 0.02 * value) / 2
                    away = spread * (generator.normal() + number)
                    one = value - away if table.higher_is_better else value + abs(away)
                    if table.experiment == "autoencoder":
                        one *= ERROR_OF_REFERENCE
                    made = row(
                        float(max(one, 0.01)),
                        seed=replica,
                        rate=rate,
                        activation=activation,
                        column=column,
                        experiment=grid.experiment,
                        shape=grid.shape,
                        steps=protocol.steps,
                        source=SOURCES.get(grid.experiment, ("a data set", None))[0],
                        stand_in_for=SOURCES.get(grid.experiment, ("", None))[1],
                        versions='{"sudonet": "0.1.0", "torch": "2.13.0"}',
                        cpu_seconds=float(generator.gamma(2.0, protocol.steps / 1e4)),
                    )
                    found.setdefault(made.trial, made)
    some = list(found.values())
    if not lost:
        return some
    for index in generator.choice(len(some), len(some) // 200, replace=False):
        some[index] = replace(some[index], diverged=17, metrics={"value": float("nan")})
    for index in generator.choice(len(some), len(some) // 400, replace=False):
        some[index] = replace(some[index], failed="no memory was left", metrics={})
    return some


SOURCES = {
    "checkerboard": ("5 x 5 board, 5,000 points", None),
    "regression": ("sin(10 x) cos(5 y), 5,000 points", None),
    "memorization": ("china.jpg, scikit-learn's photograph", "the paper's picture"),
    "autoencoder": ("crops of photographs", "ImageNet, 32 x 32"),
    "mnist": ("MNIST", None),
}
