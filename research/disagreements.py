"""Train a table that disagrees with the paper by other recipes, all of its rows.

    python research/disagreements.py checkerboard-1 checkerboard-4:5,10

says for every recipe how far the tanh and relu rows are from the paper's and how well the whole
table agrees, or some of its columns. It explains; it does not choose: the recipe was
chosen by calibrate.py, which sees the tanh and relu rows alone.
"""

import sys
from dataclasses import replace
from statistics import fmean

import numpy as np
from numpy.typing import NDArray
from rich.progress import track
from scipy.stats import spearmanr
from variants import (
    RATE,
    Variant,
    at_rate,
    in_25,
    in_25_tiles,
    normal,
    other_picture,
    other_places,
    strongly,
)

from sudonet.experiments import BASELINES, EXPERIMENTS, GRIDS, TableGrid, Trial
from sudonet.report import published
from sudonet.train import stream

REPLICAS = 3


def as_it_is(grey: NDArray[np.uint8]) -> NDArray[np.float32]:
    return np.asarray(grey / np.float32(255), np.float32)


RECIPES = {
    "checkerboard": (
        Variant("the recipe", (), (), (), optimiser=None),
        Variant("SGD with momentum", (400_000,), (), (), optimiser="momentum"),
        Variant("Adam", (200_000,), (), ()),
        Variant("Adam, long", (800_000,), (), ()),
    ),
    "memorization": (
        Variant("the recipe", (), (), (), optimiser=None),
        *map(
            in_25_tiles,
            (
                Variant(
                    "SGD with momentum, rate 0.03",
                    (18_000,),
                    (),
                    (),
                    optimiser="momentum",
                    change=at_rate(0.03),
                ),
                Variant("Adam", (6_750,), (), ()),
                Variant("Adam, twice the steps", (13_500,), (), ()),
                Variant("Adam, places from 0 to 8", (6_750,), (), (), task=other_places(0, 8)),
                Variant("Adam, places from -1 to 1", (9_000,), (), (), task=other_places(-1, 1)),
                Variant("Adam, places from -6 to 6", (6_750,), (), (), task=other_places(-6, 6)),
                Variant("Adam, normal weights", (6_750,), (), (), change=normal),
            ),
        ),
        Variant(
            "Adam, rate 0.0005, strong contrast",
            (13_500,),
            (),
            (),
            change=at_rate(0.0005),
            task=other_picture(strongly),
        ),
        Variant(
            "SGD with momentum, rate 0.03, strong contrast",
            (27_000,),
            (),
            (),
            optimiser="momentum",
            change=at_rate(0.03),
            task=other_picture(strongly),
        ),
        Variant("Adam, the same picture as it is", (6_750,), (), (), task=other_picture(as_it_is)),
        Variant(
            "Adam, a flower as it is", (6_750,), (), (), task=other_picture(as_it_is, "flower.jpg")
        ),
        Variant(
            "Adam, a flower with equalised contrast",
            (6_750,),
            (),
            (),
            task=other_picture(in_25, "flower.jpg"),
        ),
    ),
}


def tried(grid: TableGrid, recipe: Variant) -> str:
    """A line: how the table comes out by a recipe."""
    table = published.table(grid.id)
    experiment = EXPERIMENTS[grid.experiment]
    task = recipe.task(experiment.task())
    steps = {
        column: (*recipe.steps, experiment.protocol(grid.shape, column).steps)[0]
        for column in grid.columns
    }
    rate = {
        column: RATE if recipe.optimiser else experiment.protocol(grid.shape, column).rates[0]
        for column in grid.columns
    }
    trials = [
        Trial(experiment.name, grid.shape, column, activation, rate[column], seed, steps[column])
        for activation, column in grid.cells
        for seed in range(REPLICAS)
    ]
    specs = [recipe.spec(experiment, trial, task.data) for trial in trials]
    values: dict[tuple[str, int], list[float]] = {place: [] for place in grid.cells}
    for result in track(stream(specs, task.data, judge=task.score), recipe.name, len(specs)):
        trial = trials[result.index]
        values[trial.activation, trial.column].append(result.measures["value"])
    ours = {place: fmean(found) for place, found in values.items()}
    theirs = {place: table.value(*place) for place in grid.cells}
    if table.compared_by_ratio:
        for cells in (ours, theirs):
            tanh = {column: cells["tanh", column] for column in grid.columns}
            cells.update({place: value / tanh[place[1]] for place, value in cells.items()})
    places = [p for p in grid.cells if not (table.compared_by_ratio and p[0] == "tanh")]
    rank = spearmanr([ours[p] for p in places], [theirs[p] for p in places]).statistic
    off = {
        some: fmean(abs(ours[p] - theirs[p]) for p in places if (p[0] in BASELINES) == some)
        for some in (True, False)
    }
    digits = 3 if table.compared_by_ratio else 1
    lengths = " and ".join(f"{length:,}" for length in sorted(set(steps.values())))
    return (
        f"| {recipe.name} | {lengths} | {off[True]:.{digits}f} | {off[False]:.{digits}f} "
        f"| {rank:.2f} |"
    )


def main() -> None:
    for argument in sys.argv[1:]:
        name, _, some = argument.partition(":")
        known = [grid.id for grid in GRIDS.values() if grid.experiment in RECIPES]
        if name not in known:
            sys.exit(f"no table {name!r} has other recipes: choose from {', '.join(known)}")
        wanted = some.split(",") if some else []
        others = set(wanted) - set(map(str, GRIDS[name].columns))
        if others:
            columns = ", ".join(map(str, GRIDS[name].columns))
            sys.exit(f"{name} has no column {min(others)!r}: choose from {columns}")
        grid = replace(GRIDS[name], columns=tuple(map(int, wanted)) or GRIDS[name].columns)
        lines = [tried(grid, recipe) for recipe in RECIPES[grid.experiment]]
        print(
            f"\n{argument}, {REPLICAS} replicas; the whole table's rank correlation is at best "
            f"{published.ceiling(name)}\n"
        )
        print("| recipe | steps | tanh and relu off by | SUDO off by | rank correlation |")
        print("|---|--:|--:|--:|--:|")
        print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
