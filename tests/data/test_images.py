import hashlib
import io
import os
import pickle
import tarfile
import time
import tracemalloc
import zipfile

import numpy as np
import pytest

from sudonet.experiments.data import DataError, _cifar, _imagenet, natural_images
from tests.data.data_files import (
    empty_folder,
    listed,
    npz,
    published,
    python_2_pickle,
    random_bytes,
    real,
    small_cifar_pictures,
    write,
)


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    return empty_folder(monkeypatch, tmp_path)


def test_the_real_imagenet_files(monkeypatch):
    real(monkeypatch, "imagenet32")
    got = natural_images()
    assert got.train.shape[1:] == got.test.shape[1:] == (3, 32, 32)
    assert f"{len(got.train):,}" in got.source.name or got.source.name == _imagenet.NAME
    assert (got.source.stand_in_for is None) == (len(got.train) == 1_281_167)
    # planar: neighbours in a row are alike, the same place in other planes less so
    pixels = got.train[:1000].astype(float)
    across = np.abs(np.diff(pixels, axis=3)).mean()
    planes = np.abs(np.diff(pixels, axis=1)).mean()
    assert across < planes
    assert got.source.name in listed("imagenet32").used


def small_imagenet(folder, batches=2):
    """Batches of 2, 3, 4, ... pictures; all of them in their order."""
    arrays = [random_bytes(i + 2, 3072, seed=i) for i in range(batches)]
    for i, array in enumerate(arrays):
        write(folder / "imagenet32", {f"train_data_batch_{i + 1}.npz": npz(array)})
    write(folder / "imagenet32", {"val_data.npz": npz(random_bytes(5, 3072, seed=99))})
    return np.concatenate(arrays)


def test_batches_are_joined_in_the_order_of_their_numbers(folder):
    expected = small_imagenet(folder, batches=11)
    got = natural_images()
    assert np.array_equal(got.train.reshape(-1, 3072), expected)
    assert np.array_equal(got.test[0, 1].ravel(), random_bytes(5, 3072, seed=99)[0, 1024:2048])
    name = "32 x 32 images in the layout of Downsampled ImageNet, 77 + 5"
    assert (got.source.name, got.source.stand_in_for) == (name, "ImageNet 32 x 32")
    assert listed("imagenet32").used == f"{name}, in place of ImageNet 32 x 32"
    assert "another folder" in listed("imagenet32").advice
    assert listed("cifar10").used == "not needed: imagenet32 is there"


def test_only_all_of_it_is_called_imagenet(monkeypatch, folder):
    small_imagenet(folder)
    monkeypatch.setattr(_imagenet, "COMPLETE", (5, 5))
    source = natural_images().source
    assert (source.name, source.stand_in_for) == ("ImageNet 32 x 32", None)
    assert listed("imagenet32").used == "ImageNet 32 x 32"
    assert listed("imagenet32").advice is None


@pytest.mark.parametrize(
    "missing", ["train_data_batch_1.npz", "train_data_batch_2.npz", "val_data.npz"]
)
def test_imagenet_in_part_is_an_error_that_names_the_file(folder, missing):
    small_imagenet(folder, batches=3)
    (folder / "imagenet32" / missing).unlink()
    with pytest.raises(DataError, match=rf"imagenet32/{missing} is missing.*put it there"):
        natural_images()
    assert listed("imagenet32").wrong


def test_a_test_set_alone_is_an_error(folder):
    write(folder / "imagenet32", {"val_data.npz": npz(random_bytes(5, 3072))})
    with pytest.raises(DataError, match=r"train_data_batch_1\.npz is missing"):
        natural_images()


