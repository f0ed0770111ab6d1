"""Codes in few bits, for where memory counts.

:class:`Packing` turns rows of codes into rows of bytes. :func:`arena_bits` and
:func:`arena_bytes` are the one definition of what codes take between the layers of a network
that is exported as C with ``optimise="ram"``; every size that is printed as packed comes from it.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = TypeVar("Array", NDArray[Any], Tensor)

MIN_LEVELS = 2
MAX_LEVELS = 256
WORD_BYTES = (1, 2, 4)
ARENA_BITS = (1, 2, 4, 8)

_SIGNED_OR_BYTES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_WIDE_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
# Types in which torch calculates and that hold every word of so many bytes.
_WORD_TYPES = {1: torch.uint8, 2: torch.int32, 4: torch.int64}


@dataclass(frozen=True)
class Packing:
    """How codes 0..L-1 are laid out in bytes. L alone decides.

    Two back ends store data this way, with L = 2, 4 and 16: a network's file its weights of 1,
    2 and 4 bits, exported C with ``optimise="ram"`` its codes, by :func:`arena_bits`. No back
    end stores another L yet, and no size that is printed supposes it.

    1. A word of w bytes has room for the largest n with ``L**n <= 256**w``. Of w = 1, 2
       and 4 the one with the most codes a byte, n/w, is taken; of equals the shortest.
       That gives ``word_bytes`` = w and ``digits`` = n.
    2. ``base`` is the smallest power of two >= L if ``base**digits <= 256**word_bytes``,
       so that each code has bits of its own. Otherwise it is L.
    3. Codes c_0, c_1, ... of a row fill words in order, ``digits`` codes each. The word is
       the sum of ``c_i * base**i``, i = 0..digits-1, and its lowest byte comes first.
    4. A row has ``ceil(length / digits)`` words. The last one is filled up with 0.
       Each row starts a word of its own.

    ========= ====== ========== ======= =============
    L         digits word_bytes base    bits_per_code
    ========= ====== ========== ======= =============
    2         8      1          2       1
    3         5      1          3       1.6
    4         4      1          4       2
    5         13     4          5       2.46
    6         3      1          6       2.67
    7         11     4          7       2.91
    8         5      2          8       3.2
    9         5      2          9       3.2
    10, 11    9      4          L       3.56
    12 - 16   2      1          16      4
    17 - 23   7      4          L       4.57
    24 - 32   3      2          32      5.33
    33 - 40   3      2          L       5.33
    41 - 64   5      4          64      6.4
    65 - 84   5      4          L       6.4
    85 - 128  1      1          128     8
    129 - 256 1      1          256     8
    ========= ====== ========== ======= =============

    Code k of a row is thus ``word[k / digits] / base**(k % digits) % base``, with the
    divisions of C; ``uint32_t`` holds all of it. A word is valid if all its codes are
    below L and nothing is left above them; for base L this is ``word < L**digits``.

    Parameters
    ----------
    levels
        L, an integer from 2 to 256.

    Attributes
    ----------
    digits
        Codes in a word.
    word_bytes
        Bytes of a word: 1, 2 or 4.
    base
        By what a code counts more than the code before it.

    Examples
    --------
    >>> packing = Packing(3)
    >>> packing
    Packing(levels=3, digits=5, word_bytes=1, base=3)
    >>> packing.bits_per_code
    1.6
    >>> packing.pack(np.array([2, 0, 1, 2, 2, 1]))  # 2 + 1*9 + 2*27 + 2*81, and 1
    array([227,   1], dtype=uint8)
    """

    levels: int
    digits: int = field(init=False)
    word_bytes: int = field(init=False)
    base: int = field(init=False)

    def __post_init__(self) -> None:
        levels = _integer("levels", self.levels, MIN_LEVELS, MAX_LEVELS)
        # max keeps the first of equals, and WORD_BYTES has the shortest word first.
        word_bytes = max(WORD_BYTES, key=lambda w: _digits(levels, w) / w)
        digits = _digits(levels, word_bytes)
        power_of_two = 1 << (levels - 1).bit_length()
        fits = power_of_two**digits <= 256**word_bytes
        object.__setattr__(self, "levels", levels)
        object.__setattr__(self, "digits", digits)
        object.__setattr__(self, "word_bytes", word_bytes)
        object.__setattr__(self, "base", power_of_two if fits else levels)

    @property
    def bits_per_code(self) -> float:
        """Bits that a code takes in a full word."""
        return 8 * self.word_bytes / self.digits

    def size(self, length: int) -> int:
        """Bytes of a row of ``length`` codes.

        Examples
        --------
        >>> [Packing(3).size(length) for length in (0, 1, 5, 6)]
        [0, 1, 1, 2]
        """
        return self._words(_integer("length", length, 0)) * self.word_bytes

    def pack(self, codes: Array) -> Array:
        """Codes as bytes, row by row: the last axis shrinks, the others stay.

        Parameters
        ----------
        codes
            Integers from 0 to L-1 of any integer type and shape, at least one axis.

        Returns
        -------
        Array
            uint8, new memory; a tensor on the same device if ``codes`` is a tensor.

        Examples
        --------
        >>> Packing(2).pack(torch.tensor([[1, 1, 0, 0], [0, 0, 0, 1]]))
        tensor([[3],
                [8]], dtype=torch.uint8)
        """
        _check_codes(codes, self.levels)
        if isinstance(codes, Tensor):
            return self._pack(codes.to(torch.uint8))
        return self._pack(_tensor(codes)).numpy()

    def unpack(self, packed: Array, length: int) -> Array:
        """The codes that :meth:`pack` was given.

        Parameters
        ----------
        packed
            What :meth:`pack` returned: uint8, ``size(length)`` long on the last axis.
        length
            Codes in a row. The bytes do not tell it.

        Returns
        -------
        Array
            uint8, new memory; a tensor on the same device if ``packed`` is a tensor.

        Examples
        --------
        >>> Packing(3).unpack(np.array([227, 1], dtype=np.uint8), 6)
        array([2, 0, 1, 2, 2, 1], dtype=uint8)
        """
        length = _integer("length", length, 0)
        self._check_packed(packed, length)
        if isinstance(packed, Tensor):
            return self._unpack(packed, length)
        return self._unpack(_tensor(packed), length).numpy()

    def _words(self, length: int) -> int:
        return -(-length // self.digits)

    def _check_packed(self, packed: NDArray[Any] | Tensor, length: int) -> None:
        _check_axes("packed", packed)
        if packed.dtype != (torch.uint8 if isinstance(packed, Tensor) else np.uint8):
            raise TypeError(f"packed must be uint8, as pack returns it, got {packed.dtype}")
        if packed.shape[-1] != self.size(length):
            raise ValueError(
                f"{length} codes of {self.levels} levels are {self.size(length)} bytes, got "
                f"{packed.shape[-1]} on the last axis: give the length and levels of packing"
            )

    def _pack(self, codes: Tensor) -> Tensor:
        batch, count = codes.shape[:-1], self._words(codes.shape[-1])
        words = torch.zeros(*batch, count, dtype=_WORD_TYPES[self.word_bytes], device=codes.device)
        for i in range(self.digits):
            digit = codes[..., i :: self.digits]  # one fewer if the last word is not full
            words[..., : digit.shape[-1]].add_(digit, alpha=self.base**i)
        if self.word_bytes == 1:
            return words
        # Byte by byte: a view of the words as bytes would have the host's byte order.
        packed = codes.new_empty(*batch, count, self.word_bytes)
        for i in range(self.word_bytes):
            packed[..., i] = (words >> 8 * i) & 255
        return packed.reshape(*batch, count * self.word_bytes)

    def _unpack(self, packed: Tensor, length: int) -> Tensor:
        kind = _WORD_TYPES[self.word_bytes]
        words = packed[..., :: self.word_bytes].to(kind)
        for i in range(1, self.word_bytes):
            words = words + (packed[..., i :: self.word_bytes].to(kind) << 8 * i)
        codes = packed.new_empty(*packed.shape[:-1], length)
        rest = words
        for i in range(self.digits):
            # The last digit is the whole remainder, so that a word that is too large shows.
            digit, rest = self._split(rest) if i + 1 < self.digits else (rest, rest)
            wrong = digit > self.levels - 1  # not >= levels: 256 becomes 0 in uint8
            if wrong.any():
                raise ValueError(
                    f"a word of {int(words[wrong][0])} does not hold codes of "
                    f"{self.levels} levels: the bytes are damaged, or were packed with other levels"
                )
            part = codes[..., i :: self.digits]
            part.copy_(digit[..., : part.shape[-1]])
            if digit[..., part.shape[-1] :].any():
                raise ValueError(
                    f"the bytes hold more than {length} codes: the last word must be filled "
                    "with 0. Give the length of packing"
                )
        return codes

    def _split(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """The lowest digit, and what is above it."""
        mask = self.base - 1
        if self.base & mask:
            above = words // self.base
            return words - above * self.base, above
        # A power of two. Shifts are about ten times as fast as divisions.
        return words & mask, words >> mask.bit_length()


def pack(codes: Array, levels: int) -> Array:
    """Codes 0..levels-1 as bytes, row by row: see :meth:`Packing.pack`.

    Parameters
    ----------
    codes
        Integers; the last axis is a row.
    levels
        How many codes there are.

    Examples
    --------
    >>> pack(np.array([1, 2, 3, 0, 3]), levels=4)
    array([57,  3], dtype=uint8)
    """
    return Packing(levels).pack(codes)


def unpack(packed: Array, levels: int, length: int) -> Array:
    """The codes that :func:`pack` was given, uint8, ``length`` in a row.

    Parameters
    ----------
    packed
        Bytes; the last axis is a row.
    levels
        How many codes there are.
    length
        Codes in a row.

    Examples
    --------
    >>> unpack(np.array([57, 3], dtype=np.uint8), levels=4, length=5)
    array([1, 2, 3, 0, 3], dtype=uint8)
    """
    return Packing(levels).unpack(packed, length)


def arena_bits(highest: int) -> int:
    """Bits of one integer from 0 to ``highest`` in the arena of exported C, ``optimise="ram"``.

    Divisors of 8 only, so that an integer never lies across two bytes.

    Examples
    --------
    >>> [arena_bits(highest) for highest in (1, 2, 3, 4, 15, 16, 255)]
    [1, 2, 2, 4, 4, 8, 8]
    """
    needed = _integer("highest", highest, 1, 255).bit_length()
    return next(bits for bits in ARENA_BITS if bits >= needed)


def arena_bytes(count: int, highest: int) -> int:
    """Bytes that ``count`` integers from 0 to ``highest`` take in that arena.

    What comes next starts at a multiple of 4 bytes.

    Examples
    --------
    >>> [arena_bytes(100, highest) for highest in (1, 2, 8, 31)]
    [16, 28, 52, 100]
    """
    return aligned_bytes(_integer("count", count, 0) * arena_bits(highest))


def aligned_bytes(bits: int) -> int:
    """Bytes for so many bits, up to the next multiple of 4.

    Examples
    --------
    >>> [aligned_bytes(bits) for bits in (0, 1, 32, 33)]
    [0, 4, 4, 8]
    """
    return -(-bits // 32) * 4


def _digits(levels: int, word_bytes: int) -> int:
    """The largest n with levels**n <= 256**word_bytes, without a logarithm's rounding."""
    digits = 0
    while levels ** (digits + 1) <= 256**word_bytes:
        digits += 1
    return digits


