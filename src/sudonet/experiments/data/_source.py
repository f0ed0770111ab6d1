"""Where data came from, so that every table can name what it really used."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


class DataError(Exception):
    """Data that is missing, damaged or cannot be fetched; the message says what to do."""


@dataclass(frozen=True)
class Source:
    """A data set, as it was used.

    Parameters
    ----------
    name
        Its name for people, such as ``"MNIST"``.
    checksum
        SHA-256 of what networks are trained and judged on, hexadecimal.
    stand_in_for
        The data set of the paper that it stands in for; None where it is that data set.
    """

    name: str
    checksum: str
    stand_in_for: str | None = None

    @classmethod
    def computed(cls, name: str, seed: int) -> Source:
        """Data that is computed from a formula and a seed."""
        return cls(name, hashlib.sha256(f"{name}, seed {seed}".encode()).hexdigest())

    @classmethod
    def of(cls, name: str, *arrays: NDArray[Any], stand_in_for: str | None = None) -> Source:
        """Data in arrays: the checksum covers the type, the shape and the bytes of each.

        Examples
        --------
        >>> a, b = np.arange(6, dtype=np.uint8), np.arange(6, dtype=np.uint8).reshape(2, 3)
        >>> Source.of("six", a) == Source.of("six", a.copy())
        True
        >>> Source.of("six", a) == Source.of("six", b)
        False
        """
        digest = hashlib.sha256()
        for array in arrays:
            digest.update(f"{array.dtype.str} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array).data)
        return cls(name, digest.hexdigest(), stand_in_for)
