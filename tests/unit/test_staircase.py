"""The definition against the paper's formula, evaluated independently in float64."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sudonet import Staircase
from sudonet.staircase import MAX_LEVELS, UNDERLYING

pytestmark = pytest.mark.without_core

EVERY_L = range(2, 257)

units = st.builds(
    Staircase,
    st.integers(2, MAX_LEVELS) | st.integers(2, 20),
    st.sampled_from(UNDERLYING),
) | st.builds(
    Staircase,
    st.integers(2, MAX_LEVELS) | st.integers(2, 20),
    st.sampled_from(["tanh", "relu6", "hardtanh"]),
    st.just(True),
    st.sampled_from(["paper", "full"]),
)


def paper_code(x: np.ndarray, levels: int, underlying: str) -> np.ndarray:
    """ceil((u - low) / plateau) - 1 in float64, as the paper writes it."""
    x = x.astype(np.float64)
    if underlying == "tanh":
        u, low, span = np.tanh(x), -1.0, 2.0
    else:
        u, low, span = 1 / (1 + np.exp(-x)), 0.0, 1.0
    return np.clip(np.ceil((u - low) / (span / levels)) - 1, 0, levels - 1)


@pytest.mark.parametrize("underlying", ["tanh", "sigmoid"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_codes_equal_the_papers_formula_away_from_thresholds(underlying, dtype):
    x = np.linspace(-9, 9, 20_011).astype(dtype)
    resolution = np.spacing(np.abs(x).astype(np.float32)).astype(np.float64)
    for levels in EVERY_L:
        unit = Staircase(levels, underlying)
        nearest = np.abs(unit.thresholds[:, None] - x.astype(np.float64)).min(axis=0)
        clear = nearest > resolution
        assert clear.mean() > 0.99
        np.testing.assert_array_equal(
            unit.codes(x)[clear], paper_code(x, levels, underlying)[clear], f"L = {levels}"
        )


@pytest.mark.parametrize("underlying", ["tanh", "sigmoid"])
def test_the_papers_float64_boundaries_are_the_thresholds(underlying):
    for levels in EVERY_L:
        j = np.arange(1, levels)
        expected = [math.log(k / (levels - k)) for k in j]
        if underlying == "tanh":
            expected = np.array(expected) / 2
        np.testing.assert_allclose(
            Staircase(levels, underlying).thresholds, expected, rtol=1e-12, atol=1e-13
        )


@pytest.mark.parametrize("underlying", UNDERLYING)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_ulp_on_either_side_of_every_threshold(underlying, dtype):
    up, down = np.array([np.inf, -np.inf], dtype)
    for levels in EVERY_L:
        unit = Staircase(levels, underlying)
        thresholds, _ = unit.narrowed(dtype)
        lower = np.arange(levels - 1)
        np.testing.assert_array_equal(unit.codes(np.nextafter(thresholds, down)), lower)
        np.testing.assert_array_equal(unit.codes(thresholds), lower, "a threshold is below")
        np.testing.assert_array_equal(unit.codes(np.nextafter(thresholds, up)), lower + 1)


@pytest.mark.parametrize("underlying", UNDERLYING)
def test_exactly_l_values_evenly_spaced_over_the_range(underlying):
    low, high = {"sigmoid": (0, 1), "relu6": (0, 6)}.get(underlying, (-1, 1))
    for levels in EVERY_L:
        values = Staircase(levels, underlying).values
        assert len(np.unique(values)) == len(np.unique(values.astype(np.float32))) == levels
        assert (values[0], values[-1]) == (low, high)
        np.testing.assert_allclose(np.diff(values), (high - low) / (levels - 1), rtol=1e-9)


@pytest.mark.parametrize("underlying", ["tanh", "hardtanh"])
def test_values_and_thresholds_are_symmetric_to_the_last_bit(underlying):
    for levels in EVERY_L:
        for dtype in ("float32", "float64"):
            for table in Staircase(levels, underlying).narrowed(dtype):
                np.testing.assert_array_equal(table, -table[::-1])


def test_binary_unit_at_zero_takes_the_lower_level():
    unit = Staircase(2)
    tiny = np.nextafter(np.float32(0), np.float32(1))
    assert unit.thresholds.tolist() == [0.0]
    assert unit.values_of(unit.codes(np.array([0, -0.0, tiny, -tiny], "float32"))).tolist() == [
        -1,
        -1,
        1,
        -1,
    ]


@pytest.mark.parametrize("x", [-20.0, -100.0, -1e30, -np.inf])
def test_saturation_never_makes_an_extra_level(x):
    assert np.tanh(np.float32(x)) == -1, "the trap that the paper names"
    for levels in (2, 3, 8, 256):
        for dtype in ("float32", "float64"):
            assert Staircase(levels).codes(np.array(x, dtype)) == 0


@pytest.mark.parametrize("b", range(1, 17))
def test_rectified_output_count(b):
    """2^(b-1) + 1 of the paper's placement, all 2^b of the full one."""
    levels = 2**b
    x = np.linspace(-12, 12, 200_001)
    for underlying in ("tanh", "hardtanh"):
        paper = Staircase(levels, underlying, rectified=True)
        full = Staircase(levels, underlying, rectified=True, placement="full")
        assert paper.outputs == 2 ** (b - 1) + 1
        assert full.outputs == levels
        if b <= 10:
            assert len(np.unique(paper.codes(x))) == paper.outputs
            assert len(np.unique(full.codes(x))) == full.outputs


