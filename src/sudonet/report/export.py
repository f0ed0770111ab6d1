"""Rows of the store as one flat file, for other programs."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from sudonet.experiments.experiment import Trial
from sudonet.report._escaping import csv_text
from sudonet.study.store import Row

METRIC = "metrics."
"""Every measure has a column of its own, whose name begins so."""


def export(rows: Iterable[Row], path: Path) -> None:
    """Write rows to ``path``, whose name ends in .csv or .parquet.

    Every field of a row and of its trial has a column; measures have one each, named
    ``metrics.value`` and so on. The file appears whole or not at all.

    In a .csv file, text that a spreadsheet would take for a formula (it begins with ``=``, ``+``,
    ``-``, ``@``, a tab or a carriage return), or that begins with ``'``, has a ``'`` before it.

    Parameters
    ----------
    rows
        In the order in which they are written.
    path
        A file of that name is replaced.
    """
    writers = {".csv": _write_csv, ".parquet": _write_parquet}
    writer = writers.get(path.suffix.lower())
    if writer is None:
        raise ValueError(f"cannot export to {path}: its name must end in {' or '.join(writers)}")
    rows = list(rows)
    kinds = _kinds(rows)
    records = [_flat(row, list(kinds)) for row in rows]
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        writer(records, kinds, partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _kinds(rows: list[Row]) -> dict[str, str]:
    """The type of every column by its name: ``"str"``, ``"int"`` or ``"float"``."""
    found: dict[str, str] = {}
    for field in (*fields(Trial), *fields(Row)):
        if field.name == "metrics":
            names = {name for row in rows for name in row.metrics}
            found |= {f"{METRIC}{name}": "float" for name in sorted(names)}
        elif field.name != "trial":
            found[field.name] = str(field.type).removesuffix(" | None")
    return found


def _flat(row: Row, columns: list[str]) -> dict[str, Any]:
    record = {}
    for name in columns:
        if name.startswith(METRIC):
            record[name] = row.metrics.get(name.removeprefix(METRIC))
        else:
            owner = row.trial if hasattr(row.trial, name) else row
            record[name] = getattr(owner, name)
    return record


def _write_csv(records: list[dict[str, Any]], kinds: dict[str, str], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(csv_text(list(kinds), records))


def _write_parquet(records: list[dict[str, Any]], kinds: dict[str, str], path: Path) -> None:
    try:
        arrow = importlib.import_module("pyarrow")
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise ImportError(
            "writing .parquet needs pyarrow: pip install 'sudonet[parquet]', or export to .csv"
        ) from error
    types = {"str": arrow.string(), "int": arrow.int64(), "float": arrow.float64()}
    schema = arrow.schema([(name, types[kind]) for name, kind in kinds.items()])
    parquet.write_table(arrow.Table.from_pylist(records, schema=schema), path)
