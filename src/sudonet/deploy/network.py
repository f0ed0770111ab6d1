"""A network of integers, from its input to its output."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

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

FAR_OUTSIDE = 1 / 1000
"""Share of the inputs that may lie more than a step outside of the grid without a warning."""


@dataclass(frozen=True, eq=False)
class Codes:
    """Integers that are codes of a network's input grid: :meth:`IntegerNetwork.codes`."""

    integers: Integers
    of_tensor: bool = False

    def __len__(self) -> int:
        return len(self.integers)

    def __getitem__(self, chosen: slice) -> Codes:
        return Codes(self.integers[chosen], self.of_tensor)


Inputs: TypeAlias = "NDArray[Any] | Tensor | Codes"


@dataclass(frozen=True, eq=False)
class IntegerNetwork:
    """A compiled network: integers in, codes between the layers, integers out.

    Call it with a batch or a single example, as a numpy array or a tensor. What calibrated a
    network can be passed in again and means the same: after ``compile(model, calibration=x)``
    numbers of every type are real values, which are put on the input's grid. Where the grid was
    declared, as by ``inputs=Grid.of_range(0, 1)``, integers of its type (uint8 pixels) are its
    codes and are taken as they are. :meth:`codes` marks codes in any case.

    A :class:`UserWarning` counts real values far outside of the grid, once for each network:
    if more than one in 1,000 lies more than one step beyond its ends.

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
        return {part.name: getattr(self, part.name) for part in fields(self)}

    def __repr__(self) -> str:
        from sudonet.deploy.listing import in_short

        return f"IntegerNetwork({in_short(self)})"

    def __str__(self) -> str:
        """The table of ``sudonet inspect``."""
        from sudonet.deploy.listing import listing

        return "\n".join(listing(self))

    def __call__(self, x: Inputs) -> Any:
        """The output as float32 (int64 for ``argmax``), of the same kind as ``x``."""
        integers, single = self.integers(x)
        found = self.real(self.raw(integers))
        found = found[0] if single else found
        as_tensor = x.of_tensor if isinstance(x, Codes) else isinstance(x, Tensor)
        return torch.as_tensor(found) if as_tensor else found

    @cached_property
    def program(self) -> Program | None:
        """The network as a program of the C core; None where there is no core, or float32 weights.

        ``network.program.bind(x, out)`` gives a call without arguments, for low latency: it
        reads codes of the input's grid and writes integers, see docs/deploy.md.
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

    def codes(self, x: NDArray[Any] | Tensor) -> Codes:
        """Integers of any type as codes of the input's grid, to call the network with.

        Examples
        --------
        >>> from torch import nn
        >>> from sudonet import SUDO, deploy
        >>> model = nn.Sequential(nn.Linear(4, 3), SUDO(16), nn.Linear(3, 2))
        >>> network = deploy.compile(model, calibration=np.array([[0.0, 1.0, 2.0, 8.0]]))
        >>> same = network(network.codes([0, 32, 64, 255])) == network([0.0, 1.0, 2.0, 8.0])
        >>> bool(same.all())
        True
        """
        batch, single = self._batch(array_of(x))
        found = self._as_codes(batch)
        return Codes(found[0] if single else found, isinstance(x, Tensor))

    def takes_as_codes(self, x: Inputs) -> bool:
        """Whether ``x`` is taken for codes of the input's grid, not for real values."""
        return isinstance(x, Codes) or self._declared(array_of(x))

    def integers(self, x: Inputs) -> tuple[Integers, bool]:
        """``x`` as a batch of codes of the input's grid, and whether it was a single example."""
        batch, single = self._batch(x.integers if isinstance(x, Codes) else array_of(x))
        if isinstance(x, Codes) or self._declared(batch):
            return self._as_codes(batch), single
        if batch.dtype.kind != "f" and not self.inputs.from_examples:
            raise TypeError(
                f"inputs must be {self.inputs.dtype} as they are, or real values; got "
                f"{batch.dtype}: use network.codes(x) for codes, x.astype(float) for real values"
            )
        return self._on_grid(batch), single

    def _declared(self, array: NDArray[Any]) -> bool:
        return not self.inputs.from_examples and array.dtype == self.inputs.dtype

    def _batch(self, array: NDArray[Any]) -> tuple[NDArray[Any], bool]:
        """A batch of examples, and whether there was but one, without the batch's axis."""
        if array.dtype.kind not in "biuf":
            raise TypeError(f"inputs must be an array of numbers, got {array.dtype}")
        single = array.shape == self.shape_in
        if not single and array.shape[1:] != self.shape_in:
            raise ValueError(
                f"this network takes examples of shape {self.shape_in}, alone or in a batch; "
                f"got {array.shape}"
            )
        return (array[None] if single else array), single

    def _as_codes(self, batch: NDArray[Any]) -> Integers:
        grid = self.inputs
        if batch.dtype.kind not in "iu":
            raise TypeError(f"codes must be integers, got {batch.dtype}: call network(x) with it")
        if batch.size and (batch.min() < grid.low or batch.max() > grid.high):
            raise ValueError(
                f"inputs must be from {grid.low} to {grid.high}, got {batch.min()} to {batch.max()}"
            )
        return batch.astype(grid.dtype, copy=False)

    def _on_grid(self, real: NDArray[Any]) -> Integers:
        grid = self.inputs
        integers = grid.integers(real)
        if "warned" not in vars(self):
            outside = grid.outside(real)
            if outside > FAR_OUTSIDE * real.size:
                vars(self)["warned"] = True
                low, high = grid.values([grid.low, grid.high])
                warnings.warn(
                    f"{outside:,} of {real.size:,} inputs lie outside of the network's range, "
                    f"{low:.6g} to {high:.6g}, and are clipped; they run from {real.min():.6g} to "
                    f"{real.max():.6g}: scale them as in training, or compile with a wider range",
                    stacklevel=4,
                )
        return integers

    def raw(self, integers: Integers) -> NDArray[Any]:
        """The last layer's integers for a batch of input integers: int64 scores, or codes."""
        if self.program is not None:
            return self.program.run(integers)
        return reference.outputs(self.layers, integers)

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
