"""The file of an integer network, ``net.sudo``: docs/artefact.md says what every byte means.

A header, metadata as JSON and the arrays. Nothing in it is ever executed. Whatever a file
holds, :func:`load` gives a network that can run, or an :class:`ArtefactError`.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import secrets
import struct
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sudonet import native, packing
from sudonet.deploy import metadata
from sudonet.deploy.checks import ArtefactError as ArtefactError
from sudonet.deploy.checks import check
from sudonet.deploy.grid import Grid
from sudonet.deploy.layers import (
    WEIGHTS,
    Affine,
    ChannelThresholds,
    Layer,
    MaxPool,
    RealScores,
    RealThresholds,
    Scores,
    SharedThresholds,
    SumPool,
)
from sudonet.deploy.memory import LIMIT, check_memory, too_large
from sudonet.deploy.metadata import Read
from sudonet.deploy.network import IntegerNetwork
from sudonet.staircase import Staircase

MAGIC = b"\x89SUDO\r\n\x1a"
"""As in PNG: a byte above 127 and line ends, which a transfer as text would change."""

VERSIONS = (1, 2)
"""The first says nothing of where the input's range came from: it was declared."""

HEADER = struct.Struct("<8sIIQ8x32s")
"""Magic, version, bytes of the metadata, bytes of the data, 8 zeros, SHA-256."""

HASHED = HEADER.size - 32
ALIGNMENT = 64
METADATA = 2**20
"""Limit of the bytes of metadata; a thousand layers need about half of it."""

UNIT = 40
"""Limit of the characters in a unit's name."""

Array: TypeAlias = NDArray[Any]
Buffer: TypeAlias = "bytes | mmap.mmap"

_STORED = {"int32": "<i4", "int64": "<i8", "float32": "<f4", "float64": "<f8"}
_BITS = WEIGHTS | {name: 8 * np.dtype(stored).itemsize for name, stored in _STORED.items()}
_LAYERS: dict[str, type] = {"affine": Affine, "max_pool": MaxPool, "sum_pool": SumPool}
_AFTER: dict[str, type] = {
    "channel_thresholds": ChannelThresholds,
    "shared_thresholds": SharedThresholds,
    "real_thresholds": RealThresholds,
    "scores": Scores,
    "real_scores": RealScores,
}
_TYPES = {made: name for name, made in (_LAYERS | _AFTER).items()}


def save(network: IntegerNetwork, path: str | os.PathLike[str]) -> None:
    """Write a network to a file, whole or not at all.

    Parameters
    ----------
    network
        What :func:`sudonet.deploy.compile` gave.
    path
        Of the file, which is replaced if it exists. Its name usually ends in ``.sudo``.

    Raises
    ------
    ArtefactError
        If the network cannot be put into a file, or the file cannot be written.
    """
    path = Path(path)
    # A unique name, so that two processes that write at once do not share it.
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        data = dumps(network)
        try:
            with part.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except (ArtefactError, OSError) as error:
        raise ArtefactError(f"cannot write {path}: {_reason(error)}") from error


def load(path: str | os.PathLike[str], *, max_bytes: int = LIMIT) -> IntegerNetwork:
    """Read a network from a file.

    The file is mapped into memory and stays so while the network is in use: int8 and float32
    weights and all tables are views of it, read-only. It is read once to verify its checksum.

    Parameters
    ----------
    path
        What :meth:`IntegerNetwork.save` has written.
    max_bytes
        Limit of the memory that the network, a list of its layers and one example may take,
        2 GiB by default. It is planned from the shapes, before anything is allocated. The
        work of an example is limited, too: 512 multiply-adds for each byte.

    Raises
    ------
    ArtefactError
        If the file cannot be read, is damaged, or holds a network that could not run, or not
        within ``max_bytes``.
    """
    path = Path(path)
    try:
        if not path.is_file():  # opening a pipe would wait for a writer
            raise ArtefactError("there is no such file")
        if not path.stat().st_size:  # an empty file cannot be mapped
            raise ArtefactError("the file is empty")
        with path.open("rb") as file:
            return _network(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), max_bytes)
    except (ValueError, OSError) as error:  # mmap has errors of both kinds
        raise ArtefactError(f"cannot read {path}: {_reason(error)}") from error


