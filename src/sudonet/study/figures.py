"""Trains the networks of the paper's figures and keeps the arrays that are drawn."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray

from sudonet.experiments import BASELINES, EXPERIMENTS, Task, Trial, checkerboard, parabola
from sudonet.experiments.autoencoder import SIDE, shades
from sudonet.experiments.data import photograph
from sudonet.experiments.experiment import SUDO
from sudonet.experiments.presets import PRESETS
from sudonet.experiments.regression import surface
from sudonet.experiments.square import even_grid
from sudonet.staircase import Staircase
from sudonet.study.figure_file import FORMAT, Arrays, Meta, comparable, prepare, write
from sudonet.study.figure_file import FigureError as FigureError
from sudonet.study.figure_file import read as read
from sudonet.study.local import Tasks, versions
from sudonet.train import AnySpec, Result, engine_name, stream

UNIT_LEVELS = (2, 4, 9, 64, 256)
BOARD_SHAPES = ((1, 200), (2, 200), (4, 200), (4, 5))
"""Numbers of hidden layers and of units in each."""

BOARD_ACTIVATIONS = ("relu", "tanh", "sudo-256")
BINARY_SHAPES = ((4, 10), (4, 50), (4, 200))
SURFACE_ACTIVATIONS = ("tanh", "relu", "sudo-2", "sudo-8", "sudo-256")
COUNTED = ("sudo-4", "sudo-8", "sudo-16", "sudo-64", "tanh")
TANH_BINS = 8
PICTURED = ("tanh", "relu", "sudo-2", "sudo-4", "sudo-8", "sudo-256")
SMALL = (4, 50)
"""The shape of the networks of regression, histogram and memorization."""

AUTOENCODED = ("tanh", "relu", "sudo-4", "sudo-64")
AUTOENCODER_MOST = PRESETS["standard"].of("autoencoder", "conv").steps
"""All steps of the protocol would take longer than the other figures together."""

SQUARE = 213
"""Side in pixels: two rows of three such squares are cut from each photograph."""

SEED = 0
POINTS = 250
"""Points along each side of a surface; a picture shows no more."""

SMALL_POINTS = 125
"""The same for a surface that is one of many on a page."""

Progress: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Subject:
    """What a figure shows.

    Parameters
    ----------
    arrays
        Makes the arrays to draw from the trained networks by name.
    task
        The data; None where a figure needs none.
    networks
        The networks to train, by name.
    most
        The largest share of the full protocol's steps that they are ever trained for.
    """

    arrays: Callable[[Mapping[str, Result]], Arrays]
    task: Task | None = None
    networks: Mapping[str, AnySpec] = field(default_factory=dict)
    most: float = 1.0


def make(
    folder: Path,
    *,
    share: float = 1.0,
    threads: int | None = None,
    engine: str = "auto",
    names: Collection[str] | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Train the networks of the figures and write a file for each figure.

    A file is written atomically, as soon as its networks are trained. A file that was made
    before in the same way is kept, so a run that was stopped can be resumed.

    Parameters
    ----------
    folder
        Where the files go; it is created if it does not exist.
    share
        Of a figure's full training, more than 0 and at most 1.
    threads, engine
        As in :func:`sudonet.train.train`.
    names
        Which figures to make, of :data:`FIGURES` and :data:`MORE`; all of them by default.
    progress
        Called from time to time with (network-steps done, network-steps in all).

    Returns
    -------
    list of Path
        ``<figure>.npz`` of every figure asked for, in the order of the paper.
    """
    known = FIGURES | MORE
    if not 0 < share <= 1:
        raise ValueError(f"share must be a number above 0 and at most 1, got {share!r}")
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise ValueError(f"no figure is called {unknown[0]!r}: choose from {', '.join(known)}")
    prepare(folder)
    tasks = Tasks()
    jobs = [
        _Job(folder / f"{name}.npz", subject(tasks, share), share, engine)
        for name, subject in known.items()
        if names is None or name in names
    ]
    groups: dict[Task | None, list[_Job]] = defaultdict(list)
    for job in jobs:
        if not job.is_done():
            groups[job.subject.task].append(job)
    # A network that two figures share is trained once.
    specs = {
        task: list(dict.fromkeys(spec for job in some for spec in job.subject.networks.values()))
        for task, some in groups.items()
    }
    total, before = sum(spec.steps for some in specs.values() for spec in some), 0
    for task, some in groups.items():
        results: dict[AnySpec, Result] = {}
        _write_complete(some, results)
        if task is None:
            continue
        training = stream(
            specs[task],
            task.data,
            engine=engine,
            threads=threads,
            judge=task.score,
            progress=partial(_report, progress, before, total) if progress else None,
        )
        # Close it even if a file cannot be written; otherwise its threads keep training.
        with closing(cast("Generator[Result, None, None]", training)):
            for result in training:
                results[specs[task][result.index]] = result
                _write_complete(some, results)
        before += sum(spec.steps for spec in specs[task])
    return [job.path for job in jobs]


