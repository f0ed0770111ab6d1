"""CIFAR-10, which may stand in for ImageNet at 32 x 32.

Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009: 50,000 pictures to
train on and 10,000 to test with, as the author's archive of pickled batches, or as the six
PNG files of an npm package, which have a row of pixels for each picture.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sudonet.experiments.data._files import Published
from sudonet.experiments.data._pickles import read_pixels
from sudonet.experiments.data._source import DataError

FOLDER = "cifar10"
NAME = "CIFAR-10"
PLACE = "https://www.cs.toronto.edu/~kriz/"
ARCHIVE = Published(
    "cifar-10-python.tar.gz", 170_498_071, "md5", "c58f30108f718f92721af3b95e74349a"
)
BATCHES = (
    *(f"cifar-10-batches-py/data_batch_{i}" for i in range(1, 6)),
    "cifar-10-batches-py/test_batch",
)
"""In the archive: five to train on, then one to test with."""

# The npm package publishes no checksums of its files: these are those of version 1.1.1.
PICTURES = (
    Published(
        "data_batch_1.png",
        23_138_647,
        "sha256",
        "9a148385817b16e1840832575ee46ccac2ced61a305f07d4804805773c64e9bc",
    ),
    Published(
        "data_batch_2.png",
        23_162_285,
        "sha256",
        "47d610b8eb06af0c885fc499afc396d55f3a029b865725720a4f10474aac9d6f",
    ),
    Published(
        "data_batch_3.png",
        23_174_917,
        "sha256",
        "ca5d6af61c1791820d0fa2b0a842a73ed48978b698d74c26531d2c80373d4c10",
    ),
    Published(
        "data_batch_4.png",
        23_142_959,
        "sha256",
        "b9342d4f3cc3db72a731ca8ceb196a37d61480ea2da598ed0b32b74339bd04a5",
    ),
    Published(
        "data_batch_5.png",
        23_112_461,
        "sha256",
        "183d6d9af763804a99e1a6d8af723b9cfe906a61276466041dea4511ce015144",
    ),
    Published(
        "test_batch.png",
        23_141_302,
        "sha256",
        "ca44572a4066ea28c710ad4dc633d2ce24469a5e869ede5cc69495b0ef4c7d09",
    ),
)
"""In the order of ``BATCHES``."""


def present(folder: Path) -> list[Path]:
    """The files of the data set in ``folder`` that would be read: the archive, or pictures."""
    archive = folder / ARCHIVE.name
    if archive.is_file():
        return [archive]
    return [file for known in PICTURES if (file := folder / known.name).is_file()]


def verify(folder: Path) -> None:
    """Raise a DataError that names a file which is missing or is not as published."""
    known = (ARCHIVE,) if (folder / ARCHIVE.name).is_file() else PICTURES
    for published in known:
        file = folder / published.name
        if not file.is_file():
            raise DataError(
                f"{file} is missing, while other files of CIFAR-10 are there: "
                "run sudonet data fetch cifar10"
            )
        wrong = published.difference(file)
        if wrong:
            raise DataError(f"{file} {wrong}: delete it, then run sudonet data fetch cifar10")


def read(folder: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Pictures to train on and to test with, uint8 (N, 3, 32, 32)."""
    verify(folder)
    archive = folder / ARCHIVE.name
    if archive.is_file():
        *train, test = _unpacked(archive)
    else:
        *train, test = (_rows(folder / known.name) for known in PICTURES)
    return np.concatenate(train), test


def _unpacked(archive: Path) -> list[NDArray[np.uint8]]:
    """The batches of the archive, the test batch last."""
    found = {}
    # As a stream: its order is another, and to seek back would mean to decompress again.
    with tarfile.open(archive, "r|gz") as members:
        for member in members:
            stream = members.extractfile(member) if member.name in BATCHES else None
            if stream:
                pixels = read_pixels(stream, f"{archive}: {member.name}")
                found[member.name] = pixels.reshape(-1, 3, 32, 32).copy()
    return [found[name] for name in BATCHES]


def _rows(file: Path) -> NDArray[np.uint8]:
    """Pictures from a PNG file: each row is one of 32 x 32, with interleaved colours."""
    from PIL import Image

    with Image.open(file) as image:
        rows = np.asarray(image)
    return np.ascontiguousarray(rows.transpose(0, 2, 1)).reshape(-1, 3, 32, 32)
