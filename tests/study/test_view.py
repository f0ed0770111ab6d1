"""What a person sees while a plan runs, and before."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from sudonet.experiments.presets import PRESETS
from sudonet.study import view as module
from sudonet.study.plan import make_plan
from sudonet.study.view import View, duration, plan_table
from tests.report.report_rows import row

PLAN = make_plan(PRESETS["quick"], tables=["checkerboard-2", "r-checkerboard-2"], seeds=[0])


def cost(trial):
    return float(trial.column)


def rows():
    return [replace(row(90.0), trial=trial) for trial in PLAN.trials]


def console(terminal):
    return Console(
        file=io.StringIO(), force_terminal=terminal, width=120, height=40, highlight=False
    )


def test_a_terminal_gets_bars_for_all_and_for_every_table():
    screen = console(terminal=True)
    with View(screen, PLAN, 3, cost, threads=2) as view:
        view.working(500_000, 2_000_000)
        for one in rows():
            view.finished(one)
        view._live.refresh()
    text = screen.file.getvalue()
    for words in (
        "all, by time",
        "checkerboard-2",
        "r-checkerboard-2",
        "0.5 of 2.0 million network-steps",
        "3 were in the store",
        "replica 0): 90",
        f"{len(PLAN.trials)} of {len(PLAN.trials)} trials",
    ):
        assert words in text


def test_elsewhere_lines_come_now_and_then(monkeypatch):
    screen = console(terminal=False)
    monkeypatch.setattr(module, "LINE_SECONDS", 0)
    with View(screen, PLAN, 0, cost, threads=2) as view:
        for one in rows():
            view.finished(one)
    lines = screen.file.getvalue().splitlines()
    assert len(lines) == len(PLAN.trials) + 1
    assert lines[0].startswith(f"1 of {len(PLAN.trials)} trials")
    assert "left" in lines[0]
    assert "\x1b" not in screen.file.getvalue()


def test_not_every_row_is_a_line():
    screen = console(terminal=False)
    with View(screen, PLAN, 0, cost, threads=2) as view:
        for one in rows():
            view.finished(one)
    assert len(screen.file.getvalue().splitlines()) == 2


def test_what_diverged_is_said():
    screen = console(terminal=False)
    with View(screen, PLAN, 0, cost, threads=1) as view:
        view.finished(replace(rows()[0], diverged=1234, metrics={}))
    assert "diverged at step 1,234" in screen.file.getvalue()
    assert screen.file.getvalue().rstrip().endswith("1 diverged")


def test_the_time_left_follows_what_was_measured(monkeypatch):
    """Trials that take twice as long as estimated double the time that is left."""
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    view = View(console(terminal=False), PLAN, 0, lambda trial: 1.0, threads=1)
    half = len(PLAN.trials) // 2
    for one in rows()[:half]:
        now[0] += 2.0
        view.finished(one)
    left = 2 * (len(PLAN.trials) - half)
    assert f"{left} s left" in view._status()


def test_a_clock_that_is_set_back_does_no_harm(monkeypatch):
    monkeypatch.setattr(module.time, "time", lambda: -1e9)
    test_what_diverged_is_said()


@pytest.mark.parametrize("threads", [1, 4])
def test_the_plan_as_a_table(threads):
    screen = console(terminal=False)
    left = PLAN.within(100, cost)
    screen.print(plan_table(PLAN, left, cost, threads))
    text = screen.file.getvalue()
    (line,) = (line for line in text.splitlines() if " all " in line)
    numbers = [part.strip() for part in line.split("│")[2:-1]]
    seconds = sum(map(cost, left.trials)) / threads
    assert numbers == [
        str(sum(len(grid.cells) for grid in PLAN.tables)),
        str(len(PLAN.trials)),
        str(len(left.trials)),
        str(len(left.left_out)),
        duration(seconds),
    ]
