"""Stores that a newer sudonet wrote: what is read of them, what is left out, and who says so."""

import csv
import json

import pytest
from typer.testing import CliRunner

from sudonet import cli
from sudonet.study.store import VERSION, Store, StoreError
from tests.report.page_reader import Page
from tests.report.report_rows import row
from tests.study.store_rows import sql

NEWER = VERSION + 6
VALUES = {"tanh": 80.0, "relu": 70.0, "sudo-8": 60.0}


@pytest.fixture
def newer(tmp_path):
    """Six rows of version 1, to which a newer version added two columns and changed the keys."""
    path = tmp_path / "results.sqlite"
    with Store.open(path) as store:
        for activation, value in VALUES.items():
            for seed in range(2):
                store.add(row(value + seed, seed=seed, activation=activation, steps=87_500))
    sql(path, "ALTER TABLE trials ADD COLUMN device TEXT NOT NULL DEFAULT 'gpu'")
    sql(path, "ALTER TABLE trials ADD COLUMN joules REAL")
    sql(path, "UPDATE trials SET key = 'gpu ' || key")
    sql(path, f"PRAGMA user_version = {NEWER}")
    return path


def read(path):
    """Activation and seed of every row, and the note."""
    with Store.read(path) as store:
        return [(r.trial.activation, r.trial.seed) for r in store.rows()], store.note()


def note(rows, left_out):
    return (
        f"This store was written by a newer sudonet (version {NEWER}, this one knows {VERSION}): "
        f"{rows} could be read, {left_out} left out."
    )


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


EVERYTHING = [(name, seed) for name in sorted(VALUES) for seed in (0, 1)]


def test_rows_are_read_as_they_were(newer):
    before = newer.read_bytes()
    assert read(newer) == (EVERYTHING, note("6 rows", "none is"))
    with Store.read(newer) as store:
        assert [r.value for r in store.rows("checkerboard")] == [70, 71, 60, 61, 80, 81]
        assert store.rows("mnist") == []
    assert newer.read_bytes() == before


def test_our_own_version_needs_no_note(tmp_path):
    with Store.open(tmp_path / "store") as store:
        store.add(row(80.0))
        assert store.note() == ""


@pytest.mark.parametrize(
    "change",
    [
        "experiment = 'tetris'",
        "activation = 'gelu-4'",
        "activation = 'sudo-3'",
        "rate = 'fast'",
        "seed = 'none'",
        "steps = 1.5",
        "diverged = 'never'",
        "loss = 'small'",
        "cpu_seconds = 'some'",
        "wall_seconds = 9e999",
        "finished = x'00'",
        "metrics = '{'",
        "metrics = '[96.5]'",
        'metrics = \'{"value": "good"}\'',
        "metrics = '{\"value\": true}'",
        "metrics = '{\"value\": null}'",
        'metrics = \'{"value": 96.5, "by class": [97, 96]}\'',
    ],
)
def test_what_is_not_understood_is_left_out_and_counted(newer, change):
    sql(newer, f"UPDATE trials SET {change} WHERE activation = 'relu' AND seed = 1")
    rest = [one for one in EVERYTHING if one != ("relu", 1)]
    assert read(newer) == (rest, note("5 rows", "1 could not and is"))


def test_columns_may_be_empty_that_were_never_empty_before(newer):
    """A newer table may allow it: rows without an experiment or a value are counted too."""
    (made,) = sql(newer, "SELECT sql FROM sqlite_master WHERE name = 'trials'")[0]
    sql(newer, "ALTER TABLE trials RENAME TO old")
    sql(newer, made.replace(" NOT NULL", ""))
    sql(newer, "INSERT INTO trials SELECT * FROM old")
    sql(newer, "UPDATE trials SET experiment = NULL WHERE activation = 'relu'")
    sql(newer, "UPDATE trials SET rate = NULL, metrics = NULL WHERE activation = 'sudo-8'")
    sql(newer, "UPDATE trials SET source = NULL WHERE seed = 1")
    assert read(newer) == ([("tanh", 0)], note("1 row", "5 could not and are"))


