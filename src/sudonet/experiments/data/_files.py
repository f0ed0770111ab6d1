"""Files of data sets: their folder, their published checksums, and how they are written."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sudonet import _settings
from sudonet.experiments.data._source import DataError

CHUNK = 1 << 18

Progress = Callable[[str, int, "int | None"], None]
"""Called with a file's name, the bytes it has so far and, where known, those it will have."""


@dataclass(frozen=True)
class Published:
    """A file as its publisher describes it.

    Parameters
    ----------
    name
        Its name, without folders.
    size
        Its length in bytes.
    algorithm
        Of the checksum: ``"md5"`` or ``"sha256"``.
    checksum
        Hexadecimal.
    """

    name: str
    size: int
    algorithm: str
    checksum: str

    def difference(self, file: Path) -> str | None:
        """What is wrong with ``file``, such as ``"is 3 bytes long, 4 expected"``; or None."""
        size = file.stat().st_size
        if size != self.size:
            return f"is {size:,} bytes long, {self.size:,} expected"
        digest = hashlib.new(self.algorithm, usedforsecurity=False)
        with file.open("rb") as stream:
            while chunk := stream.read(CHUNK):
                digest.update(chunk)
        return self.disagreement(digest.hexdigest())

    def disagreement(self, checksum: str) -> str | None:
        """The same, from the checksum of a file."""
        if checksum == self.checksum:
            return None
        return f"has {self.algorithm} {checksum}, {self.checksum} expected"


def data_root() -> Path:
    """The folder that holds the folders of all data sets.

    ``SUDONET_DATA`` where it is set, and then it must exist; else the cache folder, which
    need not.
    """
    named = _settings.data_folder()
    if named is None:
        return _settings.cache_folder()
    if not named.is_dir():
        state = "is not a folder" if named.exists() else "does not exist"
        raise DataError(
            f"{named} {state}: create it, or correct or unset {_settings.DATA}, which names it"
        )
    return named


def part_of(target: Path) -> Path:
    """Where a file is written until it is complete and verified."""
    return target.with_name(f"{target.name}.part")


def save(
    stream: IO[bytes], target: Path, progress: Progress, published: Published | None = None
) -> None:
    """Write a stream as ``target``, which appears only when it is complete and verified."""
    part = part_of(target)
    size = published.size if published else None
    have = 0
    with part.open("wb") as out:
        while chunk := stream.read(CHUNK):
            out.write(chunk)
            have += len(chunk)
            progress(target.name, have, size)
        flush(out)
    settle(part, target, published)


def flush(out: IO[bytes]) -> None:
    """Write everything to disk, so that a file is complete when it gets its name."""
    out.flush()
    os.fsync(out.fileno())


def settle(part: Path, target: Path, published: Published | None) -> None:
    """Give a complete file its name; delete it if it is not what was published."""
    wrong = published.difference(part) if published else None
    if wrong:
        part.unlink()
        raise DataError(f"{target.name} {wrong}: the download was deleted")
    part.replace(target)


def megabytes(size: int) -> str:
    """``"11.6 MB"``."""
    return f"{size / 1e6:,.1f} MB"
