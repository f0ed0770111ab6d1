"""The store of results: one SQLite file, one row a trial, one transaction a row."""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, final, get_type_hints

from sudonet.experiments import EXPERIMENTS
from sudonet.experiments.experiment import ACTIVATIONS, Trial

APPLICATION = int.from_bytes(b"SUDO", "big")  # SQLite's application_id: marks the file as ours
VERSION = 2  # SQLite's user_version: the version of the schema
OLDEST = 1  # without digests; it is read as it is, and upgraded when it is written to
PAGE = 16384  # bytes: many rows a page, a fifth less than with SQLite's 4096
SCHEMA = """CREATE TABLE trials (
    key TEXT NOT NULL PRIMARY KEY,
    experiment TEXT NOT NULL, shape TEXT NOT NULL, column INTEGER NOT NULL,
    activation TEXT NOT NULL, rate REAL NOT NULL, seed INTEGER NOT NULL, steps INTEGER NOT NULL,
    engine TEXT NOT NULL, source TEXT NOT NULL, checksum TEXT NOT NULL, stand_in_for TEXT,
    recipe TEXT NOT NULL, spec TEXT NOT NULL, versions TEXT NOT NULL, cpu TEXT NOT NULL,
    metrics TEXT NOT NULL, diverged INTEGER, loss REAL,
    wall_seconds REAL NOT NULL, cpu_seconds REAL NOT NULL, finished TEXT NOT NULL, failed TEXT,
    digest TEXT NOT NULL
) WITHOUT ROWID"""

TIMES = ("wall_seconds", "cpu_seconds", "finished")  # these may differ when a trial is run again
PATIENCE = 30.0  # seconds to wait for another process that reads or writes

BROKEN = (
    "Move it away, with its -journal file if there is one, and run the study again; "
    "`sqlite3 FILE .recover` may recover rows"
)
UNUSABLE = "Choose a file in a writable folder, on a disk with space"
WAYS_OUT = {  # by SQLite's message, because Python 3.10 does not expose its error codes
    "database or disk is full": "Free space on the disk and run again: finished trials are kept",
    "disk I/O error": "Check disk, quota and ulimit -f, and run again: finished trials are kept",
    "database is locked": "Close the other program that has it open, then try again",
    "attempt to write a readonly database": (
        "Make the file and its folder writable, or copy the store, with its -journal file if "
        "there is one, to a writable folder"
    ),
    "unable to open database file": UNUSABLE,
}


class StoreError(RuntimeError):
    """The store cannot be used; says which file, what happened and what to do."""


@dataclass(frozen=True)
class Row:
    """The result of a trial, and how it was run.

    Parameters
    ----------
    trial
        What was run.
    engine
        Which engine trained it, such as ``"native-avx512"``.
    source, checksum, stand_in_for
        The data, as described by its ``Source``.
    recipe
        Digest of what ``spec`` says beyond the trial; only rows with equal digests are compared.
    spec, versions
        The full spec; the versions of sudonet, torch, numpy and Python. Both are JSON.
    cpu
        Features of the CPU, such as ``"avx2 avx512f"``.
    metrics
        Measures of the trained network by name; ``"value"`` is the one that tables show.
    diverged
        The step after which the loss was no longer finite, or None.
    loss
        Mean training loss of the last epoch.
    wall_seconds, cpu_seconds, finished
        Time spent, and when it ended (UTC, ISO 8601). Informative: nothing is ordered by it.
    failed
        Why the trial could not be run; None if it ran.
    """

    trial: Trial
    engine: str
    source: str
    checksum: str
    stand_in_for: str | None
    recipe: str
    spec: str
    versions: str
    cpu: str
    metrics: dict[str, float]
    diverged: int | None
    loss: float | None
    wall_seconds: float
    cpu_seconds: float
    finished: str
    failed: str | None = None

    @property
    def value(self) -> float | None:
        """The measure that tables show, or None."""
        return self.metrics.get("value")


_TRIAL = tuple(field.name for field in fields(Trial))
_COLUMNS = ("key", *_TRIAL, *(field.name for field in fields(Row) if field.name != "trial"))
_TYPES = get_type_hints(Trial) | get_type_hints(Row)
_STORED = (*_COLUMNS, "digest")
_NAMES, _VALUES = ", ".join(_STORED), ", ".join(f":{name}" for name in _STORED)
_INSERT = f"INSERT OR REPLACE INTO trials ({_NAMES}) VALUES ({_VALUES})"


