import subprocess
import sys
from importlib.util import find_spec

import pytest

from sudonet.deploy.artefact import load
from tests import ROOT

pytestmark = pytest.mark.without_core

EXAMPLES = ROOT / "examples"


def run(folder, *arguments, example="checkerboard.py"):
    command = [sys.executable, str(EXAMPLES / example), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def table(output):
    """Cells of the table's rows by the first of them."""
    rows = [[cell.strip() for cell in row.split("│")[1:-1]] for row in output.splitlines()]
    return {row[0]: row[1:] for row in rows if row}


def test_checkerboard_prints_a_table_and_draws_the_surfaces(tmp_path):
    first = run(tmp_path, "--epochs", "2", "--out", "pictures")
    assert first.returncode == 0, first.stderr
    rows = table(first.stdout)
    assert list(rows) == ["tanh", "relu", "sudo-4", "sudo-64"]
    assert [row[:2] for row in rows.values()][2:] == [["4", "2"], ["64", "6"]]
    assert all(0 <= float(row[3].removesuffix(" %")) <= 100 for row in rows.values())
    assert "pictures/checkerboard.png" in first.stdout
    assert (tmp_path / "pictures" / "checkerboard.png").read_bytes().startswith(b"\x89PNG")
    assert table(run(tmp_path, "--epochs", "2").stdout) == rows


def test_checkerboard_refuses_no_epochs(tmp_path):
    refused = run(tmp_path, "--epochs", "0")
    assert refused.returncode == 2
    assert "--epochs must be at least 1, got 0" in refused.stderr


def test_mnist_becomes_integers(tmp_path):
    made = run(tmp_path, "--steps", "40", "--out", "files", example="mnist_integer.py")
    assert made.returncode == 0, made.stderr
    rows = table(made.stdout)
    has_onnx = find_spec("onnx") is not None and find_spec("onnxruntime") is not None
    onnx = ["int8, ONNX"] if has_onnx else []
    assert list(rows) == ["float32", "int8", *onnx, "int4, tuned"]
    assert ("install sudonet[onnx]" in made.stdout) == (not has_onnx)
    assert (tmp_path / "files" / "mnist.onnx").exists() == has_onnx
    accuracy = {name: float(row[0].removesuffix(" %")) for name, row in rows.items()}
    assert accuracy["float32"] > 20  # it learned something, if not much
    assert abs(accuracy["int8"] - accuracy["float32"]) < 5
    for name, weights in [("int8", 4), *((name, 4) for name in onnx), ("int4, tuned", 8)]:
        assert f"({weights}.0 x)" in rows[name][1]
        assert rows[name][2] == "400 B (4.0 x)"
    # Two layers of 100 codes at a time, a byte or 4 bits each.
    assert "200 B of RAM between input and output, 104 B with --optimise ram" in made.stdout
    assert all(float(row[3]) > 0 for row in rows.values())
    network = load(tmp_path / "files" / "mnist.sudo")
    assert [layer.weight_kind for layer in network.layers] == ["int8"] * 5


def test_mnist_refuses_too_few_steps(tmp_path):
    refused = run(tmp_path, "--steps", "1", example="mnist_integer.py")
    assert refused.returncode == 2
    assert "--steps must be at least 2, got 1" in refused.stderr
