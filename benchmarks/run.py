"""Runs all benchmarks and writes their tables into docs/performance.md (`make bench`)."""

from __future__ import annotations

import platform
import re
import time
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import activation
import growth
import integer
import memory
import torch
import training

from sudonet import native

DOCS = Path(__file__).parents[1] / "docs"


def installed(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} not installed"


def machine() -> str:
    """What the figures were measured on, and with which versions."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = re.findall(r"model name\s*:\s*(.+)", cpuinfo.read_text())
        name = names[0] if names else name
    versions = map(installed, ("torch", "numpy", "jax", "brevitas"))
    capability = torch.backends.cpu.get_cpu_capability()
    return (
        f"Measured {date.today().isoformat()} on {name} ({capability}), "
        f"Python {platform.python_version()}, {', '.join(versions)}; C core: "
        f"{native.status().path or 'none'}."
    )


def main() -> None:
    sections = {
        "machine": machine,
        "activation": activation.main,
        "memory": memory.main,
        "training": training.main,
        "growth": lambda: growth.main(DOCS / "images"),
        "integer": integer.main,
    }
    page = DOCS / "performance.md"
    for name, measure in sections.items():
        begun = time.perf_counter()
        print(f"{name} ...", end=" ", flush=True)
        found = measure()
        print(f"{time.perf_counter() - begun:.0f} s\n{found}\n", flush=True)
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        head, rest = page.read_text().split(begin)
        page.write_text(f"{head}{begin}\n\n{found}\n\n{end}{rest.split(end)[1]}")
    print(f"written into {page.relative_to(Path.cwd())}")


if __name__ == "__main__":
    main()
