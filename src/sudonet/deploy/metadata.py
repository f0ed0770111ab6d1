"""Strict JSON, which every reader understands alike, and checks of its types."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias

from sudonet.deploy.checks import AXES, ArtefactError

DEPTH = 32
"""How deep arrays and objects may be nested."""

CHARACTERS = 32
"""Limit of the characters of a number; the longest float64 has 24."""

Read: TypeAlias = Callable[[Any, str], Any]


def parsed(text: bytes) -> Any:
    """The value of JSON without duplicate keys, NaN or overlong numbers."""
    try:
        found = json.loads(
            text.decode(),
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_constant,
        )
        _check_inside(found)
    except ArtefactError:
        raise
    except RecursionError as error:
        raise ArtefactError(f"the metadata is nested more than {DEPTH} deep") from error
    except ValueError as error:  # from decode, encode and json
        raise ArtefactError(f"the metadata is not valid JSON: {error}") from error
    return found


def _check_inside(found: Any) -> None:
    waiting = [(found, 1)]
    while waiting:
        value, depth = waiting.pop()
        if isinstance(value, str):
            value.encode()  # fails for half of a surrogate pair
        elif isinstance(value, list | dict):
            if depth > DEPTH:
                raise ArtefactError(f"the metadata is nested more than {DEPTH} deep")
            waiting += [(item, depth + 1) for item in value]
            if isinstance(value, dict):
                waiting += [(item, depth + 1) for item in value.values()]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ArtefactError("the metadata has an object with the same key twice")
    return found


def _short_enough(text: str) -> str:
    if len(text) > CHARACTERS:
        raise ArtefactError(f"a number has at most {CHARACTERS} characters, got {len(text):,}")
    return text


def _integer(text: str) -> int:
    found = int(_short_enough(text))
    if not -(2**63) <= found < 2**63:
        raise ArtefactError(f"integers must fit 64 bits, got {text}")
    return found


def _float(text: str) -> float:
    found = float(_short_enough(text))
    if math.isinf(found):
        raise ArtefactError(f"numbers must be finite, got {text}")
    return found


def _constant(text: str) -> NoReturn:
    raise ArtefactError(f"numbers must be finite, got {text}")


def wrong(where: str, expected: str, value: object) -> ArtefactError:
    """The error for a value that is not as expected."""
    found = repr(value)
    found = found if len(found) <= 60 else f"{found[:57]}..."
    return ArtefactError(f"{where} must be {expected}, got {found}")


def whole(value: Any, where: str) -> int:
    """An integer; a number with a decimal point is not one."""
    if type(value) is not int:
        raise wrong(where, "an integer", value)
    return value


def real(value: Any, where: str) -> float:
    """A number; some writers leave out the point of 1.0."""
    if type(value) not in (int, float):
        raise wrong(where, "a number", value)
    return float(value)


def flag(value: Any, where: str) -> bool:
    """``true`` or ``false``."""
    if type(value) is not bool:
        raise wrong(where, "true or false", value)
    return value


def string(value: Any, where: str) -> str:
    """A string."""
    if type(value) is not str:
        raise wrong(where, "a string", value)
    return value


def listed(value: Any, where: str) -> list[Any]:
    """A list."""
    if type(value) is not list:
        raise wrong(where, "a list", value)
    return value


def mapping(value: Any, where: str) -> dict[str, Any]:
    """An object with any keys."""
    if type(value) is not dict:
        raise wrong(where, "an object", value)
    return value


def shape(value: Any, where: str) -> tuple[int, ...]:
    """Integers above 0, one for each axis."""
    numbers = tuple(whole(item, where) for item in listed(value, where)[: AXES + 1])
    if not 1 <= len(numbers) <= AXES or min(numbers) < 1:
        raise wrong(where, f"1 to {AXES} integers above 0", value)
    return numbers


def pair(value: Any, where: str) -> tuple[int, int]:
    """Two integers: of height and of width."""
    if len(listed(value, where)) != 2:
        raise wrong(where, "two integers", value)
    return whole(value[0], where), whole(value[1], where)


def record(value: Any, where: str, readers: Mapping[str, Read]) -> dict[str, Any]:
    """An object with exactly these keys, each read by its reader, in this order."""
    mapping(value, where)
    for key in readers:
        if key not in value:
            raise ArtefactError(f"{where} has no {key!r}")
    for key in value:
        if key not in readers:
            raise wrong(f"a key of {where}", f"one of {', '.join(readers)}", key)
    return {key: _read(read, value[key], f"{where}.{key}") for key, read in readers.items()}


def _read(read: Read, value: Any, where: str) -> Any:
    try:
        return read(value, where)
    except ArtefactError:
        raise
    except ValueError as error:  # from an invalid grid, say
        raise ArtefactError(f"{where}: {error}") from error