def test_rows_that_only_a_newer_version_tells_apart_are_all_left_out(newer):
    """To show one of two results of what looks like one trial would be a guess."""
    columns = [name for _, name, *_ in sql(newer, "PRAGMA table_info(trials)")]
    names = ", ".join(columns)
    other = names.replace("key", "'cpu ' || key", 1).replace("device", "'cpu'")
    sql(newer, f"INSERT INTO trials ({names}) SELECT {other} FROM trials WHERE seed = 0")
    rest = [one for one in EVERYTHING if one[1] == 1]
    assert read(newer) == (rest, note("3 rows", "6 could not and are"))


def test_a_column_that_is_gone_is_named(newer, tmp_path):
    sql(newer, "ALTER TABLE trials RENAME COLUMN metrics TO measures")
    sql(newer, "ALTER TABLE trials DROP COLUMN loss")
    message = (
        f"{newer} has schema version {NEWER}, this sudonet knows {VERSION} and needs columns "
        "that are missing: metrics, loss. Update sudonet to read it"
    )
    with pytest.raises(StoreError) as caught:
        Store.read(newer)
    assert str(caught.value) == message
    for command in (["table", "checkerboard-2"], ["claims"], ["report", "--out", tmp_path / "out"]):
        result = run(*command, "--store", newer)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == f"sudonet: {message}\n"
    assert not (tmp_path / "out").exists()


def test_nothing_is_written_and_nothing_is_planned(newer):
    """Keys are another version's, so they do not tell what is left to do."""
    before = newer.read_bytes()
    refusal = f"schema version {NEWER}, this sudonet needs {VERSION}: use the sudonet that wrote it"
    with pytest.raises(StoreError, match=refusal):
        Store.open(newer)
    one = row(80.0)
    with Store.read(newer) as store:
        with pytest.raises(StoreError, match=refusal):
            store.has(one.trial, one.engine, one.checksum, one.recipe)
        with pytest.raises(StoreError, match=refusal):
            store.keys()
        with pytest.raises(StoreError, match="open for reading only"):
            store.add(one)
    result = run("reproduce", "--tables", "checkerboard-2", "--store", newer)
    assert result.exit_code == 2
    assert refusal in result.stderr
    assert newer.read_bytes() == before
    assert list(newer.parent.iterdir()) == [newer]


# ------------------------------------------------------------------ the commands


@pytest.fixture
def partly(newer):
    """A newer store of which four rows are understood."""
    sql(newer, "UPDATE trials SET experiment = 'tetris' WHERE activation = 'relu'")
    return newer


NOTE = note("4 rows", "2 could not and are")


def test_a_table_has_what_was_understood_and_the_note_is_apart(partly):
    result = run("table", "checkerboard-2", "--format", "json", "--store", partly)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == f"{NOTE}\n"
    cells = json.loads(result.stdout)["cells"]
    found = {c["activation"]: c["value"] for c in cells if c["value"] is not None}
    assert found == {"tanh": 80.5, "sudo-8": 60.5}


def test_claims_say_it_too(partly):
    result = run("claims", "--store", partly)
    assert (result.exit_code, result.stderr) == (0, f"{NOTE}\n")
    assert "undecided" in result.stdout


def test_an_export_has_what_was_understood(partly, tmp_path):
    result = run("export-results", tmp_path / "results.csv", "--store", partly)
    assert (result.exit_code, result.stderr) == (0, f"{NOTE}\n")
    with (tmp_path / "results.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["metrics.value"] for line in lines] == ["60.0", "61.0", "80.0", "81.0"]
    assert "joules" not in lines[0]


def test_the_overview_of_the_report_says_it(partly, tmp_path):
    result = run("report", "--store", partly, "--out", tmp_path / "report")
    assert result.exit_code == 0, result.stderr
    assert NOTE in result.stderr
    page = Page((tmp_path / "report" / "index.html").read_text(encoding="utf-8"))
    assert NOTE in page.section("overview").text
    shown = {one["data-cell"]: one for one in page.all("td") if one.get("data-ours")}
    assert {name: float(cell["data-ours"]) for name, cell in shown.items()} == {
        f"{table}.{unit}.5": value
        for table, unit, value in (
            ("checkerboard-2", "tanh", 80.5),
            ("r-checkerboard-2", "tanh", 80.5),
            ("checkerboard-2", "sudo-8", 60.5),
        )
    }
