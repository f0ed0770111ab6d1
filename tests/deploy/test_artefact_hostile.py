import json
import os
import re
import subprocess
import sys
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from sudonet.deploy import Grid, IntegerNetwork
from sudonet.deploy.artefact import ArtefactError, dumps, load, loads, save
from sudonet.deploy.layers import Affine, RealScores, Scores, SumPool
from tests.deploy import zoo
from tests.deploy.fuzz_artefact import checksummed, joined, split
from tests.deploy.golden import golden


def test_files_that_are_none(tmp_path):
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("hello " * 50)
    os.mkfifo(tmp_path / "pipe")
    for name, message in [
        ("missing", "there is no such file"),
        (".", "there is no such file"),
        ("pipe", "there is no such file"),
        ("empty", "the file is empty"),
        ("text", "not the file of an integer network"),
    ]:
        path = tmp_path / name
        with pytest.raises(ArtefactError, match=rf"^cannot read {path}: .*{message}"):
            load(path)
    with pytest.raises(ArtefactError, match=r"cannot write .*: No such file or directory"):
        save(golden(), tmp_path / "missing" / "net.sudo")


def test_every_flipped_bit_is_found():
    data = dumps(golden())
    for place in range(8 * len(data)):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(ArtefactError):
            loads(bytes(changed))


def test_every_missing_end_is_found():
    data = dumps(golden())
    for length in range(len(data)):
        with pytest.raises(ArtefactError):
            loads(data[:length])
    with pytest.raises(ArtefactError, match="the file has 2,513 bytes and should have 2,512"):
        loads(data + b"\0")


def test_a_newer_version_is_refused_by_its_number():
    text, arrays = split(dumps(golden()))
    with pytest.raises(
        ArtefactError, match="has version 3, and this program reads versions up to 2"
    ):
        loads(joined(text, arrays, version=3))


def changed(*path, to, arrays=None, network=None):
    """The fixed network's file with one value of its metadata replaced."""
    text, data = split(dumps(network or golden()))
    meta = json.loads(text)
    holder = meta
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = to
    return joined(json.dumps(meta).encode(), data if arrays is None else arrays)