class Histograms(NamedTuple):
    """How often hidden units emit each value.

    Parameters
    ----------
    counts
        Lowest value first, by activation.
    share
        Of the full protocol's steps that the networks were trained for.
    """

    counts: Mapping[str, Sequence[int]]
    share: float


def histograms(folder: Path) -> Histograms | None:
    """The counts of the figure ``histogram``; None if it was not made yet."""
    path = folder / "histogram.npz"
    if not path.exists():
        return None
    arrays, meta = read(path)
    return Histograms({name: counts.tolist() for name, counts in arrays.items()}, meta["share"])


def _report(progress: Progress, before: int, total: int, done: int, _: int) -> None:
    progress(before + done, total)


class _Job:
    """One file to write."""

    def __init__(self, path: Path, subject: Subject, share: float, engine: str) -> None:
        self.path, self.subject = path, subject
        specs, source = subject.networks, subject.task and subject.task.source
        self.written = False
        engines = {engine_name(spec, engine) for spec in specs.values()}
        meta = {
            "figure": path.stem,
            "format": FORMAT,
            "share": share * subject.most,
            "steps": max((spec.steps for spec in specs.values()), default=0),
            "engine": ", ".join(sorted(engines)),
            "data": source and asdict(source),
            "specs": {name: asdict(spec) for name, spec in specs.items()},
            "versions": versions(),
        }
        self.meta: Meta = json.loads(json.dumps(meta))  # in the form in which it is read back

    def is_done(self) -> bool:
        """Whether the file exists and was made in the same way."""
        try:
            _, found = read(self.path)
        except FigureError:
            return False
        found.pop("values", None)
        return comparable(found) == comparable(self.meta)

    def is_ready(self, results: Mapping[AnySpec, Result]) -> bool:
        return not self.written and all(s in results for s in self.subject.networks.values())

    def write(self, results: Mapping[AnySpec, Result]) -> None:
        found = {name: results[spec] for name, spec in self.subject.networks.items()}
        for name, result in found.items():
            if result.diverged is not None:
                raise FigureError(
                    f"cannot make {self.path}: the network {name!r} diverged at step "
                    f"{result.diverged}. Choose the other figures by their names"
                )
        values = {name: result.measures["value"] for name, result in found.items()}
        write(self.path, self.subject.arrays(found), self.meta | {"values": values})
        self.written = True


def _write_complete(jobs: list[_Job], results: Mapping[AnySpec, Result]) -> None:
    for job in jobs:
        if job.is_ready(results):
            job.write(results)


def _steps(full: int, share: float) -> int:
    return max(1, round(full * share)) if full else 0


