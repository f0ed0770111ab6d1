"""The paper's claims, each judged by the cells of the tables.

Cells are judged in pairs. Where a claim says that two are alike, the margin is never less than
the paper's own noise, which is the larger of two rerun differences: noise alone puts a third of
all pairs outside of it. So a statement about many pairs holds if two thirds of them hold, and it
is undecided as long as undecided pairs could change the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from sudonet.experiments.experiment import BASELINES, LEVELS
from sudonet.report import published
from sudonet.report._pair import Pair, Tables, against, usable
from sudonet.report.agreement import ROUNDING
from sudonet.staircase import Staircase
from sudonet.study.figures import Histograms

Finding: TypeAlias = tuple[bool | None, list[str]]
"""Whether a statement holds, None if undecided, and the numbers behind it."""

WORDS = {True: "supported", False: "not supported", None: "undecided"}
FOUND = {True: "holds", False: "does not hold", None: "within our error"}
UNKNOWN = "unknown"
"""What a line of evidence begins with: what a pair shows, or that it cannot be compared."""

ENOUGH = 2 / 3
"""The share of pairs that must hold where a claim speaks of many."""

OFTEN = 1 / 2
"""The same where it says "often"."""

NEAR_CHANCE = 60.0
"""Percent; a constant answer on the checkerboard gives 52."""

BINS = {"sudo-4": 4, "sudo-8": 8, "sudo-16": 16, "sudo-64": 64, "tanh": 8}
"""The paper's histograms, and how many values or bins each has."""

SHOWN = 6
"""Up to this many pairs are all listed; of more, only those that do not hold."""

UNKNOWN_SHOWN = 3
"""How many pairs that cannot be compared are listed."""

SUDO_TABLES = tuple(name for name, t in published.tables().items() if t.family == "sudo")


@dataclass(frozen=True)
class Verdict:
    """What the recorded runs say about a claim.

    Parameters
    ----------
    number, claim
        Which claim.
    verdict
        ``"supported"``, ``"not supported"`` or ``"undecided"``.
    numbers
        The evidence, a line each, with the thresholds.
    """

    number: int
    claim: str
    verdict: str
    numbers: list[str]


def judge(tables: Tables, histograms: Histograms | None = None) -> list[Verdict]:
    """Judge every claim.

    Parameters
    ----------
    tables
        What was run: for every table the result of :func:`sudonet.report.agreement.cells`.
    histograms
        For claim 10: counts of the outputs of the hidden units over all layers of the
        networks of memorization-4 with 50 units, for ``sudo-4``, ``sudo-8``, ``sudo-16``,
        ``sudo-64`` and, cut into 8 equal bins, ``tanh``.
    """
    claims: dict[str, Callable[[Tables], Finding]] = {
        "For L >= 64, SUDO is as good as tanh, within noise, in every table.": _tracking,
        "32 to 64 levels often reach the best result (checkerboard-2, -4).": _middle_is_best,
        "Binary units recover with width: SUDO-2, checkerboard-2, from about chance at 5 units "
        "to the level of tanh at >= 50.": _width_rescues,
        "One more layer helps SUDO-2 and SUDO-4 more than twice the units "
        "(checkerboard, memorization).": _depth_rescues,
        "Regression error falls as L rises, all else equal.": _error_falls,
        "Bits alone do not predict the error: in regression-2, 20 units of L = 16 beat 10 "
        "units of L = 256, both 160 bits of state.": _bits_do_not_predict,
        "Memorization: relu beats tanh and SUDO-256, which are alike.": _relu_memorizes,
        "R-SUDO-256 is as good as relu in memorization.": _rectified_memorizes,
        "Where tanh beats relu, SUDO beats R-SUDO.": _families_follow,
        "The extreme levels are used most, in SUDO and in tanh cut into 8 bins.": (
            lambda _: _extremes(histograms or Histograms({}, 1.0))
        ),
        "Autoencoding: SUDO-64 and above equal tanh at every scale; all improve with scale.": (
            _autoencoders
        ),
        "MNIST with 4 layers: SUDO-8 and SUDO-16 are as good as tanh and better than relu for "
        "2 to 4 units.": _few_units,
        "One wide layer, checkerboard: some middle L (8, 16, 32) beats both tanh and "
        "SUDO-256.": _middle_of_wide,
        "SUDO-L emits exactly L values, R-SUDO-L (L = 2^b) exactly 2^(b-1) + 1.": _outputs,
    }
    verdicts = []
    for number, (claim, judged) in enumerate(claims.items(), 1):
        holds, numbers = judged(tables)
        verdicts.append(Verdict(number, claim, WORDS[holds], numbers))
    return verdicts


