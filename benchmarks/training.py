"""Many small networks at once against a loop over them, vmap and JAX; one thread, batch 100."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from timing import Time, table
from torch import nn

from sudonet.train import Spec, train
from sudonet.train._spec import Order, initial_weights

BATCH = 100
ALL_CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


@dataclass(frozen=True)
class Case:
    """So many networks of one shape."""

    name: str
    sizes: tuple[int, ...]
    networks: int

    def specs(self, activation: str, steps: int) -> list[Spec]:
        classes = self.sizes[-1] > 1
        return [
            Spec(
                sizes=self.sizes,
                activation=activation,
                output="softmax" if classes else "tanh",
                loss="cross_entropy" if classes else "squared_error",
                steps=steps,
                batch_size=BATCH,
                seed=0,
                learning_rate=0.001 * (1 + i / 100),
            )
            for i in range(self.networks)
        ]

    def data(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        generator = np.random.default_rng(0)
        x = generator.uniform(-1, 1, (5000, self.sizes[0])).astype(np.float32)
        if self.sizes[-1] > 1:
            return x, np.eye(self.sizes[-1], dtype=np.float32)[generator.integers(0, 10, 5000)]
        return x, np.sign(x[:, :1] * x[:, 1:2])


CASES = (
    Case("5 units, 90 networks", (2, 5, 5, 5, 5, 1), 90),
    Case("10 units, 90 networks", (2, 10, 10, 10, 10, 1), 90),
    Case("50 units, 9 networks", (2, 50, 50, 50, 50, 1), 9),
    Case("200 units, 9 networks", (2, 200, 200, 200, 200, 1), 9),
    Case("MNIST 784-4x100-10, 15 networks", (784, 100, 100, 100, 100, 10), 15),
)

Run = Callable[[int], None]
"""Trains all networks of a case for so many steps."""


def engine(case: Case, name: str, activation: str, threads: int = 1) -> Run:
    data = case.data()
    return lambda steps: void(
        train(case.specs(activation, steps), data, engine=name, threads=threads)
    )


def void(_: object) -> None:
    """Contenders return nothing."""


def pinned(cores: int) -> None:
    """Keep the thread that calls, and those that it starts from now on, to so many cores."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, ALL_CORES[:cores])


def batches(case: Case, steps: int) -> torch.Tensor:
    order, _ = Order(seed=0, samples=5000, batch_size=BATCH).take(steps)
    return torch.from_numpy(order).long()


