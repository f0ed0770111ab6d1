"""The results in the repository: tables are those that the store gives."""

import importlib.util
import json
import re

import pytest

from sudonet.experiments import EXPERIMENTS, GRIDS
from sudonet.experiments.experiment import Protocol
from sudonet.report.agreement import agreement, cells
from sudonet.report.page._tables import details
from sudonet.report.summary import all_cells
from sudonet.study.store import Store
from tests import ROOT

RESULTS = ROOT / "results"
RESEARCH = ROOT / "research"


@pytest.fixture(scope="module")
def update():
    spec = importlib.util.spec_from_file_location("update", RESEARCH / "update.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def rows(update):
    return update.stored()


def test_tables_are_those_of_the_store(update, rows):
    pages = update.pages(rows)
    assert len(pages) > 5
    for path, text in pages.items():
        assert path.read_text(encoding="utf-8") == text, "run python research/update.py"
    tables = RESULTS / "tables"
    assert set(tables.glob("*.md")) == {path for path in pages if path.parent == tables}


def test_the_page_shows_the_store(rows):
    page = (RESULTS / "index.html").read_text(encoding="utf-8")
    (data,) = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    shown = json.loads(json.dumps(details(all_cells(rows))))
    assert json.loads(data)["details"] == shown, "run python research/update.py"
    for address in re.findall(r'href="((?:figures|tables)/[^"]*)"', page):
        assert (RESULTS / address).is_file(), address


def test_the_folder_is_small_and_holds_no_file_that_a_command_makes(update):
    files = [path for path in RESULTS.rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert sum(path.stat().st_size for path in files) < 12e6
    assert {path.suffix for path in files} == {".sqlite", ".md", ".png", ".npz", ".html"}
    beside = RESULTS / "figures" / update.HISTOGRAM  # without it claim 10 would be undecided
    assert [path for path in files if path.suffix == ".npz"] == [beside]
    assert beside.read_bytes() == (update.ARRAYS / update.HISTOGRAM).read_bytes()


def test_the_store_is_small_and_holds_trials_of_the_study(update, rows):
    assert update.STORE.stat().st_size < 20e6
    assert {row.trial.experiment for row in rows} <= set(EXPERIMENTS)
    assert not [row for row in rows if row.failed]


def test_the_log_says_how_the_harder_picture_came_out():
    protocol = Protocol(13_500, replicas=6, rates=(0.0005,))
    with Store.read(RESEARCH / "harder-picture.sqlite") as store:
        rows = store.rows()
    found = [
        agreement(grid, cells(grid, rows, lambda shape, column: protocol)).spearman
        for grid in EXPERIMENTS["memorization"].grids
    ]
    line = " | ".join(f"{rank:.2f}" for rank in found)
    text = (RESEARCH / "log.md").read_text(encoding="utf-8")
    assert f"| a harder picture, by Adam, six replicas | {line} |" in text


@pytest.mark.parametrize(
    ("store", "heading"),
    [
        (RESULTS / "results.sqlite", "SGD, the recipe"),
        (RESEARCH / "checkerboard-adam.sqlite", "Adam"),
    ],
    ids=["SGD", "Adam"],
)
def test_the_log_says_how_the_checkerboard_came_out_by_either_optimiser(store, heading):
    with Store.read(store) as opened:
        tables = all_cells(opened.rows("checkerboard"))
    names = ("checkerboard-2", "checkerboard-4", "r-checkerboard-2", "r-checkerboard-4")
    found = [agreement(GRIDS[name], tables[name]).spearman for name in names]
    line = " | ".join(f"{rank:.2f}" for rank in found)
    text = (RESEARCH / "log.md").read_text(encoding="utf-8")
    assert f"| {heading} | {line} |" in text


def test_no_cell_of_the_tables_is_by_another_recipe(rows):
    cells_of = [cell for table in all_cells(rows).values() for cell in table.values()]
    assert len(cells_of) == 1030
    assert not [cell.protocol for cell in cells_of if "another recipe" in cell.protocol]