def test_white_space_order_and_missing_points_do_not_matter():
    text, arrays = split(dumps(golden()))
    loosely = json.dumps(json.loads(text), indent=2, sort_keys=True).replace(
        '"zero": 0.0', '"zero": 0'
    )
    found = loads(joined(loosely.encode(), arrays))
    assert dumps(replace(found, notes=golden().notes)) == dumps(golden())


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["layers"], [], "there are bytes after the last array"),
        (["layers", 0, "type"], "lstm", r"layers\[0\].type must be one of affine, .* got 'lstm'"),
        (["layers", 0, "type"], ["affine"], r"layers\[0\].type must be one of affine"),
        (["layers", 0, "new"], 1, r"a key of layers\[0\] must be one of type, .*, got 'new'"),
        (["layers", 0, "name"], 7, r"layers\[0\].name must be a string, got 7"),
        (["layers", 0], {"type": "sum_pool"}, r"layers\[0\] has no 'name'"),
        (["layers"], {}, r"metadata.layers must be a list, got \{\}"),
        (["inputs", "zero"], "0", "metadata.inputs.zero must be a number, got '0'"),
        (["inputs", "zero"], 1e19, "a grid's zero must be from -2.62 to 2.62"),
        (["layers", 0, "kind"], "pool", "kind must be one of dense, conv, transposed, got 'pool'"),
        (["layers", 0, "name"], "a\nb", "a name has at most 256 characters"),
        (["layers", 0, "stride"], [1.0, 1], r"stride must be an integer, got 1.0"),
        (["layers", 0, "stride"], [1], r"stride must be two integers, got \[1\]"),
        (["layers", 0, "stride"], [1, 2], "shape_out has width 4, but the windows give 2"),
        (["layers", 0, "dilation"], [1, 0], r"dilation must be from 1 to .*, got \(1, 0\)"),
        (["layers", 0, "padding"], [-1, 1], r"padding must be from 0 to .*, got \(-1, 1\)"),
        (["layers", 0, "output_padding"], [1, 0], "output_padding must be below stride"),
        (["layers", 0, "groups"], 2, r"weights of shape \(2, 1, 2, 2\) in 2 groups"),
        (["layers", 0, "centred"], 0, "centred must be true or false, got 0"),
        (["layers", 0, "centred"], True, "centred must be true if windows"),
        (["layers", 0, "twice_zero"], 1, "twice_zero must be 0, got 1"),
        (["layers", 0, "shape_in"], [1, 3, 4], r"shape_in is \(1, 3, 4\), but what comes in"),
        (["layers", 0, "shape_in"], [9], r"shape_in has 2 or 3 axes here, got \(9,\)"),
        (["layers", 0, "shape_out"], [2, 2**20, 2**20], "shape_out has at most 67,108,864 numbers"),
        (["layers", 0, "shape_out"], [2, 0, 4], "must be 1 to 8 integers above 0"),
        (["layers", 0, "weights", "offset"], 64, r"weights.offset must be 0, got 64"),
        (["layers", 0, "weights", "offset"], -64, r"weights.offset must be 0, got -64"),
        (["layers", 0, "after", "table", "offset"], 0, r"table.offset must be 64, got 0"),
        (["layers", 0, "weights", "length"], 2**62, "weights.length must be 2, got 4611686018427"),
        (["layers", 0, "weights", "shape"], [2**31] * 8, "weights.length must be 113,078,212,"),
        (["layers", 0, "weights", "dtype"], "object", "dtype must be one of int8, .*'object'"),
        (["layers", 0, "after", "type"], "softplus", "type must be one of channel_thresholds"),
        (["layers", 0, "after", "unit"], "sudo-5", r"must be int32 of shape \(2, 4\), got"),
        (["layers", 0, "shape_out"], [2, 16], r"an image cannot become a sequence"),
        (["layers", 0, "weights", "shape"], [2, 4], "weights of a conv layer have 4 axes"),
        (["layers", 2, "stride"], [2, 1], "a dense layer has no windows"),
        (["layers", 0, "after", "unit"], "SUDO-4", "unit must be 'sudo-4', got 'SUDO-4'"),
        (["layers", 0, "after", "unit"], "sudo-1", "after.unit: levels must be an integer from 2"),
        (["layers", 0, "after", "unit"], "sudo-65536", "sudo-65536 has integers above 255"),
        (["layers", 0, "after", "unit"], "r-sudo-258", "r-sudo-258 has integers above 255"),
        (["layers", 0, "after", "unit"], "sudo-" + "9" * 99, "name of at most 40 characters"),
        (["layers", 1, "padding"], [2, 0], "padding must be from 0 to half of the kernel"),
        (["layers", 1, "kernel"], [3, 2], "shape_out has height 2, but the windows give 1"),
        (["layers", 1, "shape_out"], [1, 2, 4], "pooling keeps channels"),
        (["layers", 2, "grid_in", "zero"], 0.0, "grid_in is Grid.*, but what comes in is on Grid"),
        (["layers", 2, "after", "fraction"], 63, "fraction must be from 0 to 62, got 63"),
        (["layers", 2, "shape_out"], [3], r"weights of shape \(2, 8\) do not make \(3,\)"),
        (["inputs", "scale"], 0.0, "metadata.inputs: a grid's scale must be above 0"),
        (["inputs", "scale"], 1e-40, "scale must be from 2.-100"),
        (["inputs", "low"], 300, "metadata.inputs: a grid must run from low to high"),
        (["inputs", "low"], True, "metadata.inputs.low must be an integer, got True"),
        (["shape_in"], [1] * 9, "shape_in must be 1 to 8 integers above 0"),
        (["output"], "sigmoid", "output must be one of real, .* got 'sigmoid'"),
        (["output"], "codes", "a network that ends in scores cannot have the output 'codes'"),
        (["notes"], [], r"metadata.notes must be an object, got \[\]"),
    ],
)  # fmt: skip
def test_wrong_metadata_is_named(path, value, message, tmp_path):
    (tmp_path / "net.sudo").write_bytes(changed(*path, to=value))
    expected = rf"^cannot read {re.escape(str(tmp_path / 'net.sudo'))}: .*{message}"
    with pytest.raises(ArtefactError, match=expected):
        load(tmp_path / "net.sudo")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "not valid JSON: Expecting value"),
        (b"[]", r"metadata must be an object, got \[\]"),
        (b"\xff{}", "not valid JSON: .*decode"),
        (b"\xef\xbb\xbf{}", "not valid JSON: .*BOM"),
        (b"[" * 2**20, "nested more than 32 deep"),
        (b'{"a":' * 33 + b"0" + b"}" * 33, "nested more than 32 deep"),
        (b'{"a":1,"a":2}', "the same key twice"),
        (b"9" * 2**20, "a number has at most 32 characters, got 1,048,576"),
        (b"0." + b"1" * 2**19, "a number has at most 32 characters"),
        (b"9223372036854775808", "integers must fit 64 bits, got 9223372036854775808"),
        (b"NaN", "numbers must be finite, got NaN"),
        (b"-Infinity", "numbers must be finite, got -Infinity"),
        (b"1e999", "numbers must be finite, got 1e999"),
        (b'"\\udc00"', "not valid JSON: .*surrogates"),
        (b" " * (2**20 + 1), "metadata has 1,048,577 bytes and the limit is 1,048,576"),
    ],
    ids=lambda value: str(value[:15]),
)
def test_wrong_json_is_named(text, message):
    with pytest.raises(ArtefactError, match=message):
        loads(joined(text, b""))


