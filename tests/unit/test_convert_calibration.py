"""A batch tells where the levels of units with a range belong."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from sudonet import convert
from tests.unit.models import ResNet

torch.set_num_threads(1)


def network(gain: float = 1.0, act=nn.ReLU, inplace: bool = False) -> nn.Sequential:
    """Two convolutions, norm, pooling and a linear layer; activations of the size ``gain``."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        act(inplace=True) if inplace else act(),
        nn.Conv2d(8, 8, 3, bias=False),
        nn.BatchNorm2d(8),
        act(inplace=True) if inplace else act(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(32, 3),
    )
    with torch.no_grad():
        model[0].weight.mul_(gain)
        model[0].bias.mul_(gain)
        model[3].weight.mul_(gain)
    return model


def batch() -> torch.Tensor:
    return torch.randn(64, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def error(model: nn.Module, reference: nn.Module) -> float:
    with torch.no_grad():
        a, b = model.eval()(batch()), reference.eval()(batch())
    return float((a - b).square().mean() / b.square().mean())


@pytest.mark.parametrize("gain", [0.01, 0.1, 1.0, 30.0, 1000.0])
@pytest.mark.parametrize("levels", [4, 16])
def test_the_output_stays_nearer(gain, levels):
    model = network(gain)
    plain = convert(model, levels=levels, copy=True).model
    conversion = convert(model, levels=levels, copy=True, calibration=batch())
    assert conversion.not_scaled == ()
    assert error(conversion.model, model) <= error(plain, model)
    assert error(conversion.model, model) < {4: 0.2, 16: 0.02}[levels]
    if gain != 1:
        assert error(conversion.model, model) < error(plain, model) / 2


def test_layers_are_scaled_by_powers_of_two_and_named():
    model = network(100.0)
    before = copy.deepcopy(model.state_dict())
    conversion = convert(model, levels=16, calibration=batch())
    first, second = conversion.scalings
    assert (first.path, first.layer, first.next_layers) == ("1", "0", ("2",))
    assert (second.path, second.layer, second.next_layers) == ("4", "3", ("8",))
    assert all(np.log2(s.factor) == round(np.log2(s.factor)) < 0 for s in conversion.scalings)
    assert torch.equal(model[0].weight, before["0.weight"] * first.factor)
    assert torch.equal(model[0].bias, before["0.bias"] * first.factor)
    assert torch.equal(model[2].weight, before["2.weight"] / first.factor)
    assert torch.equal(model[8].bias, before["8.bias"])
    assert f"1: 0 times {first.factor:g}, 2 divided by it" in str(conversion)
    model[1], model[4] = nn.ReLU(), nn.ReLU()  # The continuous network is the same to the last bit.
    assert torch.equal(model.eval()(batch()), network(100.0).eval()(batch()))


@pytest.mark.parametrize("memory", ["plain", "lean", "codes"])
def test_undo_scales_back_exactly_even_after_training(memory):
    model, twin = network(100.0).eval(), network(100.0).eval()
    conversion = convert(model, levels=16, calibration=batch(), memory=memory)
    with torch.no_grad():
        for parameter in [*model.parameters(), *twin.parameters()]:
            parameter.mul_(1.25)
    assert conversion.undo() is model
    for name, value in model.state_dict().items():
        assert torch.equal(value, twin.state_dict()[name])
    with pytest.raises(RuntimeError, match="each only once"):
        conversion.undo()
    assert torch.equal(model[0].weight, twin[0].weight)


def test_a_copy_leaves_the_weights_alone():
    model = network(100.0)
    convert(model, levels=16, calibration=batch(), copy=True)
    assert torch.equal(model[0].weight, network(100.0)[0].weight)


def test_modes_buffers_and_forward_are_as_before():
    model = network(100.0, inplace=True)
    model[3].eval()
    mean = model[3].running_mean.clone()
    modes = [module.training for module in model.modules()]
    conversion = convert(model, levels=16, calibration=batch())
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(model[3].running_mean, mean)
    assert not any("forward" in vars(module) for module in conversion.undo().modules())
    plain = convert(network(100.0), levels=16, calibration=batch())
    assert [s.factor for s in plain.scalings] == [s.factor for s in conversion.scalings]


@pytest.mark.parametrize(
    "given", [batch(), batch().numpy(), batch().double().numpy(), (batch(),), (batch().numpy(),)]
)
def test_what_a_batch_may_be(given):
    conversion = convert(network(100.0), levels=16, calibration=given)
    assert len(conversion.scalings) == 2


def test_a_model_with_two_inputs():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.act, self.b = nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)

        def forward(self, x, y):
            return {"out": self.b(self.act(self.a(x + y)))}

    x = torch.randn(10, 3) * 1000
    conversion = convert(Two(), levels=8, calibration=(x, x.numpy()))
    assert [s.layer for s in conversion.scalings] == ["a"]


@pytest.mark.parametrize("given", [[batch()], (), "x", (batch(), 3)])
def test_other_things_are_refused_before_any_change(given):
    model = network()
    with pytest.raises(TypeError, match=r"calibration must be a batch.*next\(iter\(loader\)\)"):
        convert(model, levels=4, calibration=given)
    assert type(model[1]) is nn.ReLU
    assert model.training


def test_a_batch_of_the_wrong_shape_changes_nothing():
    model = network()
    with pytest.raises(RuntimeError):
        convert(model, levels=4, calibration=torch.ones(1, 2, 3))
    assert type(model[1]) is nn.ReLU
    assert all(module.training for module in model.modules())


def test_units_without_a_range_are_left_alone():
    model = network(100.0, nn.Tanh)
    assert convert(model, levels=16, calibration=batch()).scalings == ()
    assert convert(network(100.0), "sudo-16", calibration=batch()).scalings == ()
    assert convert(network(100.0), "sudo-16-relu6", calibration=batch()).scalings != ()


def test_a_residual_network_says_what_could_not_be_scaled():
    torch.manual_seed(0)
    model = ResNet()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.fill_(50)
    conversion = convert(model, levels=16, calibration=torch.randn(8, 3, 8, 8))
    whys = {item.where: item.why for item in conversion.not_scaled}
    assert set(whys) == {"stem.2", "blocks.0.relu", "blocks.1.relu"}
    assert "times the input would suit it, but its result goes to add" in whys["stem.2"]
    assert "used in several places" in whys["blocks.0.relu"]
    assert conversion.scalings == ()
    assert "ranges not scaled: 3\n" in str(conversion)


def test_shared_and_untraceable_layers_are_not_scaled():
    shared = nn.Linear(4, 4)
    with torch.no_grad():
        shared.weight.fill_(100)
    model = nn.Sequential(shared, nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), shared)
    conversion = convert(model, levels=4, calibration=torch.ones(3, 4))
    assert all(
        "not from a layer" in i.why or "not to a layer" in i.why for i in conversion.not_scaled
    )

    class Branching(nn.Sequential):
        def forward(self, x):
            return super().forward(x) if x.sum() > 0 else x

    model = Branching(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    conversion = convert(model, levels=4, calibration=torch.full((3, 4), 1000.0))
    (item,) = conversion.not_scaled
    assert "torch.fx cannot trace the model" in item.why


def test_dead_activations_are_left_alone():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].bias.fill_(-1)
    assert convert(model, levels=4, calibration=torch.ones(3, 2)).scalings == ()
