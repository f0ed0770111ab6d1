"""The store of results: what it keeps and what it refuses."""

import os
import random
import sqlite3
import tempfile
import threading
import time
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sudonet.experiments.experiment import Trial
from sudonet.study import store as module
from sudonet.study.store import APPLICATION, VERSION, Row, Store, StoreError, key
from tests.study import fuzz_store
from tests.study.store_rows import ROW, TRIAL, filled, key_of, replica, rows_in, seeds_in, sql
from tests.study.store_rows import bytes_of_forty as bytes_of_forty
from tests.study.store_rows import store_path as store_path

NAN, INFINITY = float("nan"), float("inf")


def rows_or_error(way, path):
    try:
        with way(path) as store:
            return store.rows()
    except StoreError as error:
        return str(error)


# What is kept

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.floats(allow_nan=True, allow_infinity=True)
trials = st.builds(
    Trial,
    experiment=texts,
    shape=texts,
    column=st.integers(1, 2**62),
    activation=texts,
    rate=st.floats(1e-300, 10),
    seed=st.integers(0, 2**62),
    steps=st.integers(0, 2**62),
)
some_rows = st.builds(
    Row,
    trial=trials,
    **dict.fromkeys(
        ("engine", "source", "checksum", "recipe", "spec", "versions", "cpu", "finished"), texts
    ),
    **dict.fromkeys(("stand_in_for", "failed"), st.none() | texts),
    metrics=st.dictionaries(texts, numbers, max_size=3),
    diverged=st.none() | st.integers(0, 2**62),
    loss=st.none() | numbers,
    wall_seconds=st.floats(0, 1e9),
    cpu_seconds=st.floats(0, 1e9),
)


def measures(row):
    return row.metrics if row.loss is None else {**row.metrics, "training loss": row.loss}


@settings(max_examples=25, deadline=None)
@given(row=some_rows)
def test_any_row_comes_back_as_it_was(row):
    with tempfile.TemporaryDirectory() as folder:
        with Store.open(Path(folder) / "store") as store:
            store.add(row)
            store.add(row)  # is the same one, even where it holds NaN
        (back,) = rows_in(Path(folder) / "store")
    assert replace(back, metrics={}, loss=0) == replace(row, metrics={}, loss=0)
    assert measures(back) == pytest.approx(measures(row), rel=0, abs=0, nan_ok=True)


def test_numbers_that_are_not_finite_are_valid_json_and_no_null(path):
    with Store.open(path) as store:
        store.add(
            replica(0, metrics={"value": NAN, "best": INFINITY, "worst": -INFINITY}, loss=NAN)
        )
        store.add(replica(1, metrics={}, loss=None))
    found = sql(path, "SELECT metrics, loss FROM trials ORDER BY seed")
    assert found == [('{"best": "inf", "value": "nan", "worst": "-inf"}', "nan"), ("{}", None)]
    first, second = rows_in(path)
    assert (str(first.value), str(first.loss)) == ("nan", "nan")
    assert (second.value, second.loss) == (None, None)


def test_people_find_plain_columns(path):
    filled(path, 1)
    query = "SELECT experiment, shape, column, activation, rate, seed, steps, key FROM trials"
    assert sql(path, query) == [("checkerboard", "2", 50, "sudo-16", 0.001, 0, 87_500, key_of(ROW))]


def test_the_columns_of_version_2(path):
    """Who changes a column of the table, of Trial or of Row must raise VERSION too."""
    filled(path, 1)
    columns = [name for _, name, *_ in sql(path, "PRAGMA table_info(trials)")]
    assert columns == list(module._STORED)
    assert " ".join(columns) == (
        "key experiment shape column activation rate seed steps engine source checksum "
        "stand_in_for recipe spec versions cpu metrics diverged loss wall_seconds cpu_seconds "
        "finished failed digest"
    )
    assert VERSION == 2


few = st.text('a1", [\\', max_size=3)
identities = st.tuples(
    st.builds(
        Trial,
        few,
        few,
        st.integers(0, 2),
        few,
        st.sampled_from([1, 1.0, 0.5]),
        *[st.integers(0, 2)] * 2,
    ),
    few,
    few,
    few,
)


