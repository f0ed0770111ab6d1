"""How the cost of a training step grows with units, networks and depth; one thread."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from training import pinned

from sudonet.train import Spec, train

UNITS = (5, 10, 20, 50, 100, 200, 400)
NETWORKS = (1, 2, 5, 10, 20, 50, 100, 200)
DEPTHS = (1, 2, 3, 4, 6, 8, 10)
COLOURS = {"native": "#0072b2", "torch": "#d55e00"}
GREY = "#666666"


def gemm_peak() -> float:
    """FLOP a second of the best float32 product of two matrices on one core."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    best = float("inf")
    for _ in range(15):
        begun = time.perf_counter()
        torch.mm(a, b)
        best = min(best, time.perf_counter() - begun)
    return 2 * 1024**3 / best


def flops(sizes: tuple[int, ...]) -> int:
    """Of one step with a batch of 100: forward, backward but for the inputs, gradient."""
    layers = enumerate(pairwise(sizes))
    return sum(2 * 100 * (i + 1) * o * (3 if layer else 2) for layer, (i, o) in layers)


def seconds_a_step(engine: str, sizes: tuple[int, ...], networks: int, budget: float) -> float:
    """Median of three rounds, for one network and step."""
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, (5000, 2)).astype(np.float32)
    data = x, np.sign(x[:, :1] * x[:, 1:])

    def run(steps: int) -> float:
        specs = [
            Spec(sizes=sizes, activation="sudo-16", output="tanh", steps=steps, seed=seed % 3)
            for seed in range(networks)
        ]
        begun = time.perf_counter()
        train(specs, data, engine=engine, threads=1)
        return (time.perf_counter() - begun) / (steps * networks)

    run(2)
    steps = max(3, int(budget / (run(4) * networks)))
    return float(np.median([run(steps) for _ in range(3)]))


def main(folder: Path) -> str:
    torch.set_num_threads(1)
    pinned(1)
    peak = gemm_peak()
    sweeps = {
        "units in each of 4 layers (9 networks)": [((2, *[u] * 4, 1), 9, u) for u in UNITS],
        "networks (4 layers of 10 units)": [((2, *[10] * 4, 1), n, n) for n in NETWORKS],
        "hidden layers of 50 units (9 networks)": [((2, *[50] * d, 1), 9, d) for d in DEPTHS],
    }
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    axes = figure.subplots(1, 3)
    for axis, (label, points) in zip(axes, sweeps.items(), strict=True):
        ticks = [tick for *_, tick in points]
        for engine, colour in COLOURS.items():
            times = [seconds_a_step(engine, s, n, 0.4) * 1e6 for s, n, _ in points]
            axis.plot(ticks, times, "o-", color=colour, label=f"{engine} engine")
        bound = [flops(s) / peak * 1e6 for s, *_ in points]
        axis.plot(ticks, bound, "--", color=GREY, label=f"{peak / 1e9:.0f} GFLOP/s, best product")
        axis.set(xscale="log", yscale="log", xlabel=label, ylabel="us a network and step")
        axis.set_xticks(ticks, [str(t) for t in ticks])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].legend(frameon=False)
    figure.suptitle("Training SUDO-16 networks, batch 100, one thread")
    figure.savefig(folder / "growth.png", dpi=100)
    return (
        "![Time of a step against units, networks and depth](images/growth.png)\n\n"
        f"The best product of two matrices on this core: {peak / 1e9:.0f} GFLOP/s."
    )


if __name__ == "__main__":
    print(main(Path(__file__).parents[1] / "docs/images"))
