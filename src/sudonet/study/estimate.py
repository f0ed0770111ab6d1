"""How long trials take: measured on this machine, a few steps of every kind of network."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from sudonet.experiments import EXPERIMENTS, Trial
from sudonet.study.store import Row
from sudonet.train import AnySpec, Data, train

PROBE_SECONDS = 0.1
"""How long a probe should take, roughly."""

FORWARD = 1 / 3
"""What predicting a sample takes of training on it."""


class Rates:
    """Seconds of one thread that a trial takes, from rows of the store or from a probe.

    Parameters
    ----------
    rows
        What was measured before, on this engine.
    judged
        How many samples an experiment judges a network by.
    """

    def __init__(self, rows: Iterable[Row], judged: Callable[[str], int]) -> None:
        measured: dict[Any, list[float]] = {}
        for row in rows:
            if row.trial.steps and not row.failed:
                seconds = row.cpu_seconds / row.trial.steps
                measured.setdefault(_kind(row.trial), []).append(seconds)
        self._step = {kind: median(some) for kind, some in measured.items()}
        self._judged = judged

    def unknown(self, trials: Iterable[Trial]) -> list[Trial]:
        """A trial of every kind that has to be probed first."""
        return list({_kind(t): t for t in trials if _kind(t) not in self._step}.values())

    def probe(self, trial: Trial, data: Data) -> None:
        """Train a network of the trial's kind for a moment."""
        spec = EXPERIMENTS[trial.experiment].spec(trial, data)
        self._step[_kind(trial)] = _seconds_a_step(spec)

    def cost(self, trial: Trial) -> float:
        """Seconds that training and judging a network take on one thread."""
        a_step = self._step[_kind(trial)]
        return a_step * (trial.steps + FORWARD * self._judged(trial.experiment) / 100)


def _kind(trial: Trial) -> tuple[str, str, int]:
    return trial.experiment, trial.shape, trial.column


def _seconds_a_step(spec: AnySpec) -> float:
    generator = np.random.default_rng(0)
    samples = spec.batch_size
    inputs, targets = (
        generator.uniform(0, 1, (samples, *shape)).astype(np.float32)
        for shape in (spec.input_shape, spec.output_shape)
    )
    if spec.loss == "cross_entropy":
        targets /= targets.sum(1, keepdims=True)
    data = Data(inputs, targets)

    # Small networks share the work of preparing minibatches, as they do in the study.
    together = max(1, min(8, 20_000 // spec.parameters))

    def seconds(steps: int) -> float:
        # CPU time: what else the machine does at this moment does not count
        results = train([replace(spec, steps=steps)] * together, data, threads=1)
        return sum(result.cpu_seconds for result in results) / together

    seconds(1)  # the first call sets libraries up
    nothing, steps = seconds(0), 1
    while (taken := seconds(steps) - nothing) < PROBE_SECONDS / 2:
        steps *= 4
    return taken / steps
