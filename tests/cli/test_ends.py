"""How the command ends: real processes, real signals, pipes and devices."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sudonet import cli
from sudonet.study.store import Store
from tests.report.report_rows import row

COMMAND = [sys.executable, "-m", "sudonet.cli"]
STOPS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("study") / "store"
    with Store.open(path) as writing:
        for activation in ("tanh", "relu"):
            writing.add(row(80.0, activation=activation))
    return path


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SUDONET_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def hear_signals():
    """A shell's background jobs ignore Ctrl-C, and so would what they start."""
    for number in STOPS:
        signal.signal(number, signal.SIG_DFL)


def start(command, **options):
    return subprocess.Popen(
        [str(word) for word in command],
        text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options,
        preexec_fn=hear_signals,
    )


def ended(process, seconds=60):
    """The exit code, and what was said to standard error."""
    with process:
        error = process.communicate(timeout=seconds)[1]
    return process.returncode, error


# Pipes and devices


@pytest.fixture
def nobody_reads():
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.mark.parametrize(
    "command", [["claims"], ["table", "checkerboard-2", "--format", "csv"], ["--help"]]
)
def test_a_pipe_that_nobody_reads_ends_it_quietly(store, nobody_reads, command):
    where = ["--store", store] if command[0] != "--help" else []
    assert ended(start([*COMMAND, *command, *where], stdout=nobody_reads)) == (141, "")


def test_a_closed_pipe_for_errors_ends_it_too(nobody_reads):
    process = start([*COMMAND, "claims", "--store", "missing"], stderr=nobody_reads)
    assert ended(process)[0] == 141


@pytest.mark.parametrize("command", [["claims"], ["table", "checkerboard-2", "--format", "md"]])
def test_a_full_disk_for_the_output_is_one_line(store, command):
    with Path("/dev/full").open("w") as full:
        code, error = ended(start([*COMMAND, *command, "--store", store], stdout=full))
        line = "sudonet: cannot write to standard output: No space left on device\n"
        assert (code, error) == (2, line)
        process = start([*COMMAND, *command, "--store", store], stdout=full, stderr=full)
        assert ended(process)[0] == 2


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


def test_a_full_disk_for_a_file_is_one_line(tmp_path):
    (tmp_path / "full.png").symlink_to("/dev/full")
    result = run("plot-unit", "sudo-4", "full.png")
    assert result.exit_code == 2
    assert result.stderr == "sudonet: cannot write full.png: No space left on device\n"


@pytest.mark.parametrize(
    "command",
    [
        ["table", "mnist-1", "--store", "loop"],
        ["claims", "--store", "loop"],
        ["reproduce", "--tables", "regression-2", "--levels", "8", "--store", "loop"],
        ["reproduce", "--tables", "regression-2", "--levels", "8", "--store", "loop/store"],
        ["reproduce", "--tables", "memorization-1", "--picture", "loop"],
        ["report", "--store", "STORE", "--out", "loop"],
        ["export-results", "loop/rows.csv", "--store", "STORE"],
        ["plot-unit", "sudo-4", "loop.png"],
        ["inspect", "loop"],
        ["run", "loop", "loop"],
        ["compile", "loop.pt2", "--range", "0,1", "--out", "net.sudo"],
        ["data", "fetch", "mnist", "--folder", "loop"],
    ],
)
def test_a_loop_of_links_is_one_line(store, tmp_path, command):
    for name in ("loop", "loop.png", "loop.pt2"):
        (tmp_path / name).symlink_to(name)
    result = run(*(store if word == "STORE" else word for word in command))
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert len(result.stderr.splitlines()) == 1
    assert "loop" in result.stderr


# Signals

INTERRUPTED_IMPORT = """
import signal, sys
module = sys.argv.pop(1)
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
from sudonet.cli import main
main()
"""


@pytest.mark.parametrize(
    "module", ["typer", "sudonet.cli._deploy", "rich.table", "numpy", "torch", "torch.nn"]
)
def test_ctrl_c_during_imports_is_one_line(module):
    code = [sys.executable, "-c", INTERRUPTED_IMPORT, module, "doctor"]
    assert ended(start(code)) == (130, "sudonet: stopped\n")


INTERRUPTED_EXTENSION = """
import abc, signal, time
register = abc.ABCMeta.register
def interrupted(kind, known):
    if known.__name__ == "_memoryviewslice":
        abc.ABCMeta.register = register
        signal.raise_signal(signal.SIGINT)
    return register(kind, known)
abc.ABCMeta.register = interrupted
from sudonet.cli._ends import orderly_end
with orderly_end():
    import numpy.random
    time.sleep(30)
    print("lost")
"""


