"""Thresholds as the C core reads them (``sudo_after`` of csrc/integer/program.h)."""

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
from sudonet.deploy.runtime.guesses import Guess, guess
from sudonet.native import library

BLOCK = 16
"""SUDO_BLOCK: outputs of one vector of sums."""

WIDE, SHORT, GUESSED, SHARED, SCORES = range(5)
"""``sudo_after_kind``."""

GROUPS = 3
"""Bases that thresholds of 16 bits may have; with more, those of 32 bits cost less."""

PLACES = 4096
"""Places from which the search for a shared threshold starts, about so many at most."""


class Tables:
    """Arrays that C reads: each begins on a cache line, and lives as long as this.

    Parameters
    ----------
    kernels
        The path whose kernels read them. Plain C takes weights in lines and thresholds of 32
        bits only; those of AVX512 alone, with AMX or without, know folded tails and guessed
        codes. AMX wants tails unfolded, too.
    """

    def __init__(self, kernels: str) -> None:
        self.vectors = kernels != "portable"
        self.folds = self.guesses = kernels in ("avx512", "amx")
        self.tiles = kernels == "amx"
        self.kept: list[Any] = []
        self.nbytes = 0

    def add(self, array: NDArray[Any]) -> int:
        """Copy an array; where the copy lies."""
        space = np.empty(array.nbytes + 64, np.uint8)
        skip = -space.ctypes.data % 64
        space[skip : skip + array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
        self.kept.append(space)
        self.nbytes += array.nbytes
        return space.ctypes.data + skip

    def structures(self, some: Sequence[ctypes.Structure]) -> int:
        """Keep structures of one kind in a row; where the first lies."""
        array = (type(some[0]) * len(some))(*some)
        self.kept.append(array)
        return ctypes.addressof(array)


def after(layer: Affine, channels: slice, tables: Tables) -> library.After:
    """What comes of the sums of some channels."""
    given = layer.after
    if isinstance(given, ChannelThresholds):
        reach = accumulator_bounds(layer, layer.by_output[channels])
        return _channel_thresholds(given, channels, reach, tables)
    assert isinstance(given, SharedThresholds | Scores)
    found = library.After(
        kind=SCORES,
        factor=tables.add(_by_block(given.factor[channels, None])),
        constant=tables.add(_by_block(given.constant[channels, None])),
    )
    if isinstance(given, SharedThresholds):
        found.kind, found.doubled = SHARED, _doubled(given)
        _add_floor(found, given.table, tables)
    return found


def _doubled(given: ChannelThresholds | SharedThresholds) -> bool:
    """Whether code c > 0 stands for 2 c - 1 on its grid, and not for c."""
    out, codes = emitted(given.unit), np.arange(given.unit.outputs)
    assert np.array_equal(out, codes) or np.array_equal(out, np.maximum(2 * codes - 1, 0))
    return bool(out[-1] != codes[-1])


def _channel_thresholds(
    given: ChannelThresholds, channels: slice, reach: NDArray[np.float64], tables: Tables
) -> library.After:
    # A threshold beyond the bounds is passed always or never, wherever it lies.
    ends = reach.astype(np.int64)[:, None]
    table = np.clip(given.table[channels].astype(np.int64), -ends - 1, ends)
    count = table.shape[1]
    found = library.After(kind=WIDE, count=count, doubled=_doubled(given))
    guessed = guess(given.unit.thresholds, table, ends) if tables.guesses else None
    if guessed is not None:
        _add_guess(found, guessed, emitted(given.unit), tables)
        found.thresholds = tables.add(_by_block(table.astype(np.int32)))
        return found
    for groups in range(1, GROUPS + 1) if tables.vectors and reach.max() < 2**30 else ():
        found.together = -(-count // groups)
        starts = range(0, count, found.together)
        parts = np.split(table, starts[1:], axis=1)
        base = np.stack([(part[:, 0] + part[:, -1]) // 2 for part in parts], 1)
        close = table - base[:, np.arange(count) // found.together]
        if np.abs(close).max() < 2**15 - 1:
            found.kind, found.base = SHORT, tables.add(_by_block(base.astype(np.int32)))
            found.thresholds = tables.add(_by_block(close.astype(np.int16)))
            return found
    found.thresholds = tables.add(_by_block(table.astype(np.int32)))
    return found


def _add_guess(
    found: library.After, guessed: Guess, out: NDArray[np.uint8], tables: Tables
) -> None:
    found.kind, found.top, found.doubt = GUESSED, guessed.top, guessed.doubt
    found.scale = tables.add(_by_block(guessed.scale))
    found.offset = tables.add(_by_block(guessed.offset))
    found.places = tables.add(guessed.thresholds)
    below = out[guessed.codes].astype(np.uint32)
    above = out[np.minimum(guessed.codes + 1, len(out) - 1)].astype(np.uint32)
    found.codes = tables.add(below | above << 16)


def _by_block(table: NDArray[Any]) -> NDArray[Any]:
    """(block, columns, 16 outputs) from one row an output."""
    blocks = -(-len(table) // BLOCK)
    padded = np.zeros((blocks * BLOCK, table.shape[1]), table.dtype)
    padded[: len(table)] = table
    split: NDArray[Any] = padded.reshape(blocks, BLOCK, -1).swapaxes(1, 2)
    return split


def _add_floor(found: library.After, table: NDArray[np.int64], tables: Tables) -> None:
    """Where the search for a code starts: few enough places, and mostly one step to go."""
    thresholds = [int(t) for t in table]
    closest = min((b - a for a, b in pairwise(thresholds)), default=1 << 24)
    shift = max(closest.bit_length() - 1, 1)
    while (thresholds[-1] - thresholds[0]) >> shift >= PLACES:
        shift += 1
    # What lies below all thresholds is at the very beginning, away from the first of them.
    origin = thresholds[0] - (1 << shift - 1)
    places = [(t - origin) >> shift for t in thresholds]
    floor = np.searchsorted(places, np.arange(places[-1] + 1), side="left").astype(np.uint32) << 24
    floor |= 2**24 - 1
    for place, threshold in zip(places, thresholds, strict=True):
        beyond = (threshold - origin - (place << shift)) << 24 >> shift
        floor[place] = (floor[place] & 0xFF000000) | beyond
    found.count, found.origin, found.shift = len(table), origin, shift
    found.last, found.steps = places[-1], max(Counter(places).values())
    found.floor = tables.add(floor)
    found.table = tables.add(np.array([*thresholds, np.iinfo(np.int64).max], np.int64))