@given(identities, identities)
def test_only_equal_trials_engines_data_and_recipes_have_equal_keys(one, two):
    assert (key(*one) == key(*two)) == (one == two)


def test_the_order_does_not_depend_on_when_rows_were_written(tmp_path):
    rows = [
        replace(ROW, trial=Trial(*trial), engine=engine, checksum=checksum)
        for trial in (
            ("checkerboard", "2", 5, "tanh", 0.0001, 0, 10),
            ("checkerboard", "2", 5, "tanh", 0.001, 0, 10),
            ("checkerboard", "2", 5, "tanh", 0.001, 1, 10),
            ("checkerboard", "2", 50, "sudo-2", 0.001, 0, 10),
            ("mnist", "1", 5, "tanh", 0.001, 0, 9),
            ("mnist", "1", 5, "tanh", 0.001, 0, 10),
        )
        for engine in ("native-avx2", "torch")
        for checksum in ("aa", "bb")
    ]
    for attempt in range(3):
        path = tmp_path / f"{attempt}.sqlite"
        written = random.Random(attempt).sample(rows, len(rows))
        with Store.open(path) as store:
            for year, row in enumerate(written):  # by a clock that runs backwards
                store.add(replace(row, finished=f"{2050 - year}-01-01T00:00:00+00:00"))
        with Store.read(path) as store:
            assert [replace(row, finished=ROW.finished) for row in store.rows()] == rows
            assert [row.trial.experiment for row in store.rows("mnist")] == ["mnist"] * 8
            assert store.rows("parabola") == []


def test_the_clock_is_no_part_of_a_rows_identity(path):
    with Store.open(path) as store:
        store.add(ROW)
        store.add(replace(ROW, finished="1970-01-01T00:00:00+00:00", wall_seconds=9, cpu_seconds=0))
        assert store.rows() == [ROW]


@pytest.mark.parametrize(
    "change",
    [
        {"metrics": {"value": 96.6, "worst": 12.25}},
        {"metrics": {"value": NAN, "worst": 12.25}},
        {"loss": None},
        {"loss": 0.1250000001},
        {"diverged": 10},
        {"stand_in_for": "ImageNet"},
        {"versions": "{}"},
        {"failed": "killed"},
    ],
)
def test_another_result_of_a_trial_is_refused(path, change):
    with Store.open(path) as store:
        store.add(ROW)
        with pytest.raises(StoreError) as caught:
            store.add(replace(ROW, **change))
        (name,) = change
        for word in (str(path), "already has", f": {name} ", key_of(ROW), "write to another store"):
            assert word in str(caught.value)
        assert store.rows() == [ROW]


def test_a_failed_trial_is_no_result_and_makes_room_for_one(path):
    failed = replace(ROW, failed="out of memory", metrics={}, loss=None)
    again = replace(failed, failed="no such host")
    with Store.open(path) as store:
        for row in (failed, again):
            store.add(row)
            assert store.rows() == [row]
            assert store.keys() == set()
            assert not store.has(ROW.trial, ROW.engine, ROW.checksum, ROW.recipe)
        store.add(ROW)
        assert store.rows() == [ROW]
        assert store.keys() == {key_of(ROW)}
        assert store.has(ROW.trial, ROW.engine, ROW.checksum, ROW.recipe)
        assert not store.has(ROW.trial, "torch", ROW.checksum, ROW.recipe)
        assert not store.has(ROW.trial, ROW.engine, "other", ROW.recipe)
        assert not store.has(ROW.trial, ROW.engine, ROW.checksum, "other")
        assert not store.has(replace(TRIAL, seed=1), ROW.engine, ROW.checksum, ROW.recipe)


# One file, one writer, many readers


def test_a_store_is_one_file_that_every_commit_reaches(path):
    folder = path.parent / "new" / "folders"
    with Store.open(folder / "store") as store:
        for name, value in {"journal_mode": "delete", "synchronous": 2}.items():
            assert store._connection.execute(f"PRAGMA {name}").fetchone()[0] == value
        store.add(ROW)
    assert [file.name for file in folder.iterdir()] == ["store"]


