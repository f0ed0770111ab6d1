"""Handwritten digits: MNIST, or the small digits of scikit-learn."""

from __future__ import annotations

import gzip
import hashlib
import math
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sudonet.experiments.data._bundled import small_digits
from sudonet.experiments.data._files import Published, data_root
from sudonet.experiments.data._source import DataError, Source

FOLDER = "mnist"

RAW = (
    Published("train-images-idx3-ubyte", 47_040_016, "md5", "6bbc9ace898e44ae57da46a324031adb"),
    Published("train-labels-idx1-ubyte", 60_008, "md5", "a25bea736e30d166cdddb491f175f624"),
    Published("t10k-images-idx3-ubyte", 7_840_016, "md5", "2646ac647ad5339dbf082846283269ea"),
    Published("t10k-labels-idx1-ubyte", 10_008, "md5", "27ae3e4e09519cfbb04c329615203637"),
)
ARCHIVES = (
    Published("train-images-idx3-ubyte.gz", 9_912_422, "md5", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    Published("train-labels-idx1-ubyte.gz", 28_881, "md5", "d53e105ee54ea40749a09fcbcd1e9432"),
    Published("t10k-images-idx3-ubyte.gz", 1_648_877, "md5", "9fb629c4189551a2d022fa330f9573f3"),
    Published("t10k-labels-idx1-ubyte.gz", 4_542, "md5", "ec29112dd5afa0611ce80d1b7f02629c"),
)
"""The same files in the same order, as the mirrors serve them."""


@dataclass(frozen=True, eq=False)
class Digits:
    """Pictures of digits, a row of grey values 0..255 each, and their labels.

    MNIST has 784 pixels a picture, its stand-in 64.
    """

    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.uint8]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.uint8]
    source: Source


def digits() -> Digits:
    """MNIST from the data folder; scikit-learn's digits where it is not there.

    Raises
    ------
    DataError
        If MNIST is there in part, or is damaged. Nothing stands in for it then.
    """
    folder = data_root() / FOLDER
    return _mnist(folder) if present(folder) else bundled_digits()


def present(folder: Path) -> list[Path]:
    """The files of MNIST in ``folder``, compressed or not."""
    return [file for raw in RAW if (file := find(folder, raw)) is not None]


def find(folder: Path, raw: Published) -> Path | None:
    """The file with that content, compressed or not; None where there is none."""
    both = (folder / f"{raw.name}.gz", folder / raw.name)
    return next((file for file in both if file.is_file()), None)


def read(folder: Path, raw: Published) -> NDArray[np.uint8]:
    """One file, checked, as an array of the shape that it states."""
    file = find(folder, raw)
    if file is None:
        raise DataError(
            f"{folder / raw.name}.gz is missing, while other files of MNIST are there: "
            "run sudonet data fetch mnist"
        )
    way_out = "delete it, then run sudonet data fetch mnist"
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            content = stream.read(raw.size + 1)  # a hostile file may decompress to any size
        array = _idx(content)
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise DataError(f"{file} is truncated or damaged ({error}): {way_out}") from error
    wrong = raw.disagreement(hashlib.md5(content, usedforsecurity=False).hexdigest())
    if wrong:
        raise DataError(f"{file}, unpacked, {wrong}: {way_out}")
    return array


def _idx(content: bytes) -> NDArray[np.uint8]:
    """The idx format: 0, 0, the type of the elements, the number of axes, their lengths."""
    if content[:3] != b"\0\0\x08" or content[3:4] not in (b"\x01", b"\x03"):
        raise ValueError(
            f"it starts with the bytes {content[:4].hex() or 'of nothing'}, "
            "where idx files of labels have 00000801 and those of images 00000803"
        )
    start = 4 + 4 * content[3]
    shape = tuple(int.from_bytes(content[i : i + 4], "big") for i in range(4, start, 4))
    if len(content) != start + math.prod(shape):
        raise ValueError(f"it does not hold the {' x '.join(map(str, shape))} bytes that it states")
    array: NDArray[np.uint8] = np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()
    return array


def _mnist(folder: Path) -> Digits:
    train, train_labels, test, test_labels = (read(folder, raw) for raw in RAW)
    arrays = train.reshape(len(train), -1), train_labels, test.reshape(len(test), -1), test_labels
    return Digits(*arrays, Source.of("MNIST", *arrays))


def bundled_digits() -> Digits:
    """scikit-learn's digits of 8 x 8 pixels, every fifth for the test."""
    images, labels = small_digits()
    test = np.arange(len(images)) % 5 == 4
    arrays = images[~test], labels[~test], images[test], labels[test]
    name = f"scikit-learn's 8 x 8 digits, {(~test).sum():,} + {test.sum():,}"
    return Digits(*arrays, Source.of(name, *arrays, stand_in_for="MNIST"))