def test_rectified_unit_is_the_unit_where_positive():
    x = np.linspace(-4, 4, 9999)
    for levels in EVERY_L:
        plain, rectified = Staircase(levels), Staircase(levels, rectified=True)
        expected = np.where(x > 0, np.maximum(plain.values_of(plain.codes(x)), 0), 0)
        np.testing.assert_array_equal(rectified.values_of(rectified.codes(x)), expected)


def test_full_placement_cuts_the_positive_range_into_equal_plateaus():
    x = np.linspace(0.0005, 4, 4001)
    for levels in EVERY_L:
        unit = Staircase(levels, rectified=True, placement="full")
        clear = np.abs(unit.thresholds[:, None] - x).min(axis=0) > 1e-9
        expected = np.ceil(np.tanh(x) * levels) - 1
        np.testing.assert_array_equal(unit.codes(x)[clear], expected[clear])
        np.testing.assert_allclose(unit.values, np.arange(levels) / (levels - 1), rtol=1e-15)


def test_relu6_levels_are_the_same_rectified_or_not():
    for levels in (2, 7, 64):
        plain = Staircase(levels, "relu6")
        for placement in ("paper", "full"):
            other = Staircase(levels, "relu6", rectified=True, placement=placement)
            np.testing.assert_array_equal(plain.thresholds, other.thresholds)
            np.testing.assert_array_equal(plain.values, other.values)
        assert plain.values[-1] == 6
        assert plain.thresholds[0] == 6 / levels


@given(units)
def test_tables_fit_each_other(unit):
    for dtype in ("float32", "float64"):
        thresholds, values = unit.narrowed(dtype)
        assert len(thresholds) == len(values) - 1 == unit.outputs - 1
        assert (np.diff(thresholds) > 0).all()
        assert (np.diff(values) > 0).all()
    assert 2**unit.bits >= unit.outputs > 2 ** (unit.bits - 1)
    assert unit.code_dtype.itemsize * 8 >= unit.bits
    if unit.rectified:
        assert unit.codes(0.0) == 0
        assert unit.values[0] == 0


@given(units, st.lists(st.floats(width=32, allow_nan=False), max_size=30), st.sampled_from("fd"))
def test_codes_are_monotone_in_range_and_invertible(unit, inputs, dtype):
    x = np.sort(np.array(inputs, dtype))
    codes = unit.codes(x)
    assert codes.dtype == unit.code_dtype
    assert (np.diff(codes.astype(int)) >= 0).all()
    assert (codes < unit.outputs).all()
    np.testing.assert_array_equal(np.searchsorted(unit.values, unit.values_of(codes)), codes)


@given(units)
def test_extremes_take_the_extreme_codes_and_have_no_slope(unit):
    ends = np.array([-np.inf, np.inf])
    assert unit.codes(ends).tolist() == [0, unit.outputs - 1]
    assert unit.derivative(ends).tolist() == [0, 0]


@given(units)
def test_names_read_back(unit):
    assert Staircase.parse(unit.name) == unit
    assert Staircase.parse(f" {unit.name.upper()} ") == unit
    assert str(unit) == unit.name


@given(units)
def test_a_staircase_is_a_value(unit):
    assert pickle.loads(pickle.dumps(unit)) == unit
    assert hash(unit) == hash(Staircase.parse(unit.name))
    with pytest.raises(AttributeError):
        unit.levels = 3
    with pytest.raises(ValueError, match="read-only"):
        unit.thresholds[0] = 0


