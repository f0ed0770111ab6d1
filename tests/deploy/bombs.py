"""Small files of integer networks that would take a lot of memory or time."""

import numpy as np

from sudonet import Staircase
from sudonet.deploy import Grid, IntegerNetwork
from sudonet.deploy.layers import Affine, ChannelThresholds, MaxPool, RealScores, Scores, SumPool

PIXELS = Grid(1 / 255, 0.0, 0, 255)
WEIGHTS = 2**18
AROUND_ZERO = Grid(1 / 128, 128.0, 0, 255)


def scores(channels):
    return Scores(np.ones(channels, np.int32), np.zeros(channels, np.int64), 8)


def network(*layers, output="real"):
    return IntegerNetwork(layers[0].grid_in, layers[0].shape_in, layers, output)


def size_out(kind, size, kernel, stride, padding, dilation, more):
    reach = dilation * (kernel - 1) + 1
    if kind == "transposed":
        return (size - 1) * stride - 2 * padding + reach + more
    return (size + 2 * padding - reach) // stride + 1


def affine(
    kind="conv",
    size=(1, 1),
    kernel=(1, 1),
    stride=(1, 1),
    padding=(0, 0),
    dilation=(1, 1),
    more=(0, 0),
    channels=(1, 1),
    groups=1,
    grid=PIXELS,
    weight_kind="binary",
    unit=None,
):
    """A layer whose shapes fit together; binary weights take an eighth of a byte each."""
    real = weight_kind == "float32"
    into, out = channels
    first, second = (into, out) if kind == "transposed" else (out, into)
    axes = zip(size, kernel, stride, padding, dilation, more, strict=True)
    shape_out = (out, *(size_out(kind, *axis) for axis in axes))
    weights = np.ones((first, second // groups, *kernel), np.float32 if real else np.int8)
    over_the_edge = kind == "transposed" or padding != (0, 0)
    centred = over_the_edge and grid.zero != 0
    after = RealScores(1.0, np.zeros(out)) if real else scores(out)
    if unit is not None:
        table = np.tile(np.arange(unit.outputs - 1, dtype=np.int32), (out, 1))
        after = ChannelThresholds(unit, table)
    return Affine(
        *("big", kind, weights, weight_kind, (into, *size), shape_out, grid, after),
        *(stride, padding, dilation, more, groups),
        centred=centred,
        twice_zero=round(2 * grid.zero) if centred else 0,
    )


def bombs():
    """Networks by name: their files have a few hundred bytes to some kilobytes."""
    long, wide = 2**26, 2**13
    coder = affine(size=(1, long), unit=Staircase(4))
    pool = MaxPool("pool", (1, 3), (1, 1), (0, 1), (1, 1, long), (1, 1, long), coder.grid_out)
    whole = SumPool("sum", (1, 2**22), (1, 1), (1, 1, 2**23), (1, 1, 2**22 + 1), PIXELS)
    return {
        "long sequence": network(affine(size=(1, long))),
        "large image": network(affine(size=(wide, wide))),
        "centred": network(
            affine(size=(1, 2**25), kernel=(1, 101), padding=(0, 50), grid=AROUND_ZERO)
        ),
        "padding": network(affine(size=(1, 1), padding=(0, 2**25 - 1))),
        "stride": network(affine("transposed", size=(1, 2), stride=(1, long - 1))),
        "phases": network(affine("transposed", stride=(wide, wide), more=(wide - 1, wide - 1))),
        "dilation": network(
            affine("transposed", kernel=(1, 2), dilation=(1, long - 1), more=(0, 0))
        ),
        "kernel": network(
            affine(size=(1, 2**25), kernel=(1, 2**18), padding=(0, 2**17), grid=AROUND_ZERO)
        ),
        "channels": network(affine(size=(1, 2**25), channels=(1, 512), stride=(1, 256))),
        "pool": network(coder, pool, affine(size=(1, long), grid=coder.grid_out)),
        "sum": network(whole, affine(size=(1, 2**22 + 1), grid=whole.grid_out)),
        "float32": network(affine(size=(wide, wide), weight_kind="float32")),
    }


def large(rng):
    """A network of one layer, random in every size from small to far too large."""

    def size(most):
        return round(2 ** rng.uniform(0, most)) if rng.random() < 0.6 else 1

    kind = rng.choice(["conv", "transposed"])
    groups = size(8)
    channels = groups * size(4), groups * size(4)
    two = [(size(14), size(14)) for _ in range(4)]
    shape, stride, dilation, kernel = two
    while channels[0] * channels[1] // groups * kernel[0] * kernel[1] > WEIGHTS:
        kernel, channels = (1, kernel[1] // 2 + 1), (groups, channels[1])
        if kernel[1] < 3:
            channels = groups, groups
    padding = size(13) - 1, size(13) - 1
    if kind == "conv":  # large enough for its windows
        reaches = zip(shape, padding, kernel, dilation, strict=True)
        shape = tuple(max(n, d * (k - 1) + 1 - 2 * p) for n, p, k, d in reaches)
        more = (0, 0)
    else:
        more = tuple(rng.randrange(s) if s > 1 else 0 for s in stride)
    return network(
        affine(
            *(kind, shape, kernel, stride, padding, dilation, more, channels, groups),
            grid=rng.choice([PIXELS, AROUND_ZERO]),
            weight_kind=rng.choice(["binary", "binary", "int8", "float32"]),
            unit=None,
        )
    )
