"""Integer networks in the C core: on every path the same bits as the reference."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

import sudonet
from sudonet import RSUDO, SUDO, Staircase, deploy, native
from sudonet.deploy import Grid
from sudonet.deploy.layers import ChannelThresholds
from sudonet.deploy.runtime import Program
from sudonet.deploy.runtime.estimates import estimate
from sudonet.native import library
from tests.deploy import zoo
from tests.deploy.core_check import FEW, by_channel, check, dense, plain_sums, shared
from tests.deploy.random_models import PIXELS
from tests.deploy.zoo import WORDS, stack
from tests.unit.families import FAMILIES

pytestmark = pytest.mark.without_core

LEVELS = (2, 3, 4, 16, 17, 100, 128, 129, 256)
WEIGHTS = ("int8", "int4", "ternary", "binary")
FOUND = native.core()
PATHS = [p for p, n in library.PATHS.items() if FOUND and FOUND.functions.sudo_supports(n)]


def core_on(path):
    return library.Core(FOUND.functions, path)


# Against the reference


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("unit", [SUDO, RSUDO])
@pytest.mark.parametrize("levels", LEVELS)
def test_dense_layers(core, weights, unit, levels):
    torch.manual_seed(levels)
    model = stack((65, 100, 63, 10), unit(levels))
    check(deploy.compile(model, weights, inputs=PIXELS), core, (1, 2, 7))


@pytest.mark.parametrize("unit", [SUDO(16), RSUDO(256)])
@pytest.mark.parametrize("features", [1, 3, 5, 8, 15, 17, 20, 63, 65, 200])
def test_odd_sizes(core, features, unit):
    for weights in ("int8", "int4"):
        model = stack((features, features, 2 * features, features), unit)
        check(deploy.compile(model, weights, inputs=PIXELS), core)


@pytest.mark.parametrize("name", ["r-sudo-256", "r-sudo-256-hardtanh", "r-sudo-254", "sudo-256"])
def test_the_highest_code_of_many_levels(core, name):
    model = stack((4, 16, 3), sudonet.activation(name))
    nn.init.normal_(model[0].weight, std=8)
    network = deploy.compile(model, inputs=PIXELS, thresholds="channel")
    reached = network.trace(zoo.samples(network, 50))[0]
    assert reached.max() == 255 or name.endswith("254")
    check(network, core)


@pytest.mark.parametrize("grid", [WORDS, FEW, Grid(0.5, 7.0, -100_000, 100_000)])
def test_inputs_of_other_types(core, grid):
    for weights in ("int8", "int4"):
        check(deploy.compile(stack((70, 66, 5), SUDO(16)), weights, inputs=grid), core)


def test_batches_that_are_worked_on_in_pieces(core):
    network = zoo.network("convolutions")
    made = Program(network, core)
    for batch in (0, 1, 255, 256, 257, 600):
        x = zoo.samples(network, batch)
        assert np.array_equal(made.run(x), network.raw(x))


# The hardest sums


@pytest.mark.parametrize("largest", [1, 7, 127, 128])
def test_sums_of_the_largest_products(core, largest):
    for outputs, terms in product((64, 67, 70, 76), (1, 2, 3, 4, 5, 16, 63, 64, 257, 1025)):
        signs = np.resize([[1], [-1]], (outputs, terms))
        signs[2:, ::2] *= -1
        signs[4:, : terms // 2] *= -1
        weights = np.clip(signs * largest, -128, 127).astype(np.int8)
        network = dense(weights, plain_sums(outputs))
        x = np.full((7, terms), 255, np.uint8)
        x[1:, ::3] = 0
        x[2:, 1::3] = 254
        wanted = x.astype(np.int64) @ weights.T.astype(np.int64)
        made = Program(network, core)
        for batch in (1, 7):
            assert np.array_equal(made.run(x[:batch]), wanted[:batch]), (outputs, terms)


@pytest.mark.parametrize("weights", ["int8", "int4"])
@pytest.mark.parametrize("outputs", [3, 16, 30, 48, 64, 70, 90, 100, 128, 150, 200])
def test_inputs_with_many_zeros(core, outputs, weights):
    """Quads of zeros may be skipped, in single examples and in several."""
    random = np.random.default_rng(outputs)
    for terms in (255, 256, 257, 1_023, 1_100, 4_200) if outputs == 100 else (257, 784):
        network = deploy.compile(stack((terms, outputs, 10), SUDO(16)), weights, inputs=PIXELS)
        x = random.integers(1, 256, (20, terms)).astype(np.uint8)
        for rows, share in ((0, 0.05), (1, 0.1), (2, 0.2), (3, 0.5), (4, 0.9), (slice(6, 20), 0.6)):
            x[rows, np.repeat(random.random(terms // 4 + 1) < share, 4)[:terms]] = 0
        x[5] = x[12:18] = 0
        x[5, -1] = x[14, 0] = x[17, -1] = 1
        made = Program(network, core)
        wanted = network.trace(x)[-1]
        single = np.concatenate([made.run(x[i : i + 1]) for i in range(len(x))])
        assert np.array_equal(single, wanted), terms
        for batch in (7, 20):
            assert np.array_equal(made.run(x[-batch:]), wanted[-batch:]), (terms, batch)


def test_the_largest_sums_that_32_bits_hold(core):
    """4-bit weights among them, whose sums get too large for the way that unpacks them."""
    for largest, terms in ((127, 66_000), (7, 80_000)):
        weights = np.full((40, terms), largest, np.int8)
        weights[1::2] *= -1
        x = np.full((1, terms), 255, np.uint8)
        network = dense(weights, plain_sums(40))
        wanted = 255 * weights.astype(np.int64).sum(1)
        assert 2**27 < wanted[0] < 2**31
        assert np.array_equal(Program(network, core).run(x)[0], wanted)


# Thresholds


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("slope", [1e-7, 1e-5, 1e-3, 0.3])
def test_the_code_at_every_threshold_of_every_unit(core, family, slope):
    """And beside it, also where float32 cannot tell neighbours apart."""
    random = np.random.default_rng(0)
    grid = Grid(1.0, 0.0, -(2**25), 2**25)
    for levels in (2, 3, 8, 16, 17):
        unit = Staircase.parse(family.format(levels))
        slopes, constants = slope * random.uniform(0.3, 3, (21, 1)), random.normal(0, 1, (21, 1))
        table = np.floor((unit.thresholds - constants) / slopes).clip(grid.low - 1, grid.high)
        after = ChannelThresholds(unit, table.astype(np.int32))
        assert (
            estimate(unit.thresholds, table.astype(np.int64), np.full((21, 1), 2**25)) is not None
        )
        network = dense(np.ones((21, 1), np.int8), after, grid)
        x = np.add.outer(np.unique(table), [-20, -3, -1, 0, 1, 2, 5, 19]).ravel()
        x = np.append(x.clip(grid.low, grid.high), [grid.low, grid.high]).astype(np.int32)
        wanted = network.trace(x[:, None])[0]
        assert np.array_equal(Program(network, core).run(x[:, None]), wanted), levels


small = st.integers(-(2**17), 2**17)


@pytest.mark.parametrize("path", PATHS)
@given(
    table=st.lists(st.lists(small, min_size=5, max_size=5), min_size=1, max_size=20),
    spread=st.sampled_from([1, 100, 10_000]),
)
@settings(deadline=None, max_examples=30)
def test_channel_thresholds_are_passed_strictly(path, table, spread):
    """At every threshold, and one to each side of it."""
    table = np.sort(np.array(table) // spread, axis=1)
    grid = Grid(1.0, 0.0, -(2**17) - 2, 2**17 + 2)
    network = dense(np.ones((len(table), 1), np.int8), by_channel(table, 6), grid)
    x = (np.unique(table)[:, None] + [-1, 0, 1]).reshape(-1, 1).astype(np.int32)
    assert np.array_equal(Program(network, core_on(path)).run(x), network.trace(x)[0])


@pytest.mark.parametrize("span", [*range(65_530, 65_540), 131_070, 196_610])
def test_channel_thresholds_as_far_apart_as_16_bits_reach(core, span):
    for lowest, between in product((-(2**17), -70_000, 0, 5), ([1, 2, 3], [span - 2, span - 1])):
        table = lowest + np.array([[0, *between, span]])
        grid = Grid(1.0, 0.0, -(2**19), 2**19)
        after = by_channel(table, table.size + 1)
        network = dense(np.ones((1, 1), np.int8), after, grid)
        x = [*(table.ravel() + off for off in (-1, 0, 1, -32_768, 32_768)), [grid.low, grid.high]]
        x = np.concatenate(x)[:, None].astype(np.int32)
        assert np.array_equal(Program(network, core).run(x), network.trace(x)[0])


@pytest.mark.parametrize("path", PATHS)
@given(
    table=st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=40, unique=True),
    shift=st.integers(0, 60),
    channels=st.lists(
        st.tuples(st.integers(1, 2**31 - 1), st.integers(0, 39), small, st.integers(-2, 2)),
        min_size=1,
        max_size=20,
    ),
)
@settings(deadline=None, max_examples=100)
def test_shared_thresholds_are_passed_strictly(path, table, shift, channels):
    """Every channel is put so that some sum lies at a threshold or beside it."""
    table = sorted({t >> shift for t in table})
    factors = [factor for factor, _, _, _ in channels]
    constants = [table[j % len(table)] - f * at + off for f, j, at, off in channels]
    grid = Grid(1.0, 0.0, -(2**17) - 1, 2**17 + 1)
    after = shared(table, factors, constants)
    network = dense(np.ones((len(channels), 1), np.int8), after, grid)
    x = [at + step for _, _, at, _ in channels for step in (-1, 0, 1)] + [grid.low, grid.high]
    x = np.array(x, np.int32)[:, None]
    assert np.array_equal(Program(network, core_on(path)).run(x), network.trace(x)[0])


@pytest.mark.parametrize("distance", [2**23, 2**24, 2**25, 2**40 + 12345, 2**57])
def test_sums_a_little_above_and_below_shared_thresholds(core, distance):
    table = np.arange(-5, 6) * distance
    constants = np.add.outer(table, np.arange(-2, 3)).ravel()
    after = shared(table, np.ones(constants.size), constants)
    network = dense(np.ones((constants.size, 1), np.int8), after, WORDS)
    x = np.arange(-4, 5, dtype=np.int16)[:, None]
    assert np.array_equal(Program(network, core).run(x), network.trace(x)[0])


def test_shared_thresholds_that_are_close_together(core):
    table = np.array([0, 1, 2, 2**40, 2**40 + 1, 2**61])
    after = shared(table, np.full(9, 2**20), np.arange(9))
    network = dense(np.ones((9, 1), np.int8), after, Grid(1.0, 0.0, -(2**21), 2**21))
    x = np.array([-1, 0, 1, 2**20 - 1, 2**20, 2**20 + 1, 2**21], np.int32)[:, None]
    assert np.array_equal(Program(network, core).run(x), network.trace(x)[0])


# Any shape

few = st.integers(1, 4)


@st.composite
def convolutions(draw):
    """A convolution of any kind, and the size of what it sees."""
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    into, out = groups * draw(few), groups * draw(st.integers(1, 9))
    kernel, stride, dilation = (draw(st.tuples(few, few)) for _ in range(3))
    padding = draw(st.tuples(st.integers(0, 4), st.integers(0, 4)))
    size = draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    kind = draw(st.sampled_from([nn.Conv2d, nn.ConvTranspose2d]))
    return kind(into, out, kernel, **options), (into, *size)


@pytest.mark.parametrize("path", PATHS)
@given(made=convolutions(), grid=st.sampled_from([PIXELS, FEW, WORDS]), batch=few)
@settings(deadline=None, max_examples=40)
def test_any_convolution(path, made, grid, batch):
    layer, shape = made
    try:
        assume(layer(torch.zeros(1, *shape)).numel())
    except RuntimeError:
        assume(False)  # no output
    model = nn.Sequential(layer, SUDO(16))
    network = deploy.compile(model, inputs=grid, shape=shape)
    check(network, core_on(path), (batch,))


@pytest.mark.parametrize("path", PATHS)
@given(
    sizes=st.lists(st.integers(1, 150), min_size=2, max_size=4),
    batch=st.integers(1, 20),
    weights=st.sampled_from(WEIGHTS),
    levels=st.sampled_from(LEVELS),
)
@settings(deadline=None, max_examples=40)
def test_any_dense_network(path, sizes, batch, weights, levels):
    network = deploy.compile(stack(sizes, SUDO(levels)), weights, inputs=PIXELS)
    check(network, core_on(path), (batch,))
