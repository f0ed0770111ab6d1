"""How often each code of an integer network occurs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sudonet.deploy import reference
from sudonet.deploy.grid import Integers
from sudonet.deploy.layers import Affine, MaxPool, emitted
from sudonet.deploy.network import IntegerNetwork
from sudonet.staircase import Staircase

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Counts: TypeAlias = NDArray[np.int64]

BLOCKS = "▁▂▃▄▅▆▇█"
WIDEST = 32
"""Characters of the longest line of blocks."""

COLUMNS = 4
BAR = "#0072B2"
NEVER = "#D55E00"


def code_counts(network: IntegerNetwork, inputs: NDArray[Any]) -> dict[int, Counts]:
    """How often each code occurs for a batch of inputs, by the index of the layer.

    Layers with units have codes, and so have maxima of them; sums and scores are not codes.
    """
    units = _units(network)
    counts = {place: np.zeros(unit.outputs, np.int64) for place, unit in units.items()}
    integers, _ = network.integers(inputs)
    for part in reference.slices(network.layers, len(integers)):
        made = reference.run(network.layers, integers[part], np.float64)
        for place, numbers in enumerate(made):
            if place in units:
                counts[place] += _counted(numbers, units[place])
    return counts


def _units(network: IntegerNetwork) -> dict[int, Staircase]:
    """The unit whose codes a layer gives, by the index of the layer."""
    found: dict[int, Staircase] = {}
    for place, layer in enumerate(network.layers):
        if isinstance(layer, Affine) and layer.grid_out is not None:
            found[place] = layer.after.unit  # type: ignore[union-attr]
        elif isinstance(layer, MaxPool) and place - 1 in found:
            found[place] = found[place - 1]
    return found


def _counted(integers: Integers, unit: Staircase) -> Counts:
    codes = np.searchsorted(emitted(unit), integers.ravel())
    return np.bincount(codes, minlength=unit.outputs)


def blocks(counts: Counts) -> str:
    """Counts as a line of blocks; a blank is one or more codes that never occur.

    Examples
    --------
    >>> blocks(np.array([4, 0, 1, 8]))
    '▄ ▁█'
    """
    merged = counts
    if len(counts) > WIDEST:
        # Equally many codes in each character, so that a uniform distribution looks uniform.
        size = -(-len(counts) // WIDEST)
        merged = np.add.reduceat(counts, np.arange(0, len(counts), size))
    heights = np.ceil(len(BLOCKS) * merged / max(merged.max(), 1)).astype(int)
    return "".join(BLOCKS[height - 1] if height else " " for height in heights)


def draw_codes(network: IntegerNetwork, counts: Mapping[int, Counts]) -> Figure:
    """A histogram for every layer that has codes."""
    from matplotlib.figure import Figure

    if not counts:
        raise ValueError("the network has no units, so there are no codes to draw")
    units = _units(network)
    rows = -(-len(counts) // COLUMNS)
    columns = -(-len(counts) // rows)  # rows of about equal length
    figure = Figure(
        figsize=(3.1 * columns, 2.4 * rows + 0.4), dpi=100, layout="constrained", facecolor="white"
    )
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, place in zip(grid.flat, counts, strict=False):
        name = network.layers[place].name
        what = "maximum" if isinstance(network.layers[place], MaxPool) else units[place].name
        _draw(axes, f"{name}: {what}", counts[place])
    for axes in grid.flat[len(counts) :]:
        axes.set_axis_off()
    for axes in grid[:, 0]:
        axes.set_ylabel("share of codes, %")
    for axes in grid.flat[max(len(counts) - columns, 0) : len(counts)]:
        axes.set_xlabel("code")
    return figure


def _draw(axes: Axes, title: str, counts: Counts) -> None:
    from matplotlib.ticker import MaxNLocator

    shares = 100 * counts / max(counts.sum(), 1)
    width = 0.9 if len(counts) <= WIDEST else 1.0
    axes.bar(np.arange(len(counts)), shares, width, color=BAR)
    never = np.flatnonzero(counts == 0)
    axes.plot(never, np.zeros(len(never)), "|", color=NEVER, markersize=7)
    axes.set_title(title, fontsize="medium", fontweight="bold")
    axes.annotate(
        f"never: {len(never)} of {len(counts)}" if len(never) else "all in use",
        (1, 1),
        (-4, -4),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="right",
        va="top",
        fontsize="small",
        color=NEVER if len(never) else "#4D4D4D",
    )
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlim(-0.5, len(counts) - 0.5)
    axes.set_ylim(0, 1.25 * max(float(shares.max()), 1e-9))
    axes.spines[["top", "right"]].set_visible(False)
