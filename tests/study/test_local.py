"""The local executor: same rows whatever happens to the process, and none lost."""

import json
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from sudonet.experiments import EXPERIMENTS, GRIDS, Trial
from sudonet.study.estimate import Rates
from sudonet.study.local import Tasks, remaining, run
from sudonet.study.plan import Plan
from sudonet.study.store import Store
from sudonet.train import engine_name
from tests import ROOT
from tests.report import report_rows

ACTIVATIONS = ("tanh", "relu", "sudo-2", "sudo-16", "r-sudo-4")


def small_plan(steps=300, seeds=range(3), columns=(5, 10)):
    """Short trials of two tables, with shapes that share stacks and shapes that do not."""
    trials = [
        Trial(experiment, "2", column, activation, rate, seed, steps)
        for experiment in ("checkerboard", "regression")
        for column in columns
        if experiment == "checkerboard" or column >= 10
        for activation in ACTIVATIONS
        for rate in (0.001, 0.0001)
        for seed in seeds
    ]
    names = "checkerboard-2", "r-checkerboard-2", "regression-2", "r-regression-2"
    return Plan(tuple(trials), tuple(GRIDS[name] for name in names))


def rows_of(plan, path, **options):
    with Store.open(path) as store:
        left = remaining(plan, store, Tasks())
        return list(run(left, store, Tasks(), cost=lambda trial: trial.steps, **options))


def timeless(path):
    """Everything in a store that another run must find again."""
    with Store.read(path) as store:
        return [replace(r, wall_seconds=0, cpu_seconds=0, finished="") for r in store.rows()]


def test_every_trial_becomes_a_row(tmp_path):
    plan = small_plan()
    rows = rows_of(plan, tmp_path / "store")
    assert {row.trial for row in rows} == set(plan.trials)
    with Store.read(tmp_path / "store") as store:
        kept = store.rows()
    assert sorted(rows, key=lambda row: row.trial) == kept
    for row in kept:
        assert row.diverged is None
        assert row.cpu_seconds > 0
        assert row.wall_seconds > 0
        assert row.loss > 0
        spec = json.loads(row.spec)
        assert spec["seed"] == row.trial.seed
        assert spec["learning_rate"] == row.trial.rate
        assert set(spec["activation"]) == {row.trial.activation}
        assert spec["steps"] == row.trial.steps
        assert {"sudonet", "torch", "numpy", "python"} == set(json.loads(row.versions))
        assert len(row.checksum) == 64


def test_a_second_run_trains_nothing(tmp_path):
    plan = small_plan(steps=50)
    assert rows_of(plan, tmp_path / "store")
    assert rows_of(plan, tmp_path / "store") == []
    assert len(rows_of(small_plan(steps=51), tmp_path / "store")) == len(plan.trials)


@pytest.mark.parametrize("options", [{"threads": 1}, {"threads": 4}])
def test_rows_do_not_depend_on_threads_or_company(tmp_path, options):
    rows_of(small_plan(), tmp_path / "all")
    rows_of(small_plan(seeds=[2], columns=(10,)), tmp_path / "some", **options)
    every, some = timeless(tmp_path / "all"), timeless(tmp_path / "some")
    assert len(some) < len(every)
    assert all(row in every for row in some)


def test_a_diverged_network_is_a_row_without_a_value(tmp_path):
    trial = Trial("regression", "2", 10, "relu", 1e30, 0, 50)
    plan = Plan((trial, replace(trial, rate=0.001)), (GRIDS["regression-2"],))
    rows = {row.trial.rate: row for row in rows_of(plan, tmp_path / "store")}
    assert rows[1e30].diverged is not None
    assert rows[1e30].value is None
    assert rows[0.001].diverged is None
    assert rows[0.001].value > 0
    assert rows_of(plan, tmp_path / "store") == []  # it would diverge again


def test_engines_do_not_answer_for_one_another(tmp_path, native_path):
    plan = small_plan(steps=20, seeds=[0])
    native_path("portable")
    rows_of(plan, tmp_path / "store")
    native_path("off")
    assert len(rows_of(plan, tmp_path / "store")) == len(plan.trials)
    assert {row.engine for row in timeless(tmp_path / "store")} == {"native-portable", "torch-cpu"}


