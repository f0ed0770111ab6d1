"""The paper's figures, drawn from what ``sudonet.study.figures`` kept of the networks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from sudonet.experiments import parabola
from sudonet.report import surfaces
from sudonet.report._unit import draw_unit
from sudonet.report.surfaces import DPI, new_figure
from sudonet.staircase import Staircase
from sudonet.study.figure_file import Arrays, FigureError, Meta, cannot_write, prepare, read
from sudonet.study.figures import FIGURES, TANH_BINS

UNDATED = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
FORMATS = tuple(UNDATED)
TARGET = "#8C8C8C"
COLOURS = {"tanh": "#222222", "relu": "#E69F00"}


def colour(activation: str) -> str:
    """The colour of an activation in all figures; SUDO's go from blue to green as L falls.

    Examples
    --------
    >>> colour("tanh"), colour("sudo-256") == colour("sudo-2")
    ('#222222', False)
    """
    if activation in COLOURS:
        return COLOURS[activation]
    bits = np.log2(Staircase.parse(activation).levels)
    return to_hex(colormaps["viridis"](0.72 - 0.48 * (bits - 1) / 7))


def draw(name: str, arrays: Arrays, meta: Meta) -> Figure:
    """Draw a figure.

    Parameters
    ----------
    name
        One of :data:`sudonet.study.figures.FIGURES`.
    arrays, meta
        As :func:`sudonet.study.figures.read` gives them.

    Returns
    -------
    matplotlib.figure.Figure
        On a white background, to be shown 900 pixels wide.
    """
    _check(name)
    return _DRAWN[name](arrays, meta)


def draw_all(folder: Path, out: Path, formats: Collection[str] = ("png",)) -> list[Path]:
    """Draw every figure of ``folder`` into ``out``, which is created if needed.

    Returns
    -------
    list of Path
        ``<figure>.<format>``, in the order of the paper.
    """
    for form in formats:
        if form not in FORMATS:
            raise ValueError(f"no format is called {form!r}: choose from {', '.join(FORMATS)}")
    written = []
    for name, path in _files(folder).items():
        figure = draw(name, *read(path))
        prepare(out)
        for form in formats:
            written.append(out / f"{name}.{form}")
            try:
                save(figure, written[-1])
            except OSError as error:
                raise cannot_write(written[-1], error) from error
    return written


def save(figure: Figure, path: Path) -> None:
    """Write a figure to a file of any of :data:`FORMATS`; the same figure gives the same bytes."""
    with rc_context({"svg.hashsalt": path.stem}):
        figure.savefig(path, dpi=DPI, metadata=UNDATED[path.suffix[1:]])


def caption(name: str, meta: Meta) -> str:
    """What a figure shows, and the steps and data that its networks were really trained with."""
    _check(name)
    sentences = [CAPTIONS[name]]
    if meta["steps"]:
        part = f", {100 * meta['share']:.3g} % of the full protocol's" if meta["share"] < 1 else ""
        sentences.append(f"Trained for {meta['steps']:,} steps{part}.")
    if meta["data"]:
        instead = meta["data"]["stand_in_for"]
        note = f", in place of {instead}" if instead else ""
        sentences.append(f"Data: {meta['data']['name']}{note}.")
    return " ".join(sentences)


def _check(name: str) -> None:
    if name not in FIGURES:
        raise ValueError(f"no figure is called {name!r}: choose from {', '.join(FIGURES)}")


def _files(folder: Path) -> dict[str, Path]:
    found = {name: folder / f"{name}.npz" for name in FIGURES}
    found = {name: path for name, path in found.items() if path.exists()}
    if not found:
        raise FigureError(f"there are no figures in {folder}: make them first")
    return found


def _unit(arrays: Arrays, meta: Meta) -> Figure:
    figure = draw_unit([Staircase(int(levels)) for levels in arrays["levels"]])
    figure.set_size_inches(11, 4.8)  # narrower than five single units, for larger letters
    return figure


def _parabola(arrays: Arrays, meta: Meta) -> Figure:
    x, steps = arrays["x"], arrays["steps"]
    figure = new_figure(7.6)
    # Untrained networks may be far off: every row has its own scale.
    grid = figure.subplots(len(steps), len(parabola.ACTIVATIONS), sharex=True, sharey="row")
    for column, name in zip(grid.T, parabola.ACTIVATIONS, strict=True):
        column[0].set_title(name, fontsize=10)
        for axes, fit in zip(column, arrays[name], strict=True):
            axes.fill_between(x, x**2, fit, color=colour(name), alpha=0.25, linewidth=0)
            axes.plot(x, x**2, color=TARGET, linewidth=1.2)
            axes.plot(x, fit, color=colour(name), linewidth=1.6)
            _tidy(axes)
    for axes, done in zip(grid[:, 0], steps, strict=True):
        axes.set_ylabel(f"{done:,} step{'' if done == 1 else 's'}", fontsize=9)
        axes.set_yticks([0, 1])
    grid[0, 0].set_xticks([-1, 0, 1])
    for axes in grid[-1]:
        axes.set_xlabel("input", fontsize=9)
    figure.legend(
        handles=[
            Line2D([], [], color=TARGET, linewidth=1.2, label="target, the input squared"),
            Line2D([], [], color=COLOURS["tanh"], linewidth=1.6, label="prediction"),
            Patch(color=COLOURS["tanh"], alpha=0.25, linewidth=0, label="area between them"),
        ],
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize=9,
    )
    return figure


def _histogram(arrays: Arrays, meta: Meta) -> Figure:
    figure = new_figure(5.2)
    grid = figure.add_gridspec(2, 6)
    places = {
        "sudo-4": grid[0, :2],
        "sudo-8": grid[0, 2:4],
        "tanh": grid[0, 4:],
        "sudo-16": grid[1, :3],
        "sudo-64": grid[1, 3:],
    }
    for name, place in places.items():
        axes = figure.add_subplot(place)
        counts = arrays[name]
        centres, width = bars(name, len(counts))
        axes.bar(centres, 100 * counts / counts.sum(), width=0.9 * width, color=colour(name))
        title = f"tanh, cut into {TANH_BINS} bins" if name == "tanh" else name
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("output of a hidden unit", fontsize=9)
        axes.set_xticks([-1, -0.5, 0, 0.5, 1])
        _tidy(axes)
        if place.colspan.start == 0:
            axes.set_ylabel("share of all outputs, %", fontsize=9)
    return figure


def bars(activation: str, levels: int) -> tuple[NDArray[np.float64], float]:
    """Centres and spacing of the bars of a histogram: levels, or bins of tanh."""
    if activation == "tanh":
        return (np.arange(levels) + 0.5) / levels * 2 - 1, 2 / levels
    return np.linspace(-1, 1, levels), 2 / (levels - 1)


def _tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    axes.grid(color="#E6E6E6", linewidth=0.6)
    axes.set_axisbelow(True)


_DRAWN: Mapping[str, Callable[[Arrays, Meta], Figure]] = {
    "unit": _unit,
    **{f"parabola-{units}": _parabola for units in parabola.UNITS},
    "checkerboard-samples": surfaces.draw_samples,
    "checkerboard-surfaces": surfaces.draw_board,
    "checkerboard-binary": surfaces.draw_board,
    "regression": surfaces.draw_regression,
    "histogram": _histogram,
    "memorization": surfaces.draw_pictures,
}

CAPTIONS = {
    "unit": (
        "SUDO units with 2, 4, 9, 64 and 256 levels. Above, what a unit emits for each input, "
        "and the tanh that it follows. Below, the derivative that training uses: that of tanh, "
        "however few levels there are."
    ),
    **{
        f"parabola-{units}": (
            f"Networks with {units} hidden units learn the parabola y = x^2 by gradient descent "
            "with momentum. There is a column for each activation, and training goes from top "
            "to bottom. The area between target and prediction is filled."
        )
        for units in parabola.UNITS
    },
    "checkerboard-samples": (
        "The points of the board that all checkerboard networks are trained on, in the colours "
        "of their squares."
    ),
    "checkerboard-surfaces": (
        "What networks answer for every point of the board. There is a row for each shape, "
        "hidden layers x units, and a column for each activation. The titles have the share "
        "of the board that gets the right colour."
    ),
    "checkerboard-binary": (
        "What networks of binary units (SUDO-2) answer for every point of the board: 4 hidden "
        "layers of 10, 50 and 200 units. The titles have the share of the board that gets the "
        "right colour."
    ),
    "regression": (
        "The surface z = sin(10 x) cos(5 y), left, and what networks of 4 hidden layers of 50 "
        "units make of it. Below each fit is how far it is off, on a logarithmic scale; the "
        "titles have 100 x the mean squared error."
    ),
    "histogram": (
        "How often the hidden units of memorization networks, 4 layers of 50, emit each of "
        "their values, over all layers and pixels. SUDO has a bar for each level; the outputs "
        f"of tanh are cut into {TANH_BINS} bins of equal width."
    ),
    "memorization": (
        "A picture, and what networks of 4 hidden layers of 50 units remember of it. The titles "
        "have the sum of squared errors over all pixels, with brightness from -1 to 1."
    ),
}
"""What every figure shows; :func:`caption` adds how its networks were trained."""