def with_layer(place, **changes):
    network = golden()
    layers = list(network.layers)
    layers[place] = replace(layers[place], **changes)
    return replace(network, layers=tuple(layers))


REAL = RealScores(1.0, np.zeros(2))


def after(place, **changes):
    return with_layer(place, after=replace(golden().layers[place].after, **changes))


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (after(0, table=np.array([[1, 0, 2], [0, 0, 0]], np.int32)), "thresholds must ascend"),
        (after(2, table=np.array([0, 1, 3, 2], np.int64)), "thresholds must ascend"),
        (after(2, table=np.array([0, 1, 2, 2**62])), r"between -2\^62 and 2\^62"),
        (after(2, table=np.array([-(2**63), 1, 2, 3])), r"between -2\^62 and 2\^62"),
        (after(2, factor=np.array([1, 0], np.int32)), "factor must be above 0, got 0"),
        (after(2, factor=np.array([1], np.int32)), r"factor must be int32 of shape \(2,\)"),
        (after(2, constant=np.array([2**63 - 1, 0])), "constant can overflow 64 bits"),
        (after(2, constant=np.array([-(2**63), 0])), "constant can overflow 64 bits"),
        (after(3, constant=np.array([0.0, 0.0])), "constant must be int64 of shape"),
        (with_layer(0, weights=np.full((2, 1, 2, 2), -2, np.int8)), "ternary weights are from -1"),
        (with_layer(2, weights=np.full((2, 8), 8, np.int8)), "int4 weights are from -7 to 7"),
        (with_layer(3, weights=np.full((2, 2), -128, np.int8)), "int8 weights are from -127"),
        (with_layer(3, weight_kind="binary"), "binary weights are -1 or 1, got -127 to 100"),
        (with_layer(3, weight_kind="float32"), "float32 weights must be finite and float32"),
        (with_layer(0, after=golden().layers[3].after), "only the last layer can give scores"),
        (with_layer(3, weight_kind="int2"), "weights must be one of int8, .* got 'int2'"),
        (with_layer(3, weights=np.ones((2, 2), np.int16)), "must be held as int8, got int16"),
        (with_layer(3, after=REAL), "RealScores cannot follow int8 weights"),
        (replace(golden(), layers=golden().layers[:2]), "the last layer is a pooling"),
        (replace(golden(), layers=()), "the network has no layers"),
        (replace(golden(), shape_in=()), r"shape_in has 1 to 8 axes, got \(\)"),
        (replace(golden(), shape_in=(1, 0)), "shape_in must be 1 or more along every axis"),
    ],
)  # fmt: skip
def test_numbers_that_could_go_wrong_are_named(network, message):
    with pytest.raises(ArtefactError, match=message):
        dumps(network)


