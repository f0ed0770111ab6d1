"""How integers are stored in a microcontroller's memory."""

from __future__ import annotations

from sudonet.deploy.grid import Grid
from sudonet.packing import ARENA_BITS, arena_bits

BITS = {"b1": 1, "b2": 2, "b4": 4, "u8": 8, "u16": 16, "s16": 16, "s32": 32}
"""Bits of one number: packed codes, bytes, and wider numbers with their lowest byte first."""

PACKED = ("b1", "b2", "b4")

OF_INPUTS = {"uint8": "u8", "uint16": "u16", "int16": "s16", "int32": "s32"}
"""Storage of the network's input, by the type that its grid has."""

_OF_CODES = dict(zip(ARENA_BITS, (*PACKED, "u8"), strict=True))


def holding(low: int, high: int, *, pack: bool = False) -> str:
    """The smallest storage for integers from ``low`` to ``high``; below a byte only to pack.

    Examples
    --------
    >>> holding(0, 15), holding(0, 15, pack=True), holding(0, 1020), holding(-1, 0)
    ('u8', 'b4', 's16', 's16')
    """
    if low >= 0 and high <= 255:
        return _OF_CODES[arena_bits(high)] if pack else "u8"
    # More than 32 bits are needed only where all weights are 0, so that inputs do not matter.
    return "s16" if low >= -(2**15) and high < 2**15 else "s32"


def of_grid(grid: Grid, *, pack: bool = False) -> str:
    """The storage of a grid's integers between two layers."""
    return holding(grid.low, grid.high, pack=pack)


def size(storage: str, count: int) -> int:
    """Bytes of ``count`` numbers."""
    return -(-count * BITS[storage] // 8)
