"""Networks of one layer made by hand, and a check of the C core against the reference."""

from dataclasses import replace

import numpy as np

from sudonet import Staircase
from sudonet.deploy import Grid, IntegerNetwork
from sudonet.deploy.layers import Affine, ChannelThresholds, Scores, SharedThresholds
from sudonet.deploy.runtime import Program
from tests.deploy.random_models import PIXELS
from tests.deploy.zoo import samples

FEW = Grid(0.1, 3.0, 0, 9)


def beginnings(network):
    """The network up to each of its layers."""
    for end in range(1, len(network.layers) + 1):
        yield replace(network, layers=network.layers[:end], output="codes")


def check(network, core, batches=(1, 2, 3, 4, 5, 33)):
    """What C makes of a network is what the reference does, layer by layer."""
    programs = [Program(some, core) for some in beginnings(network)]
    for batch in batches:
        x = samples(network, batch, seed=batch)
        for place, wanted in enumerate(network.trace(x)):
            found = programs[place].run(x)
            assert found.dtype == wanted.dtype, (batch, place)
            assert np.array_equal(found, wanted), (batch, place)


def dense(weights, after, grid=PIXELS, kind="int8"):
    """A network of one dense layer."""
    shape_in, shape_out = (weights.shape[1],), (weights.shape[0],)
    layer = Affine("0", "dense", weights, kind, shape_in, shape_out, grid, after)
    return IntegerNetwork(grid, shape_in, (layer,), "codes")


def plain_sums(outputs):
    """Scores that are the accumulators themselves."""
    return Scores(np.ones(outputs, np.int32), np.zeros(outputs, np.int64), 0)


def by_channel(table, levels):
    return ChannelThresholds(Staircase(levels), np.array(table, np.int32))


def shared(table, factor, constant):
    unit = Staircase(len(table) + 1)
    table = np.array(table, np.int64)
    return SharedThresholds(unit, np.array(factor, np.int32), np.array(constant), table, 0)
