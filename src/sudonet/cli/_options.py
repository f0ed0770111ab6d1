"""Options that several commands take."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from sudonet.cli._choices import PICTURES, EngineName, PresetName
from sudonet.cli._fail import fail

if TYPE_CHECKING:
    from sudonet.study.plan import Plan
    from sudonet.study.store import Row

STORE = Path("out/results.sqlite")

# typer reads annotations at run time, on Python 3.10 too
StorePath = Annotated[
    Path, typer.Option("--store", metavar="FILE", help="The SQLite file that keeps the results.")
]
Preset = Annotated[
    PresetName, typer.Option(help="quick takes minutes, standard a night; paper is everything.")
]
Tables = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(metavar="NAMES", help="Tables to run: checkerboard-2,mnist-4. All by default."),
]
Levels = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(metavar="NUMBERS", help="Levels to run: 2,16. The preset's by default."),
]
Seeds = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(metavar="NUMBERS", help="Replicas to run: 0,1,2 or 0-4. The preset's by default."),
]
Budget = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(metavar="TIME", help="Run what fits into this time: 90s, 30m, 8h."),
]
Picture = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(metavar="FILE", help="A picture to memorize in place of the stand-in."),
]
Threads = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(min=1, help="Networks to train at once. As many as there are cores by default."),
]
Engine = Annotated[
    EngineName, typer.Option(help="native is the C core; auto takes it where it can.")
]
MaxMemory = Annotated[
    str,
    typer.Option(
        "--max-memory",
        metavar="SIZE",
        help="Refuse files that would take more memory: 500M, 8G. The work of an example is "
        "limited with it.",
    ),
]
MEMORY = "2G"


def memory(text: str) -> int:
    """The bytes of a size such as 500M or 8G."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([KMGT])i?B?", text.strip(), re.ASCII | re.I)
    size = float(found[1]) * 1024 ** (1 + "KMGT".index(found[2].upper())) if found else 0
    if size < 1:
        fail(f"--max-memory must be a size such as 500M or 8G, got {text!r}")
    return int(size)


def planned(preset: PresetName, tables: str | None, levels: str | None, seeds: str | None) -> Plan:
    """The plan that the options ask for."""
    from sudonet.experiments.presets import PRESETS
    from sudonet.study.plan import make_plan

    try:
        return make_plan(
            PRESETS[preset.value],
            tables.split(",") if tables else None,
            numbers("levels", levels) if levels else None,
            numbers("seeds", seeds) if seeds else None,
        )
    except ValueError as error:
        fail(str(error))


def check_picture(path: Path) -> None:
    """Refuse a picture in a format that cannot be written."""
    if path.suffix.lower() not in PICTURES:
        fail(f"cannot write {path}: its name must end in one of {', '.join(PICTURES)}")


def seconds(text: str) -> float:
    """A time such as 30m."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    if not found or float(found[1]) == 0:
        fail(f"--budget must be a time such as 90s, 30m or 8h, got {text!r}")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


def numbers(name: str, text: str) -> list[int]:
    """Whole numbers separated by commas; a-b means all from a to b."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if not match or int(match[1]) > int(match[2] or match[1]):
            fail(f"--{name} must be numbers such as 0,1,2 or 0-4, got {text!r}")
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return found


def figures_folder(store: Path) -> Path:
    """Where the arrays of the figures are kept: next to the store."""
    return store.parent / "figures"


def rows_and_note(path: Path) -> tuple[list[Row], str]:
    """All rows of a store that must be there, and what a reader of it must know."""
    from sudonet.study.store import Store, StoreError

    if not path.exists():
        fail(f"there is no store at {path}: run `sudonet reproduce` first, or name one by --store")
    try:
        with Store.read(path) as store:
            return store.rows(), store.note()
    except StoreError as error:
        fail(str(error))
