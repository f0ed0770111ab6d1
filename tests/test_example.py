import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "checkerboard.py"


def run(folder, *arguments):
    command = [sys.executable, str(EXAMPLE), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def table(output):
    """Cells of the table's rows by activation."""
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
