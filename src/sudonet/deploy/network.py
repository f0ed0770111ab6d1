"""A network of integers, from its input to its output."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sudonet.deploy import reference
from sudonet.deploy.grid import Grid, Integers, array_of
from sudonet.deploy.layers import Affine, Layer, RealScores, Scores, Shape

if TYPE_CHECKING:
    from sudonet.deploy.c import Written
    from sudonet.deploy.runtime import Program

OUTPUTS = ("real", "tanh", "softmax", "argmax", "codes")


@dataclass(frozen=True, eq=False)
class IntegerNetwork:
    """A compiled network: integers in, codes between the layers, integers out.

    Call it with a batch or a single example, as a numpy array or a tensor. Integers of the
    input's own type (uint8 pixels, say) are taken as they are; real values are put on the
    input's grid first.

    Parameters
    ----------
    inputs
        What the input's integers stand for.
    shape_in
        Of one example, such as ``(784,)`` or ``(3, 32, 32)``.
    layers
        In the order in which they run.
    output
        ``real``: the last layer's sums; ``tanh`` or ``softmax`` of them; ``argmax``: the
        index of the largest; ``codes``: the network ends in a unit, and gives its values.
    notes
        Facts about where the network came from, for people.
    """

    inputs: Grid
    shape_in: Shape
    layers: tuple[Layer, ...]
    output: str = "real"
    notes: dict[str, Any] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """Without the program, which holds pointers and is built again where it is needed."""
        return {name: value for name, value in vars(self).items() if name != "program"}

    def __call__(self, x: NDArray[Any] | Tensor) -> Any:
        """The output as float32 (int64 for ``argmax``), of the same kind as ``x``."""
        integers, single = self.integers(x)
        found = self.real(self.raw(integers))
        found = found[0] if single else found
        return torch.as_tensor(found) if isinstance(x, Tensor) else found

    @cached_property
    def program(self) -> Program | None:
        """The network as a program of the C core; None where there is no core, or float32 weights.

        ``network.program.bind(x, out)`` gives a call without arguments, for low latency.
        """
        from sudonet.deploy.runtime import program

        return program(self)

    def save(self, path: str | Path) -> None:
        """Write the network to one file, which :func:`sudonet.deploy.load` reads."""
        from sudonet.deploy.artefact import save

        save(self, path)

    def to_onnx(
        self, path: str | Path, *, exact: bool = False, target: str = "onnxruntime"
    ) -> None:
        """Write the network in standard ONNX operators.

        Parameters
        ----------
        path
            The file to write.
        exact
            Every number is that of the reference, bit by bit; otherwise the form that runs
            fastest, in which a few codes may differ.
        target
            ``onnxruntime`` or ``openvino``: whose fastest form to write.
        """
        from sudonet.deploy.onnx_file import to_onnx

        to_onnx(self, path, exact=exact, target=target)

    def to_qonnx(self, path: str | Path) -> None:
        """Write the network with QONNX's MultiThreshold nodes."""
        from sudonet.deploy.qonnx_file import to_qonnx

        to_qonnx(self, path)

    def to_c(
        self,
        folder: str | Path,
        name: str = "net",
        *,
        optimise: str = "speed",
        samples: NDArray[Any] | None = None,
    ) -> Written:
        """Write the network as C99 for microcontrollers: NAME.c and NAME.h.

        Parameters
        ----------
        folder
            Made if it is not there.
        name
            Of the files, and the prefix of every name in them.
        optimise
            ``speed``, ``flash`` or ``ram``.
        samples
            Inputs, as the network itself takes them. With them NAME_main.c is written, a
            program that runs the C on the samples and compares.

        Returns
        -------
        Written
            The files and their sizes; see :func:`sudonet.deploy.c.write`.

        Examples
        --------
        >>> import tempfile
        >>> from torch import nn
        >>> from sudonet import SUDO, deploy
        >>> model = nn.Sequential(nn.Linear(64, 30), SUDO(16), nn.Linear(30, 10))
        >>> network = deploy.compile(model, inputs=deploy.Grid.of_range(0, 1))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     written = network.to_c(folder, "digits", optimise="flash")
        >>> written.source.name, written.header.name, written.sizes.weights
        ('digits.c', 'digits.h', 2240)
        """
        from sudonet.deploy.c import write

        return write(self, folder, name, optimise=optimise, samples=samples)

    def integers(self, x: NDArray[Any] | Tensor) -> tuple[Integers, bool]:
        """``x`` as a batch of input integers, and whether it was a single example."""
        array = array_of(x)
        single = array.shape == self.shape_in
        if not single and array.shape[1:] != self.shape_in:
            raise ValueError(
                f"this network takes examples of shape {self.shape_in}, alone or in a batch; "
                f"got {array.shape}"
            )
        batch = array[None] if single else array
        if batch.dtype == self.inputs.dtype:
            if batch.size and (batch.min() < self.inputs.low or batch.max() > self.inputs.high):
                raise ValueError(
                    f"inputs must be from {self.inputs.low} to {self.inputs.high}, "
                    f"got {batch.min()} to {batch.max()}"
                )
            return batch, single
        if batch.dtype.kind != "f":
            raise TypeError(
                f"inputs must be {self.inputs.dtype} as they are, or real values; got {batch.dtype}"
            )
        return self.inputs.integers(batch), single

    def raw(self, integers: Integers) -> NDArray[Any]:
        """The last layer's integers for a batch of input integers: int64 scores, or codes."""
        if self.program is not None:
            return self.program.run(integers)
        for made in reference.run(self.layers, integers, np.float64):
            integers = made
        return integers

    def trace(self, integers: Integers) -> list[NDArray[Any]]:
        """What every layer gives, by the int64 reference."""
        return list(reference.run(self.layers, integers))

    def real(self, raw: NDArray[Any]) -> NDArray[Any]:
        """What the integers of the last layer stand for, after the output's function."""
        if self.output == "argmax":
            places: NDArray[np.int64] = raw.reshape(len(raw), math.prod(raw.shape[1:])).argmax(1)
            return places
        last = self.layers[-1]
        if self.output == "codes":
            assert last.grid_out is not None
            return last.grid_out.values(raw).astype(np.float32)
        assert isinstance(last, Affine)
        after = last.after
        if isinstance(after, Scores):
            values = np.ldexp(raw.astype(np.float64), -after.fraction)
        else:
            assert isinstance(after, RealScores)
            values = raw
        if self.output == "tanh":
            values = np.tanh(values)
        elif self.output == "softmax":
            values = np.exp(values - values.max(1, keepdims=True))
            values /= values.sum(1, keepdims=True)
        return values.astype(np.float32)