def real(factor=1.0, constant=0.0, weight=1.0):
    """A single dense layer with one float32 weight."""
    layer = golden().layers[-1]
    layer = replace(
        layer,
        weights=np.array([[weight]], np.float32),
        weight_kind="float32",
        shape_in=(1,),
        shape_out=(1,),
        grid_in=golden().inputs,
        after=RealScores(factor, np.array([constant])),
    )
    return IntegerNetwork(layer.grid_in, (1,), (layer,))


def test_real_scores_stay_within_float32():
    x = np.array([[255]], np.uint8)
    assert loads(dumps(real(weight=2.0, constant=0.5)))(x).tolist() == [[510.5]]
    for network, message in [
        (real(factor=0.0), "factor must be finite and above 0, got 0.0"),
        (real(factor=np.inf), "factor must be finite and above 0, got inf"),
        (real(factor=1e308), "can overflow float32, or is not finite"),
        (real(constant=np.nan), "can overflow float32, or is not finite"),
        (real(constant=1e39), "can overflow float32, or is not finite"),
        (real(weight=np.nan), "float32 weights must be finite"),
    ]:
        with pytest.raises(ArtefactError, match=message):
            dumps(network)


def test_zero_fits_32_bits_where_sums_are_centred():
    for zero, message in [(2.0**40, "twice_zero must fit 32 bits"), (0.25, "must be 0.5, got 0")]:
        grid = Grid(1.0, zero, 0, 255)
        layer = replace(
            golden().layers[0],
            weights=np.zeros((2, 1, 2, 2), np.int8),
            grid_in=grid,
            centred=True,
            twice_zero=int(2 * zero),
        )
        with pytest.raises(ArtefactError, match=message):
            dumps(replace(golden(), inputs=grid, layers=(layer, *golden().layers[1:])))


def test_networks_of_other_shapes():
    sequence = zoo.network("sequences, codes")
    with pytest.raises(ArtefactError, match=r"softmax needs an output with one axis, got \(4, "):
        dumps(replace(zoo.network("transposed, relu6"), output="softmax"))
    for place, message in ((0, "so all settings of height are 1"), (1, "so kernel, stride and")):
        with pytest.raises(ArtefactError, match=f"a sequence has height 1, {message}"):
            loads(changed("layers", place, "stride", 0, to=2, network=sequence))


def wide(high, weights, kind="int8", constant=0):
    """A single dense layer with large inputs."""
    grid = Grid(1.0, 0.0, 0, high)
    scores = Scores(np.ones(1, np.int32), np.array([constant]), 0)
    shape = (weights.size,)
    layer = Affine("big", "dense", weights, kind, shape, (1,), grid, scores)
    return IntegerNetwork(grid, shape, (layer,))


def test_accumulators_have_31_bits_and_a_sign():
    weights = np.array([[127, -1]], np.int8)  # 128 in all
    network = wide(2**24 - 1, weights)
    largest = np.array([[2**24 - 1, 0]], np.int32)
    assert loads(dumps(network)).raw(largest).item() == 127 * (2**24 - 1)
    message = r"layer 0 \('big'\): an accumulator can reach 2,147,483,648, which 32 bits"
    with pytest.raises(ArtefactError, match=message):
        dumps(wide(2**24, weights))
    data = changed("inputs", "high", to=2**24, network=network)
    text, arrays = split(data)
    meta = json.loads(text)
    meta["layers"][0]["grid_in"] = meta["inputs"]
    with pytest.raises(ArtefactError, match=message):
        loads(joined(json.dumps(meta).encode(), arrays))