def _trials(
    experiment: str,
    shapes: Collection[tuple[int | str, int]],
    activations: Collection[str],
    task: Task,
    share: float,
) -> dict[str, AnySpec]:
    """Networks by name, such as ``"4 x 200 relu"``, as the experiment's tables train them."""
    found = {}
    for layers, units in shapes:
        protocol = EXPERIMENTS[experiment].protocol(str(layers), units)
        steps = _steps(protocol.steps, share)
        for name in activations:
            trial = Trial(experiment, str(layers), units, name, protocol.rates[0], SEED, steps)
            found[f"{layers} x {units} {name}"] = EXPERIMENTS[experiment].spec(trial, task.data)
    return found


def _small(
    experiment: str,
    activations: Collection[str],
    task: Task,
    share: float,
    shape: tuple[int | str, int] = SMALL,
) -> dict[str, AnySpec]:
    """Networks of one shape by activation."""
    found = _trials(experiment, [shape], activations, task, share)
    return dict(zip(activations, found.values(), strict=True))


def _unit(tasks: Tasks, share: float) -> Subject:
    return Subject(lambda results: {"levels": np.array(UNIT_LEVELS)})


def _parabola(tasks: Tasks, share: float, *, units: int) -> Subject:
    # An even number of places, none of them 0: without biases all thresholds lie there, and
    # what an untrained network emits at that very point alone would be drawn as a spike.
    x = np.linspace(-1, 1, 2 * parabola.SAMPLES, dtype=np.float32)
    specs = [replace(spec, steps=_steps(spec.steps, share)) for spec in parabola.specs(units, SEED)]
    moments = range(len(parabola.MOMENTS))
    names = [f"{name} at moment {k}" for name in parabola.ACTIVATIONS for k in moments]

    def arrays(results: Mapping[str, Result]) -> Arrays:
        fits = {name: result.predict(x[:, None])[:, 0] for name, result in results.items()}
        return {"x": x, "steps": np.array([specs[k].steps for k in moments])} | {
            name: np.stack([fits[f"{name} at moment {k}"] for k in moments])
            for name in parabola.ACTIVATIONS
        }

    return Subject(arrays, parabola.task(), dict(zip(names, specs, strict=True)))


def _samples(tasks: Tasks, share: float) -> Subject:
    task = tasks["checkerboard"]
    points, colour = checkerboard.samples(), task.data.targets[:, 0].astype(np.int8)
    return Subject(lambda results: {"points": points, "colour": colour}, task)


def _surfaces(
    tasks: Tasks,
    share: float,
    *,
    shapes: tuple[tuple[int, int], ...],
    activations: tuple[str, ...],
) -> Subject:
    task = tasks["checkerboard"]
    return Subject(
        lambda results: {
            name: _square(result.predict(even_grid(POINTS))) for name, result in results.items()
        },
        task,
        _trials("checkerboard", shapes, activations, task, share),
    )


def _regression(tasks: Tasks, share: float) -> Subject:
    task = tasks["regression"]
    target = _square(surface(even_grid(POINTS)))
    return Subject(
        lambda results: (
            {"target": target}
            | {name: _square(r.predict(even_grid(POINTS))) for name, r in results.items()}
        ),
        task,
        _small("regression", SURFACE_ACTIVATIONS, task, share),
    )


def _histogram(tasks: Tasks, share: float) -> Subject:
    task = tasks["memorization"]
    return Subject(
        lambda results: {
            name: _counts(name, result, task.data.inputs) for name, result in results.items()
        },
        task,
        _small("memorization", COUNTED, task, share),
    )


def _memorization(tasks: Tasks, share: float) -> Subject:
    task = tasks["memorization"]
    return Subject(
        lambda results: (
            {"picture": _grey(task.data.targets)}
            | {name: _grey(result.predict(task.data.inputs)) for name, result in results.items()}
        ),
        task,
        _small("memorization", PICTURED, task, share),
    )


