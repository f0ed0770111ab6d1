"""The store of results, with other processes: what survives kills, full disks and other writers.

Run as a script, this file is the other process.
"""

import json
import os
import queue
import random
import resource
import signal
import subprocess
import sys
import threading
import time
import traceback
from contextlib import closing
from pathlib import Path

import pytest

from sudonet.study.store import Store, StoreError
from tests import ROOT
from tests.study.store_rows import add_all, filled, key_of, replica, rows_in, seeds_in
from tests.study.store_rows import bytes_of_forty as bytes_of_forty
from tests.study.store_rows import store_path as store_path

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
        with pytest.raises(StoreError, match=r"results.sqlite: .*full\. Free space"):
            add_all(store, range(1, 1000))
        kept = [row.trial.seed for row in store.rows()]
    fill_up(junk)
    with pytest.raises(StoreError, match=r"No space left on device.*a disk with space"):
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
    with pytest.raises(StoreError, match=r"Read-only file system.*in a writable folder"):
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
            [sys.executable, "-m", __name__],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
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


# One writer, many readers


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


def test_reading_goes_on_while_another_process_writes(path, other):
    filled(path, 1)
    pid = other.start(add_forever, path)
    other.line()
    counts = []
    while len(set(counts)) < 4:
        counts.append(len(rows_in(path)))
    other.kill(pid)
    assert counts == sorted(counts)


# Disks that fill up


def test_a_full_disk_is_an_error_and_what_was_written_stays(path):
    with Store.open(path) as store:
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0] + 3
        store._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match=r"sqlite: .*disk is full. Free space .*are kept"):
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
    assert message.startswith(f"cannot write to {path}: disk I/O error. Check disk")
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
    command = [*enter, f'{mount} && exec "$@"', tmp_path, sys.executable, "-m", __name__]
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
