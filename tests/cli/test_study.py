"""``sudonet reproduce``, ``table``, ``claims``, ``export-results`` as a person calls them."""

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sudonet import cli
from sudonet.study import estimate
from sudonet.study.store import Store

SMALL = ["--preset", "quick", "--tables", "regression-2", "--levels", "8", "--seeds", "0"]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SUDONET_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """What a small run leaves."""
    path = tmp_path_factory.mktemp("study") / "results [b].sqlite"
    result = run("reproduce", *SMALL, "--store", path)
    assert result.exit_code == 0, result.output
    assert f"results: {path}" in result.output
    return path


def check_user_error(result, *words):
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    for word in words:
        assert word in result.stderr


def test_the_whole_protocol_as_a_plan(tmp_path):
    result = run("reproduce", "--preset", "paper", "--tables", "regression-2", "--dry-run")
    assert result.exit_code == 0
    line = next(line for line in result.stdout.splitlines() if "all" in line)
    assert " 30 " in line
    assert " 450 " in line  # 30 cells, 3 rates, 5 replicas
    assert not list(tmp_path.iterdir())  # a dry run leaves nothing behind


@pytest.mark.slow
def test_the_paper_has_1030_cells(monkeypatch):
    # How long a step takes is measured for every kind of network, and does not matter here.
    monkeypatch.setattr(estimate, "_seconds_a_step", lambda spec, engine: 1e-6)
    result = run("reproduce", "--preset", "paper", "--dry-run")
    assert result.exit_code == 0
    line = next(line for line in result.stdout.splitlines() if "all" in line)
    assert "1,030" in line


def test_a_run_and_what_it_prints(tmp_path):
    result = run("reproduce", *SMALL)
    assert result.exit_code == 0
    for words in ("sin(10 x) cos(5 y)", "6 of 6 trials", "Agreement", "out/results.sqlite"):
        assert words in result.stdout
    with Store.read(tmp_path / "out" / "results.sqlite") as store:
        assert len(store.rows()) == 6
    again = run("reproduce", *SMALL)
    assert again.exit_code == 0
    assert " 0 " in next(line for line in again.stdout.splitlines() if "all" in line)


def test_a_budget_says_what_it_left_out():
    result = run("reproduce", *SMALL, "--budget", "0.001s", "--dry-run")
    assert result.exit_code == 0
    line = next(line for line in result.stdout.splitlines() if "all" in line)
    assert line.count(" 6 ") == 3  # cells, trials, left out
    assert " 0 " in line


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--preset", "fast"], ["--preset", "'fast'", "'quick', 'standard', 'paper'"]),
        (["--tables", "chess"], ["'chess'", "checkerboard-1"]),
        (["--levels", "3"], ["3 levels", "256"]),
        (["--levels", "two"], ["--levels", "'two'"]),
        (["--seeds", "-1"], ["--seeds", "'-1'"]),
        (["--seeds", "4-1"], ["--seeds", "'4-1'"]),
        (["--seeds", "99999999999999999999"], ["seeds must be from 0 to"]),
        (["--budget", "soon"], ["--budget", "'soon'", "30m"]),
        (["--budget", "0m"], ["'0m'"]),
        (["--executor", "slurm"], ["--executor", "'slurm'", "'local', 'ray'"]),
        (["--address", "auto"], ["--address", "--executor ray"]),
        (["--executor", "ray", "--dry-run"], ["--dry-run", "--simulate-cpus"]),
        (["--engine", "jax"], ["--engine", "'jax'", "'native'"]),
    ],
)
def test_options_that_cannot_be(options, words):
    check_user_error(run("reproduce", *options), *words)


def test_a_store_in_an_impossible_place(tmp_path):
    (tmp_path / "file").touch()
    result = run("reproduce", *SMALL, "--store", tmp_path / "file" / "store")
    check_user_error(result, str(tmp_path / "file"))


def test_a_store_that_is_none(tmp_path):
    (tmp_path / "store").write_text("something else " * 100)
    for command in (["table", "mnist-1"], ["claims"], ["export-results", "x.csv"]):
        check_user_error(run(*command, "--store", tmp_path / "store"), "store")
    check_user_error(run("reproduce", *SMALL, "--store", tmp_path / "store"), "store")
    assert (tmp_path / "store").read_text().startswith("something else")


