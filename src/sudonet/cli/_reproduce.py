"""``sudonet reproduce`` and ``sudonet plan``: the paper's networks, trained again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Optional

import typer

from sudonet.cli import _options
from sudonet.cli._choices import EngineName, Executor, PresetName
from sudonet.cli._ends import end_at_once
from sudonet.cli._fail import fail, say, stop
from sudonet.cli._group import Group
from sudonet.cli._options import STORE, StorePath, figures_folder

if TYPE_CHECKING:
    from sudonet.study.estimate import Rates
    from sudonet.study.local import Tasks
    from sudonet.study.plan import Plan
    from sudonet.study.store import Row, Store
    from sudonet.study.view import View

MOST_REASONS = 3
"""Reasons of failures that a run lists at its end; the store has them all."""

app = typer.Typer(cls=Group, invoke_without_command=True)


@app.callback()
def reproduce(
    context: typer.Context,
    preset: _options.Preset = PresetName.QUICK,
    tables: _options.Tables = None,
    levels: _options.Levels = None,
    seeds: _options.Seeds = None,
    budget: _options.Budget = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Train nothing; show what sudonet plan shows.")
    ] = False,
    store: StorePath = STORE,
    picture: _options.Picture = None,
    threads: _options.Threads = None,
    engine: _options.Engine = EngineName.AUTO,
    executor: Annotated[
        Executor, typer.Option(help="local is this machine, ray a cluster.")
    ] = Executor.LOCAL,
    address: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="ADDRESS", help="The Ray cluster: auto, HOST:PORT or ray://HOST:PORT."
        ),
    ] = None,
    cpus_per_task: Annotated[int, typer.Option(min=1, help="CPUs for each task on Ray.")] = 1,
) -> None:
    """Train the networks of the paper's tables and store the results.

    Networks that the store has are skipped, so the same command resumes a run.

    Example: sudonet reproduce --preset quick

    Example: sudonet reproduce --preset standard --tables checkerboard-2,mnist-4 --budget 30m

    Example: sudonet reproduce --preset paper --executor ray --address auto
    """
    if context.invoked_subcommand:
        _prepare_figures(context, store)
        return
    if executor is Executor.LOCAL and (address or cpus_per_task > 1):
        fail("--address and --cpus-per-task are for --executor ray")
    if dry_run and executor is Executor.RAY:
        fail("--dry-run is about this machine: for a cluster use sudonet plan --simulate-cpus 128")
    if dry_run:
        plan(preset, tables, levels, seeds, budget, store, picture, threads, engine)
        return
    run = _Run(
        plan=_options.planned(preset, tables, levels, seeds),
        path=store,
        picture=picture,
        engine=engine.value,
        threads=threads,
        budget=_options.seconds(budget) if budget else None,
        ray=executor is Executor.RAY,
        address=address,
        cpus_per_task=cpus_per_task,
    )
    _guarded(run.train)


def _prepare_figures(context: typer.Context, store: Path) -> None:
    """Let ``figures`` use the store that was named before it; other options are for tables."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if name != "store" and source is not None and source.name == "COMMANDLINE":
            fail(
                f"--{name.replace('_', '-')} is for the tables: sudonet reproduce figures takes "
                "--share, --out and --store"
            )
    context.default_map = {"figures": {"store": str(store)}}


def plan(
    preset: _options.Preset = PresetName.QUICK,
    tables: _options.Tables = None,
    levels: _options.Levels = None,
    seeds: _options.Seeds = None,
    budget: _options.Budget = None,
    store: StorePath = STORE,
    picture: _options.Picture = None,
    threads: _options.Threads = None,
    engine: _options.Engine = EngineName.AUTO,
    simulate_cpus: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="NUMBERS", help="Simulate clusters with these numbers of CPUs: 16,128."
        ),
    ] = None,
) -> None:
    """Show which networks are left to train and how long that takes, here or on a cluster.

    Example: sudonet plan --preset paper --simulate-cpus 2,16,128,1024
    """
    cpus = _options.numbers("simulate-cpus", simulate_cpus) if simulate_cpus else []
    if 0 in cpus:
        fail("--simulate-cpus must be at least 1, got 0")
    run = _Run(
        plan=_options.planned(preset, tables, levels, seeds),
        path=store,
        picture=picture,
        engine=engine.value,
        threads=threads,
        budget=_options.seconds(budget) if budget else None,
    )
    _guarded(lambda: run.show_plan(cpus))


@app.command("figures")
def figures(
    share: Annotated[
        float, typer.Option(help="The share of the full training, above 0 and up to 1.")
    ] = 1.0,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FOLDER", help="Where the pictures go. Beside the store by default."),
    ] = None,
    store: StorePath = STORE,
) -> None:
    """Train the networks of the paper's ten figures and draw them.

    Networks that were trained before with the same settings are not trained again.

    Example: sudonet reproduce figures

    Example: sudonet reproduce figures --share 0.05
    """
    from rich.console import Console
    from rich.progress import Progress

    from sudonet.experiments.data import DataError
    from sudonet.report.figures import draw_all
    from sudonet.study.figures import FigureError, make

    folder = figures_folder(store)
    if not 0 < share <= 1:
        fail(f"--share must be above 0 and at most 1, got {share:g}")
    try:
        console = Console(stderr=True)
        quiet = not console.is_terminal  # else an empty line would be printed
        with Progress(console=console, transient=True, disable=quiet) as bars:
            bar = bars.add_task("training the figures' networks", total=None)
            make(folder, share=share, progress=lambda d, n: bars.update(bar, completed=d, total=n))
        pictures = draw_all(folder, out or folder)
    except (FigureError, DataError, ValueError) as error:
        fail(str(error))
    except KeyboardInterrupt as error:
        stop(error, f"finished figures are in {folder}; the same command continues")
    except OSError as error:
        fail(f"cannot write to {out or folder}: {error.strerror or error}")
    say(f"wrote {len(pictures)} figures to {out or folder}")


