"""How well the cells of a table agree with the paper's."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from sudonet.experiments import EXPERIMENTS
from sudonet.experiments.experiment import TableGrid
from sudonet.report import published
from sudonet.report.cell import Cell as Cell
from sudonet.report.cell import Place
from sudonet.report.cell import cells as cells
from sudonet.report.published import PublishedTable

ROUNDING = 1e-9
"""Tolerance for rounding errors in differences of printed decimals."""


@dataclass(frozen=True)
class Comparison:
    """Our cell and the paper's, in the unit in which they are compared.

    Parameters
    ----------
    ours, published
        The cells, divided by the tanh cell of their column where tables are compared by
        ratio.
    difference
        Ours - published.
    in_noise
        The difference in units of the table's largest rerun difference.
    """

    ours: float
    published: float
    difference: float
    in_noise: float


@dataclass(frozen=True)
class Agreement:
    """How well a table agrees with the paper's.

    Parameters
    ----------
    table
        Its name.
    spearman
        Rank correlation over the cells compared; None for fewer than 3 cells and where they
        have no order.
    spearman_raw
        The same over all cells with a value, as printed. It differs where tables are
        compared by ratio.
    ceiling
        The rank correlation that the paper's own noise allows over the cells with a value.
    within_noise, within_three
        Share of the cells compared that differ by at most the noise, and three times that.
    mean_difference
        Mean of ours - published.
    noise
        The unit: the largest rerun difference of the paper's table.
    cells_compared, cells_run, cells_full, cells_published
        Cells that were compared, that have a value, that have one by the full protocol, and
        that the paper prints.
    """

    table: str
    spearman: float | None
    spearman_raw: float | None
    ceiling: float
    within_noise: float | None
    within_three: float | None
    mean_difference: float | None
    noise: float
    cells_compared: int
    cells_run: int
    cells_full: int
    cells_published: int


def compare(grid: TableGrid, cells: Mapping[Place, Cell]) -> dict[Place, Comparison]:
    """Every cell that has a value beside the paper's.

    Memorization is compared by ratio: a cell of ours is divided by our tanh cell of the same
    column, a cell of the paper by the paper's. The picture differs, so raw errors would
    differ even if all networks behaved alike. A cell without a tanh cell that was trained in
    the same way cannot be compared and is left out.
    """
    table = published.table(grid.id)
    unit = published.noise_as_compared(grid.id).max
    found = {}
    for place in grid.cells:
        ours, theirs = _as_compared(cells, place, table), table.value(*place)
        if table.compared_by_ratio:
            theirs /= table.value("tanh", place[1])
        if ours is not None:
            found[place] = Comparison(ours, theirs, ours - theirs, (ours - theirs) / unit)
    return found


def agreement(grid: TableGrid, cells: Mapping[Place, Cell]) -> Agreement:
    """Summarise how well a table agrees with the paper's.

    Cells that are 1 by definition carry no information and are left out: the tanh row of a
    memorization table, and the cell that the autoencoders are divided by. What remains of a
    memorization table is correlated by ratio, so that the level of our picture, and how it
    changes from width to width, does not count, and so is its ceiling; ``spearman_raw`` has
    the errors as they are, with the tanh row.
    """
    table = published.table(grid.id)
    compared = {
        place: found
        for place, found in compare(grid, cells).items()
        if not is_one_by_definition(table, place)
    }
    raw = {
        place: (cell.value, table.value(*place))
        for place, cell in cells.items()
        if cell.value is not None and place in grid.cells
    }
    off = [abs(found.in_noise) for found in compared.values()]
    differences = [found.difference for found in compared.values()]
    return Agreement(
        table=grid.id,
        spearman=_spearman({p: (found.ours, found.published) for p, found in compared.items()}),
        spearman_raw=_spearman(raw),
        ceiling=published.ceiling(grid.id, frozenset(raw)),
        within_noise=_share([o <= 1 + ROUNDING for o in off]),
        within_three=_share([o <= 3 + ROUNDING for o in off]),
        mean_difference=statistics.fmean(differences) if differences else None,
        noise=published.noise_as_compared(grid.id).max,
        cells_compared=len(compared),
        cells_run=len(raw),
        cells_full=sum(cells[place].full for place in raw),
        cells_published=len(table.cells),
    )


def is_one_by_definition(table: PublishedTable, place: Place) -> bool:
    """Whether a cell is what others of its table are divided by.

    Examples
    --------
    >>> is_one_by_definition(published.table("memorization-4"), ("tanh", 50))
    True
    """
    activation, column = place
    if table.compared_by_ratio:
        return activation == "tanh"
    return (table.shape, column, activation) == EXPERIMENTS[table.experiment].reference


def _as_compared(cells: Mapping[Place, Cell], place: Place, table: PublishedTable) -> float | None:
    """The value of a cell, or its ratio to tanh; None where there is no such number."""
    cell = cells.get(place)
    if cell is None or cell.value is None or not table.compared_by_ratio:
        return None if cell is None else cell.value
    tanh = cells.get(("tanh", place[1]))
    base = tanh and tanh.as_trained(cell)
    return cell.value / base.value if base and base.value else None


def _spearman(pairs: Mapping[Place, tuple[float, float]]) -> float | None:
    ours, theirs = zip(*pairs.values(), strict=True) if pairs else ((), ())
    return published.rank_correlation(ours, theirs)


def _share(facts: list[bool]) -> float | None:
    return sum(facts) / len(facts) if facts else None
