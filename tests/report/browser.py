"""A real Chromium for tests of the page, and axe-core to look for what keeps people out."""

import shutil
import subprocess
import tarfile
from contextlib import contextmanager

import pytest

from sudonet._settings import cache_folder

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
AXE = "axe-core@4"


@contextmanager
def chromium():
    """A browser with a new profile; skips where there is none."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("no Chromium: .ci/browser installs it, or apt-get install chromium")
    api = pytest.importorskip(
        "playwright.sync_api", reason="no playwright: pip install 'sudonet[dev]'"
    )
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


def axe():
    """The source of axe-core, fetched from npm once; skips where that does not work."""
    folder = cache_folder() / "axe-core"
    script = folder / "axe.min.js"
    if not script.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("no npm to fetch axe-core with: apt-get install npm")
        folder.mkdir(parents=True, exist_ok=True)
        command = [npm, "pack", AXE, "--silent", "--pack-destination", str(folder)]
        packed = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if packed.returncode:
            pytest.skip(f"npm cannot fetch {AXE}: {packed.stderr.strip()[-200:]}")
        with tarfile.open(folder / packed.stdout.split()[-1]) as archive:
            found = archive.extractfile("package/axe.min.js")
            script.write_bytes(found.read())
    return script.read_text(encoding="utf-8")
