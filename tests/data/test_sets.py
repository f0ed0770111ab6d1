import gzip
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from sudonet import _settings
from sudonet.experiments.data import (
    DataError,
    Source,
    _mnist,
    data_root,
    digits,
    listing,
    natural_images,
    picture,
)
from sudonet.experiments.data._photograph import SIDE, equalised
from tests.data.data_files import empty_folder, idx, listed, random_bytes, real, small_mnist, write


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    return empty_folder(monkeypatch, tmp_path)


# Where data is looked for


def test_without_a_data_folder_the_cache_is_used(monkeypatch, folder):
    packed = small_mnist(monkeypatch)
    write(folder / "cache" / "sudonet" / "mnist", packed)
    assert digits().source.stand_in_for == "MNIST"
    monkeypatch.delenv(_settings.DATA)
    assert data_root() == folder / "cache" / "sudonet"
    assert digits().source.name == "MNIST"


def test_a_cache_that_is_not_there_holds_nothing(monkeypatch):
    monkeypatch.delenv(_settings.DATA)
    assert not data_root().exists()
    assert digits().source.stand_in_for == "MNIST"


@pytest.mark.parametrize("load", [digits, natural_images, listing])
def test_a_data_folder_that_is_named_must_be_there(monkeypatch, folder, load):
    monkeypatch.setenv(_settings.DATA, str(folder / "missing"))
    with pytest.raises(DataError, match=r"missing does not exist: create it, .* SUDONET_DATA"):
        load()
    (folder / "file").touch()
    monkeypatch.setenv(_settings.DATA, str(folder / "file"))
    with pytest.raises(DataError, match="file is not a folder"):
        load()


# Sources


def test_a_checksum_covers_type_shape_and_bytes():
    array = np.arange(12, dtype=np.uint8)
    others = [array.reshape(3, 4), array.astype(np.int8), array[::-1], array[:11]]
    checksums = {Source.of("", other).checksum for other in (array, *others)}
    assert len(checksums) == 5
    assert Source.of("", array.reshape(3, 4).T).checksum != Source.of("", others[0]).checksum
    assert Source.of("", array[::2]).checksum == Source.of("", array[::2].copy()).checksum
    assert Source.of("", array, array).checksum != Source.of("", array).checksum


# Digits


def test_mnist_itself(monkeypatch):
    real(monkeypatch, "mnist")
    got = digits()
    assert (got.source.name, got.source.stand_in_for) == ("MNIST", None)
    assert got.train_images.shape == (60_000, 784)
    assert got.test_images.shape == (10_000, 784)
    assert np.bincount(got.train_labels)[:3].tolist() == [5923, 6742, 5958]
    assert got.test_labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert got.train_images.mean() == pytest.approx(33.318, abs=0.001)
    assert "md5 sums agree" in listed("mnist").files


def test_packed_and_unpacked_digits_are_the_same(monkeypatch, folder):
    packed = small_mnist(monkeypatch)
    write(folder / "mnist", packed)
    first = digits()
    assert first.train_images.shape == (30, 6)
    assert first.test_labels.shape == (10,)
    assert {a.dtype for a in (first.train_images, first.train_labels)} == {np.dtype(np.uint8)}
    assert first.train_images.flags.writeable
    assert np.array_equal(first.train_images, random_bytes(30, 2, 3).reshape(30, 6))
    name = _mnist.ARCHIVES[0].name
    (folder / "mnist" / _mnist.RAW[0].name).write_bytes(gzip.decompress(packed[name]))
    (folder / "mnist" / name).unlink()
    assert digits().source == first.source


@pytest.mark.parametrize("missing", range(4))
def test_mnist_in_part_is_an_error_and_no_reason_for_a_stand_in(monkeypatch, folder, missing):
    write(folder / "mnist", small_mnist(monkeypatch))
    file = folder / "mnist" / _mnist.ARCHIVES[missing].name
    file.unlink()
    with pytest.raises(DataError, match=rf"{file} is missing.*sudonet data fetch mnist"):
        digits()
    assert listed("mnist").wrong


