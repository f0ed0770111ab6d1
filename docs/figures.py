"""Draw the pictures that the documentation shows: run it with ``make docs-figures``.

Those of the report are of results/index.html, taken by the Chromium that .ci/browser installs.
"""

import shutil
from pathlib import Path
from typing import Literal, NamedTuple

from PIL import Image
from playwright.sync_api import Browser, sync_playwright
from rich.progress import track

from sudonet import Staircase
from sudonet.report import draw_unit

HERE = Path(__file__).parent
IMAGES = HERE / "images"
REPORT = HERE.parent / "results" / "index.html"
LEVELS = (2, 4, 9, 64, 256)
"""The levels that the paper draws."""


class View(NamedTuple):
    """A window on the report."""

    section: str
    width: int
    height: int
    colours: Literal["light", "dark"] = "light"


VIEWS = {
    "report": View("overview", 1600, 1100),
    "report-tables": View("tables", 1400, 950),
    "report-bits": View("bits", 1400, 950),
    "report-unit": View("unit", 1400, 950),
    "report-phone": View("overview", 360, 740, "dark"),
}


def take(browser: Browser, view: View, target: Path) -> None:
    """A picture of one section of the report, in few colours: a tenth of the bytes."""
    page = browser.new_page(
        viewport={"width": view.width, "height": view.height},
        color_scheme=view.colours,
        reduced_motion="reduce",
    )
    page.goto(f"{REPORT.as_uri()}#{view.section}")
    page.screenshot(path=target)
    page.close()
    with Image.open(target) as picture:
        few = picture.convert("RGB").quantize(128)
    few.save(target, optimize=True)


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    draw_unit([Staircase(levels) for levels in LEVELS]).savefig(IMAGES / "unit.png")
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit(
            "no chromium: .ci/browser installs it as root, or apt-get install chromium"
        )
    with sync_playwright() as playwright:
        window = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, view in track(VIEWS.items(), "Photographing the report"):
            take(window, view, IMAGES / f"{name}.png")
        window.close()
