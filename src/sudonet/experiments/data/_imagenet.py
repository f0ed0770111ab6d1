"""ImageNet at 32 x 32: the files of Downsampled ImageNet, or others in their layout.

Chrabaszcz, Loshchilov, Hutter, "A Downsampled Variant of ImageNet as an Alternative to the
CIFAR datasets", 2017. Each file has ``data``, uint8 (N, 3072), a row a picture, all its red
values first, then the green, then the blue; beside it ``labels`` and ``mean``, which are not
needed here. The newer files are npz; the older ones are pickled and have no suffix.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from sudonet import _npy
from sudonet.experiments.data._files import Published
from sudonet.experiments.data._pickles import LARGEST, read_pixels
from sudonet.experiments.data._source import DataError

FOLDER = "imagenet32"
NAME = "ImageNet 32 x 32"
TERMS = "https://image-net.org/download.php"
PLACE = "https://image-net.org/data/downsample/"
TRAIN = Published(
    "Imagenet32_train_npz.zip",
    3_580_435_279,
    "sha256",
    "94226337ecc1b0309d9fcd0167127aaadc931587035fbcb53925235edbaec4fc",
)
VALIDATION = Published(
    "Imagenet32_val_npz.zip",
    139_697_668,
    "sha256",
    "013990e6dec1237dcd1f9beadbab81ead6604cc119af5cacbfb59ae28148377a",
)
COMPLETE = (1_281_167, 50_000)
"""How many pictures the official files hold. They have no checksums of their own."""

MEMBER = "data.npy"
"""The array of pictures in an npz file."""

EXPANSION = 1100
"""Bytes that a byte of a compressed file can become, at most; deflate reaches 1,032."""

DAMAGE = (
    *(OSError, EOFError, ValueError, KeyError, RuntimeError, NotImplementedError),
    *(zipfile.BadZipFile, zlib.error),
)
"""What reading a damaged npz file raises."""


def train_files(folder: Path) -> list[Path]:
    """The training batches in the order of their numbers; npz where there are both kinds."""
    for suffix in (".npz", ""):
        start = len("train_data_batch_")
        numbers = {
            int(number): file
            for file in folder.glob(f"train_data_batch_*{suffix}")
            if (number := file.name.removesuffix(suffix)[start:]).isdecimal() and file.is_file()
        }
        if numbers:
            return [numbers[n] for n in sorted(numbers)]
    return []


def validation_files(folder: Path) -> list[Path]:
    """The validation file, which is the test set here, in a list; empty if there is none."""
    both = (folder / "val_data.npz", folder / "val_data")
    return [file for file in both if file.is_file()][:1]


def present(folder: Path) -> list[Path]:
    """All files of the data set in ``folder``."""
    return train_files(folder) + validation_files(folder)


def archives_left(folder: Path) -> list[Published]:
    """Archives to fetch or to unpack: one that is still there was not unpacked completely."""
    there = {TRAIN: train_files(folder), VALIDATION: validation_files(folder)}
    return [a for a, files in there.items() if not files or (folder / a.name).is_file()]


def check_complete(folder: Path) -> None:
    """Raise a DataError that names a missing file, if the data set is incomplete."""
    for archive in (TRAIN, VALIDATION):
        if (folder / archive.name).is_file():
            raise DataError(
                f"{folder / archive.name} was not unpacked completely: run sudonet data fetch "
                "imagenet32 --accept-terms, or move it away if all its files are there"
            )
    train, test = train_files(folder), validation_files(folder)
    suffix = (train + test)[0].suffix if train or test else ".npz"
    expected = [folder / f"train_data_batch_{i + 1}{suffix}" for i in range(len(train) or 1)]
    missing = [file for file in expected if file not in train]
    if not test:
        missing.append(folder / f"val_data{suffix}")
    if missing:
        raise DataError(
            f"{missing[0]} is missing, while other files of the data set are there: put it there "
            f"(sudonet data fetch imagenet32 gets what is missing of the official files), or move "
            f"{folder} away to do without the data set"
        )


def read(folder: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Pictures to train on and to test with, uint8 (N, 3, 32, 32)."""
    check_complete(folder)
    train, test = (_joined(files(folder)) for files in (train_files, validation_files))
    return train, test


def name_of(train: int, test: int) -> str:
    """What to call a data set in this layout, by what can be verified: its size.

    Examples
    --------
    >>> name_of(1_281_167, 50_000)
    'ImageNet 32 x 32'
    >>> name_of(20_000, 4_000)
    '32 x 32 images in the layout of Downsampled ImageNet, 20,000 + 4,000'
    """
    if (train, test) == COMPLETE:
        return NAME
    return f"32 x 32 images in the layout of Downsampled ImageNet, {train:,} + {test:,}"


def count(file: Path) -> int:
    """How many pictures an npz file has by its header; the pixels are not read."""
    try:
        with zipfile.ZipFile(file) as archive, archive.open(MEMBER) as stream:
            return _npy.header(stream)[0][0]
    except (*DAMAGE, IndexError) as error:
        raise _damaged(file, error) from error


def _joined(files: list[Path]) -> NDArray[np.uint8]:
    batches = [_batch(file) for file in files]
    whole = np.empty((sum(map(len, batches)), 3072), np.uint8)
    end = len(whole)
    while batches:  # from the last, freeing each after its copy: all are 4 GB
        batch = batches.pop()
        whole[end - len(batch) : end] = batch
        end -= len(batch)
    return whole.reshape(-1, 3, 32, 32)


def _batch(file: Path) -> NDArray[np.uint8]:
    data: NDArray[np.uint8]
    try:
        with file.open("rb") as stream:
            data = _unpacked(stream) if file.suffix == ".npz" else read_pixels(stream, str(file))
    except DAMAGE as error:
        raise _damaged(file, error) from error
    if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != 3072 or not len(data):
        raise DataError(
            f"data in {file} must be uint8 of shape (N, 3072), got {data.dtype} {data.shape}: "
            "replace the file"
        )
    return data


def _unpacked(stream: IO[bytes]) -> NDArray[Any]:
    """The array of an npz file, whose sizes are checked before it is unpacked."""
    with zipfile.ZipFile(stream) as archive:
        member = archive.getinfo(MEMBER)
        if member.file_size > min(LARGEST, EXPANSION * member.compress_size):
            raise ValueError(
                f"its {member.compress_size:,} bytes claim to unpack to {member.file_size:,}, "
                f"and the limit is {LARGEST:,}"
            )
        with archive.open(member) as unpacked:
            return _npy.read(unpacked, member.file_size)


def _damaged(file: Path, error: Exception) -> DataError:
    reason = "no data in it" if isinstance(error, KeyError) else error
    return DataError(
        f"{file} is truncated, damaged or not a file of pictures ({reason}): replace it, or move "
        f"{file.parent} away to do without the data set"
    )