def test_readers_change_nothing(path):
    filled(path)
    before = path.read_bytes(), path.stat().st_mtime_ns
    with Store.read(path) as store:
        assert len(store.rows()) == len(store.keys()) == 5
        with pytest.raises(StoreError, match=r"sqlite is open for reading only: use Store.open"):
            store.add(replica(9))
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert list(path.parent.iterdir()) == [path]


def test_no_two_writers_however_they_come_and_go(path):
    inside, most, entered = set(), [], []

    def come_and_go(me):
        end = time.monotonic() + 1
        while time.monotonic() < end:
            with suppress(StoreError), module._only_writer(path):
                inside.add(me)
                time.sleep(0.001)
                most.append(len(inside))
                entered.append(me)
                inside.remove(me)

    threads = [threading.Thread(target=come_and_go, args=(me,)) for me in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(most) == {1}
    assert len(set(entered)) > 1


def test_a_reader_that_does_not_let_go_is_an_error_and_no_loss(path, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    filled(path, 2)
    with Store.open(path) as store, closing(sqlite3.connect(path)) as person:
        person.execute("BEGIN")
        person.execute("SELECT * FROM trials").fetchone()
        with pytest.raises(
            StoreError, match=r"results.sqlite: database is locked. Close the other"
        ):
            store.add(replica(2))
        person.rollback()
        store.add(replica(2))
    assert seeds_in(path) == [0, 1, 2]


# Files that are no store, and places where none can be


def test_there_is_nothing_to_read_where_nothing_was_written(path):
    with pytest.raises(StoreError, match=r"no store .*results.sqlite: run a study first"):
        Store.read(path)
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("way", [Store.open, Store.read])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("application_id = 17", f"application_id is 17, not {APPLICATION}. Choose another file"),
        ("user_version = 0", "schema version 0, this sudonet needs 2: use the sudonet that wrote"),
    ],
)
def test_files_of_others_and_of_older_versions_are_left_alone(path, way, change, message):
    filled(path)
    sql(path, f"PRAGMA {change}")
    before = path.read_bytes()
    with pytest.raises(StoreError) as caught:
        way(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("way", [Store.open, rows_in])
@pytest.mark.parametrize(
    "damage",
    [
        lambda good: b"",
        lambda good: good[:10],
        lambda good: good[:300],
        lambda good: good[:4096],
        lambda good: good[: len(good) // 2],
        lambda good: good[:-1000],
        lambda good: b"seed,value\n0,96.5\n" * 100,
        lambda good: random.Random(0).randbytes(10_000),
        lambda good: good[:100] + random.Random(0).randbytes(len(good) - 100),
        lambda good: good.replace(b"NULL PRIMARY", b"\xb1ULL PRIMARY"),
    ],
)
def test_damaged_files_are_refused_and_left_as_they_are(path, forty, way, damage):
    broken = damage(forty)
    path.write_bytes(broken)
    with pytest.raises(StoreError, match=r"Move it away, .* and run the study again") as caught:
        way(path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == broken
    assert list(path.parent.iterdir()) == [path]


def test_a_changed_byte_of_the_header_is_an_error_or_does_no_harm(path):
    good = filled(path).read_bytes()
    rows, errors = rows_in(path), 0
    for place in range(100):
        path.write_bytes(good[:place] + bytes([good[place] ^ 0xFF]) + good[place + 1 :])
        for way in (Store.read, Store.open):
            found = rows_or_error(way, path)
            assert found == rows or str(path) in found
            errors += found != rows
    assert 50 < errors < 150


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("metrics = '{'", "Expecting property name"),
        ("metrics = '[1]'", "no attribute"),
        ('metrics = \'{"value": "many"}\'', "could not convert"),
        ("seed = 99", "its key does not fit its columns"),
        ("metrics = '{\"value\": true}'", "could not convert True to a number"),
        (f"metrics = '{{\"value\": 1{'0' * 400}}}'", "too large"),
        ("rate = 'fast'", "its rate cannot be 'fast'"),
        ("cpu_seconds = 9e999", "its cpu_seconds cannot be inf"),
        ("diverged = 'never'", "its diverged cannot be 'never'"),
        ("cpu = CAST(x'ff' AS TEXT)", "Could not decode to UTF-8"),
        ("metrics = '{\"value\": 96.6}'", "its digest does not fit its columns"),
        ("loss = 0.25", "its digest does not fit its columns"),
        ("stand_in_for = 'ImageNet'", "its digest does not fit its columns"),
        ("digest = 'ffff'", "its digest does not fit its columns"),
    ],
)
def test_a_row_that_makes_no_sense_is_an_error(path, change, message):
    filled(path)
    sql(path, f"UPDATE trials SET {change} WHERE seed = 1")
    with Store.read(path) as store, pytest.raises(StoreError, match=message) as caught:
        store.rows()
    assert str(path) in str(caught.value)


def older(path, rows=5):
    """A store as version 1 wrote it: without digests."""
    filled(path, rows)
    names = ", ".join(module._COLUMNS)
    sql(path, f"CREATE TABLE old AS SELECT {names} FROM trials")
    sql(path, "DROP TABLE trials")
    schema = module.SCHEMA.replace(",\n    digest TEXT NOT NULL\n) WITHOUT ROWID", "\n)")
    sql(path, schema)
    sql(path, f"INSERT INTO trials ({names}) SELECT {names} FROM old")
    sql(path, "DROP TABLE old")
    sql(path, "PRAGMA user_version = 1")
    return path


def test_an_older_store_is_read_as_it_is(path):
    before = older(path).read_bytes()
    assert seeds_in(path) == [0, 1, 2, 3, 4]
    with Store.read(path) as store:
        assert store.note() == ""
        assert store.has(ROW.trial, ROW.engine, ROW.checksum, ROW.recipe)
        assert len(store.keys()) == 5
    assert path.read_bytes() == before


def test_an_older_store_is_upgraded_when_it_is_written_to(path):
    rows = rows_in(older(path))
    with Store.open(path) as store:
        assert store.rows() == rows
        store.add(replica(5))
    assert sql(path, "PRAGMA user_version") == [(VERSION,)]
    assert sql(path, "SELECT count(*) FROM trials WHERE length(digest) = 16") == [(6,)]
    assert seeds_in(path) == [0, 1, 2, 3, 4, 5]
    assert list(path.parent.iterdir()) == [path]


def test_a_damaged_older_store_is_not_upgraded(path):
    older(path)
    sql(path, "UPDATE trials SET metrics = '{' WHERE seed = 1")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="Expecting property name"):
        Store.open(path)
    assert path.read_bytes() == before


