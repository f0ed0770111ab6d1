"""The store of results: what it keeps, what it refuses, and what survives a crash.

Run as a script, this file is the other process that some of the tests need.
"""

import json
import os
import queue
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sudonet.experiments.experiment import Trial
from sudonet.study import store as module
from sudonet.study.store import APPLICATION, VERSION, Row, Store, StoreError, key

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
NAN, INFINITY = float("nan"), float("inf")


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


def rows_or_error(way, path):
    try:
        with way(path) as store:
            return store.rows()
    except StoreError as error:
        return str(error)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.sqlite"


@pytest.fixture(scope="module")
def forty(tmp_path_factory):
    """The bytes of a store of several pages, with 40 replicas."""
    return filled(tmp_path_factory.mktemp("forty") / "store", 40).read_bytes()


# The other process


def say(text):
    os.write(1, f"{text}\n".encode())  # at once: half a line would be taken for a whole one


def add_forever(path):
    with Store.open(path) as store:
        for seed in range(len(store.keys()), 100_000):
            store.add(replica(seed))
            say(key_of(replica(seed)))


def add_within(path, bytes_of_a_file):
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_of_a_file, bytes_of_a_file))
    with Store.open(path) as store:
        try:
            add_all(store, range(100_000))
        except StoreError as error:
            say(error)
        say(len(store.rows()))


def hold(path):
    with Store.open(path):
        say("open")
        time.sleep(60)


def die_half_way(path):
    """Die in a transaction that has overwritten a part of the store."""
    store = Store.open(path)
    for statement in ("PRAGMA cache_size = 1", "BEGIN", "UPDATE trials SET spec = zeroblob(3000)"):
        store._connection.execute(statement)
    os.kill(os.getpid(), signal.SIGKILL)


def fill_up(path):
    with path.open("ab", buffering=0) as file, pytest.raises(OSError, match="No space"):
        file.writelines(bytes(512) for _ in range(10_000))


def on_a_small_disk(path):
    junk = Path(path).with_name("junk")
    with Store.open(path) as store:
        store.add(replica(0))
        fill_up(junk)
        with pytest.raises(StoreError, match=r"results.sqlite: .*full\. Make room"):
            add_all(store, range(1, 1000))
        kept = [row.trial.seed for row in store.rows()]
    fill_up(junk)
    with pytest.raises(StoreError, match=r"No space left on device.*a disk with room"):
        Store.open(path)
    assert seeds_in(path) == kept == list(range(len(kept)))
    junk.unlink()
    filled(path, len(kept) + 1)
    assert seeds_in(path) == [*kept, len(kept)]
    assert list(junk.parent.iterdir()) == [Path(path)]


def on_a_read_only_disk(path):
    remount = ["mount", Path(path).parent, "-o"]
    filled(path, 40)
    subprocess.run([*remount, "remount,ro"], check=True)
    assert seeds_in(path) == list(range(40))
    with pytest.raises(StoreError, match=r"Read-only file system.*folder that you may use"):
        Store.open(path)
    subprocess.run([*remount, "remount,rw"], check=True)
    pid = os.fork()
    if not pid:
        die_half_way(path)
    os.waitpid(pid, 0)
    subprocess.run([*remount, "remount,ro"], check=True)
    with pytest.raises(StoreError, match=r"copy the store, with its -journal file"):
        Store.read(path)


def nursery():
    """For every line that comes in, start a process and wait for its end.

    They are forked, since importing PyTorch for each would take seconds.
    """
    for line in sys.stdin:
        task, *arguments = json.loads(line)
        pid = os.fork()
        if not pid:
            try:
                say(os.getpid())
                globals()[task](*arguments)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        say("ended")


