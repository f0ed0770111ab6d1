"""Integers on the command line: what calibrated means the same, a range declares codes."""

import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from sudonet import deploy
from sudonet.cli import app

FACTORY = """
import torch
from torch import nn
from sudonet import SUDO

torch.manual_seed(0)
small = nn.Sequential(nn.Linear(6, 5), SUDO(16), nn.Linear(5, 3))
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch, one_thread):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "calibrated_models.py").write_text(FACTORY)
    yield tmp_path
    sys.modules.pop("calibrated_models", None)


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def done(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    return result


@pytest.mark.parametrize("bits", [8, 16])
def test_what_calibrated_can_be_run(here, bits):
    x = np.random.default_rng(0).integers(0, 17, (30, 6), dtype=np.uint8)
    np.save("x.npy", x)
    np.save("real.npy", x.astype(np.float32))
    compiled = done(
        *("compile", "calibrated_models:small", "--calibration", "x.npy"),
        *("--bits", bits, "--out", "net.sudo"),
    )
    assert "takes 6 real values" in compiled.stdout
    for name in ("x", "real"):
        done("run", "net.sudo", f"{name}.npy", "--out", f"{name}_out.npy")
    assert np.array_equal(np.load("x_out.npy"), np.load("real_out.npy"))
    import calibrated_models

    with torch.no_grad():
        wanted = calibrated_models.small(torch.from_numpy(x).float()).numpy()
    assert (np.load("x_out.npy").argmax(1) == wanted.argmax(1)).mean() > 0.9
    done("inspect", "net.sudo", "--data", "x.npy")
    # Samples drawn at random are codes of the grid, not real values.
    assert "16 samples" in done("export", "net.sudo", "--to", "c", "--check").stdout


def test_a_range_declares_pixels(here):
    done("compile", "calibrated_models:small", "--range", "0,1", "--out", "net.sudo")
    x = np.random.default_rng(0).integers(0, 256, (30, 6), dtype=np.uint8)
    np.save("x.npy", x)
    result = done("run", "net.sudo", "x.npy", "--out", "out.npy")
    assert result.stderr == ""
    assert np.array_equal(np.load("out.npy"), deploy.load("net.sudo")(x / 255))


@pytest.mark.parametrize("command", [["run"], ["inspect", "--data"]])
def test_values_outside_of_the_range_are_one_line(here, command):
    done("compile", "calibrated_models:small", "--range", "0,1", "--out", "net.sudo")
    np.save("x.npy", np.full((30, 6), 200.0))
    result = done(command[0], "net.sudo", *command[1:], "x.npy")
    (line,) = result.stderr.splitlines()
    assert line.startswith("warning: 180 of 180 inputs lie outside of the network's range, 0 to 1")
