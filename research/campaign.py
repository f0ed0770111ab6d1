"""What the networks of a store would have cost in a plain PyTorch loop.

    python research/campaign.py [STORE]

Every shape of fully connected network in the store is trained for a few hundred steps, one
network by itself with torch.optim, on one core, as a plain loop does. The time of a step,
times the steps of all networks of that shape, stands beside the CPU time that the store has.
"""

import sys
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import torch
from rich.progress import track
from torch import nn

from sudonet.experiments import EXPERIMENTS, Trial
from sudonet.study.store import Store
from sudonet.train import Data, Spec
from sudonet.train._spec import Order

RESULTS = Path(__file__).parents[1] / "results" / "results.sqlite"
SECONDS = 1.0


def seconds_a_step(spec: Spec, data: Data) -> float:
    """The median of some rounds of a plain loop's steps."""
    x, t = (torch.as_tensor(a).flatten(1) for a in (data.inputs, data.targets))
    model = spec.module()
    loss_of = nn.CrossEntropyLoss() if spec.loss == "cross_entropy" else nn.MSELoss()
    optimiser: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), spec.learning_rate)
    if spec.optimiser == "momentum":
        optimiser = torch.optim.SGD(model.parameters(), spec.learning_rate, spec.momentum)
    order, _ = Order(seed=0, samples=len(data), batch_size=spec.batch_size).take(20)
    times = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(times) < 3:
        begun = time.process_time()  # as the store counts: what runs beside it does not matter
        for rows in torch.from_numpy(order).long():
            loss = loss_of(model(x[rows]), t[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        times.append((time.process_time() - begun) / len(order))
    return sorted(times)[len(times) // 2]


def main() -> None:
    torch.set_num_threads(1)
    with Store.read(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS) as store:
        rows = store.rows()
    shapes: dict[tuple[str, str, int], list[tuple[Trial, float]]] = defaultdict(list)
    for row in rows:
        t = row.trial
        if row.engine.startswith("native"):
            shapes[t.experiment, t.shape, t.column].append((t, row.cpu_seconds))
    loop: dict[str, float] = defaultdict(float)
    ours: dict[str, float] = defaultdict(float)
    data = {name: EXPERIMENTS[name].task().data for name in {name for name, _, _ in shapes}}
    for (name, _, _), some in track(sorted(shapes.items()), "a plain loop"):
        first = replace(some[0][0], activation="tanh")
        spec = EXPERIMENTS[name].spec(first, data[name])
        loop[name] += seconds_a_step(spec, data[name]) * sum(t.steps for t, _ in some)
        ours[name] += sum(seconds for _, seconds in some)
    lines = [
        ["experiment", "CPU hours", "in a plain loop", "times as many"],
        ["---"] * 4,
        *(
            [
                name,
                f"{ours[name] / 3600:.2f}",
                f"{loop[name] / 3600:.1f}",
                f"{loop[name] / ours[name]:.0f}",
            ]
            for name in loop
        ),
    ]
    mine, plain = sum(ours.values()), sum(loop.values())
    lines.append(["all", f"{mine / 3600:.2f}", f"{plain / 3600:.1f}", f"{plain / mine:.0f}"])
    print("\n".join(f"| {' | '.join(line)} |" for line in lines))


if __name__ == "__main__":
    main()