class Nursery:
    """Starts other processes and hears what they print."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.lines = queue.Queue()
        # It listens all the time: a process must not wait until its words are read.
        self.listener = threading.Thread(target=self.listen)
        self.listener.start()

    def listen(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))

    def start(self, task, path, *arguments):
        """Start a process and give back its number."""
        line = json.dumps([task.__name__, str(path), *arguments])
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return int(self.line())

    def line(self):
        return self.lines.get(timeout=60)

    def rest(self):
        """What the process printed until it ended."""
        return list(iter(self.line, "ended"))

    def kill(self, pid):
        os.kill(pid, signal.SIGKILL)
        return self.rest()

    def close(self):
        self.process.stdin.close()
        self.listener.join(60)
        self.process.wait(60)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def other():
    with closing(Nursery()) as nursery:
        yield nursery


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


def test_the_columns_of_version_1(path):
    """Who changes a column of the table, of Trial or of Row must raise VERSION too."""
    filled(path, 1)
    columns = [name for _, name, *_ in sql(path, "PRAGMA table_info(trials)")]
    assert columns == list(module._COLUMNS)
    assert " ".join(columns) == (
        "key experiment shape column activation rate seed steps engine source checksum "
        "stand_in_for recipe spec versions cpu metrics diverged loss wall_seconds cpu_seconds "
        "finished failed"
    )
    assert VERSION == 1


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
        for word in (str(path), f"already: {name} ", key_of(ROW), "write to another store"):
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
        for write in (lambda: store.add(replica(9)), store.compact):
            with pytest.raises(
                StoreError, match=r"sqlite is open for reading only: use Store.open"
            ):
                write()
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert list(path.parent.iterdir()) == [path]


def test_compacting_gives_space_back_and_keeps_the_rest(path):
    filled(path, 3)
    with Store.open(path) as store:
        store.add(replica(3, spec="x" * 500_000))
    sql(path, "DELETE FROM trials WHERE seed = 3")
    with Store.open(path) as store:
        assert path.stat().st_size > 500_000
        store.compact()
    assert path.stat().st_size < 100_000
    assert seeds_in(path) == [0, 1, 2]


def test_a_second_writer_is_told_who_the_first_one_is(path, other):
    filled(path, 2)
    pid = other.start(hold, path)
    assert other.line() == "open"
    alias = path.with_name("alias")
    alias.symlink_to(path)
    for name in (path, alias):
        with pytest.raises(StoreError, match=rf"process {pid} is writing to {path}: wait"):
            Store.open(name)
    assert seeds_in(path) == [0, 1]
    other.kill(pid)
    assert path.with_name("results.sqlite.lock").exists()
    filled(path, 3)  # for the lock of a dead process is none
    assert seeds_in(path) == [0, 1, 2]


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


def test_reading_goes_on_while_another_process_writes(path, other):
    filled(path, 1)
    pid = other.start(add_forever, path)
    other.line()
    counts = []
    while len(set(counts)) < 4:
        counts.append(len(rows_in(path)))
    other.kill(pid)
    assert counts == sorted(counts)


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
        ("user_version = 0", "schema version 0, this sudonet needs 1: use the sudonet that wrote"),
        ("user_version = 2", "schema version 2, this sudonet needs 1: use the sudonet that wrote"),
    ],
)
def test_files_of_others_and_of_other_versions_are_left_alone(path, way, change, message):
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
        ("rate = 'fast'", "could not convert"),
        ("cpu = CAST(x'ff' AS TEXT)", "Could not decode to UTF-8"),
    ],
)
def test_a_row_that_makes_no_sense_is_an_error(path, change, message):
    filled(path)
    sql(path, f"UPDATE trials SET {change} WHERE seed = 1")
    with Store.read(path) as store, pytest.raises(StoreError, match=message) as caught:
        store.rows()
    assert str(path) in str(caught.value)


def test_a_store_needs_a_place_where_a_file_can_be(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for place in ("file/store", "file/more/store", "folder", "x" * 300):
        with pytest.raises(StoreError, match=r"cannot open .*Choose a file in a folder") as caught:
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


# Disks that fill up


def test_a_full_disk_is_an_error_and_what_was_written_stays(path):
    with Store.open(path) as store:
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0] + 3
        store._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match=r"sqlite: .*disk is full. Make room .*are kept"):
            add_all(store, range(1000))
        kept = len(store.rows())
        assert kept > 0
        assert seeds_in(path) == list(range(kept))
        store._connection.execute(f"PRAGMA max_page_count = {pages + 100}")
        store.add(replica(kept))
    assert seeds_in(path) == list(range(kept + 1))


def test_a_limit_on_file_size_is_an_error_and_what_was_written_stays(path, other):
    other.start(add_within, path, 40_000)
    message, kept = other.rest()
    assert message.startswith(f"cannot write to {path}: disk I/O error. Look at the disk")
    assert seeds_in(path) == list(range(int(kept)))
    assert int(kept) > 0


@pytest.mark.parametrize("task", [on_a_small_disk, on_a_read_only_disk])
def test_a_real_file_system_that_is(tmp_path, task):
    """In a mount namespace of its own, which ends with the process."""
    enter = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else []), "sh", "-c"]
    mount = 'mount -t tmpfs -o size=1m none "$0"'
    try:
        subprocess.run([*enter, mount, tmp_path], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("nothing can be mounted here")
    command = [*enter, f'{mount} && exec "$@"', tmp_path, sys.executable, __file__]
    ran = subprocess.run(
        [*command, task.__name__, tmp_path / "results.sqlite"], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr


# Processes that die


def test_every_row_that_was_added_survives_kills_at_random_moments(path, other):
    chance = random.Random(1)
    added = set()
    for attempt in range(20):
        pid = other.start(add_forever, path)
        if attempt:
            added.add(other.line())
        time.sleep(chance.uniform(0, 0.1))
        added.update(other.kill(pid))
        for way in (Store.read, Store.open)[:: chance.choice([1, -1])]:
            if not path.exists():
                break
            with way(path) as store:
                check = store._connection.execute("PRAGMA integrity_check").fetchall()
                assert [tuple(line) for line in check] == [("ok",)]
                assert added <= store.keys()
                # A row may be on disk before its key was printed, one for every kill.
                assert len(store.keys()) <= len(added) + attempt + 1
    assert len(added) > 20
    assert seeds_in(path)[: len(added)] == list(range(len(added)))


def test_a_store_is_made_whole_or_not_at_all(tmp_path, other):
    chance = random.Random(2)
    for attempt in range(20):
        path = tmp_path / str(attempt) / "store"
        pid = other.start(hold, path)
        time.sleep(chance.uniform(0, 0.03))
        other.kill(pid)
        if path.exists():
            assert rows_in(path) == []
        filled(path, 1)
        assert [file.name for file in path.parent.iterdir()] == ["store"]


@pytest.mark.parametrize("way", [Store.read, Store.open])
def test_half_a_transaction_is_taken_back(path, forty, other, way):
    path.write_bytes(forty)
    other.start(die_half_way, path)
    other.rest()
    assert path.read_bytes() != forty
    assert path.with_name("results.sqlite-journal").stat().st_size > 0
    with way(path) as store:
        assert store.rows() == [replica(seed) for seed in range(40)]
    assert path.read_bytes() == forty


def test_the_journal_of_a_store_that_was_deleted_is_not_played_back(path, forty, other):
    path.write_bytes(forty)
    other.start(die_half_way, path)
    other.rest()
    path.unlink()
    filled(path, 2)
    assert seeds_in(path) == [0, 1]
    with Store.open(path) as store:
        assert store._connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


if __name__ == "__main__":
    if sys.argv[1:]:
        globals()[sys.argv[1]](sys.argv[2])
    else:
        nursery()
