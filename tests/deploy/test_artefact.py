import hashlib
import json
import math
import mmap
import resource
import threading
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sudonet.deploy import Grid, IntegerNetwork
from sudonet.deploy.artefact import ArtefactError, dumps, load, loads, packed, save, unpacked
from sudonet.deploy.layers import WEIGHTS, Affine
from tests.deploy import zoo
from tests.deploy.fuzz_artefact import split
from tests.deploy.golden import golden

CONVOLUTIONS = ("a norm, other weights in every layer", "mixed")


def test_the_bytes_of_a_fixed_network_never_change():
    data = dumps(golden())
    assert data[:8] == bytes.fromhex("8953 5544 4f0d 0a1a")
    assert len(data) == 2512
    assert (
        hashlib.sha256(data).hexdigest()
        == "ddd527553be6c9d2e89bb372da833bd69d9cabf2f1a97a9adb92e6550f02127f"
    )


def test_a_fixed_network_computes_what_it_did():
    x = np.arange(0, 252, 28, dtype=np.uint8).reshape(1, 1, 3, 3)
    _, pool, dense, out = loads(dumps(golden())).trace(x)
    assert pool.ravel().tolist() == [3, 3, 3, 3, 0, 2, 2, 3]
    # -72 * 3 + 2^10 is above two thresholds, 77 * (2^31 - 1) - 2^30 above all four.
    assert dense.tolist() == [[3, 7]]
    assert out.tolist() == [[-127 * 3 + 100 * 7 + 10, 2 * (3 * 3 + 5 * 7) - 2**62]]


def test_numbers_of_numpy_are_numbers():
    network = golden()
    layer = replace(network.layers[0], groups=np.int64(1), stride=(np.int8(1), 1))
    same = replace(network, shape_in=(1, np.int64(3), 3), layers=(layer, *network.layers[1:]))
    assert dumps(same) == dumps(network)


def arrays_of(network):
    for layer in network.layers:
        if isinstance(layer, Affine):
            parts = [layer.weights, *(getattr(layer.after, f.name) for f in fields(layer.after))]
            yield from (part for part in parts if isinstance(part, np.ndarray))


def test_arrays_are_views_of_the_file_and_cannot_be_written(tmp_path):
    save(zoo.network(*CONVOLUTIONS), tmp_path / "net.sudo")
    network = load(tmp_path / "net.sudo")
    for array in arrays_of(network):
        assert not array.flags.writeable
        root = array
        while isinstance(root, np.ndarray) and root.base is not None:
            root = root.base
        mapped = isinstance(root, memoryview) and isinstance(root.obj, mmap.mmap)
        assert mapped == (array.dtype != np.int8 or array is network.layers[-1].weights)
        assert not mapped or array.ctypes.data % 64 == 0


def test_a_loaded_network_outlives_its_file(tmp_path):
    path = tmp_path / "net.sudo"
    save(zoo.network("dense"), path)
    network, x = load(path), zoo.samples(zoo.network("dense"), 2)
    save(zoo.network(*CONVOLUTIONS), path)
    np.testing.assert_array_equal(network.raw(x), zoo.network("dense").raw(x))
    path.unlink()
    np.testing.assert_array_equal(network.raw(x), zoo.network("dense").raw(x))


@pytest.mark.parametrize(("name", "kind"), zoo.CASES)
def test_the_metadata_says_where_arrays_are(name, kind):
    network = zoo.network(name, kind)
    text, arrays = split(dumps(network))
    end = 0
    for layer in json.loads(text)["layers"]:
        after = layer.get("after", {})
        keys = ("factor", "constant", "table")
        for place in [layer.get("weights"), *map(after.get, keys)]:
            if isinstance(place, dict):
                assert place["offset"] == -(-end // 64) * 64
                end = place["offset"] + place["length"]
    assert end == len(arrays)
    sizes = [x.weight_bytes for x in network.layers if isinstance(x, Affine)]
    assert sizes == [x["weights"]["length"] for x in json.loads(text)["layers"] if "weights" in x]


@pytest.mark.parametrize(
    ("kind", "weights", "expected"),
    [
        ("int8", [-127, 0, 5], [129, 0, 5]),
        ("int4", [1, -1, -7], [0xF1, 0x09]),
        ("ternary", [1, 0, -1, 1, -1], [0b01110001, 0b11]),
        ("binary", [1, -1, -1, 1, 1, 1, 1, -1, 1], [0b01111001, 1]),
    ],
)
def test_packing_is_as_specified(kind, weights, expected):
    stored = packed(np.array(weights, np.int8), kind)
    assert stored.view(np.uint8).tolist() == expected
    assert unpacked(stored, kind, len(weights)).tolist() == weights


@given(st.data())
def test_every_weight_survives_packing(data):
    kind = data.draw(st.sampled_from(list(WEIGHTS)))
    top = max(2 ** (WEIGHTS[kind] - 1) - 1, 1)
    allowed = [-1, 1] if kind == "binary" else range(-top, top + 1)
    weights = np.array(data.draw(st.lists(st.sampled_from(allowed), min_size=1)), np.int8)
    stored = packed(weights, kind)
    assert stored.nbytes == math.ceil(len(weights) * WEIGHTS[kind] / 8)
    assert unpacked(stored, kind, len(weights)).tolist() == weights.tolist()


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(max_size=9)
    # Unpaired surrogates are not among the texts that hypothesis makes.
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(max_size=5), inside),
    max_leaves=9,
)


