"""Small files in the formats of the data sets, for the tests that read and fetch them."""

import gzip
import hashlib
import io
import pickle

import numpy as np
import pytest
from PIL import Image

from sudonet import _settings
from sudonet.experiments.data import _cifar, _mnist, listing
from sudonet.experiments.data._files import Published

REAL = _settings.data_folder()


def empty_folder(monkeypatch, folder):
    """Have experiments look for data in ``folder``."""
    monkeypatch.setenv(_settings.DATA, str(folder))
    monkeypatch.setenv(_settings.CACHE, str(folder / "cache"))
    return folder


def real(monkeypatch, name):
    """Use the data set of that name in the user's data folder, or skip."""
    if REAL is None or not (REAL / name).is_dir():
        pytest.skip(f"no {name} in a folder that {_settings.DATA} names")
    monkeypatch.setenv(_settings.DATA, str(REAL))


def listed(name):
    (line,) = (line for line in listing() if line.name == name)
    return line


def published(name, content, algorithm="md5"):
    return Published(name, len(content), algorithm, hashlib.new(algorithm, content).hexdigest())


def random_bytes(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def idx(array):
    header = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    return header + array.tobytes()


def small_mnist(monkeypatch):
    """Have 30 + 10 random pictures of 2 x 3 count as MNIST; their packed files by name."""
    arrays = random_bytes(30, 2, 3), random_bytes(30), random_bytes(10, 2, 3), random_bytes(10)
    contents = [idx(array) for array in arrays]
    packed = [gzip.compress(content, mtime=0) for content in contents]
    names = [raw.name for raw in _mnist.RAW]
    raws = tuple(map(published, names, contents))
    archives = tuple(map(published, (f"{name}.gz" for name in names), packed))
    monkeypatch.setattr(_mnist, "RAW", raws)
    monkeypatch.setattr(_mnist, "ARCHIVES", archives)
    return {known.name: content for known, content in zip(archives, packed, strict=True)}


def small_cifar_pictures(monkeypatch):
    """Have six pictures of 4 rows count as CIFAR-10's; the files by name, and their pixels."""
    contents, pixels = {}, []
    for number, known in enumerate(_cifar.PICTURES):
        rows = random_bytes(4, 1024, 3, seed=number)
        stream = io.BytesIO()
        Image.fromarray(rows).save(stream, "PNG")
        contents[known.name] = stream.getvalue()
        pixels.append(rows)
    known = tuple(published(name, content, "sha256") for name, content in contents.items())
    monkeypatch.setattr(_cifar, "PICTURES", known)
    return contents, pixels


def npz(array, **others):
    stream = io.BytesIO()
    np.savez_compressed(stream, data=array, labels=np.arange(len(array)) + 1, **others)
    return stream.getvalue()


def python_2_pickle(array):
    """A batch as Python 2 pickled CIFAR-10's: its strings are bytes, and hold the pixels."""

    def text(content):
        return b"U" + bytes([len(content)]) + content

    rows, columns = array.shape
    shape = b"M" + rows.to_bytes(2, "little") + b"M" + columns.to_bytes(2, "little") + b"\x86"
    pixels = b"T" + array.nbytes.to_bytes(4, "little") + array.tobytes()
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    none = b"J\xff\xff\xff\xff"
    uint8 = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNN" + none + none + b"K\x00tb"
    whole = empty + b"(K\x01" + shape + uint8 + b"\x89" + pixels + b"tb"
    content = b"\x80\x02}(" + text(b"batch_label") + text(b"training batch 1 of 5")
    content += text(b"labels") + b"](K\x06K\x09e" + text(b"data") + whole + b"u."
    assert np.array_equal(pickle.loads(content, encoding="bytes")[b"data"], array)
    return content


def write(folder, contents):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
