"""Printed sizes against what the C that is written allocates."""

import re

import numpy as np
import pytest
from torch import nn

import sudonet
from sudonet import Staircase, deploy
from sudonet.deploy import c
from sudonet.deploy.grid import Grid
from sudonet.deploy.layers import Affine, ChannelThresholds, Scores
from sudonet.deploy.sizes import sizes
from sudonet.packing import arena_bits
from tests.deploy import zoo
from tests.deploy.random_models import PIXELS

HIDDEN = 13


def hidden_layer(unit):
    """A network whose only hidden layer has 13 units."""
    table = np.zeros((HIDDEN, unit.outputs - 1), np.int32)
    scores = Scores(np.ones(2, np.int32), np.zeros(2, np.int64), 8)
    first = Affine(
        *("0", "dense", np.ones((HIDDEN, 3), np.int8), "int8", (3,), (HIDDEN,)),
        *(PIXELS, ChannelThresholds(unit, table)),
    )
    second = Affine(
        *("2", "dense", np.ones((2, HIDDEN), np.int8), "int8", (HIDDEN,), (2,)),
        *(Grid.of_unit(unit), scores),
    )
    return deploy.IntegerNetwork(PIXELS, (3,), (first, second))


@pytest.mark.parametrize("pattern", ["sudo-{}", "sudo-{}-sigmoid", "r-sudo-{}", "r-sudo-{}-full"])
def test_every_number_of_levels(pattern):
    for levels in range(2, 257):
        unit = Staircase.parse(pattern.format(levels))
        network = hidden_layer(unit)
        arena = c.plan.plan(network, "ram").arena
        found = sizes(network)
        assert found.buffers[1].packed_bytes == found.arena_packed_bytes == arena
        assert arena == 4 * -(-HIDDEN * arena_bits(unit.highest_integer) // 32)
        model = nn.Sequential(nn.Linear(3, HIDDEN), sudonet.activation(unit.name))
        assert sudonet.summary(model, (1, 3)).packed_bytes == arena


@pytest.mark.parametrize("underlying", ["tanh", "sigmoid", "relu6", "hardtanh"])
def test_the_highest_integer_is_that_of_the_highest_value(underlying):
    for levels in (*range(2, 66), 255, 256, 511, 512, 65_535, 65_536):
        for name in ("sudo-{}-{}", "r-sudo-{}-{}", "r-sudo-{}-{}-full"):
            if underlying == "sigmoid" and name.startswith("r-"):
                continue
            unit = Staircase.parse(name.format(levels, underlying))
            grid = Grid.of_unit(unit)
            assert grid.integers(unit.values)[-1] == grid.high == unit.highest_integer
            assert np.allclose(grid.values(grid.integers(unit.values)), unit.values, atol=1e-12)


def test_sizes_are_those_of_the_c_that_is_written(tmp_path):
    pooled = 0
    for case in zoo.WHOLE:
        network = zoo.network(*case)
        found = sizes(network)
        assert len(found.buffers) == len(network.layers) + 1
        for mode, arena in (("speed", found.arena_bytes), ("ram", found.arena_packed_bytes)):
            header = c.write(network, tmp_path, optimise=mode).header.read_text()
            (stated,) = re.findall(r"^#define NET_ARENA_BYTES (\d+)", header, re.MULTILINE)
            assert int(stated) == arena
        planned = c.plan.plan(network, "ram").layers
        targets = [one.target.bytes for one in planned if one.target]
        between = [buffer.packed_bytes for buffer in found.buffers[1:-1]]
        assert [size for size in between if size is not None] == targets
        pooled += between.count(None)
        for end in (found.buffers[0], found.buffers[-1]):
            assert end.packed_bytes == end.plain_bytes
    assert pooled
