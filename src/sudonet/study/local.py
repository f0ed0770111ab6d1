"""Runs a plan on all cores of this machine; each trial becomes one committed row."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import torch

import sudonet
from sudonet.experiments import EXPERIMENTS, Experiment, Task, Trial
from sudonet.experiments.memorization import Memorization
from sudonet.native.cpu import features
from sudonet.study.plan import Plan
from sudonet.study.store import Row, Store
from sudonet.train import AnySpec, Result, engine_name, stream


class Tasks:
    """The experiments' data, each loaded once, when it is first needed.

    Parameters
    ----------
    picture
        A file to memorize instead of the stand-in for the paper's picture.
    """

    def __init__(self, picture: Path | None = None) -> None:
        self._loaded: dict[str, Task] = {}
        self._picture = picture

    def __getitem__(self, experiment: str) -> Task:
        if experiment not in self._loaded:
            self._loaded[experiment] = self.experiment(experiment).task()
        return self._loaded[experiment]

    def experiment(self, name: str) -> Experiment:
        """The experiment of that name, with the picture that was given."""
        return Memorization(self._picture) if name == "memorization" else EXPERIMENTS[name]


def remaining(plan: Plan, store: Store, tasks: Tasks, engine: str = "auto") -> Plan:
    """The plan without the trials that the store has for this engine and this data."""

    def done(trial: Trial) -> bool:
        task = tasks[trial.experiment]
        spec = EXPERIMENTS[trial.experiment].spec(trial, task.data)
        return store.has(trial, engine_name(spec, engine), task.source.checksum, recipe(spec))

    return plan.without(done)


def run(
    plan: Plan,
    store: Store,
    tasks: Tasks,
    *,
    engine: str = "auto",
    threads: int | None = None,
    cost: Callable[[Trial], float],
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Row]:
    """Train everything in the plan; a row is in the store before it is yielded.

    Experiments run one after the other, the cheapest first, so that results show early. Trials
    of one experiment share data and, at equal shapes, stacks. ``progress`` is called with the
    network-steps of the current experiment, done and in all.
    """
    groups = plan.by_experiment()
    for name in sorted(groups, key=lambda name: sum(map(cost, groups[name]))):
        for row in trained(groups[name], tasks[name], engine, threads, progress):
            store.add(row)
            yield row


def trained(
    trials: Sequence[Trial],
    task: Task,
    engine: str,
    threads: int | None,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Row]:
    """Rows of trials of one experiment, each as soon as it is finished."""
    specs = [EXPERIMENTS[trial.experiment].spec(trial, task.data) for trial in trials]
    for result in stream(
        specs, task.data, engine=engine, threads=threads, judge=task.score, progress=progress
    ):
        yield row_of(trials[result.index], result, task)


def row_of(trial: Trial, result: Result, task: Task) -> Row:
    """The row of a trained network."""
    loss = float(result.losses[-1]) if len(result.losses) else float("nan")
    return Row(
        trial=trial,
        engine=result.engine,
        source=task.source.name,
        checksum=task.source.checksum,
        stand_in_for=task.source.stand_in_for,
        recipe=recipe(result.spec),
        spec=json.dumps(asdict(result.spec), sort_keys=True),
        versions=json.dumps(versions(), sort_keys=True),
        cpu=" ".join(name for name, has in features().items() if has),
        metrics=result.measures,
        diverged=result.diverged,
        loss=loss if np.isfinite(loss) else None,
        wall_seconds=result.seconds,
        cpu_seconds=result.cpu_seconds,
        finished=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )


def recipe(spec: AnySpec) -> str:
    """Digest of what a spec says beyond its trial. If it changes, old rows do not count."""
    said = {"activation", "learning_rate", "steps", "seed"}
    rest = {name: value for name, value in asdict(spec).items() if name not in said}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()[:12]


def versions() -> dict[str, str]:
    """Versions of the software that can change a result."""
    return {
        "sudonet": sudonet.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
