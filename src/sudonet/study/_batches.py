"""Batches of trials for a cluster, and a simulation of how long a cluster takes."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from sudonet.experiments import Trial

Cost: TypeAlias = Callable[[Trial], float]

SHORTEST, LONGEST = 30.0, 120.0
"""Seconds that a batch should take: long compared with the cost of sending it, short enough
that all CPUs finish at about the same time and little is lost when one dies."""

TASK_OVERHEAD = 0.0015
"""Seconds that Ray takes to send a task and to return its rows (benchmarks/cluster.py)."""

WORKER_START = 1.3
"""Seconds until a new worker has imported what it needs (benchmarks/cluster.py)."""


@dataclass(frozen=True)
class Batch:
    """Trials of one experiment that one task trains."""

    experiment: str
    trials: tuple[Trial, ...]
    seconds: float


def batches(trials: Iterable[Trial], cost: Cost) -> list[Batch]:
    """Trials in batches of about 30 to 120 seconds, the longest first.

    Trials that share minibatches (one shape, one seed) stay together unless the batch would
    be too long, because the engine prepares a minibatch once for all of them. A trial that
    takes longer than a batch should is a batch of its own.
    """
    stacks: dict[tuple[str, str, int, int, int], list[Trial]] = defaultdict(list)
    for t in sorted(trials):
        stacks[t.experiment, t.shape, t.column, t.steps, t.seed].append(t)
    found: list[Batch] = []
    waiting: dict[str, list[Trial]] = defaultdict(list)

    def flush(experiment: str) -> None:
        some = waiting.pop(experiment, [])
        if some:
            found.append(Batch(experiment, tuple(some), sum(map(cost, some))))

    for (experiment, *_), stack in stacks.items():
        for trial in stack:
            together = sum(map(cost, waiting[experiment])) + cost(trial)
            if together > LONGEST:
                flush(experiment)
            waiting[experiment].append(trial)
        if sum(map(cost, waiting[experiment])) >= SHORTEST:
            flush(experiment)
    for experiment in list(waiting):
        flush(experiment)
    return sorted(found, key=lambda batch: (-batch.seconds, batch.trials))


@dataclass(frozen=True)
class Simulated:
    """A run on a simulated cluster."""

    cpus: int
    makespan: float
    efficiency: float


def simulate(
    seconds: Iterable[float], cpus: int, overhead: float = 0.0, start: float = 0.0
) -> Simulated:
    """How long ``cpus`` take for tasks when each goes to the first CPU that is free.

    Parameters
    ----------
    seconds
        What each task takes on one CPU, in the order of scheduling.
    cpus
        The number of CPUs.
    overhead
        What sending a task and returning its result costs a CPU.
    start
        What a CPU takes before its first task: to start a process, import and load data.

    Examples
    --------
    >>> simulate([3, 3, 2, 2, 2], cpus=2)
    Simulated(cpus=2, makespan=7.0, efficiency=0.8571428571428571)
    """
    if cpus < 1:
        raise ValueError(f"cpus must be at least 1, got {cpus}")
    tasks = list(seconds)
    free = [start] * min(cpus, max(len(tasks), 1))
    for task in tasks:
        heapq.heapreplace(free, free[0] + task + overhead)
    makespan = max(free) if tasks else 0.0
    return Simulated(cpus, makespan, sum(tasks) / (cpus * makespan) if makespan else 1.0)