def _tracking(tables: Tables) -> Finding:
    found = []
    for name in SUDO_TABLES:
        pairs = [
            against(tables, (name, f"sudo-{levels}", column), (name, "tanh", column))
            for column in published.table(name).columns
            for levels in (64, 128, 256)
        ]
        found.append(_counted(f"{name}, as good as tanh", pairs, Pair.as_good))
    return _both(found)


def _middle_is_best(tables: Tables) -> Finding:
    pairs = []
    for name in ("checkerboard-2", "checkerboard-4"):
        for column in published.table(name).columns:
            values = _values(tables, name, column)
            missing = [unit for unit in published.table(name).rows if unit not in values]
            if missing:
                pairs.append(Pair(f"{name}, {column} units: no value of {', '.join(missing)}"))
                continue
            middle = max(("sudo-32", "sudo-64"), key=lambda unit: values[unit])
            best = max(values, key=lambda unit: values[unit])
            pairs.append(against(tables, (name, middle, column), (name, best, column)))
    title = "the better of 32 and 64 levels as good as the best of all"
    return _counted(title, pairs, Pair.as_good, OFTEN)


def _width_rescues(tables: Tables) -> Finding:
    name = "checkerboard-2"
    found, why = usable(tables, (name, "sudo-2", 5))
    start: Finding = None, [f"unknown: {why}"]
    if found and (value := found[0].value) is not None:
        words = f"5 units: sudo-2 {value:.1f} % (about chance: at most {NEAR_CHANCE:.0f} %)"
        short = "" if found[0].full else ", not by the full protocol"
        start = value <= NEAR_CHANCE, [words + short]
    wide = [
        against(tables, (name, "sudo-2", column), (name, "tanh", column))
        for column in (50, 100, 200)
    ]
    return _both([start, _counted("as good as tanh", wide, Pair.as_good)])


def _depth_rescues(tables: Tables) -> Finding:
    found = []
    for experiment, columns in (("checkerboard", (5, 50, 100)), ("memorization", (50, 100))):
        pairs = [
            against(tables, (f"{experiment}-2", unit, n), (f"{experiment}-1", unit, 2 * n))
            for unit in ("sudo-2", "sudo-4")
            for n in columns
        ]
        title = f"{experiment}, 2 layers better than 1 layer of twice the units"
        found.append(_counted(title, pairs, Pair.beats))
    return _both(found)


def _error_falls(tables: Tables) -> Finding:
    spots = [(n, c) for n in ("regression-2", "regression-4") for c in (10, 20, 50)]
    steps = [
        against(tables, (name, f"sudo-{2 * levels}", column), (name, f"sudo-{levels}", column))
        for name, column in spots
        for levels in LEVELS[:-1]
    ]
    ends = [against(tables, (name, "sudo-256", c), (name, "sudo-2", c)) for name, c in spots]
    return _both(
        [
            _counted("2 L levels as good as L", steps, Pair.as_good),
            _counted("256 levels better than 2", ends, Pair.beats, 1),
        ]
    )


def _bits_do_not_predict(tables: Tables) -> Finding:
    pair = against(tables, ("regression-2", "sudo-16", 20), ("regression-2", "sudo-256", 10))
    runs = [published.table(name) for name in ("regression-2", "r-regression-2")]
    twice = [
        f"{unit} {' and '.join(f'{run.value(unit, 10):.2f}' for run in runs)}" for unit in BASELINES
    ]
    return pair.beats(), [
        _line(pair, pair.beats()),
        "holds if the first is better by more than our error",
        f"the paper's two runs of 10 units: {', '.join(twice)}",
    ]