def test_ctrl_c_while_an_extension_is_loaded_is_not_lost():
    """Cython drops every exception while it registers its views of memory."""
    process = start([sys.executable, "-c", INTERRUPTED_EXTENSION])
    assert process.stdout.read() == ""
    assert ended(process) == (130, "sudonet: stopped\n")


@pytest.mark.parametrize("number", STOPS)
def test_signals_say_what_was_kept(tmp_path, number):
    """While the report's files are written."""
    with Store.open(tmp_path / "store") as writing:
        writing.add(row(80.0))
    process = start([*COMMAND, "report", "--store", "store", "--out", "report"])
    deadline = time.monotonic() + 60
    while not (tmp_path / "report" / "tables").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)
    code, error = ended(process)
    assert code == STOPS[number]
    assert error.startswith("sudonet: stopped: report may have some of the files")
    assert len(error.splitlines()) == 1
    assert not list(tmp_path.rglob("*.part*"))


@pytest.mark.slow
@pytest.mark.parametrize("number", STOPS)
def test_a_stopped_study_keeps_its_rows(tmp_path, number):
    options = ["--preset", "standard", "--tables", "regression-2", "--store", "store"]
    process = start([*COMMAND, "reproduce", *options])
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if (tmp_path / "store").exists():
            with Store.read(tmp_path / "store") as found:
                if found.rows():
                    break
        time.sleep(0.1)
    process.send_signal(number)
    code, error = ended(process)
    line = "sudonet: stopped: finished networks are in store; the same command continues\n"
    assert (code, error) == (STOPS[number], line)
    with Store.read(tmp_path / "store") as found:
        assert 0 < len(found.rows()) < 150
    assert not (tmp_path / "store.lock").exists()


SLOW_TO_END = """
import os, time
from sudonet.cli._ends import orderly_end
with orderly_end():
    try:
        os.write(1, b"ready\\n")
        time.sleep(60)
    finally:
        os.write(1, b"ending\\n")
        time.sleep(60)
"""


@pytest.mark.parametrize("number", STOPS)
def test_a_second_signal_ends_it_at_once(number):
    process = start([sys.executable, "-c", SLOW_TO_END])
    for word in ("ready\n", "ending\n"):
        assert process.stdout.readline() == word
        process.send_signal(number)
    assert ended(process, seconds=10) == (-number, "")


def test_signals_that_were_ignored_stay_ignored():
    code = (
        "import signal\n"
        "from sudonet.cli._ends import orderly_end\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"  # as nohup does
        "with orderly_end():\n"
        "    signal.raise_signal(signal.SIGHUP)\n"
        "    print('goes on')"
    )
    process = start([sys.executable, "-c", code])
    assert process.stdout.read() == "goes on\n"
    assert ended(process) == (0, "")


def test_an_interrupted_download_can_be_resumed(monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("sudonet.experiments.data.fetch", interrupted)
    result = run("data", "fetch", "mnist", "--folder", "data")
    assert result.exit_code == 130
    assert result.stderr == (
        "sudonet: stopped: what was fetched is in data; the same command continues\n"
    )


# Networks that could not be trained


@pytest.mark.parametrize("failing", [1, 6])
def test_failed_networks_are_told_at_the_end(monkeypatch, failing):
    def executed(plan, store, *arguments, **options):
        for number, trial in enumerate(plan.trials):
            why = f"MemoryError: {min(number, 4)}\n[b]\x1b" if number < failing else None
            yield replace(row(None if why else 0.5), trial=trial, failed=why)

    monkeypatch.setattr("sudonet.study.local.run", executed)
    options = ["--tables", "regression-2", "--levels", "8", "--seeds", "0"]
    result = run("reproduce", *options)
    assert result.exit_code == 1
    assert f"{failing} failed" in result.stdout
    first, *reasons, last = result.stderr.splitlines()
    s = "" if failing == 1 else "s"
    assert first == f"sudonet: {failing} network{s} could not be trained:"
    assert last == "sudonet: the same command tries them again"
    common = {1: "1 x MemoryError: 0", 6: "2 x MemoryError: 4"}[failing]
    assert reasons[0] == rf"sudonet:   {common}\n[b]\x1b"
    assert len(reasons) == {1: 1, 6: 4}[failing]
    if failing == 6:
        assert reasons[-1] == "sudonet:   and 2 other reasons"
