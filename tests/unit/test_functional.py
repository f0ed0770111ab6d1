"""The operator against the definition, and its gradient against the smooth function."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sudonet import Staircase, _kernels, functional
from tests.unit.families import FAMILIES

pytestmark = pytest.mark.without_core

SMOOTH = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu6": torch.nn.functional.relu6,
    "hardtanh": torch.nn.functional.hardtanh,
}
HALVES = [torch.bfloat16, torch.float16]
TOLERANCE = {
    torch.float64: 1e-14,
    torch.float32: 5e-7,
    torch.bfloat16: 2e-2,
    torch.float16: 2e-3,
}


def expected(x: torch.Tensor, unit: Staircase) -> torch.Tensor:
    array = x.detach().numpy()
    return torch.from_numpy(np.asarray(unit.values_of(unit.codes(array), array.dtype)))


def smooth(x: torch.Tensor, unit: Staircase) -> torch.Tensor:
    y = SMOOTH[unit.underlying](x)
    return torch.where(x < 0, 0.0, y) if unit.rectified else y


def away_from_kinks(n: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    x = torch.linspace(-7, 7, n, dtype=torch.float64)
    kinks = torch.tensor([-1.0, 0.0, 1.0, 6.0], dtype=torch.float64)
    return x[(x[:, None] - kinks).abs().min(dim=1).values > 0.02].to(dtype)


@pytest.mark.usefixtures("route", "one_thread")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_forward_is_the_staircase_at_and_beside_every_threshold(family, dtype):
    generator = np.random.default_rng(0)
    for levels in [*range(2, 257), 1000, 65_536]:
        unit = Staircase.parse(family.format(levels))
        thresholds = torch.tensor(unit.narrowed(str(dtype).removeprefix("torch."))[0])
        thresholds = thresholds[:: max(1, len(thresholds) // 400)]
        infinity = torch.tensor(torch.inf, dtype=dtype)
        special = [0.0, -0.0, 1e-45, -1e-45, 1.0, -1.0, 6.0, 20.0, -20.0, 1e30, -1e30]
        x = torch.cat(
            [
                thresholds,
                torch.nextafter(thresholds, infinity),
                torch.nextafter(thresholds, -infinity),
                torch.tensor([*special, torch.inf, -torch.inf], dtype=dtype),
                torch.from_numpy(generator.normal(0, 2, 200)).to(dtype),
            ]
        )
        assert torch.equal(functional.apply(x, unit), expected(x, unit)), unit


@pytest.mark.usefixtures("route")
@pytest.mark.parametrize("levels", [2, 3, 8, 32, 256, 4099])
def test_forward_is_exact_over_a_million_inputs(levels):
    x = torch.randn(1_000_003, generator=torch.Generator().manual_seed(levels))
    assert torch.equal(functional.sudo(x, levels), expected(x, Staircase(levels)))


@pytest.mark.usefixtures("route")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_backward_is_autograd_of_the_smooth_function(family, dtype):
    unit = Staircase.parse(family.format(16))
    x = away_from_kinks(4001, dtype).requires_grad_()
    weight = torch.randn(len(x), generator=torch.Generator().manual_seed(0)).to(dtype)
    (ours,) = torch.autograd.grad(functional.apply(x, unit), x, weight)
    wide = x.detach().double().requires_grad_()
    (theirs,) = torch.autograd.grad(smooth(wide, unit), wide, weight.double())
    assert ours.dtype == dtype
    torch.testing.assert_close(ours.double(), theirs, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_do_not_depend_on_levels(family):
    """Computed from the quantised output they would, and L = 2 would never learn."""
    x = torch.linspace(-3, 3, 5001, requires_grad=True)
    gradients = [
        torch.autograd.grad(functional.apply(x, Staircase.parse(family.format(levels))).sum(), x)[0]
        for levels in (2, 7, 256)
    ]
    assert torch.equal(gradients[0], gradients[1])
    assert torch.equal(gradients[0], gradients[2])
    assert gradients[0].abs().max() > 0.2


@pytest.mark.usefixtures("route")
@pytest.mark.parametrize("family", FAMILIES)
def test_slope_is_the_definitions_derivative(family):
    unit = Staircase.parse(family.format(8))
    x = torch.cat([torch.linspace(-7, 7, 1999), torch.tensor([0.0, -0.0, 1.0, -1.0, 6.0])])
    x = x.double().requires_grad_()
    (slope,) = torch.autograd.grad(functional.apply(x, unit).sum(), x)
    wanted = unit.derivative(x.detach().numpy())
    np.testing.assert_allclose(slope.numpy(), wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("family", FAMILIES)
def test_gradcheck_of_the_smooth_function_and_its_derivative(family):
    """slope() and curvature(), which backward and double backward use, are true derivatives."""
    unit = Staircase.parse(family.format(8))
    x = away_from_kinks(41)

    class Smooth(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return smooth(x, unit)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return functional._Slope.apply(grad, x, unit.name)

    assert torch.autograd.gradcheck(Smooth.apply, (x.requires_grad_(),))
    assert torch.autograd.gradgradcheck(Smooth.apply, (x,))


@pytest.mark.parametrize("family", FAMILIES)
def test_second_and_third_derivatives_are_those_of_the_smooth_function(family):
    unit = Staircase.parse(family.format(4))
    x = away_from_kinks(101).requires_grad_()

    def derivatives(f):
        y, result = f(x), []
        for _ in range(3):
            if y.requires_grad:
                (y,) = torch.autograd.grad(y.sum(), x, create_graph=True, allow_unused=True)
            y = torch.zeros_like(x) if y is None else y
            result.append(y)
        return result

    ours = derivatives(lambda x: functional.apply(x, unit))
    theirs = derivatives(lambda x: smooth(x, unit))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.usefixtures("route")
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("family", FAMILIES)
def test_half_types_are_computed_in_float32_and_rounded_once(family, dtype):
    unit = Staircase.parse(family.format(37))
    x = torch.randn(3000, generator=torch.Generator().manual_seed(1)).mul(2).to(dtype)
    assert torch.equal(functional.apply(x, unit), expected(x.float(), unit).to(dtype))


@pytest.mark.usefixtures("route")
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("family", FAMILIES)
def test_nan_and_infinities(family, dtype):
    unit = Staircase.parse(family.format(8))
    x = torch.tensor([torch.nan, torch.inf, -torch.inf], dtype=dtype, requires_grad=True)
    y = functional.apply(x, unit)
    y.sum().backward()
    ends = torch.tensor(unit.values[[-1, 0]]).to(dtype)
    assert y[0].isnan()
    assert torch.equal(y[1:], ends)
    assert x.grad[0].isnan()
    assert x.grad[1:].tolist() == [0, 0]


@pytest.mark.usefixtures("route")
def test_rectified_gradient_is_zero_below_zero():
    x = torch.linspace(-5, -1e-6, 5000, requires_grad=True)
    for levels in (2, 3, 16, 256):
        for underlying in ("tanh", "hardtanh", "relu6"):
            y = functional.rsudo(x, levels, underlying)
            (grad,) = torch.autograd.grad(y.sum(), x)
            assert not y.any()
            assert not grad.any()


layouts = st.sampled_from(["plain", "transposed", "sliced", "expanded", "channels_last"])


@pytest.mark.usefixtures("route")
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # a route stays as it is
)
@given(
    shape=st.lists(st.integers(0, 7), max_size=4),
    layout=layouts,
    dtype=st.sampled_from(list(TOLERANCE)),
    family=st.sampled_from(FAMILIES),
    levels=st.integers(2, 300),
    scale=st.sampled_from([1e-30, 1e-3, 1.0, 10.0, 1e30]),
    seed=st.integers(0, 99),
)
def test_any_shape_stride_and_dtype(shape, layout, dtype, family, levels, scale, seed):
    unit = Staircase.parse(family.format(levels))
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    x = (x * scale).clamp(-6e4, 6e4).to(dtype)
    if layout == "transposed":
        x = x.movedim(0, -1) if x.dim() else x
    elif layout == "sliced" and x.dim():
        x = x[..., ::2]
    elif layout == "expanded":
        x = x.unsqueeze(0).expand(3, *x.shape)
    elif layout == "channels_last" and x.dim() == 4:
        x = x.to(memory_format=torch.channels_last)
    x.requires_grad_()
    y = functional.apply(x, unit)
    y.sum().backward()
    wide = x if dtype in (torch.float32, torch.float64) else x.float()
    assert torch.equal(y, expected(wide.contiguous(), unit).to(dtype).view(x.shape))
    assert y.stride() == torch.empty_like(x).stride()
    assert (y.dtype, x.grad.shape) == (dtype, x.shape)


@pytest.mark.usefixtures("route")
@pytest.mark.parametrize("threads", [1, 2])
def test_result_does_not_depend_on_threads(threads):
    before = torch.get_num_threads()
    x = torch.randn(200_003, generator=torch.Generator().manual_seed(5))
    torch.set_num_threads(threads)
    try:
        y = functional.sudo(x, 100)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(y, expected(x, Staircase(100)))


@pytest.mark.usefixtures("route")
def test_other_devices_look_up_with_ordinary_operations():
    """What runs where the device is not a CPU, run here: it equals what the CPU does."""
    x = torch.randn(5000, generator=torch.Generator().manual_seed(3))
    x[:3] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    for family in FAMILIES:
        unit = Staircase.parse(family.format(50))
        looked_up = _kernels._looked_up(x, unit)
        torch.testing.assert_close(
            looked_up, _kernels.forward(x, unit), rtol=0, atol=0, equal_nan=True
        )


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.complex64])
def test_tensors_of_other_types_are_refused(dtype):
    with pytest.raises(TypeError, match=rf"float32.*got {dtype}: convert it"):
        functional.sudo(torch.zeros(3, dtype=dtype), 8)


def test_what_is_not_a_tensor_is_refused():
    with pytest.raises(TypeError, match=r"torch\.Tensor, got list"):
        functional.sudo([0.0], 8)


@pytest.mark.parametrize("levels", [0, 1, -3, 2.5, True, "8", 65_537])
def test_bad_levels_are_refused(levels):
    for function in (functional.sudo, functional.rsudo):
        with pytest.raises((TypeError, ValueError), match=f"2 to 65,536, got {levels!r}"):
            function(torch.zeros(1), levels)


def test_unknown_underlying_and_placement_are_refused():
    with pytest.raises(ValueError, match="got 'gelu'"):
        functional.sudo(torch.zeros(1), 8, "gelu")
    with pytest.raises(ValueError, match="got 'half'"):
        functional.rsudo(torch.zeros(1), 8, placement="half")
