"""What Ray costs: one plan by the local executor and by Ray, on the same CPUs.

    python benchmarks/cluster.py [MINUTES [CPUS]]

The plan is the part of the standard preset's regression and checkerboard tables that takes
about so many minutes on so many CPUs: five on all by default. Both start from an empty store;
rows must be equal. What a worker's start and a task cost is measured as well.
"""

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
import torch

from sudonet.experiments.presets import PRESETS
from sudonet.study import cluster, local
from sudonet.study._batches import TASK_OVERHEAD, WORKER_START, batches, simulate
from sudonet.study.estimate import Rates
from sudonet.study.local import Tasks
from sudonet.study.plan import Plan, make_plan
from sudonet.study.store import Store

TABLES = ("regression-2", "regression-4", "checkerboard-2", "checkerboard-4")


def timeless(path: Path) -> list[object]:
    with Store.read(path) as store:
        return [replace(r, wall_seconds=0, cpu_seconds=0, finished="") for r in store.rows()]


def planned(minutes: float, cpus: int, tasks: Tasks) -> tuple[Plan, Rates]:
    plan = make_plan(PRESETS["standard"], tables=TABLES)
    rates = Rates((), tasks)
    for trial in rates.unknown(plan.trials):
        rates.probe(trial)
    return plan.within(60 * minutes * cpus, rates.cost), rates


def ready() -> int:
    """What a fresh worker does before it trains: imports."""
    import sudonet.study.cluster as imported

    return len(imported.__name__)


def costs(ray: Any, calls: int = 100) -> tuple[float, float]:
    """Seconds until a fresh worker has answered, and for a task of one that is there."""
    task = ray.remote(ready).options(num_cpus=1)
    begun = time.perf_counter()
    ray.get(task.remote())
    first = time.perf_counter() - begun
    begun = time.perf_counter()
    for _ in range(calls):
        ray.get(task.remote())
    return first, (time.perf_counter() - begun) / calls


def main() -> None:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    cpus = int(sys.argv[2]) if len(sys.argv) > 2 else torch.get_num_threads()
    torch.set_num_threads(cpus)
    tasks = Tasks()
    plan, rates = planned(minutes, cpus, tasks)
    estimate = sum(map(rates.cost, plan.trials)) / cpus
    seconds = [batch.seconds for batch in batches(plan.trials, rates.cost)]
    model = simulate(seconds, cpus, TASK_OVERHEAD, WORKER_START).makespan
    print(
        f"{len(plan.trials)} trials on {cpus} CPUs: estimated {estimate:.0f} s, on Ray {model:.0f}"
    )
    folder = Path(tempfile.mkdtemp())
    begun = time.perf_counter()
    with Store.open(folder / "local") as store:
        list(local.run(plan, store, tasks, threads=cpus, cost=rates.cost))
    alone = time.perf_counter() - begun
    print(f"local {alone:.0f} s, {alone / estimate:.2f} of the estimate", flush=True)
    ray.init(address="local", num_cpus=cpus, include_dashboard=False, log_to_driver=False)
    with cluster.connected(None) as here, Store.open(folder / "ray") as store:
        begun = time.perf_counter()
        list(cluster.run(plan, store, tasks, here, cost=rates.cost))
        there = time.perf_counter() - begun
    print(f"Ray {there:.0f} s, {there / alone:.3f} of local, {there / model:.2f} of the model")
    ray.shutdown()
    ray.init(address="local", num_cpus=cpus, include_dashboard=False, log_to_driver=False)
    first, task = costs(ray)
    print(f"a worker starts in {first:.1f} s, a task costs {1000 * task:.1f} ms")
    print(
        "rows are equal"
        if timeless(folder / "local") == timeless(folder / "ray")
        else "ROWS DIFFER"
    )


if __name__ == "__main__":
    main()
