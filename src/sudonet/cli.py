"""The ``sudonet`` command. Modules that load slowly are imported where they are used."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

import sudonet
from sudonet import native, settings
from sudonet.staircase import Staircase

FORMATS = (".png", ".svg", ".pdf")
MNIST = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
CPU_INFO = Path("/proc/cpuinfo")
CPU_FEATURES = {
    "AVX2": {"avx2"},
    "AVX512": {"avx512f"},
    "VNNI": {"avx512_vnni", "avx_vnni"},
    "AMX": {"amx_int8"},
}
"""What each feature is called among Linux's flags; any one of them will do."""

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Neural networks whose hidden units emit only a few values.",
)


def main() -> None:
    """Run the command line."""
    app(prog_name="sudonet")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sudonet {sudonet.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


@app.command("plot-unit")
def plot_unit(
    unit: Annotated[
        str,
        typer.Argument(metavar="UNIT", help="A unit's name, or several with commas between them."),
    ],
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="The file to write: .png, .svg or .pdf.")
    ],
) -> None:
    """Draw a unit: what it emits for each input, and the derivative it trains with.

    Example: sudonet plot-unit sudo-9 unit.png

    Example: sudonet plot-unit sudo-4,r-sudo-8,sudo-16-sigmoid units.svg
    """
    try:
        units = [Staircase.parse(name) for name in unit.split(",")]
    except ValueError as error:
        _fail(str(error))
    if out.suffix.lower() not in FORMATS:
        _fail(f"cannot write {out}: its name must end in one of {', '.join(FORMATS)}")
    from sudonet.report import draw_unit

    figure = draw_unit(units)
    try:
        figure.savefig(out)
    except OSError as error:
        _fail(f"cannot write {out}: {error.strerror or error}")
    typer.echo(f"wrote {out}: {', '.join(u.name for u in units)}")


@dataclass(frozen=True)
class Finding:
    """A line of the doctor's report; ``wrong`` if a setting must be corrected."""

    name: str
    text: str
    wrong: bool = False


@app.command()
def doctor() -> None:
    """Say what this installation has: versions, C core, CPU, data sets.

    Ends with exit code 1 if an environment variable has a value that cannot work.

    Example: sudonet doctor

    Example: SUDONET_DATA=~/data sudonet doctor
    """
    findings = [*_versions(), _core(), *_cpu(), *_data()]
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        table.add_row(finding.name, finding.text, style="red" if finding.wrong else None)
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
    try:
        core = native.status()
    except ValueError as error:
        return Finding("C core", str(error), wrong=True)
    if core.available:
        return Finding("C core", f"in use: {core.path} ({core.reason})")
    return Finding("C core", f"{core.reason}; PyTorch does the work")


def _cpu() -> list[Finding]:
    import torch

    used = f"torch uses {torch.backends.cpu.get_cpu_capability()}"
    threads = Finding("threads", f"torch uses {torch.get_num_threads()}")
    if not CPU_INFO.exists():
        return [Finding("CPU", used), threads]
    has = ", ".join(f"{name} {'yes' if yes else 'no'}" for name, yes in _cpu_features().items())
    return [Finding("CPU", f"{has}; {used}" if has else used), threads]


def _cpu_features() -> dict[str, bool]:
    """Which features Linux lists; empty on processors that are not x86."""
    for line in CPU_INFO.read_text(errors="replace").splitlines():
        key, _, words = line.partition(":")
        if key.strip() == "flags":
            flags = set(words.split())
            return {name: not flags.isdisjoint(any_of) for name, any_of in CPU_FEATURES.items()}
    return {}


def _data() -> list[Finding]:
    folder = settings.data_folder()
    if folder is None:
        text = (
            f"{settings.DATA} is not set: name a folder with mnist/ and imagenet32/ in it "
            "(nothing in this version needs them yet)"
        )
        return [Finding("data folder", text)]
    if not folder.is_dir():
        state = "is not a folder" if folder.exists() else "does not exist"
        text = f"{folder} {state}: create it, or correct {settings.DATA}"
        return [Finding("data folder", text, wrong=True)]
    return [Finding("data folder", str(folder)), _mnist(folder), _imagenet32(folder)]


def _mnist(folder: Path) -> Finding:
    missing = [name for name in MNIST if not (folder / "mnist" / name).is_file()]
    return _data_set("mnist", folder, missing, found=f"{len(MNIST)} files")


def _imagenet32(folder: Path) -> Finding:
    batches = list((folder / "imagenet32").glob("train_data_batch_*.npz"))
    missing = [] if batches else ["train_data_batch_1.npz and the batches after it"]
    if not (folder / "imagenet32" / "val_data.npz").is_file():
        missing.append("val_data.npz")
    found = f"train batches {len(batches)}, val_data.npz"
    return _data_set("imagenet32", folder, missing, found)


def _data_set(name: str, folder: Path, missing: list[str], found: str) -> Finding:
    if missing:
        return Finding(name, f"missing {', '.join(missing)}: put them in {folder / name}")
    return Finding(name, f"found: {found}")


def _fail(message: str) -> NoReturn:
    typer.echo(f"sudonet: {message}", err=True)
    raise typer.Exit(2)


if __name__ == "__main__":
    main()
