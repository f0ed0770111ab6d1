"""Draw the pictures that the documentation shows: run it with ``make docs-figures``.

Those of the report are of results/index.html, taken by the Chromium that .ci/browser installs;
the one of all cells is of results/results.sqlite.
"""

import shutil
from pathlib import Path
from typing import Literal, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter
from PIL import Image
from playwright.sync_api import Browser, sync_playwright
from rich.progress import track

from sudonet import Staircase
from sudonet.experiments import EXPERIMENTS
from sudonet.experiments.experiment import BASELINES
from sudonet.report import draw_unit, published
from sudonet.report._pair import Tables
from sudonet.report.agreement import compare, is_one_by_definition
from sudonet.report.page._words import TITLES
from sudonet.report.summary import all_cells
from sudonet.report.surfaces import new_figure
from sudonet.study.store import Store

HERE = Path(__file__).parent
IMAGES = HERE / "images"
REPORT = HERE.parent / "results" / "index.html"
STORE = HERE.parent / "results" / "results.sqlite"
LEVELS = (2, 4, 9, 64, 256)
"""The levels that the paper draws."""


class View(NamedTuple):
    """A window on the report."""

    section: str
    width: int
    height: int
    colours: Literal["light", "dark"] = "light"


VIEWS = {
    "report": View("overview", 1600, 1100),
    "report-tables": View("tables", 1400, 950),
    "report-bits": View("bits", 1400, 950),
    "report-unit": View("unit", 1400, 950),
    "report-phone": View("overview", 360, 740, "dark"),
}

# Okabe and Ito's colours, which people with any colour vision can tell apart.
KINDS = {"tanh, relu": ("#E69F00", "D"), "SUDO": ("#0072B2", "o"), "R-SUDO": ("#009E73", "s")}
"""Colour and marker of the cells of baselines and of the two units."""

AXES = {
    "checkerboard": ("accuracy, %", "linear"),
    "regression": ("100 x mean squared error", "log"),
    "memorization": ("squared error, ratio to tanh", "log"),
    "autoencoder": ("squared error, ratio to tanh of scale 1", "log"),
    "mnist": ("accuracy, %", "linear"),
}
"""What the cells of an experiment measure, and on which scale they are drawn."""


def draw_cells(tables: Tables) -> Figure:
    """Every cell of the study against the paper's, a panel for each experiment."""
    figure = new_figure(6.2)
    grid = figure.subplots(2, 3)
    for axes, name in zip(grid.flat, EXPERIMENTS, strict=False):
        _draw_experiment(axes, name, tables)
    key = grid.flat[len(EXPERIMENTS)]
    key.set_axis_off()
    marks = [_mark(*look, name) for name, look in KINDS.items()]
    marks += [
        _mark("#4D4D4D", "o", "filled: by the full protocol"),
        _mark("#4D4D4D", "o", "hollow: by a part of it", "none"),
        Line2D([], [], color="#8C8C8C", linewidth=1, label="ours = the paper's"),
    ]
    key.legend(handles=marks, loc="center", frameon=False, fontsize=10)
    return figure


def _mark(colour: str, marker: str, label: str, face: str | None = None) -> Line2D:
    return Line2D(
        [],
        [],
        color=colour,
        marker=marker,
        linestyle="",
        markersize=5,
        markerfacecolor=face or colour,
        label=label,
    )


def _draw_experiment(axes: Axes, experiment: str, tables: Tables) -> None:
    unit, scale = AXES[experiment]
    ends: list[float] = []
    for grid in EXPERIMENTS[experiment].grids:
        table = published.table(grid.id)
        for place, pair in compare(grid, tables[grid.id]).items():
            repeated = place[0] in BASELINES and grid.id.startswith("r-")  # the same networks
            if is_one_by_definition(table, place) or repeated:
                continue
            colour, marker = KINDS[_kind(place[0])]
            axes.plot(
                pair.published,
                pair.ours,
                color=colour,
                marker=marker,
                markersize=3.5,
                markeredgewidth=0.8,
                markerfacecolor=colour if tables[grid.id][place].full else "none",
                alpha=0.75,
            )
            ends += [pair.published, pair.ours]
    line = min(ends), max(ends)
    axes.plot(line, line, color="#8C8C8C", linewidth=1, zorder=0)
    axes.set_xscale(scale)
    axes.set_yscale(scale)
    axes.set_ylim(axes.get_xlim())
    for axis in (axes.xaxis, axes.yaxis) if scale == "log" else ():
        axis.set_major_locator(LogLocator(subs=(1.0,) if line[1] > 100 * line[0] else (1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
    axes.set_title(TITLES[experiment], fontsize=11)
    axes.set_xlabel(f"the paper: {unit}", fontsize=8)
    axes.set_ylabel("ours", fontsize=8)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_box_aspect(1)


def _kind(activation: str) -> str:
    if activation in BASELINES:
        return "tanh, relu"
    return "R-SUDO" if activation.startswith("r-") else "SUDO"


def take(browser: Browser, view: View, target: Path) -> None:
    """A picture of one section of the report, in few colours: a tenth of the bytes."""
    page = browser.new_page(
        viewport={"width": view.width, "height": view.height},
        color_scheme=view.colours,
        reduced_motion="reduce",
    )
    page.goto(f"{REPORT.as_uri()}#{view.section}")
    page.screenshot(path=target)
    page.close()
    with Image.open(target) as picture:
        few = picture.convert("RGB").quantize(128)
    few.save(target, optimize=True)


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    draw_unit([Staircase(levels) for levels in LEVELS]).savefig(IMAGES / "unit.png")
    with Store.read(STORE) as store:
        draw_cells(all_cells(store.rows())).savefig(IMAGES / "cells.png")
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit(
            "no chromium: .ci/browser installs it as root, or apt-get install chromium"
        )
    with sync_playwright() as playwright:
        window = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, view in track(VIEWS.items(), "Photographing the report"):
            take(window, view, IMAGES / f"{name}.png")
        window.close()
