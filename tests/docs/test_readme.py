import re
import shutil

import pytest

from tests import ROOT

pytestmark = pytest.mark.without_core

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "results" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "research").rglob("*.md")),
]


def name(page):
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [p for p in PAGES if BLOCK.search(p.read_text())], ids=name)
def test_code_blocks_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("results", "research"):
        shutil.copytree(
            ROOT / folder, folder, ignore=shutil.ignore_patterns("figures", "*.html", "__pycache__")
        )
    text = page.read_text()
    namespace = {"__name__": "page"}
    for block in BLOCK.finditer(text):
        # Blank lines in front, so that an error shows the page's line.
        before = "\n" * text[: block.start(1)].count("\n")
        exec(compile(before + block[1], str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_and_images_exist(page):
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert missing == []


def test_the_readme_has_code():
    assert len(BLOCK.findall((ROOT / "README.md").read_text())) >= 3