def damaged_digits(packed):
    raw = gzip.decompress(packed)
    return {
        "truncated gz": (packed[:-20], "truncated or damaged"),
        "no gz": (b"<html>not found</html>", "truncated or damaged"),
        "nothing": (b"", "starts with the bytes of nothing"),
        "bits changed": (packed[:30] + bytes([packed[30] ^ 1]) + packed[31:], "damaged"),
        "wrong magic": (gzip.compress(b"\x00\x00\x0d\x03" + raw[4:]), "00000d03"),
        "too many axes": (gzip.compress(b"\x00\x00\x08\xff" + raw[4:]), "000008ff"),
        "only magic": (gzip.compress(raw[:4]), "does not hold the 0 x 0 x 0 bytes"),
        "another length": (gzip.compress(raw[:-1]), "does not hold the 30 x 2 x 3 bytes"),
        "longer": (gzip.compress(raw + bytes(1000)), "does not hold the 30 x 2 x 3 bytes"),
        "other pixels": (gzip.compress(raw[:-1] + b"\x01"), f"has md5 .* {_mnist.RAW[0].checksum}"),
    }


@pytest.mark.parametrize("damage", damaged_digits(gzip.compress(idx(random_bytes(30, 2, 3)))))
def test_damaged_digits_are_named_with_a_way_out(monkeypatch, folder, damage):
    packed = small_mnist(monkeypatch)
    name = _mnist.ARCHIVES[0].name
    content, words = damaged_digits(packed[name])[damage]
    write(folder / "mnist", packed | {name: content})
    with pytest.raises(DataError, match=words) as caught:
        digits()
    assert str(folder / "mnist" / name) in str(caught.value)
    assert "delete it, then run sudonet data fetch mnist" in str(caught.value)


def test_a_file_that_unpacks_to_much_is_not_unpacked_to_its_end(monkeypatch, folder):
    packed = small_mnist(monkeypatch)
    bomb = gzip.compress(idx(random_bytes(30, 2, 3)) + bytes(50_000_000), 1)
    write(folder / "mnist", packed | {_mnist.ARCHIVES[0].name: bomb[:-8]})  # no end to check
    with pytest.raises(DataError, match="does not hold the 30 x 2 x 3 bytes"):
        digits()


def test_small_digits_stand_in_for_mnist():
    got = digits()
    assert got.source.name == "scikit-learn's 8 x 8 digits, 1,438 + 359"
    assert got.source.stand_in_for == "MNIST"
    assert got.source == digits().source
    assert got.train_images.shape == (1438, 64)
    assert got.test_images.shape == (359, 64)
    assert got.train_images.dtype == got.train_labels.dtype == np.uint8
    assert (got.train_images.min(), got.train_images.max()) == (0, 255)
    assert set(got.test_labels) == set(range(10))
    assert np.bincount(got.train_labels).min() > 100
    assert "sudonet data fetch mnist (11.6 MB)" in listed("mnist").advice


# The picture


def test_the_default_picture():
    got = picture()
    assert got.pixels.shape == (150, 150)
    assert got.pixels.dtype == np.float32
    assert 0 <= got.pixels.min() < 0.1
    assert 0.9 < got.pixels.max() <= 1
    assert got.source.stand_in_for == "the paper's picture"
    assert "danielbuechele (CC BY 2.0)" in got.source.name
    assert (
        got.source
        == picture().source
        == Source.of(got.source.name, got.pixels, stand_in_for="the paper's picture")
    )
    assert listed("picture").used.startswith(got.source.name)


def test_the_central_square_of_ones_own_picture(folder):
    """A black picture with a white square in its middle, 300 of 700 pixels wide."""
    pixels = np.zeros((300, 700, 3), np.uint8)
    pixels[:, 350:500] = 255
    file = folder / "mine.png"
    Image.fromarray(pixels).save(file)
    got = picture(file)
    assert got.source.name == "the picture mine.png"
    assert (got.pixels[:, :73] < got.pixels[:, 77:].min()).all()
    Image.fromarray(pixels.swapaxes(0, 1)).save(file)
    assert np.allclose(picture(file).pixels, got.pixels.T)
    Image.fromarray(pixels[:, :, 0]).save(file)
    assert np.array_equal(picture(file).pixels, got.pixels)