def _levels(tasks: Tasks, share: float) -> Subject:
    task = tasks["checkerboard"]
    points = even_grid(SMALL_POINTS)
    return Subject(
        lambda results: {name: _grey(result.predict(points)) for name, result in results.items()},
        task,
        _small("checkerboard", (*BASELINES, *SUDO), task, share, (4, 10)),
    )


def _autoencoder(tasks: Tasks, share: float) -> Subject:
    """Trained on the tables' data, but judged on pictures that may be shown."""
    theirs = tasks["autoencoder"]
    squares = _squares()
    inputs = shades(squares)

    def score(result: Result) -> dict[str, float]:
        error = result.predict(inputs) - inputs
        return {"value": float(np.square(error, dtype=np.float64).sum() / len(inputs))}

    return Subject(
        lambda results: (
            {"photographs": squares}
            | {name: _bytes(result.predict(inputs)) for name, result in results.items()}
        ),
        Task(theirs.data, theirs.source, score, len(inputs)),
        _small("autoencoder", AUTOENCODED, theirs, share * AUTOENCODER_MOST, ("conv", 1)),
        AUTOENCODER_MOST,
    )


def _squares() -> NDArray[np.uint8]:
    """Squares of scikit-learn's photographs, scaled down, as three colour planes each."""
    from PIL.Image import Resampling, fromarray

    found = [
        fromarray(photograph(name)).resize(
            (SIDE, SIDE), Resampling.LANCZOS, (x, y, x + SQUARE, y + SQUARE)
        )
        for name in ("china.jpg", "flower.jpg")
        for y in (0, SQUARE)
        for x in (0, SQUARE, 2 * SQUARE)
    ]
    return np.stack([np.asarray(image).transpose(2, 0, 1) for image in found])


def _square(heights: NDArray[np.float32]) -> NDArray[np.float16]:
    """Heights at the points of a grid as a picture, with its columns along x."""
    return np.asarray(heights.reshape(POINTS, POINTS).T, np.float16)


def _grey(brightness: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Pixels of a square from -1..1, x slowest, to 0..255, in rows."""
    side = math.isqrt(brightness.size)
    return _bytes(brightness.reshape(side, side).T)


def _bytes(shades: NDArray[np.float32]) -> NDArray[np.uint8]:
    """From -1..1 to 0..255."""
    return np.asarray(np.rint((shades + 1) * 127.5), np.uint8)


def _counts(name: str, result: Result, inputs: NDArray[np.float32]) -> NDArray[np.int64]:
    """How often hidden units emitted each level, lowest first; tanh is cut into even bins."""
    if name == "tanh":
        between = np.linspace(-1, 1, TANH_BINS + 1)[1:-1]
    else:
        values = Staircase.parse(name).values
        between = (values[1:] + values[:-1]) / 2
    total = np.zeros(len(between) + 1, np.int64)
    model, x = result.module(), torch.from_numpy(inputs)
    with torch.no_grad():
        for number in range(len(result.spec.activations)):
            x = model[2 * number : 2 * number + 2](x)  # a linear layer and its units
            level = np.searchsorted(between, x.numpy().ravel())
            total += np.bincount(level, minlength=len(total))
    return total


FIGURES: dict[str, Callable[[Tasks, float], Subject]] = {
    "unit": _unit,
    **{f"parabola-{units}": partial(_parabola, units=units) for units in parabola.UNITS},
    "checkerboard-samples": _samples,
    "checkerboard-surfaces": partial(_surfaces, shapes=BOARD_SHAPES, activations=BOARD_ACTIVATIONS),
    "checkerboard-binary": partial(_surfaces, shapes=BINARY_SHAPES, activations=("sudo-2",)),
    "regression": _regression,
    "histogram": _histogram,
    "memorization": _memorization,
}
"""In the order of the paper."""

MORE: dict[str, Callable[[Tasks, float], Subject]] = {
    "autoencoder": _autoencoder,
    "checkerboard-levels": _levels,
}
"""Only on the report's page: reconstructions, and one checkerboard for every L."""
