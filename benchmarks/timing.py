"""Contenders measured in one run, taking turns, so that a slow minute hits all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import repeat


@dataclass(frozen=True)
class Time:
    """Seconds of one contender: the least and the median of all rounds."""

    least: float
    median: float

    def over(self, peer: Time) -> float:
        """How many times as long as ``peer``, by the medians."""
        return self.median / peer.median


def compare(
    contenders: Mapping[str, Callable[[], object]], *, seconds: float, least_rounds: int = 5
) -> dict[str, Time]:
    """Time every contender for ``seconds`` in all, at least ``least_rounds`` rounds."""
    for run in contenders.values():
        run()
    found: dict[str, list[float]] = {name: [] for name in contenders}
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < least_rounds or (time.perf_counter() < end and rounds < 2000):
        for name, run in contenders.items():
            begun = time.perf_counter()
            run()
            found[name].append(time.perf_counter() - begun)
        rounds += 1
    return {name: Time(min(times), statistics.median(times)) for name, times in found.items()}


def repeated(run: Callable[[], object], calls: int) -> Callable[[], None]:
    """Many calls as one, for what is over too soon to be timed alone."""

    def turn() -> None:
        for _ in repeat(None, calls):
            run()

    return turn


def table(heading: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
