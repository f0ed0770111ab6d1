"""The results in the repository: tables are those that the store gives."""

import importlib.util
from pathlib import Path

import pytest

from sudonet.experiments import EXPERIMENTS
from sudonet.study.store import Store

RESULTS = Path(__file__).parent.parent / "results"


@pytest.fixture(scope="module")
def update():
    spec = importlib.util.spec_from_file_location("update", RESULTS / "update.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_are_those_of_the_store(update):
    pages = update.pages()
    assert len(pages) > 5
    for path, text in pages.items():
        assert path.read_text(encoding="utf-8") == text, f"run python {RESULTS.name}/update.py"
    tables = RESULTS / "tables"
    assert set(tables.glob("*.md")) == {path for path in pages if path.parent == tables}


def test_the_store_is_small_and_holds_trials_of_the_study(update):
    assert update.STORE.stat().st_size < 20e6
    with Store.read(update.STORE) as store:
        rows = store.rows()
    assert {row.trial.experiment for row in rows} <= set(EXPERIMENTS)
    assert not [row for row in rows if row.failed]