def test_a_picture_is_turned_as_the_camera_was_held(folder):
    pixels = np.repeat(np.linspace(0, 255, 200).astype(np.uint8)[:, None], 200, axis=1)
    image = Image.fromarray(pixels)
    exif = image.getexif()
    exif[0x0112] = 3  # held upside down
    image.save(folder / "held.png", exif=exif)
    image.save(folder / "plain.png")
    held, plain = picture(folder / "held.png").pixels, picture(folder / "plain.png").pixels
    assert np.allclose(held, picture_of(folder, pixels[::-1, ::-1]), atol=1e-6)
    assert not np.allclose(held, plain, atol=0.1)


def picture_of(folder, pixels):
    Image.fromarray(pixels.copy()).save(folder / "turned.png")
    return picture(folder / "turned.png").pixels


def test_pictures_that_cannot_be_used_are_named(folder):
    with pytest.raises(DataError, match=r"none\.png does not exist: correct its name"):
        picture(folder / "none.png")
    with pytest.raises(DataError, match="is not a file"):
        picture(folder)
    broken = folder / "broken.png"
    broken.write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"broken\.png cannot be read .*give a picture in PNG"):
        picture(broken)
    Image.fromarray(random_bytes(200, 200)).save(broken)
    broken.write_bytes(broken.read_bytes()[:10_000])
    with pytest.raises(DataError, match=r"broken\.png cannot be read"):
        picture(broken)
    Image.fromarray(np.full((200, 200), 40_000, np.uint16)).save(broken)
    with pytest.raises(DataError, match=r"more than 8 bits a channel \(mode I;16\).*save it"):
        picture(broken)


def test_equalisation_stretches_faint_contrast_where_it_is():
    """Waves of 20 grey values, in the dark on the left and in the light on the right."""
    grey = np.full((SIDE, SIDE), 30, np.uint8)
    grey[:, SIDE // 2 :] = 200
    grey += (np.arange(SIDE) % 20).astype(np.uint8)[:, None]
    pixels = equalised(grey)
    for half in (pixels[:, :60], pixels[:, 90:]):
        assert np.ptp(half, axis=0).min() > 2.5 * 19 / 255
        assert np.ptp(half, axis=0).max() < 4.5 * 19 / 255  # the limit on contrast
    assert pixels[:, :60].max() < pixels[:, 90:].min()
    strong = equalised(grey, 5, limit=20)  # of 20 values each has 13 times the mean count
    assert min(np.ptp(half, axis=0).min() for half in (strong[:, :60], strong[:, 90:])) > 0.7


def test_equalisation_leaves_no_seams_between_tiles():
    """One grey value among dark ones on the left and among light ones on the right."""
    grey = random_bytes(SIDE, SIDE) % 100
    grey[:, SIDE // 2 :] += 156
    grey[::10] = 128
    probe = equalised(grey)[70]
    assert probe[:30].min() - probe[-30:].max() > 0.6
    assert np.abs(np.diff(probe)).max() < 0.05


def test_equalisation_keeps_order_within_a_place():
    """At one place a brighter value never becomes darker than a darker one."""
    ramp = np.tile(np.arange(30, dtype=np.uint8) * 8, (SIDE, SIDE // 30))
    pixels = equalised(ramp)
    assert (np.diff(pixels.reshape(SIDE, -1, 30), axis=2) >= 0).all()
    # every tile is alike, so its curve is the same everywhere
    assert np.allclose(pixels.reshape(SIDE, -1, 30), pixels[0, :30], atol=1e-6)


@pytest.mark.parametrize("value", [0, 128, 255])
def test_an_even_area_stays_even_and_near_its_value(value):
    pixels = equalised(np.full((SIDE, SIDE), value, np.uint8))
    assert np.ptp(pixels) < 1e-6
    assert abs(float(pixels[0, 0]) - value / 255) < 0.02


def test_scikit_learn_is_loaded_only_where_it_is_used():
    code = "import sys, sudonet.experiments.data; sys.exit('sklearn' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
