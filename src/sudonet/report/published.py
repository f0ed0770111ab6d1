"""The published tables, and how far the paper's own numbers can be trusted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sudonet.experiments.experiment import BASELINES

DECIMALS = {
    "accuracy_percent": 1,
    "mse_x100": 2,
    "sse": 2,
    "sse_relative_to_conv_tanh_scale_1": 2,
}
"""Decimals that the paper prints."""

WITHOUT_TWIN = {"memorization-1": "memorization-2"}
"""Tables that the appendix does not repeat, and the table whose noise they borrow."""

BORROWED_CEILING = 0.9
"""The noise ceiling of those tables; it is set, not computed."""

FEWEST = 3
"""Fewest values that have a rank correlation."""

DRAWS = 1_000
"""Noisy copies of a table from which its ceiling is computed."""


@dataclass(frozen=True)
class PublishedTable:
    """One table of the paper.

    Parameters
    ----------
    id
        Name, such as ``"checkerboard-2"``; those of the appendix begin with ``r-``.
    family
        ``"sudo"`` or ``"r-sudo"``.
    experiment, shape
        What was trained, as ``TableGrid`` names it.
    metric
        What the numbers are, a key of ``DECIMALS``.
    higher_is_better
        Whether the largest number wins.
    column_meaning
        ``"hidden_units_per_layer"`` or ``"scale"``.
    columns
        Heads of the columns.
    rows
        A number a column, by activation.
    """

    id: str
    family: str
    experiment: str
    shape: str
    metric: str
    higher_is_better: bool
    column_meaning: str
    columns: tuple[int, ...]
    rows: Mapping[str, tuple[float, ...]]

    def value(self, activation: str, column: int) -> float:
        """The number of one cell."""
        return self.rows[activation][self.columns.index(column)]

    @property
    def cells(self) -> list[tuple[str, int]]:
        """(activation, column) of every cell, row by row."""
        return [(row, column) for row in self.rows for column in self.columns]

    @property
    def main(self) -> str:
        """The table of the main text that this one is, or repeats with R-SUDO."""
        return self.id.removeprefix("r-")

    @property
    def compared_by_ratio(self) -> bool:
        """Whether cells are compared after division by the tanh cell of their column.

        Memorization's are: the paper's picture was never published, and another picture has
        another level of error.
        """
        return self.experiment == "memorization"

    @property
    def decimals(self) -> int:
        """Decimals that the paper prints."""
        return DECIMALS[self.metric]

    def column_name(self, column: int) -> str:
        """The head of a column in words.

        Examples
        --------
        >>> tables()["mnist-1"].column_name(50), tables()["autoencoder-conv"].column_name(2)
        ('50 units', 'scale 2')
        """
        return f"scale {column}" if self.column_meaning == "scale" else f"{column} units"


@dataclass(frozen=True)
class Noise:
    """How much numbers change when the paper trains the same networks again.

    Parameters
    ----------
    mean, max
        Of |main text - appendix| over the tanh and relu rows of a table.
    column_mean, column_max
        The same for every column.
    """

    mean: float
    max: float
    column_mean: Mapping[int, float]
    column_max: Mapping[int, float]

    @classmethod
    def of(cls, columns: tuple[int, ...], differences: NDArray[np.float64]) -> Noise:
        """Noise from differences, a column each."""
        means, largest = differences.mean(0).tolist(), differences.max(0).tolist()
        return cls(
            float(differences.mean()),
            float(differences.max()),
            dict(zip(columns, means, strict=True)),
            dict(zip(columns, largest, strict=True)),
        )


def tables() -> dict[str, PublishedTable]:
    """Every table by its name, in the order of the paper.

    Examples
    --------
    >>> tables()["checkerboard-2"].value("sudo-64", 50)
    98.0
    """
    return dict(_loaded())


def table(table_id: str) -> PublishedTable:
    """One table by its name.

    Examples
    --------
    >>> table("r-mnist-4").main
    'mnist-4'
    """
    found = _loaded().get(table_id)
    if found is None:
        raise ValueError(f"no table is called {table_id!r}: choose from {', '.join(_loaded())}")
    return found


def noise(table_id: str) -> Noise:
    """How much the paper's own numbers change from one run to the next.

    The tanh and relu rows are printed twice, in the main text and in the appendix, from two
    runs. Tables of the appendix have the noise of their twin. Only memorization-1 has none:
    it takes the noise of memorization-2, the table nearest in depth, as a share of the tanh
    cell of each column. The mean of all memorization tables would be twice as large, because
    deep networks vary more; the scatter of memorization-1 from row to row shows no such
    noise.

    Examples
    --------
    >>> found = noise("checkerboard-2")
    >>> round(found.mean, 2), round(found.max, 2), round(found.column_max[50], 2)
    (0.62, 2.0, 0.8)
    """
    main = table(table(table_id).main)
    return Noise.of(main.columns, _differences(main))


def noise_as_compared(table_id: str) -> Noise:
    """The noise in the unit in which cells are compared.

    It is that of :func:`noise`, except where cells are compared by ratio: there it is
    divided by the tanh cell of its column.
    """
    main = table(table(table_id).main)
    if not main.compared_by_ratio:
        return noise(table_id)
    return Noise.of(main.columns, _differences(main) / main.rows["tanh"])


@cache
def ceiling(table_id: str, places: frozenset[tuple[str, int]] | None = None) -> float:
    """The rank correlation that a perfect repetition of a table can expect.

    Both sides carry noise, so even the same networks trained again do not give 1. The value
    is simulated: normal noise is added to two copies of the published table, and their rank
    correlations are averaged. In every column the noise is such that two draws differ on
    average as much as the paper's two runs do. Tables of the appendix have the ceiling of
    their twin, and memorization-1 has 0.9, since it has no twin.

    Tables that are compared by ratio have the ceiling of ratios: each noisy copy is divided by
    its own tanh row, which is left out.

    Parameters
    ----------
    table_id
        Name of the table.
    places
        The cells, by activation and column, that were repeated; all by default, and where
        those named have no order.

    Examples
    --------
    >>> round(ceiling("mnist-4"), 2)
    0.98
    """
    main = table(table(table_id).main)
    if main.id in WITHOUT_TWIN:
        return BORROWED_CEILING
    values = np.array(list(main.rows.values()))
    # |difference of two normal draws| has the mean 2 sigma / sqrt(pi)
    sigma = _differences(main).mean(0) * np.sqrt(np.pi) / 2
    generator = np.random.default_rng(0)
    sides = [values + sigma * generator.normal(size=(DRAWS, *values.shape)) for _ in range(2)]
    included = np.ones(values.shape, bool)
    if main.compared_by_ratio:
        tanh = list(main.rows).index("tanh")
        sides = [side / side[:, [tanh]] for side in sides]
        included[tanh] = False
    cells = table(table_id).cells
    repeated = np.array([places is None or place in places for place in cells])
    repeated = repeated.reshape(included.shape) & included
    if repeated.sum() >= FEWEST and np.ptp(values[repeated]) > 0:
        included = repeated
    sides = [side[:, included] for side in sides]
    return float(_correlations(*map(_ranks, sides)).mean())


def rank_correlation(ours: ArrayLike, theirs: ArrayLike) -> float | None:
    """Spearman's rank correlation; equal values share their mean rank.

    None for fewer than 3 values, and where all values of a side are equal: they have no
    order.

    Examples
    --------
    >>> rank_correlation([1, 2, 3, 4], [10, 20, 40, 30])
    0.8
    """
    sides = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if sides[0].size < FEWEST or any(np.ptp(side) == 0 for side in sides):
        return None
    return float(_correlations(*map(_ranks, sides)))


@cache
def _loaded() -> Mapping[str, PublishedTable]:
    text = files("sudonet.report").joinpath("published.json").read_text(encoding="utf-8")
    return {entry["id"]: _parsed(entry) for entry in json.loads(text)}


def _parsed(entry: dict[str, Any]) -> PublishedTable:
    return PublishedTable(
        id=entry["id"],
        family=entry["family"],
        experiment=entry["experiment"],
        shape=entry.get("architecture") or str(entry["hidden_layers"]),
        metric=entry["metric"],
        higher_is_better=entry["higher_is_better"],
        column_meaning=entry["column_meaning"],
        columns=tuple(entry["columns"]),
        rows={name: tuple(map(float, values)) for name, values in entry["rows"].items()},
    )


def _differences(main: PublishedTable) -> NDArray[np.float64]:
    """|main text - appendix| of tanh and relu, a row each."""
    if main.id in WITHOUT_TWIN:
        lender = table(WITHOUT_TWIN[main.id])
        share = _differences(lender) / np.array(lender.rows["tanh"])
        return np.asarray(share * main.rows["tanh"])
    twin = table(f"r-{main.id}")
    first, second = (np.array([t.rows[name] for name in BASELINES]) for t in (main, twin))
    return np.asarray(np.abs(first - second).round(main.decimals))


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks along the last axis, from 0."""
    row, column = values[..., None], values[..., None, :]
    return np.asarray((row > column).sum(-1) + ((row == column).sum(-1) - 1) / 2)


def _correlations(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pearson's correlation along the last axis."""
    a, b = a - a.mean(-1, keepdims=True), b - b.mean(-1, keepdims=True)
    return np.asarray((a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1)))
