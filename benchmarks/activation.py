"""Forward and backward of a unit against nn.Tanh, by size; one thread."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from timing import Time, compare, table
from torch import nn

import sudonet
from sudonet import _kernels

LEVELS = (2, 9, 16, 64, 256)
NO_CORE = "SUDO-16, no C core"
SIZES = (10_000, 1_000_000, 20_000_000)


def nowhere(x: torch.Tensor) -> None:
    """Stands in for the search for a C core."""


@contextmanager
def without_core() -> Iterator[None]:
    found, _kernels._core_for = _kernels._core_for, nowhere
    try:
        yield
    finally:
        _kernels._core_for = found


def contenders() -> dict[str, Any]:
    named: dict[str, Any] = {"nn.Tanh": nn.Tanh(), "nn.ReLU": nn.ReLU()}
    named |= {f"SUDO-{levels}": sudonet.SUDO(levels) for levels in LEVELS}
    named["R-SUDO-16"] = sudonet.RSUDO(16)
    named[NO_CORE] = sudonet.SUDO(16)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from brevitas.nn import QuantTanh

            named["Brevitas QuantTanh, 4 bits"] = QuantTanh(bit_width=4)
    except ImportError:
        named["Brevitas QuantTanh, 4 bits"] = None
    return named


def measure(size: int, backward: bool) -> dict[str, Time]:
    x = torch.randn(size, requires_grad=backward)
    grad = torch.randn(size)

    def call(run: Any) -> Callable[[], None]:
        def once() -> None:
            if backward:
                x.grad = None
                run(x).backward(grad)
            else:
                with torch.no_grad():
                    run(x)

        return once

    calls = {name: call(run) for name, run in contenders().items() if run is not None}
    with_core = calls[NO_CORE]

    def no_core() -> None:
        with without_core():
            with_core()

    calls[NO_CORE] = no_core
    return compare(calls, seconds=6 if size < 10**7 else 12)


def main() -> str:
    torch.set_num_threads(1)
    found = {(n, b): measure(n, b) for n in SIZES for b in (True, False)}
    heading = ["time over nn.Tanh"]
    heading += [f"{n:,} forward + backward" for n in SIZES] + [f"{n:,} forward" for n in SIZES]
    rows = []
    for name, run in contenders().items():
        cells = [
            f"{found[n, b][name].over(found[n, b]['nn.Tanh']):.2f}" if run else "not installed"
            for b in (True, False)
            for n in SIZES
        ]
        rows.append([name, *cells])
    absolute = [
        f"{found[n, b]['nn.Tanh'].median * 1e6:,.0f} us" for b in (True, False) for n in SIZES
    ]
    rows.append(["nn.Tanh itself", *absolute])
    return table(heading, rows)


if __name__ == "__main__":
    print(main())