def dumps(network: IntegerNetwork) -> bytes:
    """The bytes of a network's file."""
    check(network)
    arrays = _Writer()
    found = {
        "inputs": arrays.json(network.inputs),
        "shape_in": arrays.json(network.shape_in),
        "layers": [arrays.json(layer) for layer in network.layers],
        "output": network.output,
        "notes": network.notes,
    }
    version = VERSIONS[network.inputs.from_examples]
    if network.inputs.from_examples:
        found["inputs_from_examples"] = True
    try:
        text = json.dumps(found, allow_nan=False, separators=(",", ":")).encode()
        if len(text) > METADATA:
            raise ArtefactError(
                f"with them the metadata has {len(text):,} bytes and the limit is {METADATA:,}"
            )
        unchanged = metadata.parsed(text)["notes"] == network.notes
    except (TypeError, ValueError, RecursionError) as error:
        raise ArtefactError(f"the notes cannot be written: {error}") from error
    if not unchanged:
        raise ArtefactError(
            "the notes would not be read back unchanged: use dictionaries with strings as keys, "
            "lists, strings, numbers, True, False and None"
        )
    padding = bytes(-len(text) % ALIGNMENT)
    header = HEADER.pack(MAGIC, version, len(text), len(arrays.data), bytes(32))[:HASHED]
    digest = hashlib.sha256()
    for part in (header, text, padding, arrays.data):
        digest.update(part)
    return b"".join((header, digest.digest(), text, padding, arrays.data))


def loads(data: bytes, *, max_bytes: int = LIMIT) -> IntegerNetwork:
    """The network of a file's bytes."""
    return _network(data, max_bytes)


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


def packed(weights: Array, kind: str) -> Array:
    """Weights of a kind as they are stored, one row of bytes or numbers."""
    flat = weights.reshape(-1)
    if kind == "binary":
        return packing.pack((flat > 0).astype(np.uint8), 2)
    if kind in ("int4", "ternary"):
        levels = 2 ** WEIGHTS[kind]
        return packing.pack((flat & (levels - 1)).astype(np.uint8), levels)
    return flat.astype(_STORED.get(kind, "i1"))


def unpacked(stored: Array, kind: str, count: int) -> Array:
    """The ``count`` weights that :func:`packed` was given."""
    if kind not in ("binary", "ternary", "int4"):
        return stored
    levels = 2 ** WEIGHTS[kind]
    weights = packing.unpack(stored, levels, count).view(np.int8)
    # In place, to save memory.
    if kind == "binary":
        weights *= 2
        weights -= 1
    else:
        weights ^= levels // 2  # two's complement
        weights -= levels // 2
    weights.setflags(write=False)
    return weights