def key(trial: Trial, engine: str, checksum: str, recipe: str) -> str:
    """The identity of a row. Different trials, engines, data or recipes have different keys.

    Examples
    --------
    >>> key(Trial("mnist", "2", 50, "sudo-16", 0.001, 0, 60000), "native-avx2", "6b1f", "07c3")
    '["mnist", "2", 50, "sudo-16", 0.001, 0, 60000, "native-avx2", "6b1f", "07c3"]'
    """
    # Rates of 1 and 1.0 are the same trial, so they must give the same text.
    values = asdict(trial) | {"rate": float(trial.rate)}
    return json.dumps([*values.values(), engine, checksum, recipe], allow_nan=False)


@final
class Store:
    """Results on disk. Create one with ``Store.open`` to write, or ``Store.read``.

    Once ``add`` has returned, its row survives a crash of the process. There is one writer
    at a time and any number of readers. While nobody writes, the store is a single file. A
    store belongs to the thread that opened it. Every row has a digest, which is verified
    whenever the row is read.

    A store of an older version, whose rows have no digests, is read as it is. ``Store.open``
    upgrades it: a new file takes its place, whole or not at all.

    A store of a newer version can be read, but not written to. Columns that this version
    does not know are ignored; rows that it does not understand are left out: see ``note``.
    """

    def __init__(self, path: str | os.PathLike[str], writes: bool) -> None:
        self.path = Path(path).resolve()
        self._writes = writes
        with ExitStack() as resources, _explained(self.path, "open"):
            if writes:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                resources.enter_context(_only_writer(self.path))
                if not self.path.exists():
                    _create(self.path)
                _upgrade(self.path)
            self._connection = resources.enter_context(_connected(self.path))
            self.version = _version(self._connection, self.path, writes)
            if writes:
                _prepare(self._connection)
            self._resources = resources.pop_all()

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Store:
        """Open a store for writing; create it and its folders if they do not exist."""
        return cls(path, writes=True)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Store:
        """Open a store for reading, also while another process writes to it."""
        return cls(path, writes=False)

    def close(self) -> None:
        """Release the store to other writers. It may be closed more than once."""
        self._resources.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def add(self, row: Row) -> None:
        """Write a row; it is on disk when this returns.

        A result is never replaced or lost. A row that exists already and differs only in
        times is ignored; any other difference is an error. A failed row is replaced by the
        next one.
        """
        new = _encoded(row)
        with self._writing():
            query = f"{_select(VERSION)} WHERE key = ?"
            old = self._connection.execute(query, (new["key"],)).fetchone()
            if old is None or old["failed"] is not None:
                self._connection.execute(_INSERT, new)
                return
        differing = [name for name in _COLUMNS if name not in TIMES and old[name] != new[name]]
        if differing:
            what = ", ".join(f"{name} {old[name]!r} is now {new[name]!r}" for name in differing)
            raise StoreError(
                f"{self.path} already has another result of {new['key']}: {what}. Results are "
                "not replaced: write to another store, or delete that row first"
            )

    def has(self, trial: Trial, engine: str, checksum: str, recipe: str) -> bool:
        """Whether there is a result of a trial; a failed row does not count."""
        _check_version(self.version, self.path)  # a newer one may have other keys
        query = "SELECT 1 FROM trials WHERE key = ? AND failed IS NULL"
        name = key(trial, engine, checksum, recipe)
        with _explained(self.path, "read"):
            return self._connection.execute(query, (name,)).fetchone() is not None

    def keys(self) -> set[str]:
        """Keys of all results, without failed rows."""
        _check_version(self.version, self.path)
        with _explained(self.path, "read"):
            found = self._connection.execute("SELECT key FROM trials WHERE failed IS NULL")
            return {name for (name,) in found}

    def rows(self, experiment: str | None = None) -> list[Row]:
        """All rows, or those of one experiment, including failed ones.

        They are ordered by trial, engine, checksum and recipe, not by when they were written.
        """
        rows, _ = self._understood(experiment)
        return sorted(rows, key=lambda row: (row.trial, row.engine, row.checksum, row.recipe))

    def note(self) -> str:
        """A note for readers of a newer version's store; empty for others."""
        if self.version <= VERSION:
            return ""
        rows, left_out = self._understood()
        read = f"{len(rows):,} row{'' if len(rows) == 1 else 's'} could be read"
        few = {0: "none is left out", 1: "1 could not and is left out"}
        return (
            f"This store was written by a newer sudonet (version {self.version}, this one knows "
            f"{VERSION}): {read}, {few.get(left_out, f'{left_out:,} could not and are left out')}."
        )

    def _understood(self, experiment: str | None = None) -> tuple[list[Row], int]:
        """Rows, and the number of rows that only a newer version understands."""
        query = f"{_select(self.version)} WHERE experiment IS coalesce(?, experiment)"
        with _explained(self.path, "read"):
            found = self._connection.execute(query, (experiment,)).fetchall()
        decoded = [_decoded(values, self.path, self.version) for values in found]
        rows = [row for row in decoded if row is not None]
        # Rows with one key differ in columns that we do not know: to choose one would be a guess.
        alike = Counter(map(_identity, rows))
        rows = [row for row in rows if alike[_identity(row)] == 1]
        return rows, len(found) - len(rows)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        if not self._writes:
            raise StoreError(f"{self.path} is open for reading only: use Store.open to write to it")
        with _explained(self.path, "write to"):
            yield


