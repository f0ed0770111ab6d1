"""What all experiments of the paper share: tables, protocols, trials, tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from sudonet.experiments.data import Source
from sudonet.train import AnySpec, Data, Result, Spec

LEVELS = (2, 4, 8, 16, 32, 64, 128, 256)
BASELINES = ("tanh", "relu")
SUDO = tuple(f"sudo-{levels}" for levels in LEVELS)
R_SUDO = tuple(f"r-sudo-{levels}" for levels in LEVELS)
ACTIVATIONS = (*BASELINES, *SUDO, *R_SUDO)

RATES = (0.001, 0.0001, 0.00001)
"""The paper's rates, where it names a search. The best is chosen for every cell."""


@dataclass(frozen=True)
class TableGrid:
    """The cells of one published table.

    Parameters
    ----------
    id
        Name of the table, such as ``"checkerboard-2"``; the appendix's begin with ``r-``.
    experiment
        Name of its experiment.
    shape
        What its networks have in common: the number of hidden layers, or ``"conv"`` or
        ``"dense"``.
    columns
        Units of a hidden layer, or the scale of the autoencoders.
    rows
        Activations.
    """

    id: str
    experiment: str
    shape: str
    columns: tuple[int, ...]
    rows: tuple[str, ...]

    @property
    def cells(self) -> list[tuple[str, int]]:
        """(activation, column) of every cell, row by row."""
        return [(row, column) for row in self.rows for column in self.columns]

    def has(self, trial: Trial) -> bool:
        """Whether a trial belongs to one of the cells."""
        return (
            (self.experiment, self.shape) == (trial.experiment, trial.shape)
            and trial.activation in self.rows
            and trial.column in self.columns
        )


@dataclass(frozen=True)
class Protocol:
    """How long and how often the networks of a cell are trained."""

    steps: int
    replicas: int
    rates: tuple[float, ...] = RATES[:1]


@dataclass(frozen=True, order=True)
class Trial:
    """One network of the study. Replica r has seed r, whatever its activation and rate."""

    experiment: str
    shape: str
    column: int
    activation: str
    rate: float
    seed: int
    steps: int

    @property
    def cell(self) -> tuple[str, int, str]:
        """Shape, column and activation, which the replicas and rates of a cell share."""
        return self.shape, self.column, self.activation


@dataclass(frozen=True, eq=False)
class Task:
    """Data to train on, and how a trained network is judged.

    Parameters
    ----------
    data
        What networks train on.
    source
        Where the data came from; every table names it.
    score
        Measures of a trained network by name; ``"value"`` is the one that tables show.
    judged
        How many samples ``score`` predicts.
    """

    data: Data
    source: Source
    score: Callable[[Result], dict[str, float]]
    judged: int


class Experiment(ABC):
    """A section of the paper: its networks, its data and its measure."""

    name: ClassVar[str]
    metric: ClassVar[str]
    higher_is_better: ClassVar[bool]
    grids: ClassVar[tuple[TableGrid, ...]]
    reference: ClassVar[tuple[str, int, str] | None] = None
    """Shape, column and activation of the cell that tables divide all others by, if any."""

    @abstractmethod
    def protocol(self, shape: str, column: int) -> Protocol:
        """The full protocol of a cell."""

    def load(self) -> Any:
        """What :meth:`task` needs from files; None where the data is computed."""
        return None

    @abstractmethod
    def task(self, loaded: Any = None) -> Task:
        """Data and measure; ``loaded`` is the result of :meth:`load`, if it was called before."""

    @abstractmethod
    def spec(self, trial: Trial, data: Data | None = None) -> AnySpec:
        """The network of a trial and how it is trained, on the paper's data or on ``data``."""


def fully_connected(trial: Trial, inputs: int, outputs: int, **training: Any) -> Spec:
    """A network with ``trial.shape`` hidden layers of ``trial.column`` units each."""
    return Spec(
        sizes=(inputs, *(trial.column,) * int(trial.shape), outputs),
        activation=trial.activation,
        learning_rate=trial.rate,
        steps=trial.steps,
        seed=trial.seed,
        **training,
    )


def both_families(
    experiment: str, shapes: tuple[str, ...], columns: tuple[int, ...], rectified: tuple[str, ...]
) -> tuple[TableGrid, ...]:
    """The tables of the main text for ``shapes`` and those of the appendix for ``rectified``.

    The appendix has the same tables with R-SUDO instead of SUDO. Its tanh and relu rows
    are the same networks, so they are trained once.
    """
    return tuple(
        TableGrid(f"{prefix}{experiment}-{shape}", experiment, shape, columns, (*BASELINES, *units))
        for prefix, units, some in (("", SUDO, shapes), ("r-", R_SUDO, rectified))
        for shape in some
    )