class _Writer:
    """A network's parts as JSON; arrays are appended to ``data``."""

    def __init__(self) -> None:
        self.data = bytearray()

    def json(self, value: Any) -> Any:
        if isinstance(value, Staircase):
            return value.name
        if isinstance(value, Affine):
            found = self._fields(value)
            del found["weight_kind"]  # the type of the array says it
            return found
        if is_dataclass(value):
            return self._fields(value)
        if isinstance(value, np.ndarray):
            return self.array(value, value.dtype.name)
        if isinstance(value, tuple):
            return [self.json(item) for item in value]
        if isinstance(value, np.generic):
            return value.item()
        return value

    def _fields(self, value: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if type(value) in _TYPES:
            found["type"] = _TYPES[type(value)]
        for field in fields(value):
            if field.name == "from_examples":  # of the network's input alone, which says it
                continue
            item = getattr(value, field.name)
            kind = getattr(value, "weight_kind", "") if field.name == "weights" else ""
            found[field.name] = self.array(item, kind) if kind else self.json(item)
        return found

    def array(self, array: Array, kind: str) -> dict[str, Any]:
        self.data += bytes(-len(self.data) % ALIGNMENT)
        offset, stored = len(self.data), packed(array, kind)
        self.data += stored.tobytes()
        shape = list(array.shape)
        return {"offset": offset, "length": stored.nbytes, "dtype": kind, "shape": shape}


def _network(buffer: Buffer, max_bytes: int) -> IntegerNetwork:
    if len(buffer) < HEADER.size or buffer[: len(MAGIC)] != MAGIC:
        raise ArtefactError("this is not the file of an integer network")
    _, version, length, size, checksum = HEADER.unpack(buffer[: HEADER.size])
    if version not in VERSIONS:
        raise ArtefactError(
            f"its format has version {version}, and this program reads versions up to "
            f"{VERSIONS[-1]}: a newer sudonet may read it"
        )
    if length > METADATA:
        raise ArtefactError(f"its metadata has {length:,} bytes and the limit is {METADATA:,}")
    end = HEADER.size + length
    start = end + -end % ALIGNMENT
    if len(buffer) != start + size:
        raise ArtefactError(f"the file has {len(buffer):,} bytes and should have {start + size:,}")
    digest = hashlib.sha256(buffer[:HASHED])
    digest.update(memoryview(buffer)[HEADER.size :])
    if digest.digest() != checksum:
        raise ArtefactError(
            "its checksum is wrong, so its bytes have changed: copy it again, or save the "
            "network again"
        )
    if any(buffer[24:32]) or any(buffer[end:start]):
        raise ArtefactError("bytes that must be 0 are not")
    reader = _Reader(buffer, start, max_bytes)
    network = reader.network(metadata.parsed(buffer[HEADER.size : end]), version)
    check(network)
    check_memory(network, max_bytes, by_reference=native.core() is None)
    return network


class _Reader:
    """A network's parts from metadata; ``end`` is the end of the last array read."""

    def __init__(self, buffer: Buffer, start: int, max_bytes: int) -> None:
        self.buffer = buffer
        self.start = start
        self.end = 0
        self.max_bytes = self.room = max_bytes
        self.values: dict[str, Read] = {
            "name": metadata.string,
            "kind": metadata.string,
            "weights": self.array,
            "shape_in": metadata.shape,
            "shape_out": metadata.shape,
            "grid_in": _grid,
            "after": lambda value, where: self.part(value, where, _AFTER),
            "kernel": metadata.pair,
            "stride": metadata.pair,
            "padding": metadata.pair,
            "dilation": metadata.pair,
            "output_padding": metadata.pair,
            "groups": metadata.whole,
            "centred": metadata.flag,
            "twice_zero": metadata.whole,
            "unit": _unit,
            "factor": self.array,
            "constant": self.array,
            "table": self.array,
            "fraction": metadata.whole,
        }

    def network(self, value: Any, version: int) -> IntegerNetwork:
        readers: dict[str, Read] = {
            "inputs": _grid,
            "shape_in": metadata.shape,
            "layers": self.layers,
            "output": metadata.string,
            "notes": metadata.mapping,
        }
        if version > 1:
            readers["inputs_from_examples"] = metadata.flag
        found = metadata.record(value, "metadata", readers)
        if self.start + self.end != len(self.buffer):
            raise ArtefactError("there are bytes after the last array")
        from_examples = found.pop("inputs_from_examples", False)
        found["inputs"] = replace(found["inputs"], from_examples=from_examples)
        return IntegerNetwork(**found)

    def layers(self, value: Any, where: str) -> tuple[Layer, ...]:
        return tuple(
            self.part(item, f"layers[{place}]", _LAYERS)
            for place, item in enumerate(metadata.listed(value, where))
        )

    def part(self, value: Any, where: str, types: dict[str, type]) -> Any:
        """A layer, or its thresholds or scores: the type, and the fields of that type."""
        name = metadata.mapping(value, where).get("type")
        made = types.get(name) if isinstance(name, str) else None
        if made is None:
            raise metadata.wrong(f"{where}.type", f"one of {', '.join(types)}", name)
        keys = [field.name for field in fields(made) if field.name != "weight_kind"]
        readers = {"type": metadata.string} | {key: self.values[key] for key in keys}
        if made in (RealThresholds, RealScores):
            readers["factor"] = metadata.real
        found = metadata.record(value, where, readers)
        del found["type"]
        if made is Affine:
            found["weight_kind"] = value["weights"]["dtype"]
        return made(**found)

    def array(self, value: Any, where: str) -> Array:
        readers: dict[str, Read] = {
            "offset": metadata.whole,
            "length": metadata.whole,
            "dtype": metadata.string,
            "shape": metadata.shape,
        }
        found = metadata.record(value, where, readers)
        kind, count = found["dtype"], math.prod(found["shape"])
        if kind not in _BITS:
            raise metadata.wrong(f"{where}.dtype", f"one of {', '.join(_BITS)}", kind)
        for key, expected in (
            ("offset", self.end + -self.end % ALIGNMENT),
            ("length", -(-count * _BITS[kind] // 8)),
        ):
            if found[key] != expected:
                raise metadata.wrong(f"{where}.{key}", f"{expected:,}", found[key])
        first, last = self.start + found["offset"], self.start + found["offset"] + found["length"]
        if last > len(self.buffer):
            raise ArtefactError(f"{where} reaches past the end of the file")
        if any(self.buffer[self.start + self.end : first]):
            raise ArtefactError(f"bytes before {where} must be 0")
        self.end = last - self.start
        dtype = _STORED.get(kind, "i1" if kind == "int8" else "u1")
        stored = np.frombuffer(memoryview(self.buffer)[first:last], dtype)
        if kind in ("int4", "ternary", "binary"):
            self.room -= count
            if self.room < 0:
                raise too_large(self.max_bytes - self.room, self.max_bytes)
        array: Array = unpacked(stored, kind, count).reshape(found["shape"])
        return array


def _grid(value: Any, where: str) -> Grid:
    readers = {"scale": metadata.real, "zero": metadata.real}
    found = metadata.record(
        value, where, {**readers, "low": metadata.whole, "high": metadata.whole}
    )
    return Grid(**found)


def _unit(value: Any, where: str) -> Staircase:
    name = metadata.string(value, where)
    if len(name) > UNIT:
        raise metadata.wrong(where, f"a unit's name of at most {UNIT} characters", name)
    unit = Staircase.parse(name)
    if unit.name != name:
        raise metadata.wrong(where, repr(unit.name), name)
    return unit
