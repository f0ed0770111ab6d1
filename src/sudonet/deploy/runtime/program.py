"""A program: an integer network packed for the C core, and calls of it."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sudonet import native
from sudonet.deploy.grid import Integers
from sudonet.deploy.layers import Affine
from sudonet.deploy.network import IntegerNetwork
from sudonet.deploy.runtime import layout
from sudonet.deploy.runtime.tables import Tables
from sudonet.native import library
from sudonet.native.library import Core

ACTIVATION_BYTES = 3 * 2**17
"""Bytes of activations between two layers at a time: with the weights they stay in L2."""

MAX_EXAMPLES = 256
"""Examples processed at a time, at most."""


class Program:
    """An integer network, packed for the C core.

    Parameters
    ----------
    network
        With integer weights in all of its layers.
    core
        The C core, whose path decides how weights are stored.

    Raises
    ------
    ValueError
        If a layer has float32 weights, which the C core does not run.

    Examples
    --------
    >>> from torch import nn
    >>> from sudonet import SUDO, deploy
    >>> model = nn.Sequential(nn.Linear(4, 3), SUDO(16), nn.Linear(3, 2))
    >>> network = deploy.compile(model, inputs=deploy.Grid.of_range(-1, 1))
    >>> made = program(network)  # None without a C core
    >>> x = np.zeros((5, 4), np.uint8)
    >>> made is None or np.array_equal(made.run(x), network.raw(x))
    True
    """

    def __init__(self, network: IntegerNetwork, core: Core) -> None:
        for layer in network.layers:
            if isinstance(layer, Affine) and layer.weight_kind == "float32":
                raise ValueError(
                    f"{layer.name} has float32 weights, which the C core does not run: "
                    "compile with integer weights, or use IntegerNetwork.raw"
                )
        last = network.layers[-1]
        self.shape_in, self.dtype_in = network.shape_in, network.inputs.dtype
        self.shape_out, self.dtype_out = last.shape_out, layout.dtype_out(last)
        number = core.functions.sudo_integer_kernels(core.integer_path_number)
        self._core, self._tables = core, Tables(list(library.INTEGER_PATHS)[number])
        self._program = layout.program(network.layers, self._tables)
        fitting = ACTIVATION_BYTES // max(self._program.example_stride, 1)
        self._program.max_examples = min(max(fitting, 1), MAX_EXAMPLES)
        self._address = ctypes.addressof(self._program)
        self._local = threading.local()

    @property
    def path(self) -> str:
        """The instruction set that runs it."""
        return self._core.integer_path

    @property
    def nbytes(self) -> int:
        """Bytes of the packed weights and tables."""
        return self._tables.nbytes

    def run(self, integers: Integers, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """The last layer's integers for a batch, as :meth:`IntegerNetwork.raw` computes them.

        Parameters
        ----------
        integers
            (batch, ...), of the input's type and within its grid.
        out
            Contiguous, for the result; made if None.
        """
        x = np.ascontiguousarray(integers)
        self._check("input", x, len(x), self.shape_in, self.dtype_in)
        if out is None:
            out = np.empty((len(x), *self.shape_out), self.dtype_out)
        else:
            self._check_out(out, x)
        call = self._call(x, out, self._scratch(len(x)))
        self._core.functions.sudo_integer_run(ctypes.addressof(call))
        return out

    def bind(self, x: Integers, out: NDArray[Any]) -> Callable[[], None]:
        """A call without arguments that reads ``x`` and writes ``out``, for low latency.

        Both arrays must be contiguous; put the next input into ``x`` before each call. Only
        one thread at a time may call it: bind once for each.
        """
        self._check("input", x, len(x), self.shape_in, self.dtype_in)
        if not x.flags.c_contiguous:
            raise ValueError("the input must be contiguous: use numpy.ascontiguousarray")
        self._check_out(out, x)
        scratch = np.empty(self._scratch_bytes(len(x)), np.uint8)
        call = self._call(x, out, scratch.ctypes.data)
        function = self._core.functions[
            "sudo_integer_run"
        ]  # a new, untyped object: its calls are faster
        function.restype = None
        bound = functools.partial(function, ctypes.byref(call))
        bound.kept = self, x, out, scratch  # type: ignore[attr-defined]
        return bound

    def _scratch_bytes(self, batch: int) -> int:
        return int(self._core.functions.sudo_integer_scratch(self._address, batch))

    def _scratch(self, batch: int) -> int:
        """The address of this thread's scratch for a batch."""
        mine = self._local.__dict__
        if mine.get("batch", -1) < batch:
            mine["kept"] = np.empty(self._scratch_bytes(batch), np.uint8)
            mine["batch"], mine["address"] = batch, mine["kept"].ctypes.data
        return int(mine["address"])

    def _call(self, x: Integers, out: NDArray[Any], scratch: int) -> library.Call:
        number = self._core.integer_path_number
        return library.Call(number, self._address, x.ctypes.data, out.ctypes.data, len(x), scratch)

    def _check_out(self, out: NDArray[Any], x: Integers) -> None:
        self._check("output", out, len(x), self.shape_out, self.dtype_out)
        if not (out.flags.c_contiguous and out.flags.writeable):
            raise ValueError("the output must be contiguous and writeable: use numpy.empty")
        if np.may_share_memory(x, out):
            raise ValueError("the output must not overlap the input: give it memory of its own")

    @staticmethod
    def _check(
        name: str, array: NDArray[Any], batch: int, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        if array.shape != (batch, *shape) or array.dtype != dtype:
            raise ValueError(
                f"the {name} must be {dtype} of shape {(batch, *shape)}, "
                f"got {array.dtype} of shape {array.shape}"
            )


def program(network: IntegerNetwork) -> Program | None:
    """The network as a program; None where there is no C core, or float32 weights."""
    core = native.core()
    if core is None or any(
        isinstance(layer, Affine) and layer.weight_kind == "float32" for layer in network.layers
    ):
        return None
    return Program(network, core)