class Harmful:
    """Unpickled, it would make a file."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.system, (f"touch '{self.trace}'",)


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def bad_npz(trace):
    good = npz(random_bytes(50, 3072))
    harmful = np.array([Harmful(trace)], dtype=object)
    without = io.BytesIO()
    np.savez(without, pixels=random_bytes(5, 3072))
    return {
        "truncated": (good[: len(good) // 2], "truncated"),
        "empty": (b"", "truncated"),
        "changed": (good[:5000] + bytes(100) + good[5100:], "damaged"),
        "objects": (npz(harmful), "allow_pickle=False"),
        "a pickle": (pickle.dumps(Harmful(trace)), "damaged"),
        "npy": (npy(random_bytes(5, 3072)), "damaged"),
        "no data": (without.getvalue(), "no data"),
        "floats": (npz(random_bytes(5, 3072).astype(float)), r"got float64 \(5, 3072\)"),
        "other size": (npz(random_bytes(5, 12288)), r"got uint8 \(5, 12288\)"),
        "no pictures": (npz(random_bytes(0, 3072)), r"got uint8 \(0, 3072\)"),
        "a number": (npz(np.array([3], dtype=np.uint8)), r"got uint8 \(1,\)"),
    }


@pytest.mark.parametrize("damage", bad_npz(""))
def test_bad_npz_files_are_refused_and_named(folder, damage):
    small_imagenet(folder)
    content, words = bad_npz(folder / "trace")[damage]
    write(folder / "imagenet32", {"train_data_batch_2.npz": content})
    with pytest.raises(DataError, match=words) as caught:
        natural_images()
    assert str(folder / "imagenet32" / "train_data_batch_2.npz") in str(caught.value)
    assert not (folder / "trace").exists()


def pickled(array, protocol, **others):
    return pickle.dumps({"data": array, "labels": [1] * len(array), **others}, protocol)


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("order", ["C", "F"])
def test_pickled_batches_of_python_3(folder, protocol, order):
    pixels = np.array(random_bytes(6, 3072), order=order)
    content = pickled(pixels, protocol, mean=np.zeros(3072))
    write(folder / "imagenet32", {"train_data_batch_1": content, "val_data": content})
    got = natural_images()
    assert np.array_equal(got.train.reshape(6, 3072), pixels)
    assert np.array_equal(got.test, got.train)
    assert got.source.name.endswith("Downsampled ImageNet, 6 + 6")
    assert "pickled batches" in listed("imagenet32").used


def deflated(claimed, header_shape=(2**40,), size=None):
    """An npz file whose array claims to be larger than it is."""
    header = io.BytesIO()
    described = {"descr": "|u1", "fortran_order": False, "shape": header_shape}
    np.lib.format.write_array_header_1_0(header, described)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.npy", header.getvalue() + bytes(1000))
    found = stream.getvalue()
    if claimed:
        true = (len(header.getvalue()) + 1000).to_bytes(4, "little")
        assert found.count(true) == 2
        found = found.replace(true, claimed.to_bytes(4, "little"))
    return found


def pickle_bombs():
    """Pickles and npz files of a few bytes that would take gigabytes, or an hour."""
    deep = b"(t" + b"\x85" * 100_000
    wide = b"(t" + b"q\x00h\x00\x86" * 60
    return {
        "memo": b"\x80\x04N\x72\xff\xff\xff\x7f.",
        "bytes": b"\x80\x04\x8e" + (2**33).to_bytes(8, "little") + b"x.",
        "bytearray": b"\x80\x05\x96" + (2**33).to_bytes(8, "little") + b"x.",
        "text": b"\x80\x04\x8d" + (2**33).to_bytes(8, "little") + b"x.",
        "frame": b"\x80\x04\x95" + (2**40).to_bytes(8, "little") + b"N.",
        "deep key": b"\x80\x02}" + deep + b"Ns.",
        "wide key": b"\x80\x02}" + wide + b"Ns.",
        "deep data": b"\x80\x02}U\x04data" + deep + b"s.",
        "wide shape": b"\x80\x02}U\x04datacnumpy\nndarray\n(K\x01" + wide + b"cnumpy\ndtype\n"
        b"U\x02u1\x85R\x89U\x01xtRs.",
        "npz header": deflated(0),
        "npz claim": deflated(2**32 - 2, (2**32 - 200,)),
        "npz and header": deflated(2**30, (2**30 - 128,)),
    }


@pytest.mark.parametrize("bomb", pickle_bombs())
def test_batches_that_claim_gigabytes_take_little_memory_and_time(folder, bomb):
    content = pickle_bombs()[bomb]
    suffix = ".npz" if "npz" in bomb else ""
    good = npz(random_bytes(6, 3072)) if suffix else pickled(random_bytes(6, 3072), 4)
    write(
        folder / "imagenet32",
        {f"train_data_batch_1{suffix}": content, f"val_data{suffix}": good},
    )
    tracemalloc.start()
    start = time.process_time()
    try:
        with pytest.raises(DataError, match="train_data_batch_1"):
            natural_images()
        assert tracemalloc.get_traced_memory()[1] < 60e6
        assert time.process_time() - start < 20
    finally:
        tracemalloc.stop()


def test_npz_is_preferred_to_pickles(folder):
    small_imagenet(folder)
    harmful = pickle.dumps(Harmful(folder / "trace"))
    write(folder / "imagenet32", {"train_data_batch_1": harmful, "val_data": harmful})
    assert natural_images().train.shape == (5, 3, 32, 32)
    assert not (folder / "trace").exists()


def forged_pickles(trace):
    """Pickles that are wrong, and what the error must say."""
    command = f"touch '{trace}'".encode()
    good = pickled(random_bytes(6, 3072), 4)
    system = f"{os.system.__module__}.system"
    return {
        "os.system": (b"cos\nsystem\n(S'" + command.replace(b"'", b"") + b"'\ntR.", "os.system"),
        "os.system inside": (pickled([Harmful(trace)], 4), system),
        "old protocol": (pickle.dumps({"data": Harmful(trace)}, 0), system),
        "eval": (b"c__builtin__\neval\n(S'1'\ntR.", "__builtin__.eval"),
        "numpy's load": (b"cnumpy\nload\n(S'x'\ntR.", "numpy.load"),
        "by extension": (b"\x80\x02\x82\x01.", "it uses EXT1"),
        "attribute of an allowed class": (
            b"\x80\x04\x8c\x05numpy\x8c\x10ndarray.__init__\x93.",
            "numpy.ndarray.__init__",
        ),
        "state for a class": (b"cnumpy\nndarray\n(dS'x'\nI1\nsb.", "sets the state"),
        "truncated": (good[: len(good) // 2], "damaged"),
        "empty": (b"", "damaged"),
        "npz": (npz(random_bytes(6, 3072)), "damaged"),
        "no dictionary": (pickle.dumps([1, 2], 4), "no array under data"),
        "no data": (pickle.dumps({"labels": [1]}, 4), "no array under data"),
        "a list": (pickle.dumps({"data": [[1] * 3072]}, 4), "no array under data"),
        "floats": (pickled(np.zeros((6, 3072)), 4), "not an array of uint8"),
        "objects": (pickled(np.array([None, 1]), 4), "not an array of uint8"),
        "too few bytes": (good.replace(b"M\x00\x0c", b"M\x00\x0d"), r"shape is \(6, 3328\)"),
        "other shape": (pickled(random_bytes(6, 300), 4), r"got uint8 \(6, 300\)"),
    }


@pytest.mark.parametrize("forgery", forged_pickles(""))
def test_pickles_run_nothing_and_the_error_says_what_they_asked_for(folder, forgery):
    content, words = forged_pickles(folder / "trace")[forgery]
    good = pickled(random_bytes(6, 3072), 4)
    write(folder / "imagenet32", {"train_data_batch_1": content, "val_data": good})
    with pytest.raises(DataError, match=words) as caught:
        natural_images()
    assert str(folder / "imagenet32" / "train_data_batch_1") in str(caught.value)
    assert not (folder / "trace").exists()


def test_the_harmful_pickle_is_harmful(folder):
    """Else the tests above would prove nothing."""
    pickle.loads(pickle.dumps(Harmful(folder / "trace")))
    assert (folder / "trace").exists()


def test_cifar_from_its_archive(monkeypatch, folder):
    arrays = {name: random_bytes(3, 3072, seed=i) for i, name in enumerate(_cifar.BATCHES)}
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name in reversed(arrays):
            content = python_2_pickle(arrays[name])
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        archive.addfile(tarfile.TarInfo("cifar-10-batches-py/readme.html"))
    monkeypatch.setattr(_cifar, "ARCHIVE", published(_cifar.ARCHIVE.name, stream.getvalue()))
    write(folder / "cifar10", {_cifar.ARCHIVE.name: stream.getvalue()})
    got = natural_images()
    *train, test = arrays.values()
    assert np.array_equal(got.train.reshape(-1, 3072), np.concatenate(train))
    assert np.array_equal(got.test.reshape(-1, 3072), test)
    assert (got.source.name, got.source.stand_in_for) == ("CIFAR-10", "ImageNet 32 x 32")
    assert listed("imagenet32").used == "CIFAR-10, in place of ImageNet 32 x 32"
    assert "checksums agree" in listed("cifar10").files


def test_cifar_from_pictures(monkeypatch, folder):
    contents, rows = small_cifar_pictures(monkeypatch)
    write(folder / "cifar10", contents)
    got = natural_images()
    assert got.train.shape == (20, 3, 32, 32)
    assert got.test.shape == (4, 3, 32, 32)
    assert got.source.name == "CIFAR-10"
    # row 2 of picture 1: pixel 40 is in line 1, place 8
    assert got.train[6, :, 1, 8].tolist() == rows[1][2, 40].tolist()
    small_imagenet(folder)
    assert natural_images().source.name.startswith("32 x 32 images")
    assert listed("cifar10").used == "not used: imagenet32 is there"


def test_cifar_that_is_damaged_or_there_in_part(monkeypatch, folder):
    contents, _ = small_cifar_pictures(monkeypatch)
    name = "data_batch_3.png"
    write(folder / "cifar10", contents | {name: contents["data_batch_2.png"]})
    with pytest.raises(DataError, match=rf"{name} .*expected: delete it, .* fetch cifar10"):
        natural_images()
    (folder / "cifar10" / name).unlink()
    with pytest.raises(DataError, match=rf"{name} is missing, .* fetch cifar10"):
        natural_images()
    assert listed("cifar10").wrong
    write(folder / "cifar10", {_cifar.ARCHIVE.name: b"truncated"})
    with pytest.raises(DataError, match=r"tar\.gz is 9 bytes long, 170,498,071 expected"):
        natural_images()


def test_crops_of_photographs_stand_in_for_imagenet():
    got = natural_images()
    assert got.train.shape == (5700, 3, 32, 32)
    assert got.test.shape == (1700, 3, 32, 32)
    assert got.train.dtype == np.uint8
    assert got.source == natural_images().source
    assert got.source.stand_in_for == "ImageNet 32 x 32"
    assert "5,700 + 1,700 crops of 32 x 32 of scikit-learn's photographs" in got.source.name
    assert "CC BY 2.0" in got.source.name
    assert len(np.unique(got.train.reshape(5700, -1), axis=0)) == 5700
    # the first hundred look like all of them
    assert abs(got.train[:100].mean() - got.train.mean()) < 10
    assert "--accept-terms" in listed("imagenet32").advice
    assert "sudonet data fetch cifar10 (170.5 MB)" in listed("cifar10").advice


def test_no_crop_to_test_with_is_part_of_one_to_train_on():
    from sklearn.datasets import load_sample_image

    photographs = [load_sample_image(name) for name in ("china.jpg", "flower.jpg")]
    left = np.stack([p[:, :480] for p in photographs]).transpose(0, 3, 1, 2)
    right = np.stack([p[:, 480:] for p in photographs]).transpose(0, 3, 1, 2)
    got = natural_images()
    for crops, half in ((got.train, left), (got.test, right)):
        windows = np.lib.stride_tricks.sliding_window_view(half, (32, 32), axis=(2, 3))
        places = windows[:, :, ::8, ::8].transpose(0, 2, 3, 1, 4, 5).reshape(-1, 3 * 32 * 32)
        known = {hashlib.md5(place.tobytes()).digest() for place in places}
        assert {hashlib.md5(crop.tobytes()).digest() for crop in crops} == known
