"""Which data sets are there, what is used, and how to get what is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sudonet.experiments.data import _cifar, _imagenet, _mnist
from sudonet.experiments.data._files import data_root, megabytes
from sudonet.experiments.data._photograph import BUNDLED
from sudonet.experiments.data._source import DataError

CROPS = "crops of scikit-learn's two photographs"
IN_PLACE = f"in place of {_imagenet.NAME}"
SIZE = megabytes(_imagenet.TRAIN.size + _imagenet.VALIDATION.size)
OFFICIAL = f"read {_imagenet.TERMS}, then run ({SIZE}) sudonet data fetch imagenet32 --accept-terms"


@dataclass(frozen=True)
class Listed:
    """A data set, as ``sudonet data list`` shows it.

    Parameters
    ----------
    name
        As ``sudonet data fetch`` calls it.
    used
        What experiments use now: the data set, or what stands in for it.
    files
        Where it is, its size, and whether its checksums agree; None where it is not there.
    advice
        How to get it, or how to repair it.
    wrong
        Whether something must be repaired before it can be used.
    """

    name: str
    used: str
    files: str | None = None
    advice: str | None = None
    wrong: bool = False


def listing() -> list[Listed]:
    """Every data set. Files that have published checksums are read and checked."""
    root = data_root()
    return [
        _line(_mnist_line, root / _mnist.FOLDER),
        _line(_imagenet_line, root / _imagenet.FOLDER),
        _line(_cifar_line, root / _cifar.FOLDER),
        Listed("picture", f"{BUNDLED}, in place of the paper's picture"),
    ]


def _line(describe: Callable[[Path], Listed], folder: Path) -> Listed:
    try:
        return describe(folder)
    except DataError as error:
        return Listed(folder.name, "cannot be used", None, str(error), wrong=True)


def _mnist_line(folder: Path) -> Listed:
    files = _mnist.present(folder)
    if not files:
        used = "scikit-learn's 8 x 8 digits, in place of MNIST"
        size = sum(archive.size for archive in _mnist.ARCHIVES)
        return _absent(folder, used, f"run sudonet data fetch mnist ({megabytes(size)})")
    for raw in _mnist.RAW:
        _mnist.read(folder, raw)
    return Listed(folder.name, "MNIST", _files(folder, files, "md5 sums agree"))


def _imagenet_line(folder: Path) -> Listed:
    files = _imagenet.present(folder)
    if not files:
        other = _cifar.NAME if _cifar.present(folder.parent / _cifar.FOLDER) else CROPS
        return _absent(folder, f"{other}, {IN_PLACE}", OFFICIAL)
    _imagenet.check_complete(folder)
    name = _imagenet_name(folder)
    state = _files(folder, files, "no checksums are published for these files")
    advice = f"for all of it: {OFFICIAL} --folder FOLDER, with another folder"
    return Listed(folder.name, name, state, advice if IN_PLACE in name else None)


def _imagenet_name(folder: Path) -> str:
    train, test = _imagenet.train_files(folder), _imagenet.validation_files(folder)
    if any(file.suffix != ".npz" for file in train + test):
        return "pickled batches in the layout of Downsampled ImageNet, counted when they are read"
    name = _imagenet.name_of(sum(map(_imagenet.count, train)), sum(map(_imagenet.count, test)))
    return name if name == _imagenet.NAME else f"{name}, {IN_PLACE}"


def _cifar_line(folder: Path) -> Listed:
    files = _cifar.present(folder)
    needed = not _imagenet.present(folder.parent / _imagenet.FOLDER)
    if files:
        _cifar.verify(folder)
        used = f"{_cifar.NAME}, {IN_PLACE}" if needed else "not used: imagenet32 is there"
        return Listed(folder.name, used, _files(folder, files, "checksums agree"))
    if needed:
        how = f"run sudonet data fetch cifar10 ({megabytes(_cifar.ARCHIVE.size)})"
        return _absent(folder, "not there", how)
    return Listed(folder.name, "not needed: imagenet32 is there")


def _absent(folder: Path, used: str, how: str) -> Listed:
    begun = sum(file.stat().st_size for file in folder.glob("*.part"))
    if begun:
        how += f"; {megabytes(begun)} have come, it goes on from there"
    return Listed(folder.name, used, None, how)


def _files(folder: Path, files: list[Path], state: str) -> str:
    size = megabytes(sum(file.stat().st_size for file in files))
    return f"{folder}, {size}, {state}"
