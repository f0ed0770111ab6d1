"""The files of a network in C."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from sudonet.deploy.c.harness import main_program
from sudonet.deploy.c.plan import plan
from sudonet.deploy.c.source import Sizes, written
from sudonet.deploy.network import IntegerNetwork

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")


@dataclass(frozen=True)
class Written:
    """The files that were written; ``main`` only with samples."""

    source: Path
    header: Path
    main: Path | None
    sizes: Sizes


def write(
    network: IntegerNetwork,
    folder: Path | str,
    name: str = "net",
    *,
    optimise: str = "speed",
    samples: NDArray[Any] | None = None,
) -> Written:
    """Write a network as C99 for microcontrollers: NAME.c and NAME.h.

    The C computes what the reference computes, bit by bit. It needs no C library, no heap
    and no floating point, and takes its working memory from the caller.

    Parameters
    ----------
    network
        With integer weights in every layer.
    folder
        Made if it is not there.
    name
        Of the files, and what every name in them begins with.
    optimise
        ``speed``: four rows of weights at once. ``flash``: less code, and thresholds in as
        few bytes as they need; about two thirds as fast. ``ram``: codes between layers in 4,
        2 or 1 bits if they fit.
    samples
        Inputs, as the network itself takes them. With them NAME_main.c is written, a program
        for any computer that runs the C on the samples and compares.

    Examples
    --------
    >>> import tempfile
    >>> from torch import nn
    >>> from sudonet import SUDO, deploy
    >>> model = nn.Sequential(nn.Linear(64, 30), SUDO(16), nn.Linear(30, 10))
    >>> network = deploy.compile(model, inputs=deploy.Grid.of_range(0, 1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sizes = write(network, Path(folder)).sizes
    >>> sizes.weights, sizes.arena, sizes.multiply_adds
    (2240, 32, 2220)
    """
    if NAME.fullmatch(name) is None:
        raise ValueError(
            f"a name must be a letter, then at most 39 letters, digits or _, got {name!r}"
        )
    planned = plan(network, optimise)
    source, header, sizes = written(planned, name)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files = {folder / f"{name}.c": source, folder / f"{name}.h": header}
    main = None
    if samples is not None:
        integers, _ = network.integers(samples)
        if not len(integers):
            raise ValueError("there are no samples: give at least one, or None")
        main = folder / f"{name}_main.c"
        files[main] = main_program(planned, name, integers)
    for path, text in files.items():
        path.write_text(text, encoding="ascii")
    return Written(folder / f"{name}.c", folder / f"{name}.h", main, sizes)