@pytest.mark.parametrize("underlying", UNDERLYING)
def test_derivative_is_that_of_the_underlying_function(underlying):
    unit, h = Staircase(5, underlying), 1e-6
    kinks = np.array([-1, 0, 1, 6])
    x = np.linspace(-8, 8, 1601) + 0.003
    assert np.abs(x[:, None] - kinks).min() > h
    numeric = (unit.smooth(x + h) - unit.smooth(x - h)) / (2 * h)
    np.testing.assert_allclose(unit.derivative(x), numeric, atol=1e-8)


def test_derivative_of_rectified_units_and_at_the_kinks():
    x = np.array([-2.0, -1e-300, 0.0, 0.5, np.nan])
    slope = Staircase(8, rectified=True).derivative(x)
    np.testing.assert_array_equal(slope[:3], [0, 0, 1])
    assert np.isnan(slope[4])
    assert Staircase(8, "hardtanh").derivative([-1.0, -0.999, 0.0, 1.0]).tolist() == [0, 1, 1, 0]
    assert Staircase(8, "relu6").derivative([0.0, 0.1, 5.9, 6.0]).tolist() == [0, 1, 1, 0]
    assert np.isnan(Staircase(8, "relu6").derivative(np.nan))


@pytest.mark.parametrize("levels", [0, 1, -3, 65_537])
def test_levels_out_of_range(levels):
    with pytest.raises(ValueError, match=rf"integer from 2 to 65,536, got {levels}$"):
        Staircase(levels)


@pytest.mark.parametrize("levels", [2.5, 8.0, True, "8", None])
def test_levels_of_another_type(levels):
    with pytest.raises(TypeError, match=rf"integer from 2 to 65,536, got {levels!r}$"):
        Staircase(levels)


def test_numpy_integers_are_integers():
    assert Staircase(np.int64(8)) == Staircase(8)
    assert type(Staircase(np.uint8(8)).levels) is int


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((8, "gelu"), "one of tanh, sigmoid, relu6, hardtanh, got 'gelu'"),
        ((8, "tanh", True, "half"), "one of paper, full, got 'half'"),
        ((8, "sigmoid", True), "sigmoid cannot be rectified"),
        ((8, "tanh", False, "full"), "rectified=True"),
    ],
)
def test_arguments_that_make_no_unit(arguments, message):
    with pytest.raises(ValueError, match=message):
        Staircase(*arguments)


def test_rectified_is_a_flag():
    with pytest.raises(TypeError, match="True or False, got 1"):
        Staircase(8, "tanh", 1)


@pytest.mark.parametrize(
    "name", ["sudo", "sudo-", "sudo-4.5", "sudo--3", "sudo-8-gelu", "r-sudo-full", "x-sudo-8", ""]
)
def test_names_that_make_no_unit(name):
    with pytest.raises(ValueError, match=r"unknown unit .*\[r-\]sudo-LEVELS"):
        Staircase.parse(name)


def test_a_name_with_levels_out_of_range_names_the_limit():
    with pytest.raises(ValueError, match="2 to 65,536, got 1"):
        Staircase.parse("sudo-1")


def test_bad_arrays():
    unit = Staircase(4)
    with pytest.raises(ValueError, match="NaN"):
        unit.codes([0.0, np.nan])
    with pytest.raises(TypeError, match="real numbers, got complex128"):
        unit.codes([1j])
    with pytest.raises(TypeError, match="real numbers, got bool"):
        unit.codes([True])
    with pytest.raises(ValueError, match="from 0 to 3, got 4"):
        unit.values_of([0, 4])
    with pytest.raises(ValueError, match="from 0 to 3, got -1"):
        unit.values_of([-1])
    with pytest.raises(TypeError, match="integers, got float64"):
        unit.values_of([0.0])
    with pytest.raises(TypeError, match="floating-point type, got int32"):
        unit.narrowed("int32")


def test_half_inputs_are_widened_and_integers_taken_as_real():
    unit = Staircase(256)
    half = np.linspace(-3, 3, 777).astype(np.float16)
    np.testing.assert_array_equal(unit.codes(half), unit.codes(half.astype(np.float32)))
    assert unit.codes([0, 1]).tolist() == unit.codes([0.0, 1.0]).tolist()
    assert unit.codes(np.zeros((2, 0, 3))).shape == (2, 0, 3)
