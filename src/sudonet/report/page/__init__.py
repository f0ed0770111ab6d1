"""The report as one page that opens from disk, and files of its figures and tables beside it."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Collection, Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sudonet.experiments import GRIDS
from sudonet.report import tables as text_tables
from sudonet.report.claims import judge
from sudonet.report.figures import FORMATS
from sudonet.report.page import _bits, _curves, _overview, _tables, _words
from sudonet.report.page._evidence import claims
from sudonet.report.page._pictures import levels, pictures
from sudonet.report.summary import all_cells
from sudonet.study.figures import FIGURES, MORE, FigureError, Histograms, histograms
from sudonet.study.store import Row

Progress: TypeAlias = Callable[[int, int], None]

SCRIPTS = ("core.js", "theme.js", "tables.js", "unit.js", "board.js", "bits.js")
TABLE_FILES = {"md": ("md", "Markdown"), "tex": ("latex", "LaTeX")}
"""How the names of table files end, the format that makes them, and what a reader calls it."""

FILES = (*FORMATS, *TABLE_FILES)
"""How the names of all files beside the page end."""


def write(
    rows: Iterable[Row],
    figures: Path,
    out: Path,
    progress: Progress | None = None,
    note: str = "",
    formats: Collection[str] = FILES,
) -> Path:
    """Write the report.

    The page is self-contained: styles, scripts, data and pictures are in it, and its security
    policy forbids to load anything. What was not run is named as such.

    Parameters
    ----------
    rows
        Of the store.
    figures
        The folder that :func:`sudonet.study.figures.make` wrote to; it may be missing.
    out
        The folder for ``index.html``, ``figures/`` and ``tables/``; it is created if needed.
    progress
        Called with (parts done, parts in all).
    note
        What a reader must know about the rows, such as ``Store.note``; shown in the overview.
    formats
        Which of :data:`FILES` to write beside the page; it links to no others.

    Returns
    -------
    Path
        ``index.html``.

    Raises
    ------
    OSError
        If ``out`` cannot be written to.
    """
    rows = list(rows)
    total = len(FIGURES) + len(MORE) + 2
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

    out.mkdir(parents=True, exist_ok=True)
    cells = all_cells(rows)
    for name, grid in GRIDS.items():
        for ending in (one for one in TABLE_FILES if one in formats):
            form, _ = TABLE_FILES[ending]
            path = out / "tables" / f"{name}.{ending}"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text_tables.render(grid, cells[name], form), encoding="utf-8")
    step()
    shown = []
    for picture in pictures(figures, out, formats):
        shown.append(picture)
        step()
    page = _render(rows, cells, shown, figures, note, formats)
    path = out / "index.html"
    part = out / f".index.html.{os.getpid()}.part"
    try:
        part.write_text(page, encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    step()
    return path


def _render(
    rows: list[Row],
    cells: Any,
    shown: list[Any],
    figures: Path,
    note: str,
    formats: Collection[str],
) -> str:
    verdicts = judge(cells, _counts(figures))
    tables = _tables.page_tables(cells)
    script = "\n".join(_template(name) for name in SCRIPTS)
    answers, verdict = _bits.question(cells, verdicts)
    return (
        _environment()
        .get_template("page.html")
        .render(
            style=Markup(_template("style.css")),
            script=Markup(f'"use strict";\n(() => {{\n{script}\n}})();\n'),
            data={
                "details": _tables.details(cells),
                "bits": _bits.explorer(cells),
                "board": levels(figures),
            },
            note=note,
            headlines=_overview.headlines(tables, verdicts),
            facts=_overview.facts(rows),
            ran=_overview.ran(rows, cells),
            tiles=_overview.tiles(tables),
            claims=claims(verdicts),
            tables=tables,
            table_files=[(end, name) for end, (_, name) in TABLE_FILES.items() if end in formats],
            titles=_words.TITLES,
            about=_words.ABOUT,
            pictures={picture.name: picture for picture in shown},
            question=answers,
            question_verdict=verdict,
            curves=_curves,
            cell_id=_tables.cell_id,
        )
    )


def _counts(figures: Path) -> Histograms | None:
    """How often levels are used; None if that was not recorded or cannot be read."""
    try:
        return histograms(figures)
    except FigureError:
        return None  # the page says at that figure what is wrong with it


def _template(name: str) -> str:
    return files(__package__).joinpath("templates").joinpath(name).read_text(encoding="utf-8")


def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("sudonet.report.page"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    found.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    found.filters |= {"digest": _digest, "number": _words.number, "counted": _words.counted}
    return found


def _digest(text: str) -> str:
    """The hash by which the page's security policy admits its script."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
