"""The file of a figure: arrays to draw, and how they were made."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FORMAT = 1
"""The version of the format. A file of another version is made again."""

Arrays: TypeAlias = dict[str, NDArray[Any]]
Meta: TypeAlias = dict[str, Any]

_DAMAGE = (
    *(OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error),
)
"""What reading a damaged file may raise."""


class FigureError(RuntimeError):
    """A figure's file cannot be made or read; says which file, why and what to do."""


def read(path: Path) -> tuple[Arrays, Meta]:
    """The arrays of a figure by name, and how they were made.

    Surfaces have a row for each y, from -1 up, and a column for each x. The arrays of
    ``histogram`` count how often each level was emitted, by activation.

    Returns
    -------
    arrays, meta
        ``meta`` has ``figure``, ``share``, ``steps`` (of the longest training), ``engine``,
        ``data`` (name, checksum, stand_in_for), ``specs`` and ``values`` (the measure that
        tables show) by the networks' names, and ``versions``.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
        if broken is not None:
            raise ValueError(f"{broken} in it is damaged")
        with np.load(path, allow_pickle=False) as found:
            arrays: Arrays = {name: found[name] for name in found.files}
        meta: Meta = json.loads(str(arrays.pop("meta")))
        if meta["format"] != FORMAT:
            raise ValueError(f"its format is {meta['format']!r}, not {FORMAT}")
    except FileNotFoundError as error:
        message = f"there is no figure {path}: make it first, or correct the path"
        raise FigureError(message) from error
    except _DAMAGE as error:
        raise FigureError(
            f"cannot read the figure {path}: {error}. Delete it and make it again"
        ) from error
    return arrays, meta


def write(path: Path, arrays: Arrays, meta: Meta) -> None:
    """Write a figure's file, whole or not at all."""
    text = json.dumps(meta, allow_nan=False)
    everything: dict[str, Any] = {**arrays, "meta": np.array(text)}
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            np.savez_compressed(file, **everything)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        part.unlink(missing_ok=True)


def prepare(folder: Path) -> None:
    """Create the folder now: training may take an hour before the first file is written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error


def cannot_write(path: Path, error: OSError) -> FigureError:
    """The error to raise when the file system refuses to write."""
    return FigureError(
        f"cannot write {path}: {error.strerror or error}. Choose a folder that is writable, on "
        "a disk with space; finished figures are kept"
    )


def comparable(meta: Meta) -> Meta:
    """Metadata without patch versions: a bug fix does not make figures outdated."""
    releases = {name: version.split(".")[:2] for name, version in meta["versions"].items()}
    return meta | {"versions": releases}