def test_commands_without_a_store(tmp_path):
    for command in (["table", "mnist-1"], ["claims"], ["export-results", "x.csv"]):
        check_user_error(run(*command), "out/results.sqlite", "sudonet reproduce")


def test_a_table_in_every_form(store):
    shown = run("table", "regression-2", "--store", store)
    assert shown.exit_code == 0
    assert "regression-2" in shown.stdout
    assert "(0.54)" in shown.stdout  # the published tanh cell of 10 units
    assert "reduced" in shown.stdout
    assert "| tanh |" in run("table", "regression-2", "--store", store, "--format", "md").stdout
    text = run("table", "regression-2", "--store", store, "--format", "json").stdout
    assert json.loads(text)
    text = run("table", "regression-2", "--store", store, "--format", "csv").stdout
    assert len(list(csv.reader(text.splitlines()))) == 31
    text = run("table", "regression-2", "--store", store, "--format", "latex").stdout
    assert r"\begin{tabular}" in text
    check_user_error(
        run("table", "regression-2", "--store", store, "--format", "xml"), "'xml'", "'latex'"
    )
    check_user_error(
        run("table", "regression-9", "--store", store), "'regression-9'", "regression-4"
    )


def test_the_claims(store):
    result = run("claims", "--store", store)
    assert result.exit_code == 0
    assert result.stdout.count("undecided") >= 12
    assert "supported" in result.stdout  # the number of values a unit emits needs no training


def test_exports(store, tmp_path, monkeypatch):
    assert run("export-results", tmp_path / "rows.csv", "--store", store).exit_code == 0
    with (tmp_path / "rows.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 6
    check_user_error(run("export-results", tmp_path / "rows.xls", "--store", store), "rows.xls")
    check_user_error(
        run("export-results", tmp_path / "none" / "rows.csv", "--store", store), "rows.csv"
    )
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    check_user_error(run("export-results", tmp_path / "rows.parquet", "--store", store), "pyarrow")


def test_a_dry_run_is_the_plan(store):
    options = ["--tables", "regression-2", "--levels", "8", "--budget", "1h", "--threads", 3]
    planned = run("plan", *options, "--store", store)
    assert planned.exit_code == 0
    assert next(line for line in planned.stdout.splitlines() if "all" in line).count(" 6 ")
    assert run("reproduce", "--dry-run", *options, "--store", store).stdout == planned.stdout


@pytest.fixture
def drawn(monkeypatch):
    """Where figures were made, in place of making them."""
    folders = []
    monkeypatch.setattr("sudonet.study.figures.make", lambda folder, **_: folders.append(folder))
    monkeypatch.setattr("sudonet.report.figures.draw_all", lambda folder, out: [])
    return folders


@pytest.mark.parametrize(
    ("before", "after", "folder"),
    [
        ([], [], "out"),
        (["--store", "a/store"], [], "a"),
        ([], ["--store", "b/store"], "b"),
        (["--store", "a/store"], ["--store", "b/store"], "b"),
    ],
)
def test_figures_lie_beside_the_store(drawn, before, after, folder):
    result = run("reproduce", *before, "figures", *after)
    assert result.exit_code == 0, result.output
    assert drawn == [Path(folder) / "figures"]
    assert f"to {folder}/figures" in result.stdout


@pytest.mark.parametrize("option", [["--preset", "quick"], ["--dry-run"], ["--cpus-per-task", 2]])
def test_options_of_tables_are_not_for_figures(drawn, option):
    result = run("reproduce", "--store", "a/store", *option, "figures")
    check_user_error(result, f"{option[0]} is for the tables", "--share, --out and --store")
    assert drawn == []


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_finished(tmp_path):
    command = [sys.executable, "-m", "sudonet.cli", "reproduce", "--preset", "standard"]
    options = ["--tables", "memorization-1", "--store", str(tmp_path / "store")]
    # A shell's background jobs ignore the signal, and so would what they start.
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    with subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **heard,
    ) as process:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if (tmp_path / "store").exists():
                with Store.read(tmp_path / "store") as store:
                    if store.rows():
                        break
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=30)[0]
    assert process.returncode == 130
    assert "the same command continues" in output
    with Store.read(tmp_path / "store") as store:
        assert 0 < len(store.rows()) < 180
