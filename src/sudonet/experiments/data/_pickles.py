"""Pictures in pickled batches, read without letting a pickle run anything.

The older files of Downsampled ImageNet and those of CIFAR-10 are pickled dictionaries with an
array of uint8 under ``data``. A pickle is a program for a small stack machine, which names the
functions that rebuild its objects. The machine here knows numbers, strings, lists, tuples and
dictionaries, and takes descriptions of arrays for the rest, from which this module builds arrays
of uint8 alone. Python's own machine is not used: a forged pickle of a few bytes makes it
allocate any amount of memory.
"""

from __future__ import annotations

import io
import math
import pickletools
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from sudonet.experiments.data._files import CHUNK
from sudonet.experiments.data._source import DataError

LARGEST = 2**31
"""Limit of the bytes of a batch; an official one has 394 MB."""


class _Described:
    """An array, the type of its elements or a function, as a pickle describes it."""

    def __init__(self, name: str, described: tuple[Any, ...] = ()) -> None:
        self.name = name
        self.described = described


ARRAYS = (
    "numpy.ndarray",
    "numpy.core.multiarray._reconstruct",
    "numpy._core.multiarray._reconstruct",
    "numpy.core.numeric._frombuffer",
    "numpy._core.numeric._frombuffer",
)
ALLOWED = (*ARRAYS, "numpy.dtype")
"""What a pickle may name."""

CONSTANTS = {
    "NONE": None,
    "NEWTRUE": True,
    "NEWFALSE": False,
}
VALUES = (
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "FLOAT", "BINFLOAT"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
)
STRINGS = ("STRING", "BINSTRING", "SHORT_BINSTRING")
"""Strings of Python 2, which hold bytes."""

IGNORED = ("PROTO", "FRAME")