def _encoded(row: Row) -> dict[str, Any]:
    values = {field.name: getattr(row, field.name) for field in fields(row)} | asdict(row.trial)
    metrics = {name: _storable(value) for name, value in row.metrics.items()}
    values["metrics"] = json.dumps(metrics, sort_keys=True, allow_nan=False)
    values["loss"] = None if row.loss is None else _storable(row.loss)
    values["key"] = _identity(row)
    del values["trial"]
    # As SQLite gives them back: real columns hold floats, and no negative zero.
    for name in ("rate", "wall_seconds", "cpu_seconds", "loss"):
        if isinstance(values[name], (int, float)):
            values[name] = float(values[name]) + 0.0
    return values | {"digest": _digest(values)}


def _columns(version: int) -> tuple[str, ...]:
    """What is read of a store. A newer version's digest may be of columns that we do not know."""
    return _STORED if version == VERSION else _COLUMNS


def _select(version: int) -> str:
    return f"SELECT {', '.join(_columns(version))} FROM trials"


def _digest(values: Mapping[str, Any]) -> str:
    """A checksum of all other columns of a row, by their names."""
    text = json.dumps([values[name] for name in _COLUMNS], allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _identity(row: Row) -> str:
    return key(row.trial, row.engine, row.checksum, row.recipe)


def _storable(number: float) -> float | str:
    """NaN and infinity as text: JSON has no form for them, and SQLite turns NaN into NULL."""
    return float(number) if math.isfinite(number) else str(float(number))


def _decoded(found: sqlite3.Row, path: Path, version: int) -> Row | None:
    """The row from its columns; None if only a newer version understands it."""
    # By place: SQLite matches names in any case, and gives back what the file has.
    stored = dict(zip(_columns(version), found, strict=True))
    values = {name: value for name, value in stored.items() if name not in ("key", "digest")}
    identity = stored["key"]
    try:
        metrics = json.loads(values.pop("metrics"))
        values["loss"] = None if values["loss"] is None else _number(values["loss"])
        for name, value in values.items():
            if not _fits(value, _TYPES[name]):
                raise TypeError(f"its {name} cannot be {value!r}")
        trial = Trial(**{name: values.pop(name) for name in _TRIAL})
        metrics = {name: _number(value) for name, value in metrics.items()}
        row = Row(trial, metrics=metrics, **values)
        if version <= VERSION and _identity(row) != identity:
            raise ValueError("its key does not fit its columns")
        if version == VERSION and stored["digest"] != _digest(stored):
            raise ValueError("its digest does not fit its columns: it was changed or damaged")
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        if version > VERSION:
            return None
        raise StoreError(f"cannot read row {identity} of {path}: {error}. {BROKEN}") from error
    known = trial.experiment in EXPERIMENTS and trial.activation in ACTIVATIONS
    return row if known or version <= VERSION else None


def _number(value: Any) -> float:
    """The number that ``_storable`` encoded."""
    if isinstance(value, bool):
        raise TypeError(f"could not convert {value} to a number")
    return float(value)


def _fits(value: Any, kind: Any) -> bool:
    if kind is float:
        return isinstance(value, (int, float)) and math.isfinite(value)
    return isinstance(value, kind)


@contextmanager
def _explained(path: Path, action: str) -> Iterator[None]:
    """Turn errors of SQLite and of the file system into a StoreError with a way out."""
    try:
        yield
    except (sqlite3.ProgrammingError, sqlite3.InterfaceError, sqlite3.IntegrityError):
        raise  # the caller's mistake: a closed store, or a row of wrong types
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
        way_out = UNUSABLE if isinstance(error, OSError) else WAYS_OUT.get(str(error), BROKEN)
        raise StoreError(f"cannot {action} {path}: {error}. {way_out}") from error


@contextmanager
def _only_writer(path: Path) -> Iterator[None]:
    """Hold the lock file next to a store. The kernel releases it when the process dies."""
    lock = path.with_name(f"{path.name}.lock")
    while True:
        with lock.open("a+") as file:  # "w" would erase the other's process id
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise StoreError(
                    f"process {file.read() or 'unknown'} is writing to {path}: wait until it has "
                    "finished, stop it, or write to another store"
                ) from None
            if not os.fstat(file.fileno()).st_nlink:
                continue  # the previous writer removed it after we had opened it
            try:
                file.truncate(0)
                file.write(str(os.getpid()))
                file.flush()
                yield
            finally:
                lock.unlink(missing_ok=True)
            return


def _create(path: Path, rows: Iterable[Row] = ()) -> None:
    """Create a store of some rows atomically."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)  # left by a process that was killed here
    with closing(sqlite3.connect(new, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = MEMORY")
        connection.execute(f"PRAGMA page_size = {PAGE}")
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute(SCHEMA)
        connection.execute("BEGIN")
        # In the order of the table's keys, so that pages are full.
        ordered = sorted(rows, key=_identity)
        connection.executemany(_INSERT, map(_encoded, ordered))
        connection.execute("COMMIT")
    # The journal of a deleted store would be rolled back into the new one.
    path.with_name(f"{path.name}-journal").unlink(missing_ok=True)
    new.replace(path)


def _upgrade(path: Path) -> None:
    """Give the rows of an older store digests; the caller is its only writer."""
    with _connected(path) as connection:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if not OLDEST <= version < VERSION:
            return
        found = connection.execute(_select(version)).fetchall()
    _create(path, [row for values in found if (row := _decoded(values, path, version))])


@contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to an undamaged store of any version.

    Readers, too, open it for writing, because only then can SQLite roll back what a killed
    writer left unfinished. On a read-only file system SQLite falls back to reading.
    """
    if not path.exists():
        raise StoreError(f"there is no store {path}: run a study first, or correct the path")
    if not path.stat().st_size:  # to SQLite it is a database without tables
        raise StoreError(f"{path} is empty, which a store never is. {BROKEN}")
    uri = f"{path.as_uri()}?mode=rw"
    connection = sqlite3.connect(uri, timeout=PATIENCE, isolation_level=None, uri=True)
    with closing(connection):
        connection.row_factory = sqlite3.Row
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        if application != APPLICATION:
            raise StoreError(
                f"{path} is not a store of results: its application_id is {application}, not "
                f"{APPLICATION}. Choose another file"
            )
        # Of the file's structure; the contents of rows are checked by their digests.
        found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if found != "ok":
            raise StoreError(f"{path} is damaged: {found.splitlines()[-1]}. {BROKEN}")
        yield connection


def _version(connection: sqlite3.Connection, path: Path, writes: bool) -> int:
    """The store's version, if it can be used: ours, or to read, another with our columns."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if writes or version < OLDEST:
        _check_version(version, path)
    if version > VERSION:
        there = {column["name"] for column in connection.execute("PRAGMA table_xinfo(trials)")}
        missing = [name for name in _COLUMNS if name not in there]
        if missing:
            raise StoreError(
                f"{path} has schema version {version}, this sudonet knows {VERSION} and needs "
                f"columns that are missing: {', '.join(missing)}. Update sudonet to read it"
            )
    return version


def _check_version(version: int, path: Path) -> None:
    """Refuse versions whose keys may be others than ours."""
    if not OLDEST <= version <= VERSION:
        raise StoreError(
            f"{path} has schema version {version}, this sudonet needs {VERSION}: use the "
            "sudonet that wrote it, or write to another store"
        )


def _prepare(connection: sqlite3.Connection) -> None:
    """Make sure that rows can be added and that they are durable."""
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute("PRAGMA synchronous = FULL")
    # SQLite reports a read-only file only on a write, so write to no row.
    connection.execute("UPDATE trials SET key = key WHERE 0")
