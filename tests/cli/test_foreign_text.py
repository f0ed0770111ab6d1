"""Text of files on the terminal and in tables: it is shown, and controls nothing."""

import csv
import io
import os
import pty
import subprocess
import sys
from contextlib import suppress

import pytest
from typer.testing import CliRunner

from sudonet import cli
from sudonet.report.export import export
from sudonet.study.store import Store
from tests.report.report_rows import row

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e[red]|`x`\r\n=cmd"
SHOWN = r"\x1b]0;owned\x07\x1b[2J\x9b31m\u202e[red]"


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SUDONET_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "400")


@pytest.fixture
def store(tmp_path):
    path = tmp_path / f"{HOSTILE} store".replace("/", "")
    with Store.open(path) as writing:
        # One network of a cell failed, the whole of another did.
        texts = {"source": HOSTILE, "stand_in_for": HOSTILE, "engine": HOSTILE}
        writing.add(row(80.0, **texts))
        writing.add(row(None, activation="relu", failed=HOSTILE, **texts))
    return path


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


def check(text):
    """Everything can be seen."""
    assert all(one.isprintable() or one == "\n" for one in text)


@pytest.mark.parametrize("form", ["terminal", "md", "csv", "json", "latex"])
def test_a_table_shows_what_the_store_says(store, form):
    result = run("table", "checkerboard-2", "--store", store, "--format", form)
    assert result.exit_code == 0, result.output
    check(result.output)
    assert "owned" in result.output
    if form == "terminal":
        assert SHOWN in result.output  # not markup, either
    if form == "md":
        assert r"\[red\]\|\`x\`" in result.output


def test_a_terminal_gets_no_escape_sequence_of_a_file(store):
    reader, writer = pty.openpty()
    command = ["-m", "sudonet.cli", "table", "checkerboard-2", "--store", str(store)]
    subprocess.run([sys.executable, *command], stdout=writer, stderr=writer, check=True)
    os.close(writer)
    text = b""
    with suppress(OSError):  # when all was read
        while True:
            text += os.read(reader, 65536)
    os.close(reader)
    assert b"owned" in text
    assert b"\x1b[" in text  # colours of our own
    for sequence in (b"\x1b]", b"\x1b[2J", b"\x07", "\x9b".encode(), "\u202e".encode()):
        assert sequence not in text


def test_claims_and_exports_say_nothing_raw(store):
    for command in (["claims"], ["export-results", f"{HOSTILE}.csv"], ["plan"]):
        result = run(*command, "--store", store)
        assert result.exit_code == 0, result.output
        check(result.output)


@pytest.mark.parametrize(
    "command",
    [
        ["claims", "--store", HOSTILE],
        ["inspect", HOSTILE],
        ["run", HOSTILE, HOSTILE],
        ["compile", f"{HOSTILE}.pt2", "--range", "0,1", "--out", "net.sudo"],
        ["compile", HOSTILE, "--range", "0,1", "--out", "net.sudo"],
        ["plot-unit", HOSTILE, "unit.png"],
        ["plot-unit", "sudo-4", f"{HOSTILE}.jpg"],
        ["reproduce", "--tables", HOSTILE],
        ["reproduce", "--preset", HOSTILE],
        ["data", "fetch", "mnist", "extra", HOSTILE],
        ["doctor", HOSTILE],
    ],
)
def test_errors_are_one_line_of_plain_text(command):
    result = run(*command)
    assert result.exit_code == 2
    check(result.output)
    assert "owned" in result.output or command[0] == "data"
    if command[0] != "doctor":  # typer draws a box around what it does not expect
        assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", [["doctor"], ["data", "list"]])
def test_paths_are_plain_text(monkeypatch, tmp_path, command):
    (tmp_path / HOSTILE).mkdir()
    for folder in (HOSTILE, f"{HOSTILE} missing"):
        monkeypatch.setenv("SUDONET_DATA", str(tmp_path / folder))
        check(run(*command).output)


FORMULAS = ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1", "'quoted", "5 - 3", "a|b", "a\nb", ""]


def test_no_text_of_a_csv_file_is_a_formula(tmp_path):
    rows = [row(-0.5, seed=seed, source=text) for seed, text in enumerate(FORMULAS)]
    export(rows, tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    texts = [one["source"] for one in found]
    assert not any(text.startswith(("=", "+", "-", "@", "\t", "\r")) for text in texts)
    assert [text[1:] if text.startswith("'") else text for text in texts] == FORMULAS
    assert {one["metrics.value"] for one in found} == {"-0.5"}  # numbers stay numbers


def test_no_text_of_a_table_is_a_formula(tmp_path):
    with Store.open(tmp_path / "store") as writing:
        writing.add(row(80.0, source="=1+1"))
    text = run("table", "checkerboard-2", "--format", "csv", "--store", "store").stdout
    first = next(csv.DictReader(io.StringIO(text)))
    assert (first["source"], first["value"]) == ("'=1+1", "80.0")