def loop(case: Case, activation: str, fused: bool | None = None) -> Run:
    """One network: what it does is so many times the same that one is enough to time it."""
    x, t = map(torch.from_numpy, case.data())
    spec = case.specs(activation, 0)[0]
    loss_of = nn.CrossEntropyLoss() if spec.loss == "cross_entropy" else nn.MSELoss()

    def run(steps: int) -> None:
        model = spec.module()
        optimiser = torch.optim.Adam(model.parameters(), spec.learning_rate, fused=fused)
        for rows in batches(case, steps):
            loss = loss_of(model(x[rows]), t[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    return run


def vmapped(case: Case) -> Run:
    """torch.func: one gradient over a stack of parameters, and Adam on the stack."""
    x, t = map(torch.from_numpy, case.data())
    spec = case.specs("tanh", 0)[0]
    loss_of = nn.CrossEntropyLoss() if spec.loss == "cross_entropy" else nn.MSELoss()
    model = spec.module()

    def one(parameters: dict[str, torch.Tensor], a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return loss_of(torch.func.functional_call(model, parameters, (a,)), b)

    gradient = torch.func.vmap(torch.func.grad(one), in_dims=(0, None, None))

    def run(steps: int) -> None:
        state = {
            k: v.detach().expand(case.networks, *v.shape).clone()
            for k, v in model.named_parameters()
        }
        optimiser = torch.optim.Adam(state.values(), spec.learning_rate)
        for rows in batches(case, steps):
            for k, g in gradient(state, x[rows], t[rows]).items():
                state[k].grad = g
            optimiser.step()

    return run


def jaxed(case: Case) -> Run | None:
    """jit(vmap) with all steps in one lax.scan; compiled before it is timed."""
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        return None
    x, t = map(jnp.asarray, case.data())
    spec = case.specs("tanh", 0)[0]
    start = [tuple(map(jnp.asarray, pair)) for pair in initial_weights(spec)]

    def loss(weights: Any, a: Any, b: Any) -> Any:
        for w, bias in weights[:-1]:
            a = jnp.tanh(a @ w.T + bias)
        w, bias = weights[-1]
        z = a @ w.T + bias
        if spec.loss == "cross_entropy":
            return -(b * jax.nn.log_softmax(z)).sum(1).mean()
        return ((jnp.tanh(z) - b) ** 2).mean()

    def step(state: Any, rows: Any) -> Any:
        weights, m, v, n = state
        g = jax.grad(loss)(weights, x[rows], t[rows])
        n = n + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
        weights = jax.tree.map(
            lambda w, m, v: w - 0.001 * (m / (1 - 0.9**n)) / (jnp.sqrt(v / (1 - 0.999**n)) + 1e-8),
            weights,
            m,
            v,
        )
        return (weights, m, v, n), None

    zeros = jax.tree.map(jnp.zeros_like, start)
    stacked = jax.tree.map(
        lambda a: jnp.broadcast_to(a, (case.networks, *a.shape)),
        (start, zeros, zeros, jnp.zeros(())),
    )
    compiled = jax.jit(
        jax.vmap(lambda state, rows: jax.lax.scan(step, state, rows)[0], in_axes=(0, None))
    )

    def run(steps: int) -> None:
        rows = jnp.asarray(batches(case, steps).numpy())
        jax.block_until_ready(compiled(stacked, rows))

    return run


def per_network_step(run: Run, networks: int, seconds: float) -> Callable[[], float]:
    """Warm up, choose how many steps fill ``seconds``, and give a timer of one round."""
    steps = 8
    run(steps)
    begun = time.perf_counter()
    run(steps)
    steps = max(4, int(steps * seconds / (time.perf_counter() - begun)))
    run(steps)  # JAX compiles for every number of steps

    def once() -> float:
        begun = time.perf_counter()
        run(steps)
        return (time.perf_counter() - begun) / (steps * networks)

    return once


def measure(case: Case, seconds: float = 0.6, rounds: int = 5) -> dict[str, Time | None]:
    runs: dict[str, tuple[Run | None, int]] = {
        "loop": (loop(case, "tanh"), 1),
        "loop, fused Adam": (loop(case, "tanh", fused=True), 1),
        "loop, SUDO-16": (loop(case, "sudo-16"), 1),
        "vmap": (vmapped(case), case.networks),
        "JAX jit(vmap)": (jaxed(case), case.networks),
        "torch engine": (engine(case, "torch", "tanh"), case.networks),
        "native engine": (engine(case, "native", "tanh"), case.networks),
        "native engine, SUDO-16": (engine(case, "native", "sudo-16"), case.networks),
    }
    timers = {
        name: per_network_step(run, networks, seconds)
        for name, (run, networks) in runs.items()
        if run is not None
    }
    found: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(rounds):
        for name, once in timers.items():
            found[name].append(once())
    return {
        name: Time(min(found[name]), float(np.median(found[name]))) if name in found else None
        for name in runs
    }


def scaling(case: Case) -> float:
    """How much faster two threads are than one, with as many networks for each."""
    case = Case(case.name, case.sizes, 48 if case.networks > 20 else 12)
    pinned(len(ALL_CORES))
    timers = [
        per_network_step(engine(case, "native", "tanh", threads), case.networks, 1.5)
        for threads in (1, 2)
    ]
    rounds = [[once() for once in timers] for _ in range(5)]
    pinned(1)
    one, two = np.median(rounds, axis=0)
    return float(one / two)


def main() -> str:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    pinned(1)  # JAX starts its threads when it is first used, and so keeps to one core
    heading = ["", *(case.name for case in CASES)]
    found = [measure(case) for case in CASES]
    scaled = [scaling(case) for case in CASES]
    pinned(len(ALL_CORES))

    def cell(time: Time | None, peer: Time | None) -> str:
        return "not installed" if time is None or peer is None else f"{peer.over(time):.1f}"

    rows = [
        ["plain loop, us a network-step", *(f"{f['loop'].median * 1e6:,.0f}" for f in found)],  # type: ignore[union-attr]
        ["native engine, us", *(f"{f['native engine'].median * 1e6:,.1f}" for f in found)],  # type: ignore[union-attr]
    ]
    rows += [
        [f"{name} over the loop", *(cell(f[name], f["loop"]) for f in found)]
        for name in (
            *("loop, fused Adam", "vmap", "JAX jit(vmap)", "torch engine", "native engine"),
        )
    ]
    rows += [
        ["native engine over JAX", *(cell(f["native engine"], f["JAX jit(vmap)"]) for f in found)],
        [
            "SUDO-16: native engine over the loop",
            *(cell(f["native engine, SUDO-16"], f["loop, SUDO-16"]) for f in found),
        ],
        ["native engine, 2 threads over 1", *(f"{faster:.2f}" for faster in scaled)],
    ]
    return table(heading, rows)


if __name__ == "__main__":
    print(main())
