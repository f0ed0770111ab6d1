"""Train one small network with four activations on a checkerboard and compare them.

The network gets a point (x, y) of the square [-1, 1]^2 and tells the colour of the
4 x 4 board there: -1 or +1. Only the activation differs between the four runs.
Seed, initial weights and batches are the same.

    python examples/checkerboard.py

prints a table and draws the four decision surfaces to out/checkerboard.png.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import Tensor, nn

import sudonet

ACTIVATIONS = ("tanh", "relu", "sudo-4", "sudo-64")
SEED = 1
SQUARES = 4  # a side of the board
SAMPLES = 5_000
BATCH = 100
GRID = 500  # points a side, for the accuracy
HIDDEN_LAYERS = 2
UNITS = 50
LEARNING_RATE = 0.001
EPOCHS = 350


def colours(points: Tensor) -> Tensor:
    """-1 or +1: the colour of the board at each point (x, y) in [-1, 1]^2."""
    squares = ((points + 1) / 2 * SQUARES).floor().clamp(max=SQUARES - 1)
    return squares.sum(dim=-1, keepdim=True) % 2 * 2 - 1


def network(activation: str) -> nn.Sequential:
    """Two inputs, hidden layers with the activation, one tanh output."""
    torch.manual_seed(SEED)  # so every activation starts from the same weights
    layers: list[nn.Module] = []
    inputs = 2
    for _ in range(HIDDEN_LAYERS):
        layers += [nn.Linear(inputs, UNITS), sudonet.activation(activation)]
        inputs = UNITS
    layers += [nn.Linear(inputs, 1), nn.Tanh()]
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)  # Glorot
            nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


@dataclass
class Result:
    activation: str
    values: str
    bits: int
    loss: float
    accuracy: float
    surface: Tensor


def train(
    model: nn.Module,
    points: Tensor,
    targets: Tensor,
    epochs: int,
    after_epoch: Callable[[], object],
) -> None:
    """Ordinary PyTorch: nothing here knows that the units are discrete."""
    optimiser = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, fused=True)
    order = torch.Generator().manual_seed(SEED)  # the same batches for every activation
    for _ in range(epochs):
        for batch in torch.randperm(len(points), generator=order).split(BATCH):
            loss = nn.functional.mse_loss(model(points[batch]), targets[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        after_epoch()


@torch.no_grad()
def measure(name: str, model: nn.Module, points: Tensor, targets: Tensor) -> Result:
    """Loss on the training samples, accuracy on the grid."""
    axis = (torch.arange(GRID) + 0.5) / GRID * 2 - 1
    grid = torch.cartesian_prod(axis, axis)
    surface = model(grid)
    unit = sudonet.activation(name)
    discrete = isinstance(unit, sudonet.StaircaseUnit)
    return Result(
        activation=name,
        values=str(unit.staircase.outputs) if discrete else "any float32",
        bits=unit.staircase.bits if discrete else 32,
        loss=nn.functional.mse_loss(model(points), targets).item(),
        accuracy=(surface.sign() == colours(grid)).float().mean().item(),
        surface=surface.reshape(GRID, GRID).T,
    )


def table(results: list[Result], epochs: int) -> Table:
    title = f"Checkerboard, {HIDDEN_LAYERS} hidden layers of {UNITS} units, {epochs} epochs"
    found = Table(title=title)
    found.add_column("activation")
    for heading in ("values a unit can emit", "bits of information", "train loss", "accuracy"):
        found.add_column(heading, justify="right")
    for r in results:
        found.add_row(
            r.activation, r.values, str(r.bits), f"{r.loss:.4f}", f"{100 * r.accuracy:.1f} %"
        )
    return found


def picture(results: list[Result], points: Tensor, targets: Tensor) -> Figure:
    colour = {"cmap": "PuOr", "vmin": -1, "vmax": 1}
    figure = Figure(figsize=(3 * (len(results) + 1), 3.3), layout="constrained", facecolor="white")
    samples, *surfaces = figure.subplots(1, len(results) + 1)
    samples.scatter(*points.T, c=targets[:, 0], s=2, **colour)
    samples.set_title(f"{len(points):,} samples")
    for axes, result in zip(surfaces, results, strict=True):
        shown = axes.imshow(result.surface, origin="lower", extent=(-1, 1, -1, 1), **colour)
        axes.set_title(f"{result.activation}: {100 * result.accuracy:.1f} %")
    for axes in (samples, *surfaces):
        axes.set(aspect="equal", xlim=(-1, 1), ylim=(-1, 1), xticks=(-1, 0, 1), yticks=(-1, 0, 1))
    figure.colorbar(
        shown, ax=surfaces, label="network output", shrink=0.7, pad=0.01, ticks=(-1, 0, 1)
    )
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="default: %(default)s")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    options = parser.parse_args()
    if options.epochs < 1:
        parser.error(f"--epochs must be at least 1, got {options.epochs}")

    torch.set_num_threads(1)  # networks this small gain nothing from more
    torch.set_flush_denormal(True)  # numbers near 1e-40 would slow the optimiser down
    console = Console()
    generator = torch.Generator().manual_seed(SEED)
    points = torch.rand(SAMPLES, 2, generator=generator) * 2 - 1
    targets = colours(points)

    results = []
    bars = TextColumn("{task.description:>8}"), BarColumn(), TextColumn("{task.completed} epochs")
    with Progress(*bars, TimeElapsedColumn(), console=console) as progress:
        tasks = {a: progress.add_task(a, total=options.epochs, start=False) for a in ACTIVATIONS}
        for name, task in tasks.items():
            progress.start_task(task)
            model = network(name)
            train(model, points, targets, options.epochs, lambda t=task: progress.advance(t))
            results.append(measure(name, model, points, targets))

    console.print(table(results, options.epochs))
    options.out.mkdir(parents=True, exist_ok=True)
    target = options.out / "checkerboard.png"
    picture(results, points, targets).savefig(target, dpi=100)
    console.print(f"decision surfaces: {target}", soft_wrap=True)


if __name__ == "__main__":
    main()
