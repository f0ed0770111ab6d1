"""Thresholds as the C core reads them (``sudo_epilogue`` of csrc/integer/program.h)."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sudonet.deploy.layers import (
    Affine,
    ChannelThresholds,
    Scores,
    SharedThresholds,
    accumulator_bounds,
    emitted,
)
from sudonet.deploy.runtime.estimates import Estimate, estimate
from sudonet.native import library

BLOCK = 16
"""SUDO_BLOCK: outputs of one vector of sums."""

THRESHOLDS_INT32, THRESHOLDS_INT16, ESTIMATED, SHARED_THRESHOLDS, SCORES = range(5)
"""``sudo_epilogue_kind``."""

MAX_GROUPS = 3
"""Groups of int16 thresholds, at most; with more, int32 thresholds cost less."""

MAX_BINS = 4096
"""Entries of the lookup table of shared thresholds, about so many at most."""


class Tables:
    """Arrays that C reads: each starts on a cache line, and lives as long as this object.

    Parameters
    ----------
    kernels
        The path whose kernels read them. The portable ones take row-major weights, and int32
        thresholds where each output has its own. Only those of AVX512, with or without AMX, have
        folded tails and estimated codes. AMX needs tails unfolded, too.
    """

    def __init__(self, kernels: str) -> None:
        self.vectors = kernels != "portable"
        self.folds = self.estimates = kernels in ("avx512", "amx")
        self.tiles = kernels == "amx"
        self.kept: list[Any] = []
        self.nbytes = 0

    def add(self, array: NDArray[Any]) -> int:
        """Copy an array and return the address of the copy."""
        space = np.empty(array.nbytes + 64, np.uint8)
        skip = -space.ctypes.data % 64
        space[skip : skip + array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
        self.kept.append(space)
        self.nbytes += array.nbytes
        return space.ctypes.data + skip

    def structures(self, items: Sequence[ctypes.Structure]) -> int:
        """Copy structures of one type into an array and return its address."""
        array = (type(items[0]) * len(items))(*items)
        self.kept.append(array)
        return ctypes.addressof(array)


def epilogue(layer: Affine, channels: slice, tables: Tables) -> library.Epilogue:
    """What turns the sums of some channels into outputs."""
    given = layer.after
    if isinstance(given, ChannelThresholds):
        largest = accumulator_bounds(layer, layer.by_output[channels])
        return _channel_thresholds(given, channels, largest, tables)
    assert isinstance(given, SharedThresholds | Scores)
    found = library.Epilogue(
        kind=SCORES,
        factor=tables.add(_by_block(given.factor[channels, None])),
        constant=tables.add(_by_block(given.constant[channels, None])),
    )
    if isinstance(given, SharedThresholds):
        found.kind, found.odd_codes = SHARED_THRESHOLDS, _odd_codes(given)
        _add_lookup(found, given.table, tables)
    return found


def _odd_codes(given: ChannelThresholds | SharedThresholds) -> bool:
    """Whether code c > 0 is the integer 2 c - 1 of its grid, and not c."""
    out, codes = emitted(given.unit), np.arange(given.unit.outputs)
    assert np.array_equal(out, codes) or np.array_equal(out, np.maximum(2 * codes - 1, 0))
    return bool(out[-1] != codes[-1])


def _channel_thresholds(
    given: ChannelThresholds, channels: slice, largest: NDArray[np.float64], tables: Tables
) -> library.Epilogue:
    # A threshold beyond the bounds is always or never passed, so it may be clipped.
    bounds = largest.astype(np.int64)[:, None]
    table = np.clip(given.table[channels].astype(np.int64), -bounds - 1, bounds)
    count = table.shape[1]
    found = library.Epilogue(kind=THRESHOLDS_INT32, count=count, odd_codes=_odd_codes(given))
    estimated = estimate(given.unit.thresholds, table, bounds) if tables.estimates else None
    if estimated is not None:
        _add_estimate(found, estimated, emitted(given.unit), tables)
        found.thresholds = tables.add(_by_block(table.astype(np.int32)))
        return found
    for groups in range(1, MAX_GROUPS + 1) if tables.vectors and largest.max() < 2**30 else ():
        found.group_size = -(-count // groups)
        starts = range(0, count, found.group_size)
        parts = np.split(table, starts[1:], axis=1)
        base = np.stack([(part[:, 0] + part[:, -1]) // 2 for part in parts], 1)
        difference = table - base[:, np.arange(count) // found.group_size]
        if np.abs(difference).max() < 2**15 - 1:
            found.kind = THRESHOLDS_INT16
            found.base = tables.add(_by_block(base.astype(np.int32)))
            found.thresholds = tables.add(_by_block(difference.astype(np.int16)))
            return found
    found.thresholds = tables.add(_by_block(table.astype(np.int32)))
    return found


def _add_estimate(
    found: library.Epilogue, estimated: Estimate, out: NDArray[np.uint8], tables: Tables
) -> None:
    found.kind = ESTIMATED
    found.max_position, found.tolerance = estimated.max_position, estimated.tolerance
    found.scale = tables.add(_by_block(estimated.scale))
    found.offset = tables.add(_by_block(estimated.offset))
    found.bin_thresholds = tables.add(estimated.thresholds)
    below = out[estimated.codes].astype(np.uint32)
    above = out[np.minimum(estimated.codes + 1, len(out) - 1)].astype(np.uint32)
    found.bin_codes = tables.add(below | above << 16)


def _by_block(table: NDArray[Any]) -> NDArray[Any]:
    """(block, columns, 16 outputs) from one row for each output."""
    blocks = -(-len(table) // BLOCK)
    padded = np.zeros((blocks * BLOCK, table.shape[1]), table.dtype)
    padded[: len(table)] = table
    split: NDArray[Any] = padded.reshape(blocks, BLOCK, -1).swapaxes(1, 2)
    return split


def _add_lookup(found: library.Epilogue, table: NDArray[np.int64], tables: Tables) -> None:
    """Where the search for a code starts: few enough bins, and mostly one step to go."""
    thresholds = [int(t) for t in table]
    closest = min((b - a for a, b in pairwise(thresholds)), default=1 << 24)
    shift = max(closest.bit_length() - 1, 1)
    while (thresholds[-1] - thresholds[0]) >> shift >= MAX_BINS:
        shift += 1
    # Numbers below all thresholds are clamped to the origin, away from the first of them.
    origin = thresholds[0] - (1 << shift - 1)
    bins = [(t - origin) >> shift for t in thresholds]
    lookup = np.searchsorted(bins, np.arange(bins[-1] + 1), side="left").astype(np.uint32) << 24
    lookup |= 2**24 - 1
    for bin_, threshold in zip(bins, thresholds, strict=True):
        distance = (threshold - origin - (bin_ << shift)) << 24 >> shift
        lookup[bin_] = (lookup[bin_] & 0xFF000000) | distance
    found.count, found.origin, found.shift = len(table), origin, shift
    found.last_bin, found.max_steps = bins[-1], max(Counter(bins).values())
    found.lookup = tables.add(lookup)
    found.table = tables.add(np.array([*thresholds, np.iinfo(np.int64).max], np.int64))