class _Machine:
    """The stack machine of pickles, without anything that runs or takes unbounded memory."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, content: io.BytesIO) -> Any:
        """The value of a pickle."""
        for operation, argument, _ in pickletools.genops(content):
            name = operation.name
            if name == "STOP":
                return self.stack.pop()
            if name in IGNORED:
                continue
            if name in CONSTANTS:
                self.stack.append(CONSTANTS[name])
            elif name in VALUES:
                self.stack.append(argument)
            elif name in STRINGS:
                assert isinstance(argument, str)
                self.stack.append(argument.encode("latin-1"))
            else:
                step = getattr(self, f"_{name.lower()}", None)
                if step is None:
                    raise ValueError(f"it uses {name}, which batches do not need")
                step(argument)
        raise ValueError("it has no end")

    def _popped(self) -> list[Any]:
        """What lies above the last mark."""
        start = self.marks.pop()
        found, self.stack[start:] = self.stack[start:], []
        return found

    def _mark(self, _: Any) -> None:
        self.marks.append(len(self.stack))

    def _pop(self, _: Any) -> None:
        self.stack.pop()

    def _put(self, place: int) -> None:
        self.memo[place] = self.stack[-1]

    _binput = _long_binput = _put

    def _memoize(self, _: Any) -> None:
        self._put(len(self.memo))

    def _get(self, place: int) -> None:
        self.stack.append(self.memo[place])

    _binget = _long_binget = _get

    def _empty_list(self, _: Any) -> None:
        self.stack.append([])

    def _list(self, _: Any) -> None:
        self.stack.append(self._popped())

    def _append(self, _: Any) -> None:
        self._extend([self.stack.pop()])

    def _appends(self, _: Any) -> None:
        self._extend(self._popped())

    def _extend(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise ValueError("it appends to something that is no list")
        self.stack[-1] += items

    def _empty_tuple(self, _: Any) -> None:
        self.stack.append(())

    def _tuple(self, _: Any) -> None:
        self.stack.append(tuple(self._popped()))

    def _tuple_of(self, count: int) -> None:
        self.stack[-count:] = [tuple(self.stack[-count:])]

    def _tuple1(self, _: Any) -> None:
        self._tuple_of(1)

    def _tuple2(self, _: Any) -> None:
        self._tuple_of(2)

    def _tuple3(self, _: Any) -> None:
        self._tuple_of(3)

    def _empty_dict(self, _: Any) -> None:
        self.stack.append({})

    def _dict(self, _: Any) -> None:
        items = self._popped()
        self.stack.append({})
        self._update(items)

    def _setitem(self, _: Any) -> None:
        items, self.stack[-2:] = self.stack[-2:], []
        self._update(items)

    def _setitems(self, _: Any) -> None:
        self._update(self._popped())

    def _update(self, items: list[Any]) -> None:
        target = self.stack[-1]
        keys, values = items[::2], items[1::2]
        # Tuples as keys could be nested so deep that their hash has no end.
        if type(target) is not dict or not all(isinstance(key, str | bytes | int) for key in keys):
            raise ValueError("it has a dictionary with keys that are no names")
        target.update(zip(keys, values, strict=True))

    def _global(self, names: str) -> None:
        wanted = names.replace(" ", ".")
        if wanted not in ALLOWED:
            raise DataError(f"it names {wanted[:60]}, which only a forged or foreign file does")
        self.stack.append(_Described(wanted))

    def _stack_global(self, _: Any) -> None:
        names, self.stack[-2:] = self.stack[-2:], []
        self._global(" ".join(names))

    def _reduce(self, _: Any) -> None:
        function, arguments = self.stack[-2:]
        if not isinstance(function, _Described) or type(arguments) is not tuple:
            raise ValueError("it calls something that is no description of an array")
        self.stack[-2:] = [_Described(function.name, arguments)]

    def _build(self, _: Any) -> None:
        state = self.stack.pop()
        found = self.stack[-1]
        if not isinstance(found, _Described) or type(state) is not tuple:
            raise ValueError("it sets the state of something that is no array")
        if found.name in ARRAYS:  # that of a type is its byte order, which uint8 does not have
            found.described = state


def read_pixels(stream: IO[bytes], name: str) -> NDArray[np.uint8]:
    """The array under ``data`` in a pickled batch; ``name`` is the file's, for errors."""
    try:
        return _pixels(_Machine().run(_copied(stream)))
    except Exception as error:  # a damaged or forged pickle may raise anything
        raise DataError(
            f"{name} is damaged or not a batch of pictures ({error}): delete it, and get it again "
            "from where it came"
        ) from error


def _copied(stream: IO[bytes]) -> io.BytesIO:
    """A copy in memory, from which a length that a pickle claims can be read safely."""
    copy = io.BytesIO()
    while chunk := stream.read(CHUNK):
        copy.write(chunk)
        if copy.tell() > LARGEST:
            raise ValueError(f"it has more than {LARGEST:,} bytes, the limit of a batch")
    copy.seek(0)
    return copy


def _pixels(batch: object) -> NDArray[np.uint8]:
    match batch:
        case {b"data": _Described() as found} | {"data": _Described() as found}:
            pass
        case _:
            raise ValueError("it has no array under data")
    match found.described:
        case (int(), tuple(shape), _Described() as kind, order, bytes(raw)):  # protocols 0 to 4
            fortran = bool(order)
        case (
            bytes() | bytearray() as raw,
            _Described() as kind,
            tuple(shape),
            str(order),
        ):  # protocol 5
            fortran = order == "F"
        case _:
            raise ValueError("its data is not an array of uint8")
    if kind.name != "numpy.dtype" or kind.described[:1] not in (("u1",), (b"u1",)):
        raise ValueError("its data is not an array of uint8")
    if len(shape) != 2 or not all(type(n) is int and 0 <= n <= LARGEST for n in shape):
        raise ValueError("its data is not an array of uint8 with two axes")
    if math.prod(shape) != len(raw):
        raise ValueError(f"its data has {len(raw):,} bytes, and its shape is {shape}")
    flat = np.frombuffer(raw, np.uint8)
    pixels: NDArray[np.uint8] = flat.reshape(shape, order="F" if fortran else "C")
    return pixels
