"""The page's names of things, and its format of numbers."""

from __future__ import annotations

from sudonet.experiments.experiment import TableGrid

TITLES = {
    "checkerboard": "Checkerboard",
    "regression": "Regression",
    "memorization": "Memorization",
    "autoencoder": "Autoencoding",
    "mnist": "MNIST",
}
"""Of the experiments, in the order of the paper."""

ABOUT = {
    "checkerboard": (
        "Say which colour a point of a 5 x 5 board has. Networks see 5,000 points and are judged "
        "on 250,000."
    ),
    "regression": (
        "Fit the surface z = sin(10 x) cos(5 y). The error is 100 times the mean squared error."
    ),
    "memorization": (
        "Learn one picture by heart: the place of a pixel goes in, its brightness comes out. The "
        "paper's picture was never published, so errors are compared after division by the tanh "
        "cell of the same width."
    ),
    "autoencoder": (
        "Squeeze small colour images through a bottleneck and draw them again. Errors are "
        "relative to the convolutional tanh network of scale 1."
    ),
    "mnist": "Tell handwritten digits apart with very few hidden units, or with enough.",
}
"""What the networks of each experiment learn."""

MINUS = "\N{MINUS SIGN}"

AXES = {
    "accuracy_percent": "accuracy, %",
    "mse_x100": "100 x mean squared error",
    "sse": "squared error / tanh's",
    "sse_relative_to_conv_tanh_scale_1": "relative squared error",
}
"""What is plotted against the levels, in the unit in which cells are compared."""


def title(grid: TableGrid) -> str:
    """A table's name for people.

    Examples
    --------
    >>> from sudonet.experiments import GRIDS
    >>> title(GRIDS["r-checkerboard-1"]), title(GRIDS["autoencoder-conv"])
    ('Checkerboard, 1 hidden layer, rectified', 'Autoencoding, convolutional')
    """
    return f"{TITLES[grid.experiment]}, {shape(grid)}"


def shape(grid: TableGrid) -> str:
    """What the networks of a table have in common."""
    kinds = {"conv": "convolutional", "dense": "fully connected", "1": "1 hidden layer"}
    words = kinds.get(grid.shape, f"{grid.shape} hidden layers")
    return words + (", rectified" if grid.id.startswith("r-") else "")


def number(value: float, digits: int) -> str:
    """A number with a true minus sign.

    Examples
    --------
    >>> number(-1.25, 1) == f"{MINUS}1.2", number(-0.0004, 2)
    (True, '0.00')
    """
    text = f"{value:,.{digits}f}"
    return text.replace("-", MINUS) if float(text.replace(",", "")) else text.lstrip("-")


def signed(value: float, digits: int) -> str:
    """The same, with a plus sign where it is above zero.

    Examples
    --------
    >>> signed(0.31, 1), signed(-0.01, 1)
    ('+0.3', '0.0')
    """
    text = number(value, digits)
    return f"+{text}" if value > 0 and any(digit in text for digit in "123456789") else text


def percent(share: float) -> str:
    """A share as a whole percentage.

    Examples
    --------
    >>> percent(0.333)
    '33 %'
    """
    return f"{100 * share:.0f} %"


def counted(count: int, thing: str) -> str:
    """A count and its noun, in the plural if needed.

    Examples
    --------
    >>> counted(1, "replica"), counted(1200, "cell")
    ('1 replica', '1,200 cells')
    """
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def verb(count: int, one: str, many: str) -> str:
    """The form of a verb that goes with a count.

    Examples
    --------
    >>> verb(1, "is", "are"), verb(0, "is", "are")
    ('is', 'are')
    """
    return one if count == 1 else many
