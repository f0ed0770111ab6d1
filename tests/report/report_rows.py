"""Rows, cells and tables for the tests of the report."""

from sudonet.experiments.experiment import Trial
from sudonet.report import published
from sudonet.report.cell import Cell
from sudonet.study.store import Row


def row(value, seed=0, rate=0.001, activation="tanh", column=5, **others):
    """A row of checkerboard-2, by default of its full protocol."""
    named = {"experiment": "checkerboard", "shape": "2", "steps": 1000}
    trial = {name: others.pop(name, default) for name, default in named.items()}
    rest = {
        "engine": "native-avx2",
        "source": "a board",
        "checksum": "c0ffee",
        "stand_in_for": None,
        "recipe": "r",
        "spec": "{}",
        "versions": "{}",
        "cpu": "avx2",
        "diverged": None,
        "loss": 0.5,
        "wall_seconds": 1.0,
        "cpu_seconds": 2.0,
        "finished": "2025-01-01T00:00:00+00:00",
    }
    metrics = others.pop("metrics", {} if value is None else {"value": value})
    return Row(
        Trial(column=column, activation=activation, rate=rate, seed=seed, **trial),
        metrics=metrics,
        **rest | others,
    )


def cell(value, spread=0.0, replicas=3, **others):
    """A cell of the full protocol."""
    rest = {
        "rate": 0.001,
        "rates": 1,
        "steps": 1000,
        "share_of_steps": 1.0,
        "diverged": 0,
        "failed": 0,
        "trials": replicas,
        "seconds": 6.0,
        "engine": "native-avx2",
        "source": "a board",
        "checksum": "c0ffee",
        "stand_in_for": None,
        "recipe": "r",
        "full": True,
        "protocol": "full",
    }
    return Cell(value=value, spread=spread, replicas=replicas, **rest | others)


def printed(table_id, **others):
    """The cells of a table as the paper prints them, as if each had three replicas."""
    table = published.table(table_id)
    return {place: cell(table.value(*place), **others) for place in table.cells}


def all_printed(**others):
    return {name: printed(name, **others) for name in published.tables()}
