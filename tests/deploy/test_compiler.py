"""Integer networks against float64 arithmetic with the same quantised weights."""

from __future__ import annotations

import copy
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import sudonet
from sudonet import deploy
from sudonet.deploy.grid import Grid
from sudonet.deploy.layers import (
    WEIGHTS,
    ChannelThresholds,
    SharedThresholds,
    SumPool,
    accumulator_bounds,
    emitted,
)
from sudonet.deploy.quantise import quantise
from sudonet.staircase import PLACEMENTS, UNDERLYING, Staircase
from tests.deploy.float64 import assert_codes_equal, with_quantised_weights

pytestmark = pytest.mark.without_core

PIXELS = Grid.of_range(0.0, 1.0)
AROUND = Grid.of_range(-1.0, 1.0)
LEVELS = (2, 3, 4, 5, 16, 17, 100, 255, 256)


def dense(unit: nn.Module, *sizes: int) -> nn.Sequential:
    torch.manual_seed(1)
    layers: list[nn.Module] = []
    for into, out in pairwise(sizes):
        layers += [nn.Linear(into, out), unit]
    return nn.Sequential(*layers[:-1])


def convolutional(unit: nn.Module) -> nn.Sequential:
    torch.manual_seed(2)
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.MaxPool2d(2),
        unit,
        nn.Conv2d(6, 4, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2),
        unit,
        nn.AvgPool2d(2),
        nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1, output_padding=1),
        unit,
        nn.Flatten(),
        nn.Dropout(),
        nn.LazyLinear(5),
    )


