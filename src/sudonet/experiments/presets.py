"""How much of the paper's protocol to run: quick, standard or all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sudonet.experiments.experiment import LEVELS, Experiment, Protocol


@dataclass(frozen=True)
class Reduction:
    """What a preset leaves out of an experiment.

    Parameters
    ----------
    steps
        Share of the full protocol's steps.
    replicas, rates
        How many to keep, from the first on; None for all.
    columns
        Which to keep; None for all.
    """

    steps: float = 1.0
    replicas: int | None = None
    rates: int | None = None
    columns: tuple[int, ...] | None = None

    def applied(self, full: Protocol) -> Protocol:
        return Protocol(
            max(1, round(full.steps * self.steps)),
            min(full.replicas, self.replicas or full.replicas),
            full.rates[: self.rates],
        )


@dataclass(frozen=True)
class Preset:
    """A part of the study. What it does not mention is run by the full protocol.

    The key of a reduction is an experiment, its tables of one shape
    (``"memorization-10"``), or one column of those (``"autoencoder-conv-8"``). The most
    specific key counts. A reduction of one column cannot choose columns.
    """

    name: str
    about: str
    levels: tuple[int, ...] = LEVELS
    reductions: Mapping[str, Reduction] = field(default_factory=dict)

    def of(self, experiment: str, shape: str, column: int | None = None) -> Reduction:
        """What to leave out of the tables of ``shape``, or of one column of theirs."""
        names = f"{experiment}-{shape}-{column}", f"{experiment}-{shape}", experiment
        return next((self.reductions[n] for n in names if n in self.reductions), Reduction())

    def protocol(self, experiment: Experiment, shape: str, column: int) -> Protocol:
        """How the networks of a cell are trained."""
        full = experiment.protocol(shape, column)
        return self.of(experiment.name, shape, column).applied(full)


PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            "quick",
            "every experiment, few columns and levels, short training: some minutes",
            levels=(2, 8, 64),
            reductions={
                "checkerboard": Reduction(0.25, replicas=2, rates=1, columns=(5, 10)),
                "checkerboard-1": Reduction(0.5, replicas=2, rates=1, columns=(5, 10)),
                "regression": Reduction(0.25, replicas=2, rates=1, columns=(10, 20)),
                "memorization": Reduction(0.5, replicas=2, rates=1, columns=(50, 100)),
                "memorization-10": Reduction(0.5, replicas=2, rates=1, columns=(50,)),
                "autoencoder-conv": Reduction(0.004, replicas=1, columns=(1,)),
                "autoencoder-dense": Reduction(0.05, replicas=1, columns=(1, 2)),
                "mnist": Reduction(0.33, replicas=2, columns=(2, 4, 10)),
            },
        ),
        Preset(
            "standard",
            "every cell of every table, fewer rates and replicas: a night",
            reductions={
                "checkerboard": Reduction(rates=1),
                **{
                    f"checkerboard-{layers}-{units}": Reduction(steps, rates=1)
                    for layers, steps in ((2, 0.5), (4, 0.25))
                    for units in (100, 200)
                },
                "regression": Reduction(rates=1),
                "autoencoder-conv": Reduction(0.09, replicas=1),
                "autoencoder-conv-8": Reduction(0.03, replicas=1),
                "autoencoder-dense": Reduction(replicas=2),
                "mnist": Reduction(replicas=3),
            },
        ),
        Preset("paper", "the full protocol: days on a small machine"),
    )
}
