import csv
import math
import sys
from dataclasses import fields

import pytest

from sudonet.experiments.experiment import Trial
from sudonet.report.export import export
from sudonet.study.store import Row
from tests.report.report_rows import row

ROWS = [
    row(81.5, metrics={"value": 81.5, "loss": 0.25}, versions='{"sudonet": "0.1.0"}'),
    row(None, seed=1, failed='it said "no",\nand stopped', loss=None, stand_in_for="the pier"),
    row(math.nan, seed=2, rate=1e-5, diverged=7, loss=math.inf, wall_seconds=0.1),
]
TRIAL = [field.name for field in fields(Trial)]
REST = [field.name for field in fields(Row) if field.name not in ("trial", "metrics")]


def expected(row, name):
    if name.startswith("metrics."):
        return row.metrics.get(name.removeprefix("metrics."))
    return getattr(row.trial if name in TRIAL else row, name)


def same(a, b):
    return a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


def test_csv_has_every_column_of_every_row(tmp_path):
    path = tmp_path / "rows.csv"
    export(ROWS, path)
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 3
    assert set(lines[0]) == {*TRIAL, *REST, "metrics.value", "metrics.loss"}
    for line, original in zip(lines, ROWS, strict=True):
        for name, text in line.items():
            value = expected(original, name)
            assert text == ("" if value is None else str(value))


def test_parquet_has_every_column_with_its_type(tmp_path):
    pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "rows.parquet"
    export(ROWS, path)
    found = parquet.read_table(path)
    assert found.num_rows == 3
    assert set(found.column_names) == {*TRIAL, *REST, "metrics.value", "metrics.loss"}
    for name in found.column_names:
        for value, original in zip(found[name].to_pylist(), ROWS, strict=True):
            assert same(value, expected(original, name))
    kinds = {name: str(found.schema.field(name).type) for name in found.column_names}
    assert kinds["diverged"] == kinds["steps"] == kinds["column"] == "int64"
    assert kinds["rate"] == kinds["metrics.value"] == kinds["loss"] == "double"
    assert kinds["failed"] == kinds["stand_in_for"] == kinds["engine"] == "string"


def test_types_do_not_depend_on_the_rows(tmp_path):
    pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "rows.parquet"
    export([row(None, loss=None)], path)
    schema = parquet.read_schema(path)
    assert [str(schema.field(name).type) for name in ("loss", "failed", "diverged")] == [
        "double",
        "string",
        "int64",
    ]


@pytest.mark.parametrize("name", ["rows.csv", "rows.PARQUET"])
def test_no_rows_make_a_file_with_columns(tmp_path, name):
    if name.endswith("PARQUET"):
        pytest.importorskip("pyarrow")
    export([], tmp_path / name)
    assert (tmp_path / name).stat().st_size > 0
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_without_pyarrow_the_error_names_the_way_out(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'sudonet\[parquet\]', or .*\.csv"):
        export(ROWS, tmp_path / "rows.parquet")
    assert list(tmp_path.iterdir()) == []


def test_another_ending_is_an_error_that_names_the_endings(tmp_path):
    with pytest.raises(ValueError, match=r"rows\.xlsx: its name must end in \.csv or \.parquet"):
        export(ROWS, tmp_path / "rows.xlsx")


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        export([*ROWS, row(1, source="\udc80")], path)  # cannot be written as UTF-8
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_old_file_is_replaced(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("old")
    export(ROWS[:1], path)
    assert path.read_text().startswith("experiment,shape,column,")
    assert list(tmp_path.iterdir()) == [path]
