"""Rows and stores for the tests of the store."""

import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from sudonet.experiments.experiment import Trial
from sudonet.study.store import Row, Store, key

TRIAL = Trial("checkerboard", "2", 50, "sudo-16", 0.001, 0, 87_500)
ROW = Row(
    trial=TRIAL,
    engine="native-avx512",
    source="MNIST",
    checksum="6b1f" * 16,
    recipe="07c3",
    stand_in_for=None,
    spec='{"sizes": [2, 50, 50, 1]}',
    versions='{"torch": "2.6"}',
    cpu="avx2 avx512f",
    metrics={"value": 96.5, "worst": 12.25},
    diverged=None,
    loss=0.125,
    wall_seconds=3.5,
    cpu_seconds=3.25,
    finished="2024-05-01T12:00:00+00:00",
)


def replica(seed, **changes):
    return replace(ROW, trial=replace(TRIAL, seed=seed), **changes)


def key_of(row):
    return key(row.trial, row.engine, row.checksum, row.recipe)


def add_all(store, seeds):
    for seed in seeds:
        store.add(replica(seed))


def filled(path, rows=5):
    with Store.open(path) as store:
        add_all(store, range(rows))
    return path


def rows_in(path):
    with Store.read(path) as store:
        return store.rows()


def seeds_in(path):
    return [row.trial.seed for row in rows_in(path)]


def sql(path, statement):
    """What a person with another program does to a file."""
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement).fetchall()


@pytest.fixture(name="path")
def store_path(tmp_path):
    return tmp_path / "results.sqlite"


@pytest.fixture(name="forty", scope="module")
def bytes_of_forty(tmp_path_factory):
    """The bytes of a store of several pages, with 40 replicas."""
    return filled(tmp_path_factory.mktemp("forty") / "store", 40).read_bytes()
