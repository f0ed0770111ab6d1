"""Arrays of numbers in ``.npy`` files, whose headers are checked before anything is allocated."""

from __future__ import annotations

import math
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

NUMBERS = "biufc"
"""Kinds of types that hold numbers."""

_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of the array in a stream, which is left at the first number.

    Raises
    ------
    ValueError
        If there is no header, or it is not that of an array of numbers.
    """
    version = np.lib.format.read_magic(stream)
    if version not in _HEADERS:
        raise ValueError(f"its format has version {version}, which arrays of numbers do not need")
    shape, _, dtype = _HEADERS[version](stream)
    if dtype.kind not in NUMBERS:
        raise ValueError(f"it holds {dtype}, not numbers (allow_pickle=False)")
    return shape, dtype


def read(stream: IO[bytes], size: int) -> NDArray[Any]:
    """The array in a stream that can seek and has ``size`` bytes.

    Raises
    ------
    ValueError
        If the stream holds no array of numbers, or less than its header states.

    Examples
    --------
    >>> import io
    >>> stream = io.BytesIO()
    >>> np.save(stream, [1, 2, 3])
    >>> read(stream, stream.seek(0, 2))
    array([1, 2, 3])
    """
    stream.seek(0)
    shape, dtype = header(stream)
    stated, there = math.prod(shape) * dtype.itemsize, size - stream.tell()
    if stated > there or min(shape, default=0) < 0:
        raise ValueError(
            f"its header states {dtype} of shape {shape}, {stated:,} bytes, and {there:,} are there"
        )
    stream.seek(0)
    found: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    return found
