"""How integers lie in a microcontroller's memory."""

from __future__ import annotations

from sudonet.deploy.grid import Grid

BITS = {"b1": 1, "b2": 2, "b4": 4, "u8": 8, "u16": 16, "s16": 16, "s32": 32}
"""Bits of one number: packed codes, bytes, and wider numbers with their lowest byte first."""

PACKED = ("b1", "b2", "b4")

OF_INPUTS = {"uint8": "u8", "uint16": "u16", "int16": "s16", "int32": "s32"}
"""Storage of the network's input, by the type that its grid has."""

LIMITS = {
    "b1": (0, 1),
    "b2": (0, 3),
    "b4": (0, 15),
    "u8": (0, 255),
    "s16": (-(2**15), 2**15 - 1),
    "s32": (-(2**31), 2**31 - 1),
}


def holding(low: int, high: int, *, pack: bool = False) -> str:
    """The smallest storage for integers from ``low`` to ``high``; below a byte only to pack.

    Examples
    --------
    >>> holding(0, 15), holding(0, 15, pack=True), holding(0, 1020), holding(-1, 0)
    ('u8', 'b4', 's16', 's16')
    """
    for storage, (least, most) in LIMITS.items():
        if least <= low and high <= most and (pack or storage not in PACKED):
            return storage
    # Only a layer without any weight but 0 gets here, and what it multiplies does not matter.
    return "s32"


def of_grid(grid: Grid, *, pack: bool = False) -> str:
    """The storage of a grid's integers between two layers."""
    return holding(grid.low, grid.high, pack=pack)


def size(storage: str, count: int) -> int:
    """Bytes of ``count`` numbers."""
    return -(-count * BITS[storage] // 8)