def made(model: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """Run once, so that lazy layers exist, and with norms that do something."""
    model.train()(torch.randn(8, *shape))
    return model.eval()


def random_inputs(grid: Grid, shape: tuple[int, ...], count: int = 20) -> np.ndarray:
    rng = np.random.default_rng(5)
    return rng.integers(grid.low, grid.high + 1, (count, *shape)).astype(grid.dtype)


UNITS = [
    unit
    for levels in LEVELS
    for unit in (
        sudonet.SUDO(levels),
        sudonet.RSUDO(levels),
        sudonet.RSUDO(levels, placement="full"),
    )
]


@pytest.mark.parametrize("unit", UNITS, ids=lambda u: u.name)
def test_every_code_of_a_dense_network_is_that_of_float64(unit):
    model = dense(unit, 30, 20, 20, 4)
    network = deploy.compile(model, inputs=PIXELS, thresholds="channel")
    assert_codes_equal(model, network, "int8", random_inputs(PIXELS, (30,), 200))


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize(
    "name", ["sudo-4", "sudo-5", "r-sudo-8", "sudo-16-sigmoid", "sudo-7-relu6"]
)
@pytest.mark.parametrize("grid", [PIXELS, AROUND], ids=["pixels", "around 0"])
def test_every_code_of_a_convolutional_network_is_that_of_float64(kind, name, grid):
    model = made(convolutional(sudonet.activation(name)), (2, 12, 12))
    network = deploy.compile(model, kind, inputs=grid, shape=(2, 12, 12), thresholds="channel")
    assert_codes_equal(model, network, kind, random_inputs(grid, (2, 12, 12)))


def test_a_sum_of_exactly_zero_belongs_to_the_lower_level():
    """Without biases such sums are common, and half a unit of rounding would lift them."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(1, 3, bias=False), sudonet.SUDO(2), nn.Linear(3, 500, bias=False)
    )
    model.append(sudonet.SUDO(16)).append(nn.Linear(500, 1))
    model[2].weight.data = torch.randint(-1, 2, (500, 3)) * torch.rand(500, 1)
    for thresholds in ("channel", "shared"):
        network = deploy.compile(model, "ternary", inputs=AROUND, thresholds=thresholds)
        codes, outputs = network.trace(random_inputs(AROUND, (1,)))[:2]
        signs = 2 * codes.astype(int) - 1
        exact = signs @ model[2].weight.data.sign().numpy().astype(int).T
        assert (outputs[exact == 0] == 7).all()
        assert (outputs[exact > 0] > 7).all()


@pytest.mark.parametrize("levels", [16, 100, 256])
def test_shared_thresholds_give_nearly_all_the_same_codes(levels):
    model = dense(sudonet.SUDO(levels), 50, 40, 10)
    x = random_inputs(PIXELS, (50,), 500)
    both = [deploy.compile(model, inputs=PIXELS, thresholds=t) for t in ("channel", "shared")]
    assert isinstance(both[0].layers[0].after, ChannelThresholds)
    assert isinstance(both[1].layers[0].after, SharedThresholds)
    exact, shared = (network.trace(x)[0] for network in both)
    assert (exact == shared).mean() > 0.9999


@settings(max_examples=30, deadline=None)
@given(st.integers(18, 256), st.floats(0, 9), st.integers(0, 99))
def test_channels_of_any_scale_keep_the_bound_of_shared_thresholds(levels, spread, seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(30, 20), sudonet.SUDO(levels), nn.Linear(20, 2))
    model[0].weight.data[0] *= 10**spread
    network = deploy.compile(model, inputs=PIXELS)
    x = random_inputs(PIXELS, (30,), 300)
    codes = network.trace(x)[0]
    sums = with_quantised_weights(model, "int8")[0](torch.from_numpy(PIXELS.values(x)))
    unit = model[1].staircase
    narrowest = np.diff(unit.thresholds).min()
    near = np.abs(sums.detach().numpy()[..., None] - unit.thresholds).min(-1)
    wrong = codes != unit.codes(sums.detach().numpy())
    assert near[wrong].max(initial=0) <= 2**-16 * narrowest
    assert wrong.mean() < 1e-3


def test_a_layer_whose_channels_differ_too_much_gets_thresholds_for_each():
    kinds = []
    for scale in (1.0, 1e6):
        model = dense(sudonet.SUDO(256), 30, 20, 2)
        model[0].weight.data[0] *= scale
        for thresholds in ("auto", "shared"):
            network = deploy.compile(model, inputs=PIXELS, thresholds=thresholds)
            kinds.append(type(network.layers[0].after))
    assert kinds == [SharedThresholds] * 2 + [ChannelThresholds] * 2


def test_few_levels_have_exact_thresholds_and_many_share_them():
    kinds = [
        type(deploy.compile(dense(sudonet.SUDO(n), 3, 3, 1), inputs=PIXELS).layers[0].after)
        for n in (2, 17, 18, 256)
    ]
    assert kinds == [ChannelThresholds, ChannelThresholds, SharedThresholds, SharedThresholds]


@pytest.mark.parametrize("kind", [*WEIGHTS, "float32"])
def test_the_quick_sums_are_those_of_the_reference(kind):
    model = made(convolutional(sudonet.SUDO(8)), (2, 12, 12))
    network = deploy.compile(model, kind, inputs=AROUND, shape=(2, 12, 12))
    x = random_inputs(AROUND, (2, 12, 12))
    np.testing.assert_array_equal(network.raw(x), network.trace(x)[-1])


def test_float32_weights_give_the_models_own_output():
    model = made(convolutional(sudonet.SUDO(8)), (2, 12, 12))
    network = deploy.compile(model, "float32", inputs=AROUND, shape=(2, 12, 12))
    x = random_inputs(AROUND, (2, 12, 12))
    wanted = model.double()(torch.from_numpy(AROUND.values(x))).detach().numpy()
    np.testing.assert_allclose(network(x), wanted, atol=1e-4)


@pytest.mark.parametrize("end", [None, nn.Tanh(), nn.Softmax(1)], ids=["real", "tanh", "softmax"])
def test_the_output_is_that_of_the_quantised_model(end):
    model = dense(sudonet.SUDO(16), 30, 20, 5)
    if end is not None:
        model.append(end)
    network = deploy.compile(model, inputs=PIXELS)
    x = random_inputs(PIXELS, (30,), 50)
    twin = with_quantised_weights(model, "int8")
    wanted = twin(torch.from_numpy(PIXELS.values(x))).detach().numpy()
    np.testing.assert_allclose(network(x), wanted, atol=1e-6)
    assert network.output == ("real" if end is None else type(end).__name__.lower())


def test_argmax_and_a_unit_at_the_end():
    class Largest(nn.Module):
        def forward(self, x):
            return x.argmax(1)

    model = dense(sudonet.SUDO(16), 30, 20, 5)
    x = random_inputs(PIXELS, (30,), 50)
    scores = deploy.compile(model, inputs=PIXELS)(x)
    places = deploy.compile(nn.Sequential(model, Largest()), inputs=PIXELS)(x)
    np.testing.assert_array_equal(places, scores.argmax(1))
    values = deploy.compile(nn.Sequential(*model[:2]), inputs=PIXELS)(x)
    assert set(values.ravel()) <= set(Staircase(16).values.astype(np.float32))


def test_inputs_as_they_are_as_real_values_alone_and_as_tensors():
    network = deploy.compile(dense(sudonet.SUDO(16), 30, 20, 5), inputs=PIXELS)
    x = random_inputs(PIXELS, (30,), 4)
    wanted = network(x)
    np.testing.assert_array_equal(network(PIXELS.values(x)), wanted)
    np.testing.assert_array_equal(network(x[1]), wanted[1])
    found = network(torch.from_numpy(x))
    assert isinstance(found, torch.Tensor)
    np.testing.assert_array_equal(found.numpy(), wanted)
    assert network(x[:0]).shape == (0, 5)
    with pytest.raises(ValueError, match=r"shape \(30,\).*got \(4, 29\)"):
        network(x[:, 1:])
    with pytest.raises(TypeError, match="uint8 as they are, or real values; got int64"):
        network(x.astype(np.int64))
    with pytest.raises(ValueError, match="NaN"):
        network(np.full((1, 30), np.nan))


def test_an_exported_program_compiles_to_the_same_network():
    model = made(convolutional(sudonet.SUDO(8)), (2, 12, 12))
    program = torch.export.export(model, (torch.zeros(2, 2, 12, 12),))
    x = random_inputs(AROUND, (2, 12, 12))
    from_model = deploy.compile(model, inputs=AROUND, shape=(2, 12, 12))
    np.testing.assert_array_equal(deploy.compile(program, inputs=AROUND)(x), from_model(x))


def test_a_program_for_batches_of_any_size_compiles():
    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = dense(sudonet.SUDO(4), 8, 4, 2)

        def forward(self, x):
            return self.layers(x.reshape(x.shape[0], -1))

    model = Flat()
    batch = {"x": {0: torch.export.Dim("batch")}}
    program = torch.export.export(model, (torch.zeros(3, 2, 4),), dynamic_shapes=batch)
    x = random_inputs(AROUND, (2, 4))
    wanted = deploy.compile(model, inputs=AROUND, shape=(2, 4))(x)
    np.testing.assert_array_equal(deploy.compile(program, inputs=AROUND)(x), wanted)


def test_lean_and_functional_models_compile():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, x):
            return self.last(sudonet.functional.sudo(self.first(x.flatten(1)), 16))

    model = dense(sudonet.SUDO(16), 4, 8, 2)
    own = Own()
    own.load_state_dict(
        {k.replace("0.", "first.").replace("2.", "last."): v for k, v in model.state_dict().items()}
    )
    lean = copy.deepcopy(model)
    lean[1] = nn.Tanh()
    lean = sudonet.convert(lean, "sudo-16", memory="lean").model
    x = random_inputs(AROUND, (4,))
    wanted = deploy.compile(model, inputs=AROUND)(x)
    for other in (own, lean):
        np.testing.assert_array_equal(deploy.compile(other, inputs=AROUND, shape=(4,))(x), wanted)


def test_compiling_leaves_the_model_alone():
    model = convolutional(sudonet.SUDO(4))
    made(model, (2, 12, 12)).train()
    before = copy.deepcopy(model.state_dict())
    deploy.compile(model, inputs=PIXELS, shape=(2, 12, 12))
    assert model.training
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


class Shortcut(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x) + x


BAD = {
    "relu": (
        nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)),
        r"1 \(ReLU\) cannot be.*relu",
    ),
    "tanh": (nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)), r"1 \(tanh\) can only be"),
    "no unit": (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), "no unit between 0 and 1"),
    "shortcut": (nn.Sequential(Shortcut(), sudonet.SUDO(4)), "is used 2 times"),
    "unit first": (nn.Sequential(sudonet.SUDO(4), nn.Linear(4, 2)), "0 must follow a Linear"),
    "levels": (dense(sudonet.SUDO(300), 4, 4, 2), "1 is sudo-300, .*use at most 256"),
    "rectified levels": (dense(sudonet.RSUDO(300), 4, 4, 2), "1 is r-sudo-300"),
    "norm": (
        nn.Sequential(nn.Linear(4, 4), sudonet.SUDO(4), nn.BatchNorm1d(4), nn.Linear(4, 2)),
        "2 has no layer to be folded into",
    ),
    "nothing": (nn.Sequential(nn.Flatten()), "nothing to compile"),
    "nested": (
        nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.GELU())), nn.Linear(4, 2)),
        r"0\.1\.0 \(GELU\)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_compiled_is_named(name):
    model, message = BAD[name]
    with pytest.raises(deploy.CompileError, match=message):
        deploy.compile(model, inputs=PIXELS, shape=(4,))


def test_bad_arguments_are_named():
    model = dense(sudonet.SUDO(4), 4, 4, 2)
    with pytest.raises(deploy.CompileError, match="the range of the inputs is not known"):
        deploy.compile(model)
    with pytest.raises(deploy.CompileError, match="'int7'"):
        deploy.compile(model, "int7", inputs=PIXELS)
    with pytest.raises(deploy.CompileError, match="names '9', but the layers are 0, 2"):
        deploy.compile(model, {"9": "int4"}, inputs=PIXELS)
    with pytest.raises(ValueError, match="'none'"):
        deploy.compile(model, inputs=PIXELS, thresholds="none")
    with pytest.raises(deploy.CompileError, match="shape of an input is not known"):
        deploy.compile(nn.Sequential(nn.Conv2d(1, 2, 3)), inputs=PIXELS)
    empty = nn.Sequential(nn.ConvTranspose2d(1, 1, 1, padding=(0, 2)))
    with pytest.raises(deploy.CompileError, match=r"0 has an empty output.*\(1, 1, 0\)"):
        deploy.compile(empty, inputs=PIXELS, shape=(1, 1, 4))
    padded = nn.Sequential(nn.Conv1d(1, 1, 3, padding=1))
    with pytest.raises(deploy.CompileError, match="no integer of the input stands for 0"):
        deploy.compile(padded, inputs=Grid.of_range(-0.3, 1), shape=(1, 9))
    for channels in (1, 2):
        flat = nn.Sequential(
            *(nn.Conv1d(1, channels, 1), nn.Flatten(), nn.BatchNorm1d(9 * channels)),
            *(sudonet.SUDO(4), nn.Linear(9 * channels, 2)),
        )
        with pytest.raises(deploy.CompileError, match=r"2 normalises .* put it before Flatten"):
            deploy.compile(flat, inputs=PIXELS, shape=(1, 9))


def test_layers_may_have_weights_of_different_kinds():
    network = deploy.compile(dense(sudonet.SUDO(4), 4, 4, 2), {"2": "binary"}, inputs=PIXELS)
    assert [layer.weight_kind for layer in network.layers] == ["int8", "binary"]
    assert set(np.unique(network.layers[1].weights)) == {-1, 1}


def test_accumulators_that_could_overflow_are_refused():
    model = nn.Sequential(nn.Linear(600, 1))
    model[0].weight.data.fill_(1.0)
    with pytest.raises(
        deploy.CompileError, match=r"0 can reach 2,496,921,600.*32 bits.*600 products"
    ):
        deploy.compile(model, inputs=Grid.of_range(-1, 1, bits=16))
    network = deploy.compile(nn.Sequential(model, sudonet.SUDO(2)), inputs=PIXELS)
    (layer,) = network.layers
    assert accumulator_bounds(layer, layer.by_output) == [600 * 127 * 255]


def test_real_inputs_get_the_range_that_calibration_saw():
    seen = np.random.default_rng(0).normal(3, 1, (100, 4))
    network = deploy.compile(dense(sudonet.SUDO(4), 4, 4, 2), calibration=seen)
    assert network.inputs.dtype == np.uint8
    kept = network.inputs.values(network.inputs.integers(seen))
    assert np.abs(kept - seen).max() <= network.inputs.scale * 0.501
    assert network.inputs.zero == round(network.inputs.zero)


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.sampled_from([8, 16]))
@settings(max_examples=200, deadline=None)
def test_a_calibrated_grid_covers_its_values_and_has_an_integer_for_zero(low, width, bits):
    values = np.array([low, low + width])
    grid = Grid.calibrated(values, bits)
    kept = grid.values(grid.integers(values))
    assert np.abs(kept - values).max() <= grid.scale * 0.501
    assert grid.values(grid.integers([0.0])).tolist() == [0.0]


FAMILIES = [
    *((underlying, False, "paper") for underlying in UNDERLYING),
    *((u, True, placement) for u in UNDERLYING if u != "sigmoid" for placement in PLACEMENTS),
]


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_the_values_of_every_unit_lie_on_its_grid(family):
    for levels in range(2, 257):
        unit = Staircase(levels, *family)
        grid = Grid.of_unit(unit)
        assert (grid.low, grid.dtype) == (0, np.uint8)
        np.testing.assert_allclose(grid.values(emitted(unit)), unit.values, atol=1e-14)


@given(
    st.sampled_from(list(WEIGHTS)),
    st.lists(st.lists(st.floats(-10, 10), min_size=6, max_size=6), min_size=1, max_size=4),
)
@settings(max_examples=200, deadline=None)
def test_quantised_weights_stay_what_they_are(kind, rows):
    integers, scales = quantise(np.array(rows), kind)
    top = {"binary": 1, "ternary": 1}.get(kind, 2 ** (WEIGHTS[kind] - 1) - 1)
    assert np.abs(integers).max() <= top
    assert (scales > 0).all()
    again, same = quantise(integers * scales[:, None], kind)
    moved = np.abs(again * same[:, None] - integers * scales[:, None])
    assert moved.max() <= 1e-12 * max(scales.max(), 1e-30)


def test_fewer_bits_lose_more():
    weights = np.random.default_rng(0).normal(size=(50, 400))
    lost = []
    for kind in WEIGHTS:
        integers, scales = quantise(weights, kind)
        lost.append(np.square(integers * scales[:, None] - weights).mean())
    assert lost == sorted(lost)
    assert lost[0] < 1e-4 < lost[1] < 0.05 < lost[2] < 0.25 < lost[3] < 0.4


def test_average_pooling_adds_up_and_the_grid_divides():
    model = nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(4, 1))
    network = deploy.compile(model, inputs=PIXELS, shape=(1, 4, 4))
    pool = network.layers[0]
    assert isinstance(pool, SumPool)
    assert (pool.grid_out.high, pool.grid_out.dtype) == (1020, np.uint16)
    x = random_inputs(PIXELS, (1, 4, 4))
    mean = nn.AvgPool2d(2)(torch.from_numpy(PIXELS.values(x))).numpy()
    np.testing.assert_allclose(pool.grid_out.values(network.trace(x)[0]), mean, atol=1e-12)
