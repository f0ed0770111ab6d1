"""Shows progress while a plan runs: bars in a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, final

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from sudonet.experiments import TableGrid, Trial
from sudonet.study._batches import TASK_OVERHEAD, WORKER_START, batches, simulate
from sudonet.study.plan import Plan
from sudonet.study.store import Row

LINE_SECONDS = 10
"""Where the output is no terminal, at most one line in this many seconds."""


@final
class View:
    """Shows the progress of a run. Use it as a context manager, and report every row to it.

    Parameters
    ----------
    plan
        The trials that will run.
    done
        The number of trials that the store had before.
    cost
        Estimated seconds of a trial on one thread.
    threads
        How many trials run at once.
    """

    def __init__(
        self,
        console: Console,
        plan: Plan,
        done: int,
        cost: Callable[[Trial], float],
        threads: int,
    ) -> None:
        self._console, self._plan, self._cost = console, plan, cost
        self._total = sum(map(cost, plan.trials))
        self._threads = threads
        self._spent, self._finished, self._diverged, self._failed = 0.0, 0, 0, 0
        self._before, self._begun = done, time.monotonic()
        self._last: deque[Row] = deque(maxlen=4)
        self._line_after = self._begun
        self._steps = ""
        self._tables: dict[str, TaskID] = {}
        columns = TextColumn("{task.description:<20}"), BarColumn(), MofNCompleteColumn()
        self._bars = Progress(*columns, console=console)
        if console.is_terminal:
            needs = Counter(name for t in plan.trials for name in plan.tables_of(t))
            self._overall = self._bars.add_task("all, by time", total=1000)
            self._tables = {name: self._bars.add_task(name, total=n) for name, n in needs.items()}
        self._live = (
            Live(console=console, get_renderable=self._render, refresh_per_second=4)
            if console.is_terminal
            else None
        )

    def __enter__(self) -> View:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._live:
            self._live.stop()
        passed = duration(time.monotonic() - self._begun)
        words = [f"{self._finished} of {len(self._plan.trials)} trials in {passed}"]
        self._console.print(", ".join([*words, *self._unusual()]))

    def finished(self, row: Row) -> None:
        """Report that a row is in the store."""
        self._finished += 1
        self._diverged += row.diverged is not None
        self._failed += row.failed is not None
        self._spent += self._cost(row.trial)
        self._last.append(row)
        if self._live:
            for name in self._plan.tables_of(row.trial):
                self._bars.advance(self._tables[name])
            share = 1000 * self._spent / self._total if self._total else 1000
            self._bars.update(self._overall, completed=share)
        elif time.monotonic() >= self._line_after:
            self._line_after = time.monotonic() + LINE_SECONDS
            text = f"{self._status()}; {_words(row)}"
            self._console.print(text, soft_wrap=True, markup=False)

    def working(self, done: int, total: int) -> None:
        """Report network-steps of the current experiment: long trials show progress, too."""
        self._steps = f"{done / 1e6:,.1f} of {total / 1e6:,.1f} million network-steps"

    def places(self, cluster: object) -> None:
        """Report the cluster that trials run on."""
        self._steps = str(cluster)

    def _status(self) -> str:
        passed = time.monotonic() - self._begun
        rate = self._finished / passed if passed > 0 else 0.0
        planned = len(self._plan.trials)
        words = [f"{self._finished} of {planned} trials", f"{rate:.2g} a second"]
        # Once enough is done, the speed so far is a better estimate.
        left = (self._total - self._spent) / self._threads
        if self._spent > 0.02 * self._total:
            left = (self._total - self._spent) * passed / self._spent
        words.append(f"{duration(left)} left")
        if self._before:
            words.append(f"{self._before} were in the store")
        return ", ".join([*words, *self._unusual()])

    def _unusual(self) -> list[str]:
        counts = {"diverged": self._diverged, "failed": self._failed}
        return [f"{count} {what}" for what, count in counts.items() if count]

    def _render(self) -> Any:
        last = Table.grid(padding=(0, 2))
        for row in self._last:
            last.add_row(Text(_words(row)))
        return Group(self._bars, Text(self._status()), Text(self._steps), last)


def plan_table(whole: Plan, left: Plan, cost: Callable[[Trial], float], threads: int) -> Table:
    """The trials of a plan, those left to train, and how long that takes.

    Trials that two tables share are counted in both, and once in the last line.
    """
    found = Table(title="The plan")
    found.add_column("table")
    for heading in ("cells", "trials", "to train", "left out", "time"):
        found.add_column(heading, justify="right")

    def add(name: str, grids: tuple[TableGrid, ...], style: str | None = None) -> None:
        tables = {grid.id for grid in grids}
        parts = [
            [t for t in some if not tables.isdisjoint(whole.tables_of(t))]
            for some in (whole.trials, left.trials, left.left_out)
        ]
        seconds = sum(map(cost, parts[1])) / threads
        counts = [f"{len(part):,}" for part in parts]
        cells = sum(len(grid.cells) for grid in grids)
        found.add_row(name, f"{cells:,}", *counts, duration(seconds), style=style)

    for grid in whole.tables:
        add(grid.id, (grid,))
    found.add_section()
    add("all", whole.tables, style="bold")
    return found


def simulation_table(plan: Plan, cost: Callable[[Trial], float], cpus: Sequence[int]) -> Table:
    """How long clusters of different sizes would take for a plan."""
    found = Table(title="Simulated clusters")
    for heading in ("CPUs", "tasks", "time", "efficiency"):
        found.add_column(heading, justify="right")
    tasks = [batch.seconds for batch in batches(plan.trials, cost)]
    for count in cpus:
        run = simulate(tasks, count, TASK_OVERHEAD, WORKER_START)
        share = f"{run.efficiency:.0%}"
        found.add_row(f"{count:,}", f"{len(tasks):,}", duration(run.makespan), share)
    return found


def _words(row: Row) -> str:
    t = row.trial
    if row.diverged is not None:
        found = f"diverged at step {row.diverged:,}"
    else:
        found = "failed" if row.value is None else f"{row.value:.4g}"
    return (
        f"{t.experiment} {t.shape} x {t.column} {t.activation} "
        f"(rate {t.rate:g}, replica {t.seed}): {found}"
    )


def duration(seconds: float) -> str:
    """Seconds in words.

    Examples
    --------
    >>> duration(42), duration(600), duration(9000)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