def _integer(name: str, value: object, low: int, high: int | None = None) -> int:
    limits = f">= {low}" if high is None else f"from {low} to {high}"
    expected = f"{name} must be an integer {limits}, got {value!r}"
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(expected)
    try:
        whole = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(expected) from None
    if whole < low or (high is not None and whole > high):
        raise ValueError(expected)
    return whole


def _check_axes(name: str, array: object) -> None:
    if not isinstance(array, (np.ndarray, Tensor)):
        raise TypeError(f"{name} must be a numpy array or a tensor, got {type(array).__name__}")
    if not array.ndim:
        raise ValueError(f"{name} must have at least one axis, got a single number: reshape(1)")


def _check_codes(codes: NDArray[Any] | Tensor, levels: int) -> None:
    _check_axes("codes", codes)
    if isinstance(codes, Tensor):
        whole = codes.dtype in _SIGNED_OR_BYTES + _WIDE_UNSIGNED
    else:
        whole = codes.dtype.kind in "iu"
    if not whole:
        raise TypeError(f"codes must be integers, got {codes.dtype}: convert them to uint8")
    if 0 in codes.shape:
        return
    if isinstance(codes, Tensor):
        # torch has no aminmax of these types; float64 holds all codes that are allowed.
        known = codes.double() if codes.dtype in _WIDE_UNSIGNED else codes
        low, high = (int(extreme) for extreme in known.aminmax())
    else:
        low, high = int(codes.min()), int(codes.max())
    if low < 0 or high >= levels:
        raise ValueError(
            f"codes must be from 0 to {levels - 1} for {levels} levels, got "
            f"{low if low < 0 else high}"
        )


def _tensor(array: NDArray[Any]) -> Tensor:
    # Writeable too: torch warns about sharing read-only memory.
    return torch.from_numpy(np.require(array, np.uint8, ["C", "W"]))
