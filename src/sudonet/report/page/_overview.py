"""The top of the page: what was run, and how well it agrees."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from sudonet.experiments import EXPERIMENTS, GRIDS
from sudonet.report import published
from sudonet.report.agreement import Agreement
from sudonet.report.cell import Cell, Place
from sudonet.report.claims import Verdict
from sudonet.report.page import _words
from sudonet.report.page._tables import PageTable
from sudonet.study.store import Row
from sudonet.study.view import duration


@dataclass(frozen=True)
class Tile:
    """A table's agreement at a glance.

    Parameters
    ----------
    id, experiment, shape
        Which table.
    spearman, ceiling
        Rank correlation with the paper's cells, empty if there is none, and what the paper's
        own noise allows.
    fill, mark
        The same two as shares of a bar.
    within
        Cells within the paper's noise.
    cells
        How much of the table was run.
    """

    id: str
    experiment: str
    shape: str
    spearman: str
    ceiling: str
    fill: float
    mark: float
    within: str
    cells: str


@dataclass(frozen=True)
class Ran:
    """What was run of an experiment; the texts of a line of a table."""

    title: str
    cells: str
    full: str
    networks: str
    lost: str
    time: str
    data: str
    engine: str


def tiles(tables: Iterable[PageTable]) -> list[Tile]:
    """One for every table, run or not."""
    return [_tile(table, table.agreement) for table in tables]


def headlines(tables: Sequence[PageTable], verdicts: Sequence[Verdict]) -> list[tuple[str, str]]:
    """Key figures of the whole study: the number, and what it counts."""
    found = [table.agreement for table in tables]
    run, printed = sum(a.cells_run for a in found), sum(a.cells_published for a in found)
    compared = sum(a.cells_compared for a in found)
    within = sum((a.within_noise or 0.0) * a.cells_compared for a in found)
    ranked = [(a.spearman, a.ceiling) for a in found if a.spearman is not None]
    supported, refuted, open_ = (
        sum(one.verdict == word for one in verdicts)
        for word in ("supported", "not supported", "undecided")
    )
    has = _words.verb(run, "has", "have")
    lines = [(f"{run:,}", f"of the paper's {printed:,} cells {has} a value of ours")]
    if compared:
        share = _words.percent(within / compared)
        lie = f"{_words.counted(compared, 'cell')} compared {_words.verb(compared, 'lies', 'lie')}"
        lines.append((share, f"of {lie} within the paper's own noise"))
    if ranked:
        middle, most = (median(values) for values in zip(*ranked, strict=True))
        counted = _words.counted(len(ranked), "table")
        allows = f"median rank correlation of {counted}; the paper's noise allows {most:.2f}"
        lines.append((_words.number(middle, 2), allows))
    are, are_not = (_words.verb(count, "is", "are") for count in (supported, refuted))
    others = f"{refuted} {are_not} not, {open_} undecided"
    claims = f"of the paper's {len(verdicts)} claims {are} supported; {others}"
    return [*lines, (f"{supported}", claims)]


def ran(rows: Sequence[Row], cells: Mapping[str, Mapping[Place, Cell]]) -> list[Ran]:
    """A line for every experiment."""
    found = []
    for name in EXPERIMENTS:
        grids = [grid for grid in GRIDS.values() if grid.experiment == name]
        some = [cell for grid in grids for cell in cells.get(grid.id, {}).values()]
        theirs = [row for row in rows if row.trial.experiment == name]
        printed = sum(len(published.table(grid.id).cells) for grid in grids)
        diverged = sum(row.diverged is not None for row in theirs)
        failed = sum(row.failed is not None for row in theirs)
        found.append(
            Ran(
                title=_words.TITLES[name],
                cells=f"{sum(cell.value is not None for cell in some):,} of {printed:,}",
                full=f"{sum(cell.full and cell.value is not None for cell in some):,}",
                networks=f"{len(theirs) - failed:,}",
                lost=f"{diverged:,} / {failed:,}",
                time=duration(sum(row.cpu_seconds for row in theirs)) if theirs else "none",
                data=_joined(map(_source, theirs)) or "not run",
                engine=_joined(row.engine for row in theirs) or "not run",
            )
        )
    return found


def facts(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """About the whole store: a label and a text each."""
    if not rows:
        return [("Networks", "none yet: sudonet reproduce trains them")]
    days = sorted(row.finished[:10] for row in rows)
    when = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    lines = [
        ("Networks", f"{len(rows):,}, {duration(sum(row.cpu_seconds for row in rows))} CPU time"),
        ("Finished", when),
        ("Engine", _joined(row.engine for row in rows)),
        ("CPU", _joined(row.cpu for row in rows)),
        ("Software", _joined(_versions(row.versions) for row in rows)),
    ]
    return [(label, text) for label, text in lines if text]


def _tile(table: PageTable, found: Agreement) -> Tile:
    known = found.spearman is not None
    within = "" if found.within_noise is None else f"{_words.percent(found.within_noise)} in noise"
    return Tile(
        id=table.id,
        experiment=_words.TITLES[table.experiment],
        shape=table.shape.replace("hidden ", ""),
        spearman=_words.number(found.spearman or 0.0, 2) if known else "",
        ceiling=f"{found.ceiling:.2f}",
        fill=round(max(0.0, found.spearman or 0.0), 3),
        mark=round(found.ceiling, 3),
        within=within,
        cells=f"{found.cells_run} of {found.cells_published} cells"
        if found.cells_run
        else "not run",
    )


def _source(row: Row) -> str:
    return f"{row.source}, in place of {row.stand_in_for}" if row.stand_in_for else row.source


def _versions(text: str) -> str:
    """``{"torch": "2.13.0"}`` as ``torch 2.13.0``; what cannot be read, as it is."""
    try:
        return ", ".join(f"{name} {version}" for name, version in json.loads(text).items())
    except (ValueError, AttributeError):
        return text


def _joined(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(text for text in texts if text))
