"""Error against bits of state: what the bits of a network's hidden units buy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sudonet.experiments import EXPERIMENTS, GRIDS
from sudonet.experiments.autoencoder import CONV_DECODER, DENSE_DECODER, ENCODER, SIDE
from sudonet.experiments.experiment import BASELINES
from sudonet.report import published
from sudonet.report._pair import Tables
from sudonet.report.cell import Cell, Place
from sudonet.report.claims import Verdict
from sudonet.report.page import _words
from sudonet.report.page._tables import cell_id

SAME_BITS = (("sudo-16", 20), ("sudo-256", 10))
"""Two networks of regression-2 with 160 bits of state."""


@dataclass(frozen=True)
class Point:
    """One architecture.

    Parameters
    ----------
    cell
        Its cell in the tables of the page.
    name
        Its description for people.
    group
        Layers, or kind of network; points of a group look alike.
    levels, rectified
        Of its units.
    bits
        Information in all its hidden outputs, hidden units x log2 L; not what is stored.
    ours, published
        Errors; accuracies are given as 100 % minus accuracy.
    """

    cell: str
    name: str
    group: str
    levels: int
    rectified: bool
    bits: float
    ours: float | None
    published: float


@dataclass(frozen=True)
class Answer:
    """One side of the 160-bit question."""

    name: str
    ours: str
    published: str


def explorer(cells: Mapping[str, Mapping[Place, Cell]]) -> list[dict[str, Any]]:
    """Points and fronts of every experiment, as the page's script reads them."""
    found = []
    for name, experiment in EXPERIMENTS.items():
        some = points(name, cells)
        higher = experiment.higher_is_better
        found.append(
            {
                "name": name,
                "title": _words.TITLES[name],
                "error": "wrong answers, %" if higher else experiment.metric,
                "points": [asdict(point) for point in some],
                "fronts": {side: _fronts(some, side) for side in ("ours", "published")},
            }
        )
    return found


def points(experiment: str, cells: Mapping[str, Mapping[Place, Cell]]) -> list[Point]:
    """Every discrete network of an experiment, those with few bits first."""
    found = []
    for grid in GRIDS.values():
        if grid.experiment != experiment:
            continue
        about = published.table(grid.id)
        for unit, column in grid.cells:
            if unit in BASELINES:
                continue
            cell = cells.get(grid.id, {}).get((unit, column))
            value = None if cell is None else cell.value
            levels = int(unit.rpartition("-")[2])
            theirs = _error(about.value(unit, column), about.higher_is_better)
            found.append(
                Point(
                    cell=cell_id(grid.id, unit, column),
                    name=f"{_words.shape(grid)}, {about.column_name(column)}, {unit}",
                    group=_words.shape(grid).partition(", ")[0],
                    levels=levels,
                    rectified=grid.id.startswith("r-"),
                    bits=hidden_units(experiment, grid.shape, column) * math.log2(levels),
                    ours=None if value is None else _error(value, about.higher_is_better),
                    published=round(theirs, about.decimals),
                )
            )
    return sorted(found, key=lambda point: (point.bits, point.cell))


def hidden_units(experiment: str, shape: str, column: int) -> int:
    """How many hidden outputs a network has for one input.

    Examples
    --------
    >>> hidden_units("regression", "2", 20), hidden_units("autoencoder", "conv", 1)
    (40, 53840)
    """
    if experiment != "autoencoder":
        return int(shape) * column
    if shape == "dense":
        return column * sum((*ENCODER, *DENSE_DECODER))
    # Every convolution halves a side of the image, every transposed one doubles it.
    sides = [SIDE >> 1, SIDE >> 2, SIDE >> 3, SIDE >> 4, SIDE >> 3, SIDE >> 2, SIDE >> 1, SIDE]
    widths = (*ENCODER, *CONV_DECODER)
    return column * sum(width * side**2 for width, side in zip(widths, sides, strict=True))


def front(points: Sequence[tuple[float, float | None]]) -> list[int]:
    """The indices of points with a lower error than all that need as many bits or fewer.

    Examples
    --------
    >>> front([(10, 5.0), (20, 6.0), (20, 4.0), (30, None), (40, 3.0)])
    [0, 2, 4]
    """
    known = [(bits, error, i) for i, (bits, error) in enumerate(points) if error is not None]
    found, least = [], math.inf
    for _, error, index in sorted(known):
        if error < least:
            found.append(index)
            least = error
    return found


def _fronts(points: Sequence[Point], side: str) -> dict[str, list[int]]:
    """The front of all points, and of those that are not rectified."""
    errors: list[float | None] = [getattr(point, side) for point in points]
    plain = [None if p.rectified else error for p, error in zip(points, errors, strict=True)]
    return {
        name: front([(p.bits, error) for p, error in zip(points, some, strict=True)])
        for name, some in (("all", errors), ("sudo", plain))
    }


def question(tables: Tables, verdicts: Sequence[Verdict]) -> tuple[list[Answer], Verdict]:
    """The two networks of 160 bits, and the verdict on the claim about them."""
    about, cells = published.table("regression-2"), tables.get("regression-2", {})
    answers = []
    for unit, column in SAME_BITS:
        cell = cells.get((unit, column))
        levels = int(unit.rpartition("-")[2])
        answers.append(
            Answer(
                name=f"2 layers of {column} units with {levels} levels",
                ours=_ours(cell, about.decimals),
                published=_words.number(about.value(unit, column), about.decimals),
            )
        )
    (verdict,) = (one for one in verdicts if "160 bits" in one.claim)
    return answers, verdict


def _ours(cell: Cell | None, digits: int) -> str:
    if cell is None:
        return "not run"
    if cell.value is None:
        return f"none: {cell.reason}"
    spread = "" if cell.spread is None else f" ± {_words.number(cell.spread, digits)}"
    return f"{_words.number(cell.value, digits)}{spread}"


def _error(value: float, higher_is_better: bool) -> float:
    return 100 - value if higher_is_better else value
