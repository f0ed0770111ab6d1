"""The ways to close what the paper leaves open that calibrate.py compares."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL.Image import fromarray

from sudonet.experiments import Experiment, Task, Trial
from sudonet.experiments import checkerboard as board
from sudonet.experiments.data import Picture, Source, photograph
from sudonet.experiments.data._photograph import central_square, equalised
from sudonet.experiments.memorization import SPAN, Memorization
from sudonet.experiments.square import even_grid
from sudonet.train import AnySpec, Data

RATE = 0.001
"""Of a variant that has no rate of its own."""


@dataclass(frozen=True)
class Variant:
    """One way to close what is open.

    Parameters
    ----------
    name
        What differs from the frozen recipe, in words.
    steps
        Lengths of training to compare.
    columns
        Columns to train, of every shape of the experiment.
    optimiser
        ``"adam"`` or ``"momentum"``; None for that of the recipe.
    change
        Makes the spec of the variant from that of the recipe.
    task
        Makes its data and its measure from those of the recipe.
    curve
        Whether networks are trained once, for the longest of ``steps``, and the value after each
        is read off their loss curve: summed over all samples, the mean of two epochs.
    """

    name: str
    steps: tuple[int, ...]
    columns: tuple[int, ...]
    shapes: tuple[str, ...]
    replicas: int = 3
    optimiser: str | None = "adam"
    change: Callable[[AnySpec], AnySpec] = lambda spec: spec
    task: Callable[[Task], Task] = field(default=lambda task: task)
    curve: bool = False

    def spec(self, experiment: Experiment, trial: Trial, data: Data) -> AnySpec:
        """The network of a trial as this variant trains it."""
        spec = experiment.spec(trial, data)
        return self.change(replace(spec, optimiser=self.optimiser or spec.optimiser))


def fewer(samples: int) -> Callable[[Task], Task]:
    return lambda task: replace(
        task, data=Data(task.data.inputs[:samples], task.data.targets[:samples])
    )


def other_board(
    squares: int = board.SQUARES, stretch: float = 1.0, shift: float = 0.0
) -> Callable[[Task], Task]:
    """A board of ``squares`` a side; networks see coordinates times ``stretch`` plus ``shift``."""

    def made(task: Task) -> Task:
        points, grid = board.samples(), even_grid(board.GRID)
        right = board.colours(grid, squares)

        def seen(places: Any) -> Any:
            return places * stretch + shift

        def score(result: Any) -> dict[str, float]:
            found = result.predict(seen(grid)) > 0
            return {"value": 100 * float((found == (right > 0)).mean())}

        return replace(task, data=Data(seen(points), board.colours(points, squares)), score=score)

    return made


def whole(grey: NDArray[np.uint8]) -> NDArray[np.float32]:
    """A picture equalised by one histogram, without a limit on contrast."""
    counts = np.bincount(grey.ravel(), minlength=256)
    return np.asarray((np.cumsum(counts) / grey.size)[grey], np.float32)


def other_picture(
    contrast: Callable[[NDArray[np.uint8]], NDArray[np.float32]], name: str = "china.jpg"
) -> Callable[[Task], Task]:
    """Memorizes the middle of a photograph with another contrast, or of another one."""

    def made(_: Task) -> Task:
        pixels = contrast(central_square(fromarray(photograph(name))))
        return Memorization().task(Picture(pixels, Source.of(name, pixels)))

    return made


def in_25(grey: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Contrast equalised in 5 x 5 tiles, as it was before 2 x 2 fitted better."""
    return equalised(grey, 5)


