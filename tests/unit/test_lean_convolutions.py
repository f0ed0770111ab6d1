"""Convolutions that keep less: the same gradients to the last bit, and fewer bytes."""

import pytest
import torch
from torch import nn

import sudonet
from sudonet import convert
from tests.unit.models import ResNet
from tests.unit.test_lean import gradients, kept_bytes, modes

torch.set_num_threads(1)


def network(normed: bool = False, **options) -> nn.Sequential:
    torch.manual_seed(0)
    norm = [nn.BatchNorm2d(8)] if normed else []
    return nn.Sequential(
        nn.Conv2d(4, 8, 3),
        *norm,
        nn.Tanh(),
        nn.Conv2d(8, 12, 3, **options),
        nn.Tanh(),
        nn.Conv2d(12, 4, 1),
    )


def both(make, name, memory):
    plain, fused = make(), make()
    convert(plain, name)
    return plain, fused, convert(fused, name, memory=memory)


def assert_same(plain, fused, x):
    for ours, theirs in zip(gradients(fused, x), gradients(plain, x), strict=True):
        assert torch.equal(ours, theirs)


@modes
@pytest.mark.parametrize("name", ["sudo-2", "sudo-16", "sudo-300", "sudo-5-relu6", "r-sudo-8"])
@pytest.mark.parametrize(
    "options",
    [{}, {"stride": 2, "padding": 1}, {"dilation": 2}, {"groups": 4}, {"bias": False}],
    ids=str,
)
def test_gradients_are_the_same_to_the_last_bit(memory, name, options):
    plain, fused, conversion = both(lambda: network(**options), name, memory)
    assert len(conversion.changes) == 2
    assert len(conversion.layers) == (2 if memory == "lean" else 3)
    assert conversion.not_lean == ()
    assert_same(plain, fused, torch.randn(5, 4, 12, 12))


@modes
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types(memory, dtype):
    plain, fused, _ = both(lambda: network().to(dtype), "sudo-16", memory)
    assert_same(plain, fused, torch.randn(5, 4, 12, 12, dtype=dtype))


@modes
def test_channels_last(memory):
    plain, fused, _ = both(
        lambda: network().to(memory_format=torch.channels_last), "sudo-16", memory
    )
    x = torch.randn(5, 4, 12, 12).to(memory_format=torch.channels_last)
    assert_same(plain, fused, x)


@modes
def test_one_dimension_and_no_batch(memory):
    def make():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv1d(3, 4, 3), nn.Tanh(), nn.Conv1d(4, 2, 3, padding=1))

    plain, fused, conversion = both(make, "sudo-16", memory)
    kinds = {"lean": sudonet.SUDOConv1d, "codes": sudonet.CodedConv1d}
    assert type(fused[2]) is kinds[memory]
    assert len(conversion.changes) == 1
    assert_same(plain, fused, torch.randn(5, 3, 9))
    assert_same(plain, fused, torch.randn(3, 9))


@modes
def test_a_normalisation_in_front_of_the_unit(memory):
    plain, fused, _ = both(lambda: network(normed=True), "sudo-16", memory)
    assert_same(plain, fused, torch.randn(5, 4, 12, 12))


def test_bytes_that_are_kept():
    x = torch.randn(16, 4, 12, 12)
    elements = 16 * (8 * 10 * 10 + 12 * 8 * 8)
    found = {}
    for memory in ("plain", "lean", "codes"):
        model = network()
        convert(model, "sudo-16", memory=memory)
        found[memory] = kept_bytes(model, x) / elements
    assert found == {"plain": 8, "lean": 4, "codes": 1}


@modes
def test_only_what_needs_a_gradient_gets_one(memory):
    model = network()
    convert(model, "sudo-8", memory=memory)
    model[2].weight.requires_grad_(False)
    model[4].bias.requires_grad_(False)
    model(torch.randn(5, 4, 12, 12)).sum().backward()
    assert model[2].weight.grad is None
    assert model[4].bias.grad is None
    assert model[0].weight.grad is not None


def test_second_derivatives():
    plain, lean, _ = both(lambda: network().double(), "sudo-16", "lean")
    coded = network().double()
    convert(coded, "sudo-16", memory="codes")
    x = torch.randn(2, 4, 8, 8, dtype=torch.float64, requires_grad=True)

    def second(model):
        (first,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    torch.testing.assert_close(second(lean), second(plain))
    with pytest.raises(RuntimeError, match=r"no second derivatives.*memory='lean'"):
        second(coded)


@modes
def test_autocast_inference_and_compiling_take_the_plain_way(memory):
    plain, fused, _ = both(network, "sudo-16", memory)
    x = torch.randn(3, 4, 12, 12)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_same(plain, fused, x)
    with torch.inference_mode():
        assert torch.equal(fused(x), plain(x))
    exported = torch.export.export(fused.eval(), (x,))
    assert torch.equal(exported.module()(x), plain(x))


@modes
def test_undo_gives_back_the_layers_with_their_weights(memory):
    model = network()
    before = list(model)
    conversion = convert(model, "sudo-16", memory=memory)
    state = {name: torch.full_like(value, 7) for name, value in model.state_dict().items()}
    model.load_state_dict(state, assign=True)
    conversion.undo()
    assert all(now is then for now, then in zip(model, before, strict=True))
    assert all((value == 7).all() for value in model.state_dict().values())


@modes
def test_what_keeps_no_less_is_named(memory):
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding="same"),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3),
        nn.BatchNorm2d(4),
        nn.Tanh(),
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"),
        nn.BatchNorm2d(4),
        nn.Tanh(),
        nn.Flatten(),
    )
    conversion = convert(model, "sudo-4", memory=memory, overrides={"8": "sudo-4"})
    assert {item.where: item.why for item in conversion.not_lean} == {
        "1": "followed by MaxPool2d, not directly by Linear, Conv1d or Conv2d",
        "5": "the convolution's padding is not a number of zeros",
        "8": "followed by Flatten, not directly by Linear, Conv1d or Conv2d",
    }
    assert conversion.layers == ()
    assert "units that keep no less: 3\n  1: sudo-4, followed by MaxPool2d" in str(conversion)
    assert str(conversion).startswith("activations replaced: 3\n")
    assert convert(model, "sudo-4").not_lean == ()


@modes
def test_blocks_with_a_forward_of_their_own_are_named(memory):
    conversion = convert(ResNet(1), levels=4, memory=memory)
    whys = {item.where: item.why for item in conversion.not_lean}
    assert list(whys) == ["stem.2", "blocks.0.relu"]
    assert whys["stem.2"] == "no layer follows in its nn.Sequential"
    assert "not in an nn.Sequential" in whys["blocks.0.relu"]


@modes
def test_a_module_with_two_places_is_seen_in_both(memory):
    """The dropout stands between the unit and the layer, though it is registered before."""
    drop = nn.Dropout(0.5)
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 4), drop, nn.Tanh(), drop, nn.Linear(4, 2))
    fused = convert(plain, "sudo-4", copy=True, memory=memory).model
    convert(plain, "sudo-4")
    x = torch.randn(20, 4)
    torch.manual_seed(1)
    wanted = plain(x)
    torch.manual_seed(1)
    assert torch.equal(fused(x), wanted)


def test_a_summary_shows_the_units():
    fused = convert(network(), "sudo-16", memory="codes").model
    levels = [row.levels for row in sudonet.summary(fused, (1, 4, 12, 12)).layers if row.levels]
    assert levels == [16, 16]