def test_flipped_bits_are_seen(tmp_path):
    """``python -m tests.study.fuzz_store 4000`` tries more of them."""
    assert fuzz_store.main(["150"]) == 0


def test_a_store_needs_a_place_where_a_file_can_be(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for place in ("file/store", "file/more/store", "folder", "x" * 300):
        with pytest.raises(
            StoreError, match=r"cannot open .*Choose a file in a writable folder"
        ) as caught:
            Store.open(tmp_path / place)
        assert str(tmp_path / place) in str(caught.value)


@contextmanager
def ordinary_user():
    """Root may do everything, so be somebody else for a while."""
    if os.geteuid():
        yield
        return
    try:
        os.seteuid(65534)
    except OSError:
        pytest.skip("root cannot become another user here")
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_user_without_permission_may_read_but_not_write():
    with tempfile.TemporaryDirectory() as folder:  # unlike tmp_path, others can get into it
        path = filled(Path(folder).resolve() / "results.sqlite")
        path.chmod(0o444)
        for mode, place, message in (
            (0o555, path, "Permission denied"),
            (0o555, path.with_name("new"), "Permission denied"),
            (0o777, path, "attempt to write a readonly database. Make the file and its folder"),
        ):
            Path(folder).chmod(mode)
            with ordinary_user():
                error = rows_or_error(Store.open, place)
                assert seeds_in(path) == [0, 1, 2, 3, 4]
            assert error.startswith(f"cannot open {place}: ")
            assert message in error
        assert list(path.parent.iterdir()) == [path]
