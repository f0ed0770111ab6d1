"""Tables, sizes and foreign text as plain text."""

from __future__ import annotations

import math
from collections.abc import Sequence


def aligned(
    rows: Sequence[Sequence[str]], left: int, width: float = math.inf, fold_at: int = 0
) -> list[str]:
    """Rows of cells as lines.

    Parameters
    ----------
    rows
        As many cells in each.
    left
        So many columns start at the same place, the others end there.
    width
        If a line would be longer, every row becomes two lines.
    fold_at
        The column with which the second line begins.

    Examples
    --------
    >>> aligned([["layer", "bytes"], ["a", "12"]], left=1)
    ['layer  bytes', 'a         12']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    fits = sum(widths) + 2 * (len(widths) - 1) <= width
    lines = []
    for row in rows:
        padded = [
            cell.ljust(size) if index < left else cell.rjust(size)
            for index, (cell, size) in enumerate(zip(row, widths, strict=True))
        ]
        if fits:
            lines.append("  ".join(padded).rstrip())
        else:
            first, second = "  ".join(padded[:fold_at]), "  ".join(padded[fold_at:])
            lines.append(f"{first.rstrip()}\n    {second}".rstrip())
    return lines


def readable(size: int) -> str:
    """A size for people.

    Examples
    --------
    >>> readable(1000), readable(113_000)
    ('1,000 B', '110.4 KiB')
    """
    if size < 1024:
        return f"{size:,} B"
    power = min((size.bit_length() - 1) // 10, 4)
    return f"{size / 1024**power:,.1f} {' KMGT'[power]}iB"


def printable(text: str, keep: str = "") -> str:
    r"""Text from a file or another program, as a terminal may show it.

    Control characters, escape sequences and marks that reorder text become escapes, as
    ``repr`` shows them; the characters in ``keep`` stay.

    Examples
    --------
    >>> print(printable("a\x1b[31m b\u202e\n"))
    a\x1b[31m b\u202e\n
    """
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one in keep else one.encode("unicode_escape").decode()
        for one in text
    )