def _relu_memorizes(tables: Tables) -> Finding:
    spots = [(n, c) for n in SUDO_TABLES if "memorization" in n for c in (50, 100, 200)]

    def pairs(first: str, second: str) -> list[Pair]:
        return [against(tables, (name, first, c), (name, second, c)) for name, c in spots]

    tanh, discrete = pairs("relu", "tanh"), pairs("relu", "sudo-256")
    same = pairs("sudo-256", "tanh")
    return _both(
        [
            _counted("relu better than tanh", tanh, Pair.beats),
            _counted("relu better than sudo-256", discrete, Pair.beats),
            _counted("sudo-256 and tanh alike", same, Pair.alike),
        ]
    )


def _rectified_memorizes(tables: Tables) -> Finding:
    pairs = [
        against(
            tables,
            (f"r-memorization-{depth}", "r-sudo-256", c),
            (f"r-memorization-{depth}", "relu", c),
        )
        for depth in (2, 4, 10)
        for c in (50, 100, 200)
    ]
    return _counted("r-sudo-256 as good as relu", pairs, Pair.as_good)


def _families_follow(tables: Tables) -> Finding:
    pairs, places = [], 0
    for name in SUDO_TABLES:
        if f"r-{name}" not in published.tables():
            continue
        for column in published.table(name).columns:
            condition = against(tables, (name, "tanh", column), (name, "relu", column))
            if condition.ahead is None:
                pairs += [condition] * len(LEVELS)
            elif condition.beats():
                places += 1
                pairs += [
                    against(
                        tables, (name, f"sudo-{n}", column), (f"r-{name}", f"r-sudo-{n}", column)
                    )
                    for n in LEVELS
                ]
    line = f"tanh is better than relu beyond our error in {places} columns"
    holds, numbers = _counted("SUDO-L better than R-SUDO-L", pairs, Pair.beats)
    return holds, [line, *numbers]


def _extremes(histograms: Histograms) -> Finding:
    facts: list[bool | None] = []
    numbers = ["holds if the lowest and the highest are used more than any other, in each"]
    if histograms.counts:
        short = "" if histograms.share == 1 else ", not by the full protocol"
        numbers.append(f"one network of each unit{short}")
    for unit, bins in BINS.items():
        counts = histograms.counts.get(unit)
        if counts is None:
            facts.append(None)
            numbers.append(f"unknown: no histogram of {unit}")
            continue
        if len(counts) != bins:
            raise ValueError(f"the histogram of {unit} needs {bins} counts, got {len(counts)}")
        ends, most = (counts[0], counts[-1]), max(counts[1:-1])
        facts.append(min(ends) > most)
        shares = [100 * n / max(1, sum(counts)) for n in (*ends, most)]
        low, high, inner = (f"{share:.3g} %" for share in shares)
        numbers.append(f"{unit}: lowest {low}, highest {high}, most used of the others {inner}")
    return _all(facts), numbers


def _autoencoders(tables: Tables) -> Finding:
    names = "autoencoder-conv", "autoencoder-dense"
    same = [
        against(tables, (name, f"sudo-{levels}", scale), (name, "tanh", scale))
        for name in names
        for scale in published.table(name).columns
        for levels in (64, 128, 256)
    ]
    growth = [
        against(tables, (name, unit, 8), (name, unit, 1))
        for name in names
        for unit in published.table(name).rows
    ]
    return _both(
        [
            _counted("64 and more levels as good as tanh", same, Pair.as_good),
            _counted("scale 8 better than scale 1", growth, Pair.beats, 1),
        ]
    )


def _few_units(tables: Tables) -> Finding:
    spots = [("mnist-4", f"sudo-{levels}", c) for levels in (8, 16) for c in (2, 3, 4)]
    tanh, relu = (
        [against(tables, spot, (spot[0], other, spot[2])) for spot in spots]
        for other in ("tanh", "relu")
    )
    return _both(
        [
            _counted("as good as tanh", tanh, Pair.as_good),
            _counted("better than relu", relu, Pair.beats),
        ]
    )


