"""The C core's functions and structures for ctypes (csrc/sudonet.h, csrc/integer/program.h)."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ABI = 5
PATHS = {"portable": 0, "avx2": 1, "avx512": 2}
"""Instruction sets, slowest first."""

INTEGER_PATHS = {**PATHS, "amx": 3}
"""Those of integer networks. Everything else runs ``amx`` as ``avx512``."""

UNDERLYING = {"tanh": 0, "sigmoid": 1, "hardtanh": 2, "relu6": 3, "relu": 4, "linear": 5}

_int32, _int64, _pointer = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p


class CoreError(Exception):
    """The C core cannot be used; the message says why."""


class Unit(ctypes.Structure):
    """``sudo_unit``: an activation with its tables."""

    _fields_ = [
        ("underlying", _int32),
        ("rectified", _int32),
        ("count", _int32),
        ("thresholds", _pointer),
        ("values", _pointer),
        *[
            (name, ctypes.c_float)
            for name in ("stretch", "scale", "offset", "low", "high", "tolerance")
        ],
        *[(name, ctypes.c_float) for name in ("centre", "factor", "span")],
    ]


class Network(ctypes.Structure):
    """``sudo_network``: a network in training."""

    _fields_ = [
        ("layers", _int32),
        ("sizes", _pointer),
        ("units", _pointer),
        ("lanes", _int32),
        ("loss", _int32),
        ("optimiser", _int32),
        *[(name, ctypes.c_double) for name in ("rate", "beta1", "beta2", "epsilon")],
        *[(name, ctypes.c_double) for name in ("beta1_power", "beta2_power")],
        ("weights", _pointer),
        ("moment1", _pointer),
        ("moment2", _pointer),
        ("step", _int64),
        ("diverged", _int64),
    ]


def _numbers(*names: str) -> list[tuple[str, Any]]:
    return [(name, _int32) for name in names]


def _pointers(*names: str) -> list[tuple[str, Any]]:
    return [(name, _pointer) for name in names]


class Epilogue(ctypes.Structure):
    """``sudo_epilogue``: what turns the sums of an integer layer into its outputs."""

    _fields_ = [
        *_numbers("kind", "count", "group_size", "odd_codes"),
        *_pointers("base", "thresholds", "scale", "offset", "bin_thresholds", "bin_codes"),
        *[(name, ctypes.c_float) for name in ("max_position", "tolerance")],
        *_pointers("factor", "constant", "table", "lookup"),
        ("origin", _int64),
        *_numbers("shift", "last_bin", "max_steps"),
    ]


class Axis(ctypes.Structure):
    """``sudo_axis``: the outputs along one axis, and where their windows start."""

    _fields_ = [
        *_numbers("first", "step", "count"),
        ("stride", _int64),
        *_pointers("classes"),
    ]


class Part(ctypes.Structure):
    """``sudo_part``: a matrix product, for outputs of a layer that read the same inputs."""

    _fields_ = [
        *_numbers("first_in", "inputs", "first_out", "outputs", "terms", "weight_layout"),
        *_numbers("direct", "segments"),
        ("segment_bytes", _int64),
        *_pointers("segment_offsets"),
        *_numbers("padded", "padding_top", "padding_left", "padded_rows", "padded_columns"),
        *_numbers("safe_pairs", "max_windows"),
        ("rows", Axis),
        ("columns", Axis),
        *_pointers("weights"),
        *_numbers("fold"),
        *_pointers("tail", "corrections"),
        *_numbers("column_classes"),
        ("epilogue", Epilogue),
    ]


class Step(ctypes.Structure):
    """``sudo_step``: a layer of an integer network, or a change of layout."""

    _fields_ = [
        *_numbers("kind", "type_in", "type_out"),
        *_numbers("channels_in", "rows_in", "columns_in"),
        *_numbers("channels_out", "rows_out", "columns_out", "part_count"),
        *_pointers("parts"),
        ("kernel", _int32 * 2),
        ("stride", _int32 * 2),
        ("padding", _int32 * 2),
        *_numbers("initial", "channels_first"),
    ]


class Program(ctypes.Structure):
    """``sudo_program``: an integer network."""

    _fields_ = [
        *_numbers("step_count", "max_examples"),
        *_pointers("steps"),
        ("example_stride", _int64),
        ("scratch_bytes", _int64),
    ]


class Call(ctypes.Structure):
    """``sudo_call``: an integer network, its input and its output."""

    _fields_ = [
        *_numbers("path"),
        *_pointers("program", "x", "out"),
        ("batch", _int64),
        *_pointers("scratch"),
    ]


STRUCTURES: tuple[type[ctypes.Structure], ...] = (
    *(Unit, Network),
    *(Epilogue, Axis, Part, Step, Program, Call),
)
"""All structures of the interface. In C, ``Unit`` is called ``sudo_unit``, and so on."""


class _Layout(ctypes.Structure):
    """``sudo_layout``: where a structure has a field, and its bytes."""

    _fields_ = [
        ("structure", ctypes.c_char_p),
        ("field", ctypes.c_char_p),
        *_numbers("offset", "size"),
    ]


_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "sudo_abi": (_int32, []),
    "sudo_layouts": (ctypes.POINTER(_Layout), []),
    "sudo_supports": (_int32, [_int32]),
    "sudo_forward": (None, [_int32, _pointer, _pointer, _pointer, _int64, _int32]),
    "sudo_backward": (None, [_int32, *[_pointer] * 4, _int64, _int32]),
    "sudo_scratch": (_int64, [_pointer]),
    "sudo_prepared": (_int64, [_int32] * 3),
    "sudo_prepare": (
        None,
        [_int32, _pointer, _pointer, *[_int32] * 3, _pointer, _pointer, _int32, _int32, _pointer],
    ),
    "sudo_train": (
        None,
        [_int32, _pointer, _int32, _pointer, _pointer, _int32, _pointer, _pointer],
    ),
    "sudo_predict": (None, [_int32, _pointer, _pointer, _int64, _pointer, _pointer]),
    "sudo_integer_amx": (_int32, []),
    "sudo_integer_kernels": (_int32, [_int32]),
    "sudo_integer_scratch": (_int64, [_pointer, _int64]),
    "sudo_integer_run": (None, [_pointer]),
}


@dataclass(frozen=True)
class Core:
    """A loaded C core, set to one instruction set.

    Parameters
    ----------
    functions
        What it exports.
    path
        The instruction set, one of :data:`PATHS`.
    amx
        Whether integer networks also use AMX, which is experimental.
    """

    functions: ctypes.CDLL
    path: str
    amx: bool = False

    @property
    def path_number(self) -> int:
        return PATHS[self.path]

    @property
    def integer_path(self) -> str:
        """The instruction set of integer networks, one of :data:`INTEGER_PATHS`."""
        return "amx" if self.amx else self.path

    @property
    def integer_path_number(self) -> int:
        return INTEGER_PATHS[self.integer_path]


def load(file: Path, choice: str) -> Core:
    """The core in ``file`` on the path ``choice``, or on the fastest if that is ``auto``.

    ``amx`` is ``avx512`` with AMX for integer networks. Only ``amx`` and ``auto`` ask for it.
    """
    try:
        functions = ctypes.CDLL(str(file))
        found = functions.sudo_abi()
        if found != ABI:
            raise CoreError(
                f"{file.name} has interface {found}, this version needs {ABI}: "
                "install sudonet again"
            )
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(functions, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise CoreError(f"{file.name} cannot be loaded: {error}") from error
    if difference := _layout_difference(functions):
        raise CoreError(
            f"{file.name} does not fit this version: {difference}: install sudonet again"
        )
    runs = [name for name, number in PATHS.items() if functions.sudo_supports(number)]
    amx = choice in ("auto", "amx") and bool(functions.sudo_integer_amx())
    if choice == "auto" or amx:
        return Core(functions, runs[-1], amx)
    if choice not in runs:
        raise CoreError(f"this CPU cannot run {choice}, only {', '.join(runs)}")
    return Core(functions, choice)


def _layout_difference(functions: ctypes.CDLL) -> str | None:
    """The first field that C and Python lay out differently, in words; None if there is none."""
    compiled: dict[str, dict[str, tuple[int, int]]] = {}
    for entry in functions.sudo_layouts():
        if entry.structure is None:
            break
        fields = compiled.setdefault(entry.structure.decode(), {})
        fields[entry.field.decode()] = entry.offset, entry.size
    for structure in STRUCTURES:
        name = f"sudo_{structure.__name__.lower()}"
        names = [field[0] for field in structure._fields_]
        descriptors = [getattr(structure, field) for field in names]
        ours = {field: (d.offset, d.size) for field, d in zip(names, descriptors, strict=True)}
        ours[""] = 0, ctypes.sizeof(structure)
        theirs = compiled.get(name, {})
        for field in ours | theirs:
            if ours.get(field) != theirs.get(field):
                subject = f"field {field} of {name}" if field else name
                found, wanted = _in_words(theirs.get(field)), _in_words(ours.get(field))
                return f"{subject} is {found} in the core and {wanted} in Python"
    return None


def _in_words(layout: tuple[int, int] | None) -> str:
    return "missing" if layout is None else f"{layout[1]} bytes at offset {layout[0]}"


def smooth_unit(name: str) -> Unit:
    """A continuous activation: tanh, relu, linear and so on."""
    return Unit(underlying=UNDERLYING[name])


def address(array: NDArray[Any]) -> int:
    """The address of the first element; the array must be contiguous and stay alive."""
    assert array.flags.c_contiguous
    return array.ctypes.data


def aligned(length: int, alignment: int = 64) -> NDArray[np.float32]:
    """float32 zeros that start on a cache line."""
    space = np.zeros(length + alignment // 4, np.float32)
    skip = -space.ctypes.data % alignment // 4
    return space[skip : skip + length]