CHILD = """
import sys
sys.path.insert(0, sys.argv[2])
from tests.study.test_local import rows_of, small_plan
from pathlib import Path
print("begun", flush=True)
rows_of(small_plan(steps=3000), Path(sys.argv[1]))
print("done", flush=True)
"""


def child(path):
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, path, ROOT],
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_killed_at_random_moments_it_goes_on_and_ends_with_the_same_rows(tmp_path):
    disturbed, undisturbed = tmp_path / "disturbed", tmp_path / "undisturbed"
    with child(undisturbed) as process:
        assert process.stdout.readline() == "begun\n"
        begun = time.monotonic()
        assert process.stdout.readline() == "done\n"
        took = time.monotonic() - begun
    expected = timeless(undisturbed)
    moments = random.Random(5)
    kills, counts = 0, [0]
    while True:
        with child(disturbed) as process:
            process.stdout.readline()
            try:
                process.wait(moments.uniform(0.2, 0.6) * took)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                kills += 1
        found = timeless(disturbed) if disturbed.exists() else []
        assert all(row in expected for row in found)
        counts.append(len(found))
        assert counts[-1] >= counts[-2]  # nothing is lost
        if process.returncode == 0 or kills > 20:
            break
    assert kills >= 2
    assert timeless(disturbed) == expected


@pytest.mark.slow
def test_two_processes_do_not_write_to_one_store(tmp_path):
    with child(tmp_path / "store") as process:
        process.stdout.readline()
        while not (tmp_path / "store").exists():
            time.sleep(0.01)
        with pytest.raises(RuntimeError, match=str(process.pid)):
            rows_of(small_plan(), tmp_path / "store")
        process.kill()
    rows_of(small_plan(steps=10, seeds=[0]), tmp_path / "store")  # the lock is gone with it


def test_a_full_disk_loses_no_row(tmp_path):
    plan = small_plan(steps=30)
    path = tmp_path / "store"
    finished = []
    with Store.open(path) as store:
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        rows = run(plan, store, Tasks(), cost=lambda trial: 1.0)
        with pytest.raises(RuntimeError, match="full"):
            finished.extend(row.trial for row in rows)
    assert 0 < len(finished) < len(plan.trials)
    assert {row.trial for row in timeless(path)} == set(finished)
    rows_of(plan, path)
    assert {row.trial for row in timeless(path)} == set(plan.trials)


def test_rates_come_from_a_probe_and_then_from_the_store(tmp_path):
    plan = small_plan(steps=2000, seeds=[0])
    tasks = Tasks()
    rates = Rates((), tasks)
    kinds = rates.unknown(plan.trials)
    assert len(kinds) == 3
    for trial in kinds:
        rates.probe(trial)
    assert rates.unknown(plan.trials) == []
    for trial in plan.trials:
        assert 0 < rates.cost(trial) < 10
    longer = replace(plan.trials[0], steps=200_000)
    assert rates.cost(longer) > 10 * rates.cost(plan.trials[0])
    rows = rows_of(plan, tmp_path / "store")
    known = Rates(rows, tasks)
    assert known.unknown(plan.trials) == []
    assert known.cost(plan.trials[0]) == pytest.approx(rows[0].cpu_seconds, rel=20)


def test_rates_of_another_engine_do_not_count():
    plan, tasks = small_plan(steps=2000, seeds=[0]), Tasks()

    def rows(engine):
        return [replace(report_rows.row(1.0), trial=trial, engine=engine) for trial in plan.trials]

    for engine in ("auto", "torch"):
        spec = EXPERIMENTS["regression"].spec(plan.trials[-1], tasks["regression"].data)
        name = engine_name(spec, engine)
        assert Rates(rows(name), tasks, engine).unknown(plan.trials) == []
        assert len(Rates(rows("another"), tasks, engine).unknown(plan.trials)) == 3


def test_an_interrupt_while_measuring_ends_it(monkeypatch):
    monkeypatch.setattr("sudonet.study.estimate.PROBE_SECONDS", 1000)
    rates, trial = Rates((), Tasks()), small_plan().trials[0]
    rates.unknown([trial])  # loads what the probe needs
    # A shell starts what it puts into the background with this signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            rates.probe(trial)
    finally:
        signal.signal(signal.SIGINT, before)