def _middle_of_wide(tables: Tables) -> Finding:
    name, facts, numbers = "checkerboard-1", [], []
    for column in (50, 100, 200):
        by_level: list[bool | None] = []
        for unit in ("sudo-8", "sudo-16", "sudo-32"):
            pairs = [
                against(tables, (name, unit, column), (name, other, column))
                for other in ("tanh", "sudo-256")
            ]
            by_level.append(_all([pair.beats() for pair in pairs]))
            numbers += [_line(pair, pair.beats()) for pair in pairs]
        facts.append(_any(by_level))
    return _share(facts, ENOUGH), [_tally("columns with such an L", facts, ENOUGH), *numbers]


def _outputs(tables: Tables) -> Finding:
    facts, numbers = [], []
    for rectified in (False, True):
        for levels in LEVELS:
            unit = Staircase(levels, rectified=rectified)
            # every plateau, and far out where tanh is exactly -1 or 1
            ends = np.concatenate([[-1e3], unit.thresholds, [1e3]])
            inputs = np.concatenate([ends, (ends[1:] + ends[:-1]) / 2])
            emitted = len(np.unique(unit.values[unit.codes(inputs)]))
            expected = levels // 2 + 1 if rectified else levels
            facts.append(emitted == unit.outputs == expected)
            numbers.append(f"{unit}: {emitted} values, expected {expected}")
    return _all(facts), numbers


def _values(tables: Tables, name: str, column: int) -> dict[str, float]:
    """The values of a column by activation."""
    return {
        unit: cell.value
        for (unit, where), cell in tables.get(name, {}).items()
        if where == column and cell.value is not None
    }


def _counted(
    title: str,
    pairs: Sequence[Pair],
    relation: Callable[[Pair], bool | None],
    need: float = ENOUGH,
) -> Finding:
    """Whether a relation holds for enough pairs."""
    facts = [relation(pair) for pair in pairs]
    known = [
        _line(pair, fact)
        for pair, fact in zip(pairs, facts, strict=True)
        if pair.ahead is not None and (len(pairs) <= SHOWN or not fact)
    ]
    unknown = [_line(pair, None) for pair in pairs if pair.ahead is None]
    more = len(unknown) - UNKNOWN_SHOWN
    if more > 0:
        unknown[UNKNOWN_SHOWN:] = [f"unknown: {more} more pairs"]
    short = sum(not pair.full for pair in pairs)
    tally = _tally(title, facts, need) + (f"; {short} not by the full protocol" if short else "")
    return _share(facts, need), [tally, *known, *unknown]


def _tally(title: str, facts: Sequence[bool | None], need: float) -> str:
    yes, no = (sum(fact is answer for fact in facts) for answer in (True, False))
    return (
        f"{title}: {yes} of {len(facts)} hold, {no} do not, {len(facts) - yes - no} cannot be "
        f"told (needs {100 * need:.0f} %)"
    )


def _line(pair: Pair, fact: bool | None) -> str:
    return f"{UNKNOWN if pair.ahead is None else FOUND[fact]}: {pair.text}"


def _share(facts: Sequence[bool | None], need: float) -> bool | None:
    """Whether enough facts hold, whatever the unknown ones are; None if they decide it."""
    if facts and sum(fact is True for fact in facts) >= need * len(facts) - ROUNDING:
        return True
    if facts and sum(fact is not False for fact in facts) < need * len(facts) - ROUNDING:
        return False
    return None


def _all(facts: Sequence[bool | None]) -> bool | None:
    return _share(facts, 1)


def _any(facts: Sequence[bool | None]) -> bool | None:
    return True if True in facts else None if None in facts else False


def _both(findings: Sequence[Finding]) -> Finding:
    """A claim of several statements, all of which must hold."""
    return _all([holds for holds, _ in findings]), [line for _, lines in findings for line in lines]
