"""The definition of the unit: thresholds, values and codes, in numpy alone.

Every other form of the unit (the PyTorch operator, packed tensors, integer
networks, ONNX, C) takes its numbers from :class:`Staircase` and is tested
against it bit by bit.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

Float: TypeAlias = NDArray[np.floating[Any]]
Codes: TypeAlias = NDArray[np.uint8] | NDArray[np.uint16]

MIN_LEVELS = 2
MAX_LEVELS = 65_536
UNDERLYING = ("tanh", "sigmoid", "relu6", "hardtanh")
PLACEMENTS = ("paper", "full")

_NAME = re.compile(
    r"(?P<rectified>r-)?sudo-(?P<levels>\d+)"
    rf"(?:-(?P<underlying>{'|'.join(UNDERLYING)}))?(?P<full>-full)?"
)


@dataclass(frozen=True)
class Staircase:
    """A discrete-output unit: ``levels`` plateaus over an underlying function.

    The range of the underlying function u(x) is cut into ``levels`` plateaus of
    equal height. An input gets the code k of its plateau,

        ``k = number of thresholds t_j with t_j < x``,

    and the unit emits ``values[k]``. The comparison is strict, so an input that
    lies on a threshold belongs to the lower plateau. Training ignores the
    staircase: its derivative is that of u.

    ============ ============ ======================= ================
    underlying   u(x)         thresholds, j = 1..L-1  values, k < L
    ============ ============ ======================= ================
    ``tanh``     tanh x       atanh(2j/L - 1)         -1 + 2k/(L-1)
    ``sigmoid``  1/(1+e^-x)   logit(j/L)              k/(L-1)
    ``hardtanh`` clip(x,-1,1) 2j/L - 1                -1 + 2k/(L-1)
    ``relu6``    clip(x,0,6)  6j/L                    6k/(L-1)
    ============ ============ ======================= ================

    A rectified unit emits 0 for every x <= 0 and has no derivative for x < 0.
    For x > 0, ``placement="paper"`` leaves the levels where they were, which
    keeps L/2 + 1 of L outputs (L even); ``placement="full"`` cuts u in 0..1 into
    L plateaus with the values k/(L-1), so that no level is lost. ``relu6`` is
    never negative: its levels are the same in all three cases.

    Parameters
    ----------
    levels
        L, an integer from 2 to 65,536.
    underlying
        ``"tanh"``, ``"sigmoid"``, ``"relu6"`` or ``"hardtanh"``.
    rectified
        R-SUDO instead of SUDO. The sigmoid has no negative part to rectify.
    placement
        ``"paper"`` or ``"full"``; the second needs ``rectified=True``.

    Examples
    --------
    >>> unit = Staircase(4)
    >>> unit.values.round(3).tolist()
    [-1.0, -0.333, 0.333, 1.0]
    >>> unit.codes([-2.0, 0.0, 0.1, 9.0]).tolist()
    [0, 1, 2, 3]
    >>> print(Staircase(16, rectified=True), Staircase(16, rectified=True).outputs)
    r-sudo-16 9
    """

    levels: int
    underlying: str = "tanh"
    rectified: bool = False
    placement: str = "paper"

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", _checked_levels(self.levels))
        if self.underlying not in UNDERLYING:
            raise ValueError(
                f"underlying must be one of {', '.join(UNDERLYING)}, got {self.underlying!r}"
            )
        if not isinstance(self.rectified, bool):
            raise TypeError(f"rectified must be True or False, got {self.rectified!r}")
        if self.placement not in PLACEMENTS:
            raise ValueError(
                f"placement must be one of {', '.join(PLACEMENTS)}, got {self.placement!r}"
            )
        if self.rectified and self.underlying == "sigmoid":
            raise ValueError(
                "a sigmoid cannot be rectified, it is never negative: "
                "use rectified=False, or underlying='tanh'"
            )
        if self.placement == "full" and not self.rectified:
            raise ValueError("placement='full' is for rectified units: add rectified=True")

    @classmethod
    def parse(cls, name: str) -> Staircase:
        """The staircase of a name such as ``sudo-32`` or ``r-sudo-16-full``.

        The form is ``[r-]sudo-LEVELS[-UNDERLYING][-full]``; case does not matter.

        Examples
        --------
        >>> Staircase.parse("R-SUDO-8")
        Staircase(levels=8, underlying='tanh', rectified=True, placement='paper')
        """
        if not isinstance(name, str):
            raise TypeError(f"a unit's name must be a string, got {name!r}")
        match = _NAME.fullmatch(name.strip().lower())
        if match is None:
            raise ValueError(
                f"unknown unit {name!r}: expected [r-]sudo-LEVELS[-UNDERLYING][-full] with "
                f"LEVELS from {MIN_LEVELS} to {MAX_LEVELS:,} and UNDERLYING one of "
                f"{', '.join(UNDERLYING)}, such as sudo-32, r-sudo-8 or sudo-16-sigmoid"
            )
        return cls(
            int(match["levels"]),
            match["underlying"] or "tanh",
            rectified=match["rectified"] is not None,
            placement="full" if match["full"] else "paper",
        )

    @property
    def name(self) -> str:
        """The name that :meth:`parse` reads."""
        return (
            f"{'r-' if self.rectified else ''}sudo-{self.levels}"
            f"{'' if self.underlying == 'tanh' else '-' + self.underlying}"
            f"{'-full' if self.placement == 'full' else ''}"
        )

    def __str__(self) -> str:
        return self.name

    @property
    def thresholds(self) -> NDArray[np.float64]:
        """Inputs at which the code changes, ascending, float64, read-only."""
        return _tables(self)[0]

    @property
    def values(self) -> NDArray[np.float64]:
        """What each code stands for, ascending, float64, read-only."""
        return _tables(self)[1]

    @property
    def outputs(self) -> int:
        """How many distinct values the unit emits."""
        return len(self.values)

    @property
    def bits(self) -> int:
        """Bits that tell the codes apart: log2 of ``outputs``, rounded up.

        What a back end stores may be more: see :func:`sudonet.packing.arena_bits`.
        """
        return (self.outputs - 1).bit_length()

    @property
    def highest_integer(self) -> int:
        """The integer of the highest value, where 0 is that of the lowest, on an even grid.

        That is the highest code, except for rectified units with an even number of levels,
        whose first step is half of the others.

        Examples
        --------
        >>> Staircase(8).highest_integer, Staircase(8, rectified=True).highest_integer
        (7, 7)
        >>> Staircase(8, rectified=True).values_of([0, 1, 2, 3, 4]) * 7
        array([0., 1., 3., 5., 7.])
        """
        values = self.values
        return round(float((values[-1] - values[0]) / np.diff(values).min()))

    @property
    def code_dtype(self) -> np.dtype[Any]:
        """The smallest unsigned integer type that holds every code."""
        return np.dtype(np.uint8 if self.outputs <= 256 else np.uint16)

    @property
    def ramp(self) -> tuple[float, float]:
        """Inputs between which a ``hardtanh`` or ``relu6`` unit has a slope."""
        if self.underlying not in ("hardtanh", "relu6"):
            raise ValueError(f"{self} has a slope everywhere: only hardtanh and relu6 are ramps")
        return (-1.0, 1.0) if self.underlying == "hardtanh" else (0.0, 6.0)

    def narrowed(self, dtype: DTypeLike) -> tuple[Float, Float]:
        """Thresholds and values rounded once to ``dtype``, read-only.

        Examples
        --------
        >>> thresholds, values = Staircase(3).narrowed("float32")
        >>> thresholds.dtype, values.tolist()
        (dtype('float32'), [-1.0, 0.0, 1.0])
        """
        return _narrowed(self, np.dtype(dtype))

    def codes(self, x: ArrayLike) -> Codes:
        """Code of every input: how many thresholds lie strictly below it.

        float32 inputs are compared with thresholds narrowed to float32, half
        types are widened to float32 first, everything else is float64.
        """
        inputs = _as_inputs(x)
        if np.isnan(inputs).any():
            raise ValueError("x contains NaN, which has no code: remove or replace it first")
        thresholds, _ = self.narrowed(inputs.dtype)
        return np.searchsorted(thresholds, inputs, side="left").astype(self.code_dtype)

    def values_of(self, codes: ArrayLike, dtype: DTypeLike = np.float64) -> Float:
        """Values of codes, the inverse of coding.

        Examples
        --------
        >>> Staircase(5).values_of([0, 4, 2]).tolist()
        [-1.0, 1.0, 0.0]
        """
        array = np.asarray(codes)
        if array.dtype.kind not in "iu" and array.size:
            raise TypeError(f"codes must be integers, got {array.dtype}")
        if array.size and (array.min() < 0 or array.max() >= self.outputs):
            bad = array[(array < 0) | (array >= self.outputs)].flat[0]
            raise ValueError(f"codes of {self} must be from 0 to {self.outputs - 1}, got {bad}")
        return self.narrowed(dtype)[1][array.astype(np.intp)]

    def smooth(self, x: ArrayLike) -> Float:
        """The underlying function u(x): what the staircase approximates."""
        inputs = _as_inputs(x)
        value: Float
        if self.underlying == "tanh":
            value = np.tanh(inputs)
        elif self.underlying == "sigmoid":
            value = _sigmoid(inputs)
        else:
            value = np.clip(inputs, *self.ramp)
        return _zero_below(inputs, value) if self.rectified else value

    def derivative(self, x: ArrayLike) -> Float:
        """Derivative of the underlying function, which training uses."""
        inputs = _as_inputs(x)
        slope: Float
        if self.underlying == "tanh":
            slope = 4 * _sigmoid_slope(2 * inputs)
        elif self.underlying == "sigmoid":
            slope = _sigmoid_slope(inputs)
        else:
            low, high = self.ramp
            inside = ((low < inputs) & (inputs < high)).astype(inputs.dtype)
            slope = np.where(np.isnan(inputs), inputs, inside)
        return _zero_below(inputs, slope) if self.rectified else slope


def _checked_levels(levels: object) -> int:
    expected = f"levels must be an integer from {MIN_LEVELS} to {MAX_LEVELS:,}, got {levels!r}"
    if isinstance(levels, (bool, np.bool_)):
        raise TypeError(expected)
    try:
        whole = operator.index(levels)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(expected) from None
    if not MIN_LEVELS <= whole <= MAX_LEVELS:
        raise ValueError(expected)
    return whole


def _as_inputs(x: ArrayLike) -> Float:
    inputs = np.asarray(x)
    if inputs.dtype == np.float16:
        return inputs.astype(np.float32)
    if inputs.dtype in (np.float32, np.float64):
        return inputs
    if inputs.dtype.kind in "iuf":
        return inputs.astype(np.float64)
    raise TypeError(f"x must hold real numbers, got {inputs.dtype}")


def _sigmoid(x: Float) -> Float:
    # tanh form: no overflow at either end, and keeps the input's dtype.
    half, one = x.dtype.type(0.5), x.dtype.type(1)
    result: Float = half * (np.tanh(half * x) + one)
    return result


def _sigmoid_slope(x: Float) -> Float:
    # s(1-s) written so that it keeps its digits in both tails.
    tail = np.exp(-np.abs(x))
    slope: Float = tail / np.square(1 + tail)
    return slope


def expect_staircase(unit: object) -> Staircase:
    """``unit`` itself, or a TypeError if it is not a Staircase."""
    if isinstance(unit, Staircase):
        return unit
    raise TypeError(f"expected a Staircase, got {unit!r}: Staircase.parse(name) makes one")


def _zero_below(inputs: Float, value: Float) -> Float:
    return np.where(inputs < 0, np.zeros_like(value), value)


_Array = TypeVar("_Array", bound=NDArray[Any])


def _fixed(array: _Array) -> _Array:
    array.setflags(write=False)
    return array


@lru_cache(maxsize=1024)
def _tables(unit: Staircase) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    levels = unit.levels
    index = np.arange(levels, dtype=np.float64)
    if unit.placement == "full" and unit.underlying != "relu6":
        # u in 0..1: the upper half of a staircase with 2L plateaus on -1..1.
        thresholds = _thresholds(2 * levels, unit.underlying)[levels:]
        values = index / (levels - 1)
    else:
        thresholds = _thresholds(levels, unit.underlying)
        if unit.underlying == "sigmoid":
            values = index / (levels - 1)
        elif unit.underlying == "relu6":
            values = 6 * index / (levels - 1)
        else:
            # Written so that values are symmetric to the last bit.
            values = (2 * index - (levels - 1)) / (levels - 1)
        if unit.rectified:
            thresholds = thresholds[thresholds >= 0]
            values = np.concatenate([[0.0], values[len(values) - len(thresholds) :]])
    return _fixed(thresholds.copy()), _fixed(values)


def _thresholds(levels: int, underlying: str) -> NDArray[np.float64]:
    """Inputs where u crosses the boundary between plateau j and the one above it."""
    index = np.arange(1, levels, dtype=np.float64)
    if underlying == "relu6":
        return 6 * index / levels
    if underlying == "hardtanh":
        return (2 * index - levels) / levels
    # atanh(2j/L - 1) = log(j / (L-j)) / 2, taken as log1p on the upper half, where
    # it is accurate to the last bits for every L, and mirrored to the lower half.
    upper = index[index >= levels / 2]
    logit = np.log1p((2 * upper - levels) / (levels - upper))
    mirrored = -logit[::-1][: levels - 1 - len(upper)]
    both = np.concatenate([mirrored, logit])
    return both if underlying == "sigmoid" else both / 2


@lru_cache(maxsize=1024)
def _narrowed(unit: Staircase, dtype: np.dtype[Any]) -> tuple[Float, Float]:
    if dtype.kind != "f":
        raise TypeError(f"a staircase is narrowed to a floating-point type, got {dtype}")
    thresholds, values = _tables(unit)
    return _fixed(thresholds.astype(dtype)), _fixed(values.astype(dtype))
