"""Integer networks in the C core, path by path, and how close they come to the bounds of the CPU.

The bound of a single example is the time to read its weights once from the cache that holds them;
that of a batch is the time of its products alone.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
import tempfile
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import torch
from timing import compare, repeated, table
from torch import nn

import sudonet
from sudonet import deploy, native
from sudonet.deploy.layers import Affine
from sudonet.deploy.runtime import Program
from sudonet.native import library

SIZES = {"A": (784, 100, 100, 100, 100, 10), "B": (784, 1024, 1024, 10)}
LEVELS = (16, 256)
WEIGHTS = ("int8", "int4")
BATCHES = (1, 256)


def model(sizes: tuple[int, ...], levels: int) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for into, out in pairwise(sizes):
        layers += [nn.Linear(into, out), sudonet.SUDO(levels)]
    return nn.Sequential(*layers[:-1])


def bounds() -> ctypes.CDLL | None:
    """What integer_bounds.c measures; None where it cannot be compiled."""
    source = Path(__file__).with_name("integer_bounds.c")
    compiler = shlex.split(os.environ.get("CC", "cc"))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bounds.so"
        try:
            subprocess.run([*compiler, "-O2", "-shared", "-fPIC", "-o", file, source], check=True)
            found = ctypes.CDLL(str(file))
        except (OSError, subprocess.CalledProcessError):
            return None
    found.products.restype = found.reading.restype = ctypes.c_double
    found.products.argtypes, found.reading.argtypes = [ctypes.c_int], [ctypes.c_int64]
    return found


def main() -> str:
    core = native.core()
    if core is None:
        return "There is no C core here."
    measured = bounds()
    cores = [
        library.Core(core.functions, name)
        for name, number in library.PATHS.items()
        if core.functions.sudo_supports(number)
    ]
    if core.functions.sudo_integer_amx():
        cores.append(library.Core(core.functions, cores[-1].path, amx=True))
    random = np.random.default_rng(0)
    rows = []
    for (name, sizes), levels, weights in product(SIZES.items(), LEVELS, WEIGHTS):
        network = deploy.compile(model(sizes, levels), weights, inputs=deploy.Grid.of_range(0, 1))
        products = sum(a * b for a, b in pairwise(sizes))
        stored = sum(layer.weight_bytes for layer in network.layers if isinstance(layer, Affine))
        programs = {one.integer_path: Program(network, one) for one in cores}
        for batch in BATCHES:
            x = random.integers(0, 256, (batch, sizes[0]), dtype=np.uint8)
            out = np.empty((batch, sizes[-1]), np.int64)
            times = 100 if batch == 1 else 1
            calls = {p: repeated(made.bind(x, out), times) for p, made in programs.items()}
            for path, found in compare(calls, seconds=4).items():
                least = found.least / times
                bound = 0.0
                if measured is not None and batch == 1:
                    bound = measured.reading(stored)
                elif measured is not None:
                    rate = measured.products(library.INTEGER_PATHS[path])
                    bound = batch * products / rate if rate else 0.0
                rows.append(
                    [
                        *[name, str(levels), weights, str(batch), path],
                        *[f"{least * 1e6:,.2f}", f"{found.median / times * 1e6:,.2f}"],
                        f"{2 * batch * products / least / 1e9:,.0f}",
                        *([f"{bound * 1e6:,.2f}", f"{bound / least:.0%}"] if bound else ["", ""]),
                    ]
                )
    heading = ["network", "levels", "weights", "batch", "path", "least us", "median us"]
    return table([*heading, "GOP/s", "bound us", "share"], rows)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(main())
