"""Figures that show a plane: boards, surfaces, memorized photographs."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, LogNorm, Normalize
from matplotlib.figure import Figure, FigureBase
from matplotlib.image import AxesImage
from matplotlib.layout_engine import ConstrainedLayoutEngine
from numpy.typing import NDArray

from sudonet.experiments.checkerboard import SQUARES
from sudonet.study.figure_file import Arrays, Meta

WIDTH = 9.0
"""Inches. Shown 900 pixels wide, a point of text is 1.4 pixels high."""

DPI = 150  # sharp on dense screens too

# Okabe and Ito's colours, which people with any colour vision can tell apart.
LOW, HIGH = "#0072B2", "#E69F00"
BOTH = LinearSegmentedColormap.from_list("low to high", [LOW, "#FFFFFF", HIGH])
ERROR_COLOURS = "magma_r"
LEAST_ERROR, MOST_ERROR = 1e-3, 1.0
"""Ends of the scale of errors."""


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """An empty figure of this size in inches."""
    layout = ConstrainedLayoutEngine(h_pad=0.05, w_pad=0.05)
    return Figure(figsize=(width, height), dpi=DPI, layout=layout, facecolor="white")


def draw_samples(arrays: Arrays, meta: Meta) -> Figure:
    """Points of a checkerboard in the colours of their squares."""
    figure = new_figure(6.4, 6.4)
    axes = figure.subplots()
    for sign, fill, marker in ((-1, LOW, "o"), (1, HIGH, "s")):
        x, y = arrays["points"][arrays["colour"] == sign].T
        axes.scatter(x, y, s=5, c=fill, marker=marker, linewidths=0, label=f"{sign:+d}")
    for line in np.linspace(-1, 1, SQUARES + 1):
        axes.axhline(line, color="#BBBBBB", linewidth=0.6, zorder=0)
        axes.axvline(line, color="#BBBBBB", linewidth=0.6, zorder=0)
    _plane(axes)
    axes.set_xlabel("x")
    axes.set_ylabel("y")
    figure.legend(loc="outside upper center", ncols=2, frameon=False, markerscale=3, title="target")
    return figure


def draw_board(arrays: Arrays, meta: Meta) -> Figure:
    """Answers of networks over the board, three side by side."""
    rows = len(arrays) // 3
    figure = new_figure(0.8 + 2.75 * rows)
    grid = figure.subplots(rows, 3, squeeze=False, sharex=True, sharey=True)
    for axes, (name, answers) in zip(grid.flat, arrays.items(), strict=True):
        shown = _show(axes, answers, BOTH, Normalize(-1, 1))
        axes.set_title(f"{name}: {meta['values'][name]:.1f} %", fontsize=10)
    _label_outside(grid)
    _scale(figure, shown, list(grid.flat), "answer; its sign is the colour")
    return figure


def draw_regression(arrays: Arrays, meta: Meta) -> Figure:
    """The surface, the fits, and below each of them its error."""
    figure = new_figure(3.6)
    names = [name for name in arrays if name != "target"]
    parts = figure.subfigures(1, 2, squeeze=False, width_ratios=(2.4, len(names)))
    left, right = parts[0]
    large = left.subplots()
    target = arrays["target"].astype(np.float32)
    heights = _show(large, target, BOTH, Normalize(-1, 1))
    large.set_title("target", fontsize=10)
    large.set_xlabel("x", fontsize=9)
    large.set_ylabel("y", fontsize=9)
    grid = right.subplots(2, len(names))
    for (fit, off), name in zip(grid.T, names, strict=True):
        _show(fit, arrays[name], BOTH, Normalize(-1, 1))
        fit.set_title(f"{name}\nerror {meta['values'][name]:.3g}", fontsize=9)
        error = np.abs(arrays[name].astype(np.float32) - target)
        errors = _show(
            off,
            error.clip(LEAST_ERROR, MOST_ERROR),
            ERROR_COLOURS,
            LogNorm(LEAST_ERROR, MOST_ERROR),
        )
    for axes in grid.flat:
        axes.set_xticks([])
        axes.set_yticks([])
    _scale(left, heights, [large], "z")
    _scale(right, errors, list(grid.flat), "|fit - target|")
    return figure


def draw_pictures(arrays: Arrays, meta: Meta) -> Figure:
    """The picture to memorize, left, and what is remembered of it."""
    figure = new_figure(4.4)
    grid = figure.add_gridspec(2, 5)
    names = [name for name in arrays if name != "picture"]
    places = {"picture": grid[:, :2]}
    places |= {name: grid[i // 3, 2 + i % 3] for i, name in enumerate(names)}
    for name, place in places.items():
        axes = figure.add_subplot(place)
        axes.imshow(arrays[name], "gray", vmin=0, vmax=255)
        error = f"{name}\nsquared error {meta['values'][name]:,.0f}" if name in names else ""
        axes.set_title(error or "the picture", fontsize=9)
        axes.set_axis_off()
    return figure


def _show(
    axes: Axes, heights: NDArray[Any], colours: Colormap | str, scale: Normalize
) -> AxesImage:
    extent = (-1, 1, -1, 1)
    shown = axes.imshow(heights.astype(np.float32), colours, scale, origin="lower", extent=extent)
    _plane(axes)
    return shown


def _scale(figure: FigureBase, shown: AxesImage, of: list[Axes], text: str) -> None:
    """A colour bar below ``of``."""
    bar = figure.colorbar(shown, ax=of, location="bottom", shrink=0.6, aspect=35, pad=0.02)
    bar.set_label(text, fontsize=9)
    bar.ax.tick_params(labelsize=8)


def _plane(axes: Axes) -> None:
    axes.set_xlim(-1, 1)
    axes.set_ylim(-1, 1)
    axes.set_aspect("equal")
    axes.set_xticks([-1, 0, 1])
    axes.set_yticks([-1, 0, 1])
    axes.tick_params(labelsize=8)


def _label_outside(grid: NDArray[Any]) -> None:
    for axes in grid[-1]:
        axes.set_xlabel("x", fontsize=9)
    for axes in grid[:, 0]:
        axes.set_ylabel("y", fontsize=9)
