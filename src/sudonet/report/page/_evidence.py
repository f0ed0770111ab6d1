"""The claims of the page, with the numbers behind each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sudonet.report.claims import FOUND, UNKNOWN, Verdict

SIGNS = {FOUND[True]: "✓", FOUND[False]: "✗", FOUND[None]: "≈", UNKNOWN: "?"}
"""What a line of evidence may begin with, and the sign that stands for it."""


@dataclass(frozen=True)
class Line:
    """A line of evidence, with its finding as a word and a sign if it has one."""

    text: str
    finding: str = ""
    sign: str = ""


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, its verdict and its evidence."""

    number: int
    text: str
    verdict: str
    lines: list[Line]


def claims(verdicts: Sequence[Verdict]) -> list[Claim]:
    """The claims in their order."""
    return [
        Claim(one.number, one.claim, one.verdict, [_line(text) for text in one.numbers])
        for one in verdicts
    ]


def _line(text: str) -> Line:
    finding, separator, rest = text.partition(": ")
    if separator and finding in SIGNS:
        return Line(rest, finding, SIGNS[finding])
    return Line(text)