def strongly(grey: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Contrast equalised so that a picture is about as hard to memorize as the paper's."""
    return equalised(grey, 5, limit=20)


def in_25_tiles(variant: Variant) -> Variant:
    """The same on the picture of 5 x 5 tiles."""
    picture = other_picture(in_25)
    return replace(
        variant,
        name=f"5 x 5 tiles, {variant.name}",
        task=lambda task: variant.task(picture(task)),
    )


def other_places(first: float, last: float, low: float = -1.0) -> Callable[[Task], Task]:
    """Places from ``first`` to ``last``, brightness from ``low`` to 1."""

    def made(task: Task) -> Task:
        places = np.asarray(task.data.inputs / SPAN * (last - first) + first, np.float32)
        brightness = (task.data.targets + 1) / 2 * (1 - low) + low

        def score(result: Any) -> dict[str, float]:
            return {"value": float(((result.predict(places) - brightness) ** 2).sum())}

        return replace(task, data=Data(places, brightness), score=score)

    return made


def batches_of(size: int) -> Callable[[AnySpec], AnySpec]:
    return lambda spec: replace(spec, batch_size=size)


def at_rate(rate: float) -> Callable[[AnySpec], AnySpec]:
    return lambda spec: replace(spec, learning_rate=rate)


LAYERS, DEPTHS = ("1", "2", "4"), ("1", "2", "4", "10")
SMALL = (5, 10, 50)
LENGTHS = (9_000, 13_500, 18_000, 22_500, 27_000)
STRONG = (9_000, 11_250, 13_500, 15_750)


def normal(spec: AnySpec) -> AnySpec:
    return replace(spec, initial="glorot-normal")


VARIANTS: dict[str, tuple[Variant, ...]] = {
    "checkerboard": (
        Variant(
            "SGD with momentum, one layer",
            (400_000, 450_000, 500_000),
            (5, 10, 50, 100, 200),
            ("1",),
            12,
            "momentum",
        ),
        Variant(
            "SGD with momentum, rate 0.0001, one layer",
            (450_000,),
            (5, 10, 50, 100, 200),
            ("1",),
            12,
            "momentum",
            change=at_rate(0.0001),
        ),
        Variant("SGD with momentum", (400_000, 500_000), (5, 10), ("2", "4"), 12, "momentum"),
        Variant(
            "SGD with momentum, long",
            (600_000, 800_000, 1_200_000),
            (5, 10),
            ("2", "4"),
            12,
            "momentum",
        ),
        Variant(
            "SGD with momentum, longer",
            (1_600_000, 2_400_000),
            (5, 10),
            ("2", "4"),
            12,
            "momentum",
        ),
        Variant("SGD with momentum, 50 units", (800_000,), (50,), ("2", "4"), 3, "momentum"),
        *(
            Variant(
                f"SGD with momentum, rate {rate}, fewer steps",
                steps,
                SMALL,
                LAYERS,
                6,
                "momentum",
                change=at_rate(rate),
            )
            for rate, steps in ((0.003, (150_000,)), (0.01, (30_000, 45_000, 60_000, 80_000)))
        ),
        Variant("Adam", (100_000, 200_000, 300_000), SMALL, LAYERS),
        Variant("Adam, one wide layer", (100_000, 200_000, 300_000), (100, 200), ("1",)),
        *(
            Variant(
                f"Adam, inputs from {shift - reach:g} to {shift + reach:g}",
                steps,
                (5, 10),
                LAYERS,
                task=other_board(stretch=reach, shift=shift),
            )
            for reach, shift, steps in (
                (0.75, 0, (200_000, 300_000)),
                (1.25, 0, (100_000, 200_000)),
                (2, 0, (50_000, 100_000)),
                (1, 1, (200_000,)),
            )
        ),
        Variant("Adam, 12 replicas", (200_000, 400_000, 800_000), (5, 10), LAYERS, 12),
        Variant("Adam, one layer, long", (400_000, 800_000), (50, 100, 200), ("1",), 6),
        Variant(
            "Adam, inputs from -0.5 to 0.5, 12 replicas",
            (400_000, 800_000),
            (5, 10),
            LAYERS,
            12,
            task=other_board(stretch=0.5),
        ),
        Variant(
            "Adam, normal weights",
            (200_000,),
            (5, 10),
            LAYERS,
            change=normal,
        ),
        Variant(
            "Adam, batches of 32",
            (200_000, 300_000),
            (5, 10),
            LAYERS,
            change=batches_of(32),
        ),
        *(
            Variant(
                f"Adam, {n} x {n} board",
                (200_000,),
                (5, 10),
                LAYERS,
                task=other_board(n),
            )
            for n in (3, 6)
        ),
        *(
            Variant(
                f"Adam, {n} x {n} board, inputs from -{reach} to {reach}{rest}",
                steps,
                columns,
                shapes,
                replicas,
                task=other_board(n, reach),
            )
            for n, reach, rest, steps, columns, shapes, replicas in (
                (4, 2, "", (12_500, 25_000, 35_000, 50_000), SMALL, LAYERS, 4),
                (4, 2, ", one wide layer", (25_000, 35_000, 50_000), (100, 200), ("1",), 3),
                (4, 1, "", (35_000, 50_000, 87_500, 150_000), SMALL, LAYERS, 3),
                (8, 2, "", (35_000,), SMALL, LAYERS, 3),
                (2, 2, "", (12_500, 35_000), SMALL, LAYERS, 3),
            )
        ),
    ),
    "regression": (
        Variant("the recipe", (75_000, 100_000, 150_000), (10, 20, 50), ("2", "4"), 2),
        Variant("2,000 samples", (40_000, 80_000), (10, 20), ("2", "4"), task=fewer(2_000)),
        Variant(
            "weights and biases as PyTorch draws them",
            (100_000,),
            (10, 20),
            ("2", "4"),
            change=lambda spec: replace(spec, initial="torch"),
        ),
    ),
    "memorization": (
        *(
            Variant(
                f"{name}{rest}",
                steps,
                (50, 100, 200),
                depths,
                replicas,
                optimiser,
                change=at_rate(rate),
                task=other_picture(contrast),
                curve=True,
            )
            for name, optimiser, rate, contrast, steps, some in (
                ("SGD with momentum", "momentum", 0.01, equalised, LENGTHS, 2),
                ("SGD with momentum, no tiles", "momentum", 0.01, whole, LENGTHS, 2),
                ("SGD with momentum, 5 x 5 tiles", "momentum", 0.01, in_25, LENGTHS, 1),
                ("Adam", "adam", 0.001, equalised, (4_500, 6_750, 9_000, 13_500), 1),
                ("strong contrast, Adam, rate 0.0005", "adam", 0.0005, strongly, STRONG, 2),
            )
            for rest, depths, replicas in (
                (", 1 to 4 layers", LAYERS, 3),
                (", 10 layers", ("10",), 2),
            )[:some]
        ),
        *map(
            in_25_tiles,
            (
                *(
                    Variant(
                        f"places from {first} to {last}{rest}",
                        (6_750, 9_000),
                        columns,
                        depths,
                        3,
                        task=other_places(first, last),
                    )
                    for first, last in ((0, 2), (0, 4), (0, 6), (0, 8), (-6, 6))
                    for rest, columns, depths in (
                        (", all widths", (50, 100, 200), ("1", "2", "4")),
                        (", 10 layers", (50,), ("10",)),
                    )
                ),
                *(
                    Variant(
                        f"places from {first} to {last}, 10 wide layers",
                        (6_750, 9_000),
                        (100, 200),
                        ("10",),
                        2,
                        task=other_places(first, last),
                    )
                    for first, last in ((0, 2), (0, 4), (-6, 6))
                ),
                Variant(
                    "places from 0 to 4, rate 0.0001",
                    (6_750, 9_000),
                    (50, 100, 200),
                    DEPTHS,
                    3,
                    change=at_rate(0.0001),
                    task=other_places(0, 4),
                ),
                *(
                    Variant(
                        f"places from -{reach} to {reach}",
                        steps,
                        (50,),
                        DEPTHS,
                        replicas,
                        task=other_places(-reach, reach),
                    )
                    for reach, replicas, steps in (
                        *((reach, 2, (4_500, 9_000, 22_500)) for reach in (1, 2, 4)),
                        *((reach, 4, (4_500, 9_000, 15_000, 22_500)) for reach in (6, 10)),
                    )
                ),
                *(
                    Variant(
                        f"places from -{reach} to {reach}, brightness from 0 to 1",
                        (4_500, 9_000),
                        (50,),
                        DEPTHS,
                        4,
                        task=other_places(-reach, reach, 0.0),
                    )
                    for reach in (6, 10)
                ),
                *(
                    Variant(
                        f"SGD with momentum, rate {rate}, one layer",
                        (18_000, 36_000, 72_000),
                        (50, 100, 200),
                        ("1",),
                        3,
                        "momentum",
                        change=at_rate(rate),
                    )
                    for rate in (0.01, 0.03, 0.06)
                ),
                Variant(
                    "SGD with momentum, rate 0.01, 10 layers",
                    (18_000,),
                    (50, 100),
                    ("10",),
                    3,
                    "momentum",
                    change=at_rate(0.01),
                ),
                Variant(
                    "SGD with momentum, rate 0.03",
                    (18_000,),
                    (50, 100, 200),
                    ("1", "2", "4"),
                    3,
                    "momentum",
                    change=at_rate(0.03),
                ),
                Variant(
                    "places from -6 to 6, batches of 32",
                    (7_040, 14_080),
                    (50,),
                    DEPTHS,
                    2,
                    change=batches_of(32),
                    task=other_places(-6, 6),
                ),
            ),
        ),
    ),
    "mnist": (
        Variant("the recipe", (6_000, 12_000, 18_000, 24_000), (2, 3, 4, 10), ("1", "4"), 2),
        Variant("the recipe, wide layers", (12_000, 18_000), (50,), ("1", "4"), 1),
    ),
    "autoencoder": (
        Variant("the recipe, dense", (1_250, 2_500, 5_000), (1, 2, 4, 8), ("dense",), 2),
        Variant("the recipe", (400, 1_600), (1, 2), ("conv",), 1),
        Variant("the recipe, wider", (400,), (4,), ("conv",), 1),
        Variant("batches of 100", (400,), (1,), ("conv",), 1, change=batches_of(100)),
        Variant("rate 0.001, wide", (600,), (4, 8), ("conv",), 1),
        Variant("rate 0.0003, wide", (600,), (4, 8), ("conv",), 1, change=at_rate(0.0003)),
        *(
            Variant(
                f"batches of 8, rate {rate}",
                (1_875,),
                (1, 4),
                ("conv",),
                1,
                change=lambda spec, rate=rate: at_rate(rate)(batches_of(8)(spec)),
            )
            for rate in (0.001, 0.0005)
        ),
        Variant("rate 0.001, long", (1_800,), (8,), ("conv",), 1),
        Variant("rate 0.0003, long", (1_800,), (8,), ("conv",), 1, change=at_rate(0.0003)),
    ),
}
