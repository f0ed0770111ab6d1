"""Stores with a flipped bit: each gives the rows that were written, or an error.

    python -m tests.study.fuzz_store 4000

flips one bit at a random place of a small store, so many times, and prints what came of it.
"""

import argparse
import random
import tempfile
from collections import Counter
from pathlib import Path

from sudonet.study.store import VERSION, StoreError
from tests.study.store_rows import filled, rows_in

ROWS = 40


def outcome(path, whole):
    """What a reader of a store makes of it, in a word."""
    try:
        found = rows_in(path)
    except StoreError:
        return "refused"
    if found == whole:
        return "the same rows"
    return "OTHER ROWS"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tries", type=int)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    draw, counts = random.Random(chosen.seed), Counter()
    with tempfile.TemporaryDirectory() as folder:
        path = filled(Path(folder) / "store", ROWS)
        good, whole = path.read_bytes(), rows_in(path)
        for _ in range(chosen.tries):
            place, bit = draw.randrange(len(good)), draw.randrange(8)
            path.write_bytes(good[:place] + bytes([good[place] ^ 1 << bit]) + good[place + 1 :])
            counts[outcome(path, whole)] += 1
    print(f"version {VERSION}:", ", ".join(f"{n:,} {word}" for word, n in counts.most_common()))
    return counts["OTHER ROWS"]


if __name__ == "__main__":
    raise SystemExit(bool(main()))
