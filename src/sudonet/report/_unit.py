"""The picture of a unit: its staircase, and below it the derivative that training uses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from numpy.typing import NDArray

from sudonet.staircase import Staircase

# Okabe and Ito's colours, which people with any colour vision can tell apart.
OUTPUT = "#0072B2"
DERIVATIVE = "#D55E00"
UNDERLYING = "#9A9A9A"
THRESHOLD = "#4D4D4D"

VIEW = {"tanh": (-3.5, 3.5), "sigmoid": (-7.0, 7.0), "hardtanh": (-2.0, 2.0), "relu6": (-2.0, 8.0)}
"""Inputs that show each underlying function, from one flat end to the other."""

CORNERS = np.array([-1.0, 0.0, 1.0, 6.0])
"""Inputs where a derivative may jump."""

ZOOM_FROM = 32
"""Outputs from which single steps are too small to see, and an inset shows some."""


def draw_unit(units: Sequence[Staircase]) -> Figure:
    """Draw units side by side, forward above and backward below.

    Parameters
    ----------
    units
        One or more staircases, a column each. All columns share their axes.

    Returns
    -------
    matplotlib.figure.Figure
        On a white background, so that it is readable on light and dark pages.

    Examples
    --------
    >>> draw_unit([Staircase(2), Staircase(9)]).savefig("units.png")  # doctest: +SKIP
    """
    if not units:
        raise ValueError("there is no unit to draw: give at least one")
    width = 2.7 * len(units) + (1.6 if len(units) == 1 else 0.4)
    layout = ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08)
    figure = Figure(figsize=(width, 4.8), dpi=100, layout=layout, facecolor="white")
    grid = figure.subplots(2, len(units), sharex=True, sharey="row", squeeze=False)
    low, high = _view(units)
    x = _inputs(low, high)
    for unit, (forward, backward) in zip(units, grid.T, strict=True):
        _draw_forward(forward, unit, x)
        _draw_backward(backward, unit, x)
    grid[0, 0].set_xlim(low, high)
    grid[0, 0].set_ylabel("output")
    grid[1, 0].set_ylabel("derivative in training")
    handles = [handle for axes in grid[:, 0] for handle in axes.get_legend_handles_labels()[0]]
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=2 if len(units) == 1 else len(handles),
        frameon=False,
        fontsize="small",
    )
    return figure


def _draw_forward(axes: Axes, unit: Staircase, x: NDArray[np.float64]) -> None:
    _draw_steps(axes, unit, x)
    axes.vlines(
        unit.thresholds,
        0,
        0.05,
        transform=axes.get_xaxis_transform(),
        color=THRESHOLD,
        linewidth=0.8,
        alpha=0.7,
        label="thresholds",
    )
    bits = f"{unit.bits} bit" if unit.bits == 1 else f"{unit.bits} bits"
    axes.set_title(unit.name, fontweight="bold", pad=20)
    axes.annotate(
        f"{unit.levels:,} levels, {unit.outputs:,} outputs, {bits}",
        (0.5, 1.0),
        (0, 7),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="center",
        fontsize="small",
    )
    axes.margins(y=0.1)
    _tidy(axes)
    if unit.outputs >= ZOOM_FROM:
        _draw_zoom(axes, unit)


def _draw_steps(axes: Axes, unit: Staircase, x: NDArray[np.float64]) -> None:
    axes.plot(x, unit.smooth(x), color=UNDERLYING, linewidth=1.2, label="underlying function")
    # Upright risers at the thresholds themselves; nothing is sampled.
    axes.stairs(
        unit.values,
        np.concatenate([[x[0]], unit.thresholds, [x[-1]]]),
        baseline=None,
        color=OUTPUT,
        linewidth=1.6,
        label="output",
        zorder=3,  # the underlying function stays behind
    )


def _draw_zoom(axes: Axes, unit: Staircase) -> None:
    """Inset with the half dozen steps in the middle of the thresholds."""
    middle = len(unit.thresholds) // 2
    low, high = unit.thresholds[[middle - 3, middle + 3]]
    inset = axes.inset_axes((0.62, 0.14, 0.34, 0.36))
    _draw_steps(inset, unit, _inputs(*_view([unit])))
    inset.set_xlim(low, high)
    inset.set_ylim(*unit.values[[middle - 3, middle + 4]])
    inset.set_xticks([])
    inset.set_yticks([])
    axes.indicate_inset_zoom(inset, edgecolor=THRESHOLD, linewidth=0.8)


def _draw_backward(axes: Axes, unit: Staircase, x: NDArray[np.float64]) -> None:
    slope = unit.derivative(x)
    axes.plot(x, slope, color=DERIVATIVE, linewidth=1.6, label="derivative in training")
    axes.fill_between(x, slope, color=DERIVATIVE, alpha=0.12, linewidth=0)
    axes.margins(y=0.1)
    axes.set_xlabel("input")
    _tidy(axes)


def _tidy(axes: Axes) -> None:
    axes.set_facecolor("white")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize="small")
    axes.grid(color="#E6E6E6", linewidth=0.6)
    axes.set_axisbelow(True)


def _view(units: Sequence[Staircase]) -> tuple[float, float]:
    """A range of inputs that shows every unit with all its thresholds."""
    ends = [VIEW[unit.underlying] for unit in units]
    low = min(min(e[0], u.thresholds[0] - 0.5) for e, u in zip(ends, units, strict=True))
    high = max(max(e[1], u.thresholds[-1] + 0.5) for e, u in zip(ends, units, strict=True))
    return float(low), float(high)


def _inputs(low: float, high: float) -> NDArray[np.float64]:
    """Inputs for smooth curves, with both neighbours of each corner: jumps stay upright."""
    corners = CORNERS[(low < CORNERS) & (high > CORNERS)]
    sides = [np.nextafter(corners, -np.inf), corners, np.nextafter(corners, np.inf)]
    return np.unique(np.concatenate([np.linspace(low, high, 801), *sides]))
