"""The layout of the arena: where the numbers between layers lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Need:
    """Bytes that a layer writes for the next one, and bytes of the window that it gathers."""

    target: int
    patch: int
    in_place: bool


@dataclass(frozen=True)
class Place:
    """Offsets of what a layer writes and of its patch."""

    target: int
    patch: int


def placed(needs: Sequence[Need]) -> tuple[list[Place], int]:
    """Places for all layers, and the bytes of the arena.

    A layer reads at one end of the arena and writes at the other, with its patch between
    them. One that works in place stays where its input begins.

    Examples
    --------
    >>> places, size = placed([Need(100, 36, False), Need(24, 0, False), Need(0, 0, False)])
    >>> places[0], places[1].target, size
    (Place(target=0, patch=100), 112, 136)
    """
    top, extent, size = True, 0, 0  # which end holds the input, how far it reaches, all bytes
    ends: list[tuple[bool, int, int]] = []
    for need in needs:
        if need.in_place:
            size = max(size, extent)
            extent = extent if top else need.target
            ends.append((top, extent, 0))
        else:
            size = max(size, extent + need.patch + need.target)
            below = need.target if top else extent
            top, extent = not top, need.target
            ends.append((top, extent, below))
    return [Place(size - extent if top else 0, below) for top, extent, below in ends], size
