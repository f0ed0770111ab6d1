"""Text of a store in files that other programs read: nothing in it acts as markup or a formula."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sudonet._text import printable

LATEX = {
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
    "~": r"$\sim$",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}

FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")
"""What begins a formula in a spreadsheet, and the quote that prevents it."""


def markdown(text: str) -> str:
    r"""One line of text for Markdown, in or outside of a table.

    Examples
    --------
    >>> print(markdown("a | `b` <c>"))
    a \| \`b\` \<c\>
    """
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", printable(text))


def latex(text: str) -> str:
    r"""One line of text for LaTeX.

    Examples
    --------
    >>> print(latex("5 % of a_b"))
    5 \% of a\_b
    """
    return "".join(LATEX.get(character, character) for character in printable(text))


def csv_text(columns: Sequence[str], records: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The lines of a CSV file, with the columns' names first."""
    line = io.StringIO(newline="")
    # Python quotes the characters of the line's end alone, and readers end lines at both.
    writer = csv.DictWriter(line, columns, lineterminator="\r\n")
    for record in ({name: name for name in columns}, *records):
        writer.writerow({name: csv_field(value) for name, value in record.items()})
        yield line.getvalue().removesuffix("\r\n") + "\n"
        line.seek(0)
        line.truncate()


def csv_field(value: Any) -> Any:
    """A field of a CSV file that no spreadsheet takes for a formula.

    Text that begins with ``=``, ``+``, ``-``, ``@``, a tab, a carriage return or ``'`` gets a
    ``'`` before it. So the text is had back by removing one ``'`` from the beginning of every
    text that has one. Numbers stay as they are.

    Examples
    --------
    >>> csv_field("=1+1"), csv_field("'tis"), csv_field("5 - 3"), csv_field(-0.5)
    ("'=1+1", "''tis", '5 - 3', -0.5)
    """
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return value