@given(st.dictionaries(st.text(max_size=5), plain))
@settings(deadline=None)
def test_notes_come_back_to_the_last_bit(notes):
    assert repr(loads(dumps(replace(golden(), notes=notes))).notes) == repr(notes)


@given(st.floats(2**-100, 2**100), st.floats(-(2**62), 2**62))
@settings(deadline=None)
def test_grids_come_back_to_the_last_bit(scale, zero):
    network = golden()
    grid = Grid(scale, zero, 0, 255)
    first = replace(network.layers[-1], grid_in=grid)
    found = loads(dumps(IntegerNetwork(grid, (2,), (first,)))).inputs
    assert (found.scale.hex(), found.zero.hex()) == (scale.hex(), zero.hex())


def deep(levels):
    found = 0
    for _ in range(levels):
        found = [found]
    return found


@pytest.mark.parametrize(
    ("notes", "message"),
    [
        ({"shape": (1, 2)}, "notes would not be read back .*: use dictionaries with strings"),
        ({1: "a"}, "notes would not be read back"),
        ({"x": math.nan}, "notes cannot be written: Out of range float"),
        ({"x": object()}, "notes cannot be written: Object of type object"),
        ({"x": 2**63}, "notes cannot be written: integers must fit 64 bits"),
        ({"x": deep(31)}, "notes cannot be written: the metadata is nested more than 32 deep"),
        ({"x": deep(5000)}, "notes cannot be written"),
        ({"x": "\ud800"}, "notes cannot be written: .*surrogates"),
        ({"x": "a" * 2**20}, r"metadata has 1,05\d,\d+ bytes and the limit is 1,048,576"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value[:30],
)
def test_notes_that_are_no_json(notes, message, tmp_path):
    path = tmp_path / "net.sudo"
    with pytest.raises(ArtefactError, match=rf"^cannot write {path}: .*{message}"):
        save(replace(golden(), notes=notes), path)
    assert list(tmp_path.iterdir()) == []
    assert loads(dumps(replace(golden(), notes={"x": deep(30)}))).notes == {"x": deep(30)}


def test_a_network_that_could_not_be_read_is_not_written(tmp_path):
    network = golden()
    path = tmp_path / "net.sudo"
    save(network, path)
    before = path.read_bytes()
    wrong = replace(network.layers[0], stride=(0, 1))
    message = r"layer 0 \('conv'\): stride must be from 1 to .*, got \(0, 1\)"
    with pytest.raises(ArtefactError, match=message):
        save(replace(network, layers=(wrong, *network.layers[1:])), path)
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (before, [path])


def test_a_full_disk_leaves_the_old_file(tmp_path):
    path = tmp_path / "net.sudo"
    save(zoo.network("dense"), path)
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(ArtefactError, match=f"^cannot write {path}: File too large"):
            save(zoo.network(*CONVOLUTIONS), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (before, [path])


def test_many_may_write_at_once_and_one_wins(tmp_path):
    path = tmp_path / "net.sudo"
    chosen = [zoo.network("dense"), zoo.network(*CONVOLUTIONS), zoo.network("softmax", "ternary")]
    threads = [threading.Thread(target=save, args=(n, path)) for n in chosen * 5]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() in [dumps(network) for network in chosen]
    assert list(tmp_path.iterdir()) == [path]


def test_others_may_read_the_file_as_usual(tmp_path):
    save(golden(), tmp_path / "net.sudo")
    (tmp_path / "other").touch()
    assert (tmp_path / "net.sudo").stat().st_mode == (tmp_path / "other").stat().st_mode
