"""``sudonet doctor``: what an installation has."""

from __future__ import annotations

import platform
from dataclasses import dataclass

import typer

import sudonet
from sudonet._text import printable


@dataclass(frozen=True)
class Finding:
    """A line of the doctor's report; ``wrong`` if a setting must be corrected."""

    name: str
    text: str
    wrong: bool = False


def doctor() -> None:
    """Show what this installation has: versions, C core, CPU, data sets.

    The exit code is 1 if an environment variable has a value that cannot work.

    Example: sudonet doctor

    Example: SUDONET_DATA=~/data sudonet doctor
    """
    from rich.console import Console
    from rich.table import Table

    findings = [*_versions(), _core(), *_cpu(), *_data()]
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        table.add_row(finding.name, printable(finding.text), style="red" if finding.wrong else None)
    Console(markup=False, highlight=False).print(table)
    if any(finding.wrong for finding in findings):
        raise typer.Exit(1)


def _versions() -> list[Finding]:
    import numpy as np
    import torch

    return [
        Finding("sudonet", sudonet.__version__),
        Finding("Python", platform.python_version()),
        Finding("torch", torch.__version__),
        Finding("numpy", np.__version__),
    ]


def _core() -> Finding:
    from sudonet import native

    try:
        core = native.status()
    except ValueError as error:
        return Finding("C core", str(error), wrong=True)
    if core.available:
        return Finding("C core", f"in use: {core.path} ({core.reason})")
    return Finding("C core", f"{core.reason}; PyTorch does the work")


def _cpu() -> list[Finding]:
    import torch

    from sudonet.native.cpu import features

    used = f"torch uses {torch.backends.cpu.get_cpu_capability()}"
    threads = Finding("threads", f"torch uses {torch.get_num_threads()}")
    has = ", ".join(f"{name} {_answer(name, yes)}" for name, yes in features().items())
    return [Finding("CPU", f"{has}; {used}" if has else used), threads]


def _answer(feature: str, present: bool) -> str:
    if not present:
        return "no"
    return "yes (experimental)" if feature == "AMX" else "yes"


def _data() -> list[Finding]:
    from sudonet.experiments.data import DataError, listing

    try:
        return [Finding(one.name, one.used, one.wrong) for one in listing()]
    except DataError as error:
        return [Finding("data", str(error), wrong=True)]
