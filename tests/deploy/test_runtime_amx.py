"""Integer networks with AMX: bit by bit the reference, also where no CPU has it.

The path is compiled with its instructions in plain C (amx_emulated.h), and so all of it but these
runs here. On a CPU with AMX the same tests run with the instructions themselves.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sudonet import RSUDO, SUDO, deploy, native
from sudonet._settings import NATIVE
from sudonet.deploy.runtime import Program, program
from sudonet.native import library
from tests import ROOT
from tests.deploy import zoo
from tests.deploy.core_check import check, dense, plain_sums
from tests.deploy.random_models import PIXELS
from tests.deploy.zoo import stack
from tests.unit.sanitized import (
    EMULATED,
    check_walk,
    compile_core,
    compile_flags,
    knows_amx,
    object_name,
)

pytestmark = pytest.mark.slow

FAULTS = ["signed inputs", "lost carries", "a lost last row", "saturated pairs", "a wrong stride"]
BATCHES = (1, 7, 8, 15, 16, 17, 31, 32, 33, 47, 256)
MIN_WINDOWS = 8  # of csrc/integer/amx.c: fewer do not use tiles


@pytest.fixture(scope="module")
def compiler(c_compiler):
    if c_compiler is None:
        pytest.skip("there is no C compiler: neither CC nor cc runs")
    if not knows_amx(c_compiler):
        pytest.skip(f"{c_compiler} does not know AMX")
    return c_compiler


@dataclass(frozen=True)
class Build:
    """A core with tiles in plain C, and what it is made of."""

    file: Path
    compiler: str
    objects: list[Path]
    libraries: list[str]

    def again(self, folder, sources, *flags):
        """The core with some of its files compiled anew, with these flags."""
        objects = {path.name: path for path in self.objects}
        for source in sources:
            made = folder / object_name(source)
            given = [*compile_flags(), "-O1", EMULATED, *flags]
            file = ROOT / "csrc" / source
            subprocess.run([self.compiler, *given, "-c", file, "-o", made], check=True)
            assert made.name in objects
            objects[made.name] = made
        return link(self.compiler, folder, objects.values(), self.libraries, *flags)


def link(compiler, folder, objects, libraries, *flags):
    file = folder / "_core.so"
    subprocess.run([compiler, "-shared", *flags, "-o", file, *objects, *libraries], check=True)
    return file


@pytest.fixture(scope="module")
def built(compiler, tmp_path_factory):
    folder = tmp_path_factory.mktemp("emulated")
    objects, libraries = compile_core(compiler, folder, "-O1", EMULATED)
    file = link(compiler, folder, objects, libraries)
    functions, vnni = library.load(file, "portable").functions, library.PATHS["avx512"]
    if functions.sudo_integer_kernels(vnni) != vnni:
        pytest.skip("this CPU has no AVX512-VNNI, which the path needs besides")
    return Build(file, compiler, objects, libraries)


@pytest.fixture(scope="module")
def emulated(built):
    return watched_tiles(library.load(built.file, "amx"))


@pytest.fixture(scope="module", params=["emulated", "of this CPU"])
def amx(request):
    """A core that uses AMX."""
    if request.param == "emulated":
        return request.getfixturevalue("emulated")
    if (core := native.core()) is None:
        pytest.skip(native.status().reason)
    try:
        return library.load(Path(core.functions._name), "amx")
    except library.CoreError as error:
        pytest.skip(str(error))


def watched_tiles(core):
    core.functions.tile_products.restype = ctypes.c_int64
    return core


def tile_products(core, call):
    """How many products of tiles a call makes; it must leave no tiles in use."""
    before = core.functions.tile_products()
    call()
    assert not core.functions.tiles_in_use()
    return core.functions.tile_products() - before


# Against the reference


@pytest.mark.parametrize("levels", [16, 256])
@pytest.mark.parametrize(
    "sizes",
    [(784, 100, 100, 10), (65, 100, 63, 10), (64, 64, 128, 16), (61, 17, 80, 5), (3, 130, 33)],
)
def test_dense_layers(amx, sizes, levels):
    """Terms that are no multiples of 64 or of 4, outputs that are none of 16 or of 64."""
    torch.manual_seed(0)
    check(deploy.compile(stack(sizes, SUDO(levels)), inputs=PIXELS), amx, BATCHES)


@pytest.mark.parametrize("weights", ["int4", "ternary", "binary"])
def test_small_weights(amx, weights):
    network = deploy.compile(stack((66, 100, 20, 10), RSUDO(16)), weights, inputs=PIXELS)
    check(network, amx, BATCHES)


@pytest.mark.parametrize("thresholds", ["channel", "shared"])
@pytest.mark.parametrize("name", zoo.BY_HAND)
def test_every_kind_of_layer(amx, name, thresholds):
    check(zoo.network(name, thresholds=thresholds), amx, (1, 7, 16, 17, 33))


@pytest.mark.parametrize("levels", [16, 256])
def test_convolutions_of_many_channels(amx, levels):
    model = torch.nn.Sequential(
        *[torch.nn.Conv2d(3, 36, 3, padding=1), SUDO(levels), torch.nn.MaxPool2d(2)],
        *[torch.nn.Conv2d(36, 70, 3, stride=2), RSUDO(levels), torch.nn.Flatten()],
        torch.nn.Linear(70, 9),
    )
    network = deploy.compile(model, inputs=PIXELS, shape=(3, 7, 7))
    check(network, amx, (1, 7, 16, 17, 31, 33, 256))


def test_sums_of_the_largest_products(amx):
    for outputs, terms in product(
        (16, 64, 67, 70, 76), (1, 2, 4, 5, 60, 63, 64, 65, 68, 257, 1025)
    ):
        weights = np.full((outputs, terms), -128, np.int8)
        weights[1::2] = 127
        weights[2:, ::2] = 127
        x = np.full((47, terms), 255, np.uint8)
        x[1:, ::3] = 0
        x[2:, 1::3] = 128
        wanted = x.astype(np.int64) @ weights.T.astype(np.int64)
        made = Program(dense(weights, plain_sums(outputs)), amx)
        for batch in (7, 8, 16, 17, 47):
            assert np.array_equal(made.run(x[:batch]), wanted[:batch]), (outputs, terms, batch)


def test_the_largest_sums_that_32_bits_hold(amx):
    weights = np.full((40, 66_000), 127, np.int8)
    weights[1::2] *= -1
    x = np.full((19, 66_000), 255, np.uint8)
    wanted = 255 * weights.astype(np.int64).sum(1)
    assert 2**30 < wanted[0] < 2**31
    found = Program(dense(weights, plain_sums(40)), amx).run(x)
    assert (found == wanted).all()


@given(
    terms=st.integers(1, 300),
    outputs=st.integers(1, 150),
    batch=st.integers(1, 80),
    seed=st.integers(0, 1000),
)
@settings(deadline=None, max_examples=150)
def test_any_sums(amx, terms, outputs, batch, seed):
    random = np.random.default_rng(seed)
    weights = random.integers(-128, 128, (outputs, terms), dtype=np.int8)
    x = random.integers(0, 256, (batch, terms), dtype=np.uint8)
    wanted = x.astype(np.int64) @ weights.T.astype(np.int64)
    assert np.array_equal(Program(dense(weights, plain_sums(outputs)), amx).run(x), wanted)


# When tiles are used


def test_many_windows_of_bytes_meet_tiles(emulated):
    one = Program(dense(np.full((16, 64), 9, np.int8), plain_sums(16)), emulated)
    few, many = np.ones((MIN_WINDOWS - 1, 64), np.uint8), np.ones((MIN_WINDOWS, 64), np.uint8)
    assert tile_products(emulated, lambda: one.run(few)) == 0
    assert tile_products(emulated, lambda: one.run(many)) == 1
    # 65 terms take a second step; 100 outputs are 7 blocks; 33 rows 2 tiles, and 1 row beside them
    wide = Program(dense(np.full((100, 65), 9, np.int8), plain_sums(100)), emulated)
    rows = np.ones((33, 65), np.uint8)
    assert tile_products(emulated, lambda: wide.run(rows)) == 2 * 7 * 2
    nibbles = Program(dense(np.full((32, 64), 7, np.int8), plain_sums(32)), emulated)
    assert tile_products(emulated, lambda: nibbles.run(np.ones((32, 64), np.uint8))) == 0


def test_threads_have_tiles_of_their_own(amx):
    network = deploy.compile(stack((100, 70, 10), SUDO(16)), inputs=PIXELS)
    made = Program(network, amx)
    inputs = [zoo.samples(network, 1 + 7 * i % 50, seed=i) for i in range(60)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(made.run, inputs))
    for x, out in zip(inputs, found, strict=True):
        assert np.array_equal(out, network.raw(x))


def test_only_who_wants_amx_asks_for_it(built, tmp_path):
    copy = shutil.copy(built.file, tmp_path)  # which no one has asked yet
    plain = watched_tiles(library.load(Path(copy), "avx512"))
    network = deploy.compile(stack((100, 70, 10), SUDO(16)), inputs=PIXELS)
    assert Program(network, plain).path == "avx512"
    assert tile_products(plain, lambda: check(network, plain, (16,))) == 0
    assert plain.functions.tile_products() == 0
    fastest = library.load(Path(copy), "auto")
    assert fastest.functions.tile_products() > 0  # it was tried
    assert (fastest.path, fastest.integer_path) == ("avx512", "amx")


def test_the_path_says_amx(built, monkeypatch):
    monkeypatch.setattr(native, "FOLDER", built.file.parent)
    network = deploy.compile(stack((100, 70, 10), SUDO(16)), inputs=PIXELS)
    for choice, path in (("auto", "amx"), ("amx", "amx"), ("avx512", "avx512"), ("avx2", "avx2")):
        monkeypatch.setenv(NATIVE, choice)
        native.core.cache_clear()
        try:
            assert program(network).path == path
            experimental = "integer networks with amx (experimental)" in native.status().reason
            assert experimental == (path == "amx")
        finally:
            native.core.cache_clear()


@pytest.mark.parametrize("fault", range(1, 1 + len(FAULTS)), ids=FAULTS)
def test_tiles_that_do_not_agree_with_plain_c_are_not_used(built, tmp_path, fault):
    file = built.again(tmp_path, ["integer/amx.c"], f"-DTILE_FAULT={fault}")
    with pytest.raises(library.CoreError, match="cannot run amx, only portable, avx2, avx512"):
        library.load(file, "amx")
    core = library.load(file, "auto")
    assert core.integer_path == "avx512"
    network = deploy.compile(stack((100, 70, 10), SUDO(16)), inputs=PIXELS)
    check(network, core, (33,))
    # Nor if it is named where a program is run.
    asked = library.Core(core.functions, "avx512", amx=True)
    check(network, asked, (33,))


# Building


@pytest.mark.parametrize("name", ["gcc", "clang"])
def test_the_instructions_compile_without_a_warning(tmp_path, name):
    found = shutil.which(name)
    if found is None or not knows_amx(found):
        pytest.skip(f"there is no {name} that knows AMX")
    assembly = tmp_path / "amx.s"
    flags = [*compile_flags(), "-Wall", "-Wextra", "-Werror"]
    source = ROOT / "csrc" / "integer" / "amx.c"
    subprocess.run([found, *flags, "-S", source, "-o", assembly], check=True)
    text = assembly.read_text()
    for instruction in ("ldtilecfg", "tileloadd", "tilestored", "tilezero", "tilerelease"):
        assert re.search(rf"\b{instruction}\b", text), instruction
    # Into sums 0 to 3: inputs 4 and 5 without sign, which come second here, times weights.
    products = set(re.findall(r"\btdpbusd\s+(%tmm\d), *(%tmm\d), *(%tmm\d)", text))
    wanted = {(6, 4, 0), (7, 4, 1), (6, 5, 2), (7, 5, 3)}
    assert products == {tuple(f"%tmm{n}" for n in three) for three in wanted}


@pytest.mark.parametrize("name", ["dispatch.c", "amx.c"])
def test_other_processors_see_nothing_of_it(c_compiler, name):
    if c_compiler is None:
        pytest.skip("there is no C compiler: neither CC nor cc runs")
    command = [c_compiler, *compile_flags(), "-E", "-P", "-ffreestanding", "-U__x86_64__"]
    source = ROOT / "csrc" / "integer" / name
    text = subprocess.check_output([*command, source], text=True)
    assert "sudo_integer_run" in text  # declared for every processor
    for word in ("tile", "xgetbv", "cpuid", "arch_prctl"):
        assert word not in text


# Memory


def walk(file):
    """Run every kind of layer and every kind of tail; a sanitizer watches."""
    core = library.load(Path(file), "amx")
    for name in zoo.BY_HAND:
        check(zoo.network(name), core, (1, 5, 17, 33))
    for sizes in ((1, 1), (3, 17, 2), (65, 100, 129, 1), (784, 70, 24)):
        for levels in (16, 129):
            network = deploy.compile(stack(sizes, RSUDO(levels)), inputs=PIXELS)
            check(network, core, (1, 7, 8, 15, 16, 17, 31, 32, 33, 47))
    check(zoo.network("convolutions"), library.load(Path(file), "portable"), (5,))
    print("portable done, amx done")


def test_sanitizers_find_nothing(built, sanitized):
    walked = sanitized.run(__name__, "walk")
    check_walk(walked)
    assert walked.returncode == 0, walked.stderr
    assert "amx done" in walked.stdout
