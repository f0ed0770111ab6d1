"""Draw the pictures that the documentation shows: run it with ``make docs-figures``."""

from pathlib import Path

from sudonet import Staircase
from sudonet.report import draw_unit

IMAGES = Path(__file__).parent / "images"
LEVELS = (2, 4, 9, 64, 256)
"""The levels that the paper draws."""

if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    target = IMAGES / "unit.png"
    draw_unit([Staircase(levels) for levels in LEVELS]).savefig(target)
    print(f"{target}: {target.stat().st_size / 1024:.0f} KB")
