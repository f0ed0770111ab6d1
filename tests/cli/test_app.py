import subprocess
import sys

import pytest
from typer.testing import CliRunner

import sudonet
from sudonet import cli, native
from sudonet.cli._choices import PICTURES
from sudonet.native import cpu

MAGIC = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    monkeypatch.delenv("SUDONET_DATA", raising=False)
    monkeypatch.delenv("SUDONET_NATIVE", raising=False)
    monkeypatch.setenv("COLUMNS", "400")  # so that no line of the table is folded


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


def line(output, name):
    """What the doctor says in the row of that name."""
    (found,) = (row for row in output.splitlines() if row.startswith(name))
    return found.removeprefix(name).strip()


def check_user_error(result, *words):
    assert result.exit_code == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    for word in words:
        assert word in result.stderr


def test_the_command_as_a_process(tmp_path):
    def sudonet_command(*arguments):
        command = [sys.executable, "-m", "sudonet.cli", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    version = sudonet_command("--version")
    assert (version.returncode, version.stdout) == (0, f"sudonet {sudonet.__version__}\n")
    drawn = sudonet_command("plot-unit", "sudo-9", "unit.png")
    assert (drawn.returncode, drawn.stdout) == (0, "wrote unit.png: sudo-9\n")
    assert (tmp_path / "unit.png").read_bytes().startswith(MAGIC[".png"])
    wrong = sudonet_command("plot-unit", "sudo-1", "unit.png")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == "sudonet: levels must be an integer from 2 to 65,536, got 1\n"


def test_the_command_line_loads_matplotlib_only_to_draw():
    code = "import sys, sudonet.cli; sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("command", ["doctor", "plot-unit"])
def test_help_has_an_example(command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"sudonet {command}" in result.stdout.split("Example:")[1]


@pytest.mark.parametrize("suffix", PICTURES)
def test_plot_unit_takes_the_format_from_the_suffix(tmp_path, suffix):
    out = tmp_path / f"units{suffix}"
    result = run("plot-unit", "SUDO-4,r-sudo-8-full", out)
    assert result.exit_code == 0
    assert result.stdout == f"wrote {out}: sudo-4, r-sudo-8-full\n"
    assert out.read_bytes().startswith(MAGIC[suffix])


def test_plot_unit_refuses_unknown_units(tmp_path):
    check_user_error(run("plot-unit", "sudo-x", tmp_path / "a.png"), "sudo-x", "such as sudo-32")


def test_plot_unit_refuses_unknown_suffixes(tmp_path):
    check_user_error(run("plot-unit", "sudo-4", tmp_path / "a.jpg"), "a.jpg", ".png, .svg, .pdf")


def test_plot_unit_says_why_it_cannot_write(tmp_path):
    out = tmp_path / "missing" / "a.png"
    check_user_error(run("plot-unit", "sudo-4", out), str(out), "No such file or directory")


def test_doctor_reports_versions_and_that_nothing_is_set(monkeypatch, tmp_path):
    monkeypatch.setattr(native, "FOLDER", tmp_path)
    result = run("doctor")
    assert result.exit_code == 0
    assert line(result.stdout, "sudonet") == sudonet.__version__
    assert line(result.stdout, "C core").startswith("not built")


def test_doctor_reads_cpu_features(monkeypatch, tmp_path):
    info = tmp_path / "cpuinfo"
    monkeypatch.setattr(cpu, "INFO", info)
    info.write_text("processor\t: 0\nflags\t\t: fpu avx2 avx_vnni\n")
    assert "AVX2 yes, AVX512 no, VNNI yes, AMX no;" in line(run("doctor").stdout, "CPU")
    info.unlink()
    assert line(run("doctor").stdout, "CPU").startswith("torch uses")


def test_doctor_reports_settings_that_cannot_work(monkeypatch, tmp_path):
    monkeypatch.setenv("SUDONET_DATA", str(tmp_path / "missing"))
    monkeypatch.setenv("SUDONET_NATIVE", "sse")
    result = run("doctor")
    assert result.exit_code == 1
    assert str(tmp_path / "missing") in line(result.stdout, "data")
    assert "got 'sse'" in line(result.stdout, "C core")


def test_doctor_says_what_data_the_study_would_use(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    result = run("doctor")
    assert result.exit_code == 0
    assert "in place of MNIST" in line(result.stdout, "mnist")
