"""``sudonet reproduce``, ``table``, ``claims``, ``export-results``: the paper, run again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer
from rich.console import Console

from sudonet.cli.fail import fail

if TYPE_CHECKING:
    from sudonet.study.estimate import Rates
    from sudonet.study.plan import Plan
    from sudonet.study.store import Row, Store

STORE = Path("out/results.sqlite")

StorePath = Annotated[
    Path, typer.Option("--store", metavar="FILE", help="Where results are kept, an SQLite file.")
]

reproduce = typer.Typer(invoke_without_command=True)


@reproduce.callback()
def _reproduce(
    context: typer.Context,
    preset: Annotated[
        str, typer.Option(help="quick (minutes), standard (a night) or paper (everything).")
    ] = "quick",
    tables: Annotated[
        Optional[str],  # noqa: UP045 (typer reads it on Python 3.10)
        typer.Option(help="Tables to run, with commas: checkerboard-2,mnist-4. All by default."),
    ] = None,
    levels: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Levels to run, with commas: 2,16. Those of the preset by default."),
    ] = None,
    seeds: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Replicas to run: 0,1,2 or a range 0-4. The preset's by default."),
    ] = None,
    budget: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Run what fits into this time: 90s, 30m, 8h."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan and its estimated time, train nothing.")
    ] = False,
    store: StorePath = STORE,
    picture: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="A picture to memorize in place of the stand-in."),
    ] = None,
    threads: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="Networks to train at once; all cores by default."),
    ] = None,
    engine: Annotated[str, typer.Option(help="auto, native or torch.")] = "auto",
) -> None:
    """Train the networks of the paper's tables and keep what came out.

    What is in the store already is not trained again, so a run that was stopped or killed
    goes on where it was.

    Example: sudonet reproduce --preset quick

    Example: sudonet reproduce --preset standard --tables checkerboard-2,mnist-4 --budget 30m

    Example: sudonet reproduce --preset paper --dry-run
    """
    if context.invoked_subcommand:
        return
    from sudonet.experiments.presets import PRESETS
    from sudonet.study.plan import make_plan
    from sudonet.train import ENGINES

    if preset not in PRESETS:
        fail(f"no preset is called {preset!r}: choose from {', '.join(PRESETS)}")
    if engine not in ENGINES:
        fail(f"no engine is called {engine!r}: choose from {', '.join(ENGINES)}")
    seconds = _seconds(budget) if budget else None
    try:
        plan = make_plan(
            PRESETS[preset],
            tables.split(",") if tables else None,
            _numbers("levels", levels) if levels else None,
            _numbers("seeds", seeds) if seeds else None,
        )
    except ValueError as error:
        fail(str(error))
    Run(plan, store, engine, threads, seconds, dry_run, picture).go()


@reproduce.command("figures")
def figures(
    share: Annotated[
        float, typer.Option(help="Share of the full training, above 0 and up to 1.")
    ] = 1.0,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FOLDER", help="Where the pictures go; beside the store by default."),
    ] = None,
    store: StorePath = STORE,
) -> None:
    """Train the networks of the paper's ten figures and draw them.

    What was trained before with the same settings is not trained again.

    Example: sudonet reproduce figures

    Example: sudonet reproduce figures --share 0.05
    """
    from rich.progress import Progress

    from sudonet.experiments.data import DataError
    from sudonet.report.figures import draw_all
    from sudonet.study.figures import FigureError, make

    folder = figures_folder(store)
    if not 0 < share <= 1:
        fail(f"--share must be above 0 and at most 1, got {share:g}")
    try:
        with Progress(console=Console(stderr=True), transient=True) as bars:
            bar = bars.add_task("training the figures' networks", total=None)
            make(folder, share=share, progress=lambda d, n: bars.update(bar, completed=d, total=n))
        pictures = draw_all(folder, out or folder)
    except (FigureError, DataError, ValueError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        fail(f"stopped: figures that are finished are in {folder}; the same command goes on")
    except OSError as error:
        fail(f"cannot write to {out or folder}: {error.strerror or error}")
    typer.echo(f"wrote {len(pictures)} figures to {out or folder}")


class Run:
    """One call of ``sudonet reproduce``."""

    def __init__(
        self,
        plan: Plan,
        store: Path,
        engine: str,
        threads: int | None,
        budget: float | None,
        dry_run: bool,
        picture: Path | None,
    ) -> None:
        import torch

        from sudonet.study.local import Tasks

        self.whole, self.path, self.engine, self.budget = plan, store, engine, budget
        self.threads = threads or torch.get_num_threads()
        self.dry_run = dry_run
        self.tasks = Tasks(picture)
        self.console = Console(highlight=False)

    def go(self) -> None:
        from sudonet.experiments.data import DataError
        from sudonet.study.store import Store, StoreError

        try:
            if self.dry_run:
                if self.path.exists():
                    with Store.read(self.path) as store:
                        self._plan(store)
                else:
                    self._plan(None)
                return
            with Store.open(self.path) as store:
                plan, rates = self._plan(store)
                if plan.trials:
                    self._train(plan, rates, store)
            self._ending()
        except (StoreError, DataError, ValueError) as error:
            fail(str(error))

    def _plan(self, store: Store | None) -> tuple[Plan, Rates]:
        """What is left to do, printed with its estimated time."""
        from sudonet.study.estimate import Rates
        from sudonet.study.local import remaining
        from sudonet.study.view import plan_table

        plan = remaining(self.whole, store, self.tasks, self.engine) if store else self.whole
        rates = Rates(
            store.rows() if store else (), lambda experiment: self.tasks[experiment].judged
        )
        unknown = rates.unknown(plan.trials)
        if unknown:
            from rich.progress import track

            for trial in track(
                unknown, "measuring this machine", console=self.console, transient=True
            ):
                rates.probe(trial, self.tasks[trial.experiment].data)
        if self.budget is not None:
            plan = plan.within(self.budget * self.threads, rates.cost)
        self.console.print(plan_table(self.whole, plan, rates.cost, self.threads))
        return plan, rates

    def _train(self, plan: Plan, rates: Rates, store: Store) -> None:
        from sudonet.study.local import run
        from sudonet.study.view import View

        for name in plan.by_experiment():
            source = self.tasks[name].source
            note = f", in place of {source.stand_in_for}" if source.stand_in_for else ""
            self.console.print(f"{name}: {source.name}{note}", soft_wrap=True)
        before = len(self.whole.trials) - len(plan.trials) - len(plan.left_out)
        view = View(self.console, plan, before, rates.cost, self.threads)
        try:
            with view:
                for row in run(
                    plan,
                    store,
                    self.tasks,
                    engine=self.engine,
                    threads=self.threads,
                    cost=rates.cost,
                    progress=view.working,
                ):
                    view.finished(row)
        except KeyboardInterrupt:
            self.console.print(
                f"stopped: what was finished is in {self.path}; the same command goes on with it",
                soft_wrap=True,
            )
            raise typer.Exit(130) from None

    def _ending(self) -> None:
        from sudonet.report.summary import agreements, all_cells, summary

        found = agreements(all_cells(_rows(self.path)))
        asked = {grid.id for grid in self.whole.tables}
        self.console.print(summary(one for one in found if one.table in asked))
        self.console.print(f"results: {self.path}", soft_wrap=True)


def table(
    name: Annotated[str, typer.Argument(metavar="TABLE", help="Such as checkerboard-2.")],
    store: StorePath = STORE,
    form: Annotated[
        str, typer.Option("--format", help="terminal, md, csv, json or latex.")
    ] = "terminal",
) -> None:
    """Show one table: ours beside the published cells.

    Example: sudonet table checkerboard-2

    Example: sudonet table r-mnist-4 --format latex > table.tex
    """
    from sudonet.experiments import EXPERIMENTS, GRIDS
    from sudonet.report import tables
    from sudonet.report.agreement import cells

    if name not in GRIDS:
        fail(f"no table is called {name!r}: choose from {', '.join(GRIDS)}")
    grid = GRIDS[name]
    found = cells(grid, _rows(store), EXPERIMENTS[grid.experiment].recipe)
    if form == "terminal":
        Console(highlight=False).print(tables.table(grid, found))
        return
    try:
        typer.echo(tables.render(grid, found, form), nl=False)
    except ValueError as error:
        fail(str(error))


def claims(store: StorePath = STORE) -> None:
    """Say which of the paper's 14 claims the results support.

    Example: sudonet claims
    """
    from sudonet.report.claims import judge
    from sudonet.report.summary import all_cells
    from sudonet.study.figures import FigureError, histograms

    console = Console(highlight=False)
    colours = {"supported": "green", "not supported": "red", "undecided": "yellow"}
    tables = all_cells(_rows(store))
    try:
        counts = histograms(figures_folder(store))
    except FigureError as error:
        fail(str(error))
    for verdict in judge(tables, counts):
        colour = colours[verdict.verdict]
        console.print(
            f"{verdict.number:>2}. {verdict.claim} [{colour}]{verdict.verdict}[/{colour}]"
        )
        for number in verdict.numbers:
            console.print(f"      {number}", style="dim", markup=False)


def export_results(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A .csv or .parquet file.")],
    store: StorePath = STORE,
) -> None:
    """Write every trial in the store as one flat table.

    Example: sudonet export-results results.csv
    """
    from sudonet.report.export import export

    rows = _rows(store)
    try:
        export(rows, out)
    except (ValueError, ImportError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot write {out}: {error.strerror or error}")
    typer.echo(f"wrote {out}: {len(rows):,} trials")


def figures_folder(store: Path) -> Path:
    """Where the arrays of the figures are kept: next to the store."""
    return store.parent / "figures"


def _rows(path: Path) -> list[Row]:
    from sudonet.study.store import Store, StoreError

    if not path.exists():
        fail(f"there is no store at {path}: run `sudonet reproduce` first, or name one by --store")
    try:
        with Store.read(path) as store:
            return store.rows()
    except StoreError as error:
        fail(str(error))


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    if not found or float(found[1]) == 0:
        fail(f"--budget must be a time such as 90s, 30m or 8h, got {text!r}")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


def _numbers(name: str, text: str) -> list[int]:
    """Whole numbers with commas between them; a-b means all from a to b."""
    numbers: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if not found:
            fail(f"--{name} must be numbers such as 0,1,2 or 0-4, got {text!r}")
        numbers += range(int(found[1]), int(found[2] or found[1]) + 1)
    return numbers