def test_fixed_point_fits_64_bits_to_the_last_one():
    weights = np.array([[1]], np.int8)
    room = 2**63 - 1 - 255
    assert (
        loads(dumps(wide(255, weights, constant=room))).raw(np.array([[255]], np.uint8)).item()
        == 2**63 - 1
    )
    for constant in (room + 1, -room - 1):
        with pytest.raises(ArtefactError, match="can overflow 64 bits"):
            dumps(wide(255, weights, constant=constant))


def test_sums_of_pools_fit_32_bits():
    grid = Grid(1.0, 0.0, 0, 2**29 - 1)
    pool = SumPool("pool", (2, 2), (2, 2), (1, 2, 2), (1, 1, 1), grid)
    last = replace(wide(1, np.zeros((1, 1), np.int8)).layers[0], grid_in=pool.grid_out)
    network = loads(dumps(IntegerNetwork(grid, (1, 2, 2), (pool, last))))
    assert network.trace(np.full((1, 1, 2, 2), 2**29 - 1, np.int32))[0].item() == 2**31 - 4
    more = Grid(1.0, 0.0, 0, 2**29)
    with pytest.raises(ArtefactError, match=r"layer 0 .*: a grid must run .* 0 to 2147483648"):
        dumps(IntegerNetwork(more, (1, 2, 2), (replace(pool, grid_in=more), last)))


def test_bytes_that_mean_nothing_are_zero():
    data = bytearray(dumps(golden()))
    text, arrays = split(bytes(data))
    for place in (24, 31, 64 + len(text), len(data) - len(arrays) + 2):
        wrong = data.copy()
        wrong[place] = 1
        with pytest.raises(ArtefactError, match=r"bytes .*must be 0"):
            loads(checksummed(bytes(wrong)))
    with pytest.raises(ArtefactError, match="there are bytes after the last array"):
        loads(joined(text, arrays + bytes(64)))
    with pytest.raises(ArtefactError, match=r"layers\[3\].after.constant reaches past the end"):
        loads(joined(text, arrays[:-1]))


def test_unused_bits_are_zero():
    network = wide(1, np.array([[1, 0, -1]], np.int8), "ternary")
    text, arrays = split(dumps(network))
    assert arrays[0] == 0b110001
    with pytest.raises(ArtefactError, match=r"layers\[0\].weights: the bytes hold more than 3"):
        loads(joined(text, bytes([0b01110001]) + arrays[1:]))


HUGE = {"offset": 0, "length": 2**40, "dtype": "binary", "shape": [2**43]}


@pytest.mark.parametrize(
    "data",
    [
        changed("layers", 0, "weights", "shape", to=[2**25, 1, 2, 2]),
        changed("layers", 0, "weights", to=HUGE),
        changed("shape_in", to=[2**20] * 8),
        checksummed(dumps(golden())[:16] + (2**62).to_bytes(8, "little") + dumps(golden())[24:]),
        joined(b"[" + b"[]," * 2**18 + b"[]]", b""),
    ],
    ids=["shape", "length", "input", "data", "lists"],
)  # fmt: skip
def test_absurd_sizes_take_little_memory(data):
    tracemalloc.start()
    try:
        with pytest.raises(ArtefactError):
            loads(data)
        assert tracemalloc.get_traced_memory()[1] < 40e6
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_thousands_of_mutants_are_refused_or_run():
    done = subprocess.run(
        [sys.executable, "-m", "tests.deploy.fuzz_artefact", "6000", "--seed", "1"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2,400 damaged, refused" in done.stdout
    assert re.search(r"\d+ large, refused", done.stdout)
    assert re.search(r"\d+ large, loads and runs", done.stdout)
    assert re.search(r"[\d,]+ repaired, refused", done.stdout)
    assert re.search(r"\d+ repaired, loads and runs", done.stdout)
