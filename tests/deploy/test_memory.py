import random
import re
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from sudonet.deploy import ArtefactError, IntegerNetwork, load, reference
from sudonet.deploy.artefact import dumps, loads
from sudonet.deploy.layers import Affine
from sudonet.deploy.memory import LIMIT, WORK_PER_BYTE, check_memory, needed_bytes
from tests.deploy.bombs import AROUND_ZERO, PIXELS, affine, bombs, large, network, scores


@pytest.mark.parametrize("name", bombs())
def test_small_files_of_huge_networks_are_refused_before_work(name, tmp_path):
    path = tmp_path / "net.sudo"
    path.write_bytes(dumps(bombs()[name]))
    assert path.stat().st_size < 50_000
    tracemalloc.start()
    try:
        with pytest.raises(ArtefactError) as refused:
            load(path)
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
    message = str(refused.value)
    assert message.startswith(f"cannot read {path}: ")
    assert message.endswith("raise it by max_bytes= or --max-memory if you trust the file")
    needed, limit = (int(n.replace(",", "")) for n in re.findall(r"\d[\d,]{8,}", message))
    assert limit in (LIMIT, WORK_PER_BYTE * LIMIT)
    assert needed > limit
    raised = load(path, max_bytes=2**44)
    assert raised.layers[-1].shape_out == bombs()[name].layers[-1].shape_out


def test_the_limit_counts_every_byte():
    found = network(affine(size=(20, 20), kernel=(3, 3)))
    needed = needed_bytes(found)
    loads(dumps(found), max_bytes=needed)
    with pytest.raises(ArtefactError, match=f"needs {needed:,} bytes .* is {needed - 1:,} "):
        loads(dumps(found), max_bytes=needed - 1)
    with pytest.raises(ArtefactError, match=r"needs 9,216 bytes of memory .* the limit is 9,000"):
        loads(dumps(network(affine(channels=(96, 96)))), max_bytes=9000)


def test_large_networks_for_pictures_stay_below_the_limit():
    def dense(into, out):
        weights = np.broadcast_to(np.int8(1), (out, into))
        return Affine("d", "dense", weights, "int8", (into,), (out,), PIXELS, scores(out))

    def conv(size, into, out):
        weights = np.broadcast_to(np.int8(1), (out, into, 3, 3))
        shapes = (into, size, size), (out, size, size)
        after = scores(out)
        return Affine("c", "conv", weights, "int8", *shapes, PIXELS, after, padding=(1, 1))

    first, *sizes = (224, 3, 64), (224, 64, 64), (112, 64, 128), (112, 128, 128), (56, 128, 256)
    sizes += [(56, 256, 256)] * 2 + [(28, 256, 512)] + [(28, 512, 512)] * 2 + [(14, 512, 512)] * 3
    convs = [conv(*size) for size in (first, *sizes)]
    vgg = (*convs, dense(25088, 4096), dense(4096, 4096), dense(4096, 1000))
    assert sum(layer.weights.size for layer in vgg) == 138_344_128
    check_memory(IntegerNetwork(PIXELS, (3, 224, 224), vgg), LIMIT)
    check_memory(IntegerNetwork(PIXELS, (3, 1024, 1024), (conv(1024, 3, 16),)), LIMIT)


def test_multiply_adds_are_counted_without_lists():
    rng = random.Random(0)
    counted = 0
    while counted < 40:
        layer = large(rng).layers[0]
        if not 0 < np.prod(layer.shape_out) < 2**12 or min(layer.shape_out) < 1:
            continue
        if np.prod(layer.shape_in) > 2**16 or layer.weights.size > 2**12:
            continue
        ones = np.ones((1, *layer.shape_in), np.uint8)
        plain = affine_without_zero(layer)
        assert plain.multiply_adds == int(reference.accumulate(plain, ones).sum())
        counted += 1
    assert affine(size=(1, 2**26)).multiply_adds == 2**26
    assert affine("transposed", size=(1, 2), stride=(1, 2**26 - 1)).multiply_adds == 2


def affine_without_zero(layer):
    return replace(layer, centred=False, twice_zero=0, weights=np.ones_like(layer.weights))


def test_batches_are_run_in_slices(monkeypatch):
    found = network(affine(size=(6, 6), kernel=(3, 3), padding=(1, 1), weight_kind="float32"))
    x = np.random.default_rng(0).integers(0, 256, (37, 1, 6, 6)).astype(np.uint8)
    whole = found.raw(x)
    assert next(reference.slices(found.layers, 37)).stop > 37
    monkeypatch.setattr(reference, "SLICE", 4 * reference.example_bytes(found.layers))
    assert len(list(reference.slices(found.layers, 37))) == 10
    np.testing.assert_array_equal(found.raw(x), whole)
    assert found.raw(x[:0]).shape == (0, 1, 6, 6)
    tracemalloc.start()
    try:
        found.raw(np.zeros((1000, 1, 6, 6), np.uint8))
        assert tracemalloc.get_traced_memory()[1] < 1e6
    finally:
        tracemalloc.stop()


def test_corrections_of_centred_layers_are_those_of_the_reference():
    for kind, kernel, stride, more in [
        ("conv", (3, 5), (1, 2), (0, 0)),
        ("transposed", (4, 3), (3, 2), (1, 0)),
        ("transposed", (1, 2), (4, 3), (3, 0)),
    ]:
        padding = (1, 2) if kind == "conv" else (0, 1)
        layer = affine(
            *(kind, (5, 6), kernel, stride, padding, (2, 1), more, (2, 4), 2), AROUND_ZERO
        )
        rng = np.random.default_rng(1)
        layer.weights[:] = rng.choice([-1, 1], layer.weights.shape)
        found = network(layer)
        x = rng.integers(0, 256, (3, 2, 5, 6)).astype(np.uint8)
        np.testing.assert_array_equal(found.raw(x), found.trace(x)[-1])