def _guarded(action: Callable[[], None]) -> None:
    """Report errors of options, files and clusters in one line."""
    from sudonet.experiments.data import DataError
    from sudonet.study.cluster import ClusterError
    from sudonet.study.store import StoreError

    try:
        action()
    except (StoreError, DataError, ClusterError, ValueError) as error:
        fail(str(error))


@dataclass
class _Run:
    """One call of ``sudonet reproduce`` or ``sudonet plan``."""

    plan: Plan
    path: Path
    picture: Path | None = None
    engine: str = "auto"
    threads: int | None = None
    budget: float | None = None
    ray: bool = False
    address: str | None = None
    cpus_per_task: int = 1

    def __post_init__(self) -> None:
        import torch
        from rich.console import Console

        from sudonet.study.local import Tasks

        self.at_once = self.threads or torch.get_num_threads()
        self.tasks: Tasks = Tasks(self.picture)
        self.console = Console(highlight=False)
        self.failures: Counter[str] = Counter()
        self.stored = 0

    def show_plan(self, simulated: Sequence[int] = ()) -> None:
        from sudonet.study.store import Store

        with ExitStack() as resources:
            store = resources.enter_context(Store.read(self.path)) if self.path.exists() else None
            plan, rates = self._left(store)
        if simulated:
            from sudonet.study.view import simulation_table

            self.console.print(simulation_table(plan, rates.cost, simulated))

    def train(self) -> None:
        from sudonet.study.cluster import ClusterLostError

        try:
            self._train()
        except KeyboardInterrupt as error:
            stop(error, f"finished networks are in {self.path}; the same command continues")
        except ClusterLostError as error:
            planned = len(self.plan.trials)
            say(
                f"sudonet: {error}: {self.stored:,} of {planned:,} trials are in {self.path}. "
                "Start the cluster again and run the same command",
                err=True,
            )
            end_at_once(1)  # Ray would wait for the head
        self._ending()
        if self.failures:
            _tell_failures(self.failures)

    def _train(self) -> None:
        from sudonet.study.store import Store
        from sudonet.study.view import View

        with ExitStack() as resources:
            store = resources.enter_context(Store.open(self.path))
            ray = self._cluster(resources) if self.ray else None
            plan, rates = self._left(store)
            if plan.trials:
                self._name_data(plan)
                before = len(self.plan.trials) - len(plan.trials) - len(plan.left_out)
                view = View(self.console, plan, before, rates.cost, self.at_once)
                self.stored = before
                with view:
                    for row in self._rows(plan, rates, store, view, ray):
                        view.finished(row)
                        self.stored += row.failed is None
                        if row.failed:
                            self.failures[row.failed] += 1

    def _cluster(self, resources: ExitStack) -> Any:
        from sudonet.study.cluster import connected, size

        ray = resources.enter_context(connected(self.address))
        found = size(ray)
        self.console.print(f"Ray: {found}")
        self.at_once = max(1, found.cpus // self.cpus_per_task)
        return ray

    def _rows(self, plan: Plan, rates: Rates, store: Store, view: View, ray: Any) -> Iterator[Row]:
        from sudonet.study import cluster, local

        if ray:
            return cluster.run(
                plan,
                store,
                self.tasks,
                ray,
                engine=self.engine,
                cpus_per_task=self.cpus_per_task,
                cost=rates.cost,
                show=view.places,
            )
        return local.run(
            plan,
            store,
            self.tasks,
            engine=self.engine,
            threads=self.threads,
            cost=rates.cost,
            progress=view.working,
        )

    def _left(self, store: Store | None) -> tuple[Plan, Rates]:
        """What is left to do, printed with its estimated time."""
        from rich.progress import track

        from sudonet.study.estimate import Rates
        from sudonet.study.local import remaining
        from sudonet.study.view import plan_table

        left = remaining(self.plan, store, self.tasks, self.engine) if store else self.plan
        rows = store.rows() if store else ()
        rates = Rates(rows, self.tasks, self.engine)
        unknown = rates.unknown(left.trials)
        if unknown:
            words = "measuring this machine"
            for trial in track(unknown, words, console=self.console, transient=True):
                rates.probe(trial)
        if self.budget is not None:
            left = left.within(self.budget * self.at_once, rates.cost)
        self.console.print(plan_table(self.plan, left, rates.cost, self.at_once))
        return left, rates

    def _name_data(self, plan: Plan) -> None:
        for name in plan.by_experiment():
            source = self.tasks[name].source
            note = f", in place of {source.stand_in_for}" if source.stand_in_for else ""
            say(f"{name}: {source.name}{note}")

    def _ending(self) -> None:
        from sudonet.report.summary import agreements, all_cells, summary

        rows, _ = _options.rows_and_note(self.path)
        found = agreements(all_cells(rows))
        asked = {grid.id for grid in self.plan.tables}
        self.console.print(summary(one for one in found if one.table in asked))
        say(f"results: {self.path}")


def _tell_failures(reasons: Counter[str]) -> NoReturn:
    """Say which networks could not be trained, and end with exit code 1."""
    many = reasons.total()
    lines = [f"  {count:,} x {reason}" for reason, count in reasons.most_common(MOST_REASONS)]
    if len(reasons) > MOST_REASONS:
        lines.append(f"  and {len(reasons) - MOST_REASONS:,} other reasons")
    fail(
        f"{many:,} network{'' if many == 1 else 's'} could not be trained:",
        *lines,
        "the same command tries them again",
        code=1,
    )
