"""Pictures in pickled batches, read without letting a pickle run anything.

The older files of Downsampled ImageNet and those of CIFAR-10 are pickled dictionaries with an
array of uint8 under ``data``. A pickle names the functions that rebuild its objects. Here it
gets none of them: arrays and their types are read as descriptions, from which this module
builds arrays of uint8 alone. numpy's own unpickling is not used, because it trusts its input.
"""

from __future__ import annotations

import pickle
from typing import IO

import numpy as np
from numpy.typing import NDArray

from sudonet.experiments.data._source import DataError


class _Array:
    """An array, as a pickle describes it."""

    def __init__(self, *described: object) -> None:
        self.described = described

    def __setstate__(self, described: tuple[object, ...]) -> None:
        self.described = described


class _Type:
    """The type of an array's elements, as a pickle describes it."""

    def __init__(self, name: str | bytes, *_: object) -> None:
        self.name = name.decode() if isinstance(name, bytes) else name

    def __setstate__(self, _: object) -> None:
        pass  # byte order and the like, which uint8 does not have


ALLOWED = {
    "numpy.ndarray": _Array,
    "numpy.dtype": _Type,
    "numpy.core.multiarray._reconstruct": _Array,
    "numpy._core.multiarray._reconstruct": _Array,
    "numpy.core.numeric._frombuffer": _Array,
    "numpy._core.numeric._frombuffer": _Array,
}
"""What a pickle may name, and what it gets instead. All are classes that have __setstate__,
because a pickle may set the attributes of anything else that it is given."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type:
        wanted = f"{module}.{name}"
        if wanted not in ALLOWED:
            raise DataError(f"it names {wanted}, which only a forged or foreign file does")
        return ALLOWED[wanted]


def read_pixels(stream: IO[bytes], name: str) -> NDArray[np.uint8]:
    """The array under ``data`` in a pickled batch; ``name`` is the file's, for errors."""
    try:
        # encoding: Python 2 wrote CIFAR-10's batches, and its strings hold the pixels
        return _pixels(_Unpickler(stream, encoding="bytes").load())
    except Exception as error:  # a damaged or forged pickle may raise anything
        raise DataError(
            f"{name} is damaged or not a batch of pictures ({error}): delete it, and get it again "
            "from where it came"
        ) from error


def _pixels(batch: object) -> NDArray[np.uint8]:
    match batch:
        case {b"data": _Array(described=described)} | {"data": _Array(described=described)}:
            pass
        case _:
            raise ValueError("it has no array under data")
    match described:
        case (int(), tuple(shape), _Type(name="u1"), order, bytes(raw)):  # protocols 0 to 4
            fortran = bool(order)
        case (
            bytes() | bytearray() as raw,
            _Type(name="u1"),
            tuple(shape),
            str(order),
        ):  # protocol 5
            fortran = order == "F"
        case _:
            raise ValueError("its data is not an array of uint8")
    flat = np.frombuffer(raw, np.uint8)
    pixels: NDArray[np.uint8] = flat.reshape(shape, order="F" if fortran else "C")
    return pixels
