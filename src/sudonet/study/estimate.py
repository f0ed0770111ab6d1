"""Estimates how long trials take, from the store or from a few steps on this machine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from statistics import median
from typing import TypeAlias

import numpy as np

from sudonet.experiments import Trial
from sudonet.study.local import Tasks
from sudonet.study.store import Row
from sudonet.train import AnySpec, Data, engine_name, stream

Kind: TypeAlias = tuple[str, str, int]
"""Experiment, shape and column: networks of one kind take equally long."""

PROBE_SECONDS = 0.1
"""The approximate duration of a probe."""

FORWARD = 1 / 3
"""The cost of predicting a sample relative to training on it."""


class Rates:
    """Seconds of one thread that a trial takes, from rows of the store or from a probe.

    Parameters
    ----------
    rows
        Earlier measurements; those of other engines do not count.
    tasks
        The experiments' data.
    engine
        As in :func:`sudonet.train.train`.
    """

    def __init__(self, rows: Iterable[Row], tasks: Tasks, engine: str = "auto") -> None:
        measured: dict[tuple[Kind, str], list[float]] = defaultdict(list)
        for row in rows:
            if row.trial.steps and not row.failed:
                seconds = row.cpu_seconds / row.trial.steps
                measured[_kind(row.trial), row.engine].append(seconds)
        self._step = {key: median(some) for key, some in measured.items()}
        self._tasks, self._engine = tasks, engine
        self._specs: dict[Kind, AnySpec] = {}

    def unknown(self, trials: Iterable[Trial]) -> list[Trial]:
        """One trial of each kind that must be probed first."""
        return list({_kind(t): t for t in trials if self._key(t) not in self._step}.values())

    def probe(self, trial: Trial) -> None:
        """Train a network of the trial's kind for a few steps, and remember the time."""
        self._step[self._key(trial)] = _seconds_a_step(self._spec(trial), self._engine)

    def cost(self, trial: Trial) -> float:
        """Seconds that training and judging a network take on one thread."""
        judged = self._tasks[trial.experiment].judged / self._spec(trial).batch_size
        return self._step[self._key(trial)] * (trial.steps + FORWARD * judged)

    def _key(self, trial: Trial) -> tuple[Kind, str]:
        return _kind(trial), engine_name(self._spec(trial), self._engine)

    def _spec(self, trial: Trial) -> AnySpec:
        """The spec of a network of the trial's kind."""
        kind = _kind(trial)
        if kind not in self._specs:
            experiment = self._tasks.experiment(trial.experiment)
            self._specs[kind] = experiment.spec(trial, self._tasks[trial.experiment].data)
        return self._specs[kind]


def _kind(trial: Trial) -> Kind:
    return trial.experiment, trial.shape, trial.column


def _seconds_a_step(spec: AnySpec, engine: str) -> float:
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
        # CPU time, because other processes must not count
        results = stream([replace(spec, steps=steps)] * together, data, engine=engine, threads=1)
        return sum(result.cpu_seconds for result in results) / together

    seconds(1)  # the first call initialises libraries
    nothing, steps = seconds(0), 1
    while (taken := seconds(steps) - nothing) < PROBE_SECONDS / 2:
        steps *= 4
    return taken / steps
