"""Outputs and gates stay, and everything that stays continuous is named with a way out."""

import operator

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from sudonet import SUDO, Staircase
from sudonet._convert import convert
from sudonet.units import CONTINUOUS
from tests.unit.models import Actor, GatedCell, InvertedResidual, MobileNet, ReGLU, ResNet

torch.set_num_threads(1)

OUTPUT = "its result is the model's output"
GATE = "a gate, its result multiplies another tensor"


def kept(conversion):
    return {item.where: item.why for item in conversion.kept}


def changed(conversion):
    return {change.path: getattr(change.after, "name", None) for change in conversion.changes}


# levels


def test_levels_keep_the_function_of_each_activation():
    kinds = [nn.Tanh(), nn.Sigmoid(), nn.Hardtanh(), nn.ReLU6(), nn.ReLU()]
    layers = [m for kind in kinds for m in (nn.Linear(3, 3), kind)]
    model = nn.Sequential(*layers, nn.Linear(3, 1))
    conversion = convert(model, levels=16)
    assert list(changed(conversion).values()) == [
        "sudo-16",
        "sudo-16-sigmoid",
        "sudo-16-hardtanh",
        "sudo-16-relu6",
        "sudo-16-relu6",
    ]
    assert conversion.kept == conversion.not_replaced == conversion.unclear == ()


def test_a_hardtanh_with_another_range_stays_with_a_reason():
    model = nn.Sequential(nn.Linear(3, 3), nn.Hardtanh(-2, 2), nn.Linear(3, 1))
    with pytest.warns(UserWarning, match=r"1: Hardtanh.*range is -2\.\.2, the unit's -1\.\.1"):
        conversion = convert(model, levels=8)
    assert conversion.changes == ()
    (item,) = conversion.not_replaced
    assert "overrides={'1': 'sudo-8-hardtanh'}" in item.why
    convert(model, levels=8, overrides={"1": "sudo-8-hardtanh"})
    assert model[1].name == "sudo-8-hardtanh"


@pytest.mark.parametrize("arguments", [{}, {"to": "sudo-4", "levels": 4}])
def test_either_a_unit_or_levels(arguments):
    with pytest.raises(TypeError, match=r"to must be .* or levels .* not both"):
        convert(nn.Sequential(nn.Tanh()), **arguments)


@pytest.mark.parametrize("levels", [1, 2.5, True, "16"])
def test_wrong_levels(levels):
    with pytest.raises((TypeError, ValueError), match="levels must be an integer from 2"):
        convert(nn.Sequential(nn.Tanh()), levels=levels)


def test_the_way_out_for_a_kind_without_a_staircase_works():
    model = nn.Sequential(nn.Linear(3, 3), nn.GELU(), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    with pytest.warns(UserWarning, match=r"convert\(model, \{nn\.GELU: 'sudo-16-relu6'\}\)"):
        conversion = convert(model, levels=16)
    assert changed(conversion) == {"3": "sudo-16"}
    conversion = convert(model, {nn.GELU: "sudo-16-relu6"})
    assert changed(conversion) == {"1": "sudo-16-relu6"}


# Every activation of PyTorch


def made(kind):
    return kind(0.1, 0.2) if kind is nn.Threshold else kind()


@pytest.mark.parametrize("kind", sorted(CONTINUOUS, key=lambda kind: kind.__name__))
def test_a_unit_replaces_every_activation_without_parameters(kind):
    model = nn.Sequential(nn.Linear(3, 3), made(kind), nn.Linear(3, 1))
    assert changed(convert(model, "sudo-16")) == {"1": "sudo-16"}


def test_all_activation_modules_of_torch_are_known():
    """A new one in PyTorch shows up here: it is replaced, listed, or of another sort."""
    names = [name for name in dir(nn.modules.activation) if not name.startswith("_")]
    found = {getattr(nn.modules.activation, name) for name in names}
    found = {kind for kind in found if isinstance(kind, type) and issubclass(kind, nn.Module)}
    normalising = {nn.Softmax, nn.Softmin, nn.Softmax2d, nn.LogSoftmax, nn.MultiheadAttention}
    found = {kind for kind in found if kind.__module__ == "torch.nn.modules.activation"}
    assert found - CONTINUOUS - {nn.PReLU, nn.GLU} == normalising


@pytest.mark.parametrize(
    ("module", "why"), [(nn.PReLU(), "parameters would be lost"), (nn.GLU(), "halves the channels")]
)
@pytest.mark.parametrize("arguments", [{"to": "sudo-4"}, {"levels": 4}])
def test_what_cannot_be_replaced_is_named(module, why, arguments):
    model = nn.Sequential(nn.Linear(4, 4), module, nn.LazyLinear(1))
    with pytest.warns(UserWarning, match=f"1: .*{why}"):
        conversion = convert(model, **arguments)
    assert [item.where for item in conversion.not_replaced] == ["1"]
    assert conversion.changes == ()


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (F.gelu, "F.gelu"),
        (F.silu, "F.silu"),
        (F.leaky_relu, "F.leaky_relu"),
        (F.elu, "F.elu"),
        (F.hardswish, "F.hardswish"),
        (F.softplus, "F.softplus"),
        (F.mish, "F.mish"),
        (F.selu, "F.selu"),
        (F.celu, "F.celu"),
        (F.hardsigmoid, "F.hardsigmoid"),
        (F.logsigmoid, "F.logsigmoid"),
        (F.softsign, "F.softsign"),
        (F.tanhshrink, "F.tanhshrink"),
        (F.glu, "F.glu"),
        (lambda x: F.threshold(x, 0.1, 0.2), "F.threshold"),
        (lambda x: x.clamp(min=0), "x.clamp(min=0)"),
        (lambda x: x.clamp_(0, 6), "x.clamp_(min=0)"),
        (lambda x: torch.clamp(x, min=0.0), "torch.clamp(min=0)"),
        (lambda x: x.clamp_min(0), "x.clamp_min(min=0)"),
        (lambda x: x.clip(-1, 1), None),
        (lambda x: x.clamp(max=0), None),
        (lambda x: x.softmax(1), None),
    ],
)
@pytest.mark.parametrize("branches", [False, True], ids=["traced", "read"])
def test_every_function_is_named(function, name, branches):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2)
            self.function = function

        def forward(self, x):
            return self.linear(self.function(x))

    class Branching(Model):
        def forward(self, x):
            return self.linear(function(x)) if x.sum() > 0 else x

    model = Branching() if branches else Model()
    if name is None:
        assert convert(model, "sudo-4").not_replaced == ()
        return
    with pytest.warns(UserWarning, match="Make each function a module"):
        conversion = convert(model, "sudo-4")
    assert name in {item.what for item in conversion.not_replaced}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("how", ["script", "trace"])
def test_scripted_modules_are_named(how):
    inner = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2), nn.Tanh())
    example = torch.ones(1, 2)
    scripted = torch.jit.script(inner) if how == "script" else torch.jit.trace(inner, example)
    for model, path in ((nn.Sequential(scripted, nn.Tanh(), nn.Linear(2, 1)), "0"), (scripted, "")):
        with pytest.warns(UserWarning, match=r"convert before torch\.jit\.script"):
            conversion = convert(model, "sudo-4")
        found = [(item.where, item.what) for item in conversion.not_replaced]
        assert found == [(path, "aten.relu"), (path, "aten.tanh")]
        assert list(changed(conversion)) == (["1"] if path else [])


def test_units_inside_of_layers_are_named():
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    first = convert(model, "sudo-4", memory="lean")
    with pytest.warns(UserWarning, match=r"2: SUDOLinear.*undo\(\) that conversion first"):
        assert convert(model, "sudo-8").changes == ()
    first.undo()
    assert changed(convert(model, "sudo-8")) == {"1": "sudo-8"}


# Outputs


@pytest.mark.parametrize(
    "tail",
    [
        [],
        [nn.Flatten()],
        [nn.Identity(), nn.Dropout(0.1)],
    ],
)
@pytest.mark.parametrize("arguments", [{"to": "sudo-16"}, {"levels": 16}])
def test_a_final_sigmoid_stays(tail, arguments):
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1), nn.Sigmoid(), *tail)
    conversion = convert(model, **arguments)
    assert changed(conversion) == {"1": "sudo-16"}
    assert kept(conversion) == {"3": OUTPUT}
    assert "kept: 1\n  3: Sigmoid(), its result is the model's output\n" in str(conversion)
    x = torch.randn(50, 3)
    torch.nn.functional.binary_cross_entropy(model(x).flatten(), torch.ones(50)).backward()
    assert len(model(x).unique()) > 16


def test_an_override_reaches_outputs_and_gates():
    model = nn.Sequential(nn.Linear(3, 1), nn.Sigmoid())
    assert changed(convert(model, "sudo-4", overrides={"1": "sudo-8-sigmoid"})) == {
        "1": "sudo-8-sigmoid"
    }
    model = GatedCell()
    conversion = convert(model, levels=4, overrides={"sigmoid": "sudo-8-sigmoid"})
    assert changed(conversion) == {"tanh": "sudo-4", "sigmoid": "sudo-8-sigmoid"}
    assert conversion.kept == ()


def test_an_output_may_be_scaled_and_in_a_dictionary():
    conversion = convert(Actor(), "sudo-4")
    assert changed(conversion) == {"body.1": "sudo-4"}
    assert kept(conversion) == {"squash": OUTPUT}


def test_a_mapping_leaves_outputs_alone_and_says_what_it_left():
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    model.append(nn.Tanh())
    conversion = convert(model, {"tanh": "sudo-4"})
    assert changed(conversion) == {"1": "sudo-4"}
    assert kept(conversion) == {"3": "its kind is not in the mapping", "5": OUTPUT}


def test_continuous_outputs_without_a_staircase_are_no_alarm():
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1), nn.Softplus())
    assert kept(convert(model, levels=4)) == {"3": OUTPUT}


# Gates


@pytest.mark.parametrize("gate", [nn.Sigmoid(), nn.Hardsigmoid()])
def test_a_mobilenet(gate):
    model = MobileNet(gate)
    conversion = convert(model, levels=16)
    se = "features.1.body.4"
    assert kept(conversion) == {f"{se}.gate": GATE, "head.1": OUTPUT}
    assert changed(conversion) == {
        "features.1.body.1": "sudo-16-relu6",
        "features.1.body.3": "sudo-16-relu6",  # The signal that the gate multiplies.
        f"{se}.act": "sudo-16-relu6",
    }
    assert conversion.not_replaced == conversion.unclear == ()
    assert model(torch.randn(2, 3, 8, 8)).shape == (2,)


def test_a_resnet_has_neither():
    model = ResNet()
    conversion = convert(model, levels=16)
    assert list(changed(conversion)) == ["stem.2", "blocks.0.relu", "blocks.1.relu"]
    assert conversion.kept == conversion.unclear == ()
    conversion.undo()
    assert model.blocks[0].relu.inplace


def test_gated_units():
    conversion = convert(GatedCell(), "sudo-4")
    assert changed(conversion) == {"tanh": "sudo-4"}
    assert kept(conversion) == {"sigmoid": GATE}
    for act in (nn.ReLU(), nn.Tanh(), nn.GELU(), SUDO(4)):
        conversion = convert(ReGLU(act), "sudo-8")
        assert conversion.changes == ()
        assert kept(conversion) == {"act": GATE}


@pytest.mark.parametrize("times", [operator.mul, operator.imul, torch.mul, lambda a, b: a.mul_(b)])
def test_products_in_every_spelling(times):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.act = nn.Linear(3, 3), nn.Linear(3, 3), nn.Sigmoid()

        def forward(self, x):
            gate = self.act(self.a(x)).unsqueeze(0) / 2
            return self.b(times(self.b(x), gate.squeeze(0)))

    assert kept(convert(Model(), "sudo-4")) == {"act": GATE}


def test_a_square_and_a_constant_factor_are_no_gates():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
            self.first, self.second = nn.ReLU(), nn.Tanh()
            self.gain = nn.Parameter(torch.ones(3))

        def forward(self, x):
            y = self.first(self.a(x))
            return self.b(y * y) + self.a(self.second(x) * self.gain * 2)

    conversion = convert(Model(), "sudo-4")
    assert list(changed(conversion)) == ["first", "second"]
    assert conversion.kept == ()


# Where torch.fx fails


class Untraceable(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))
        self.cell, self.head = GatedCell(), nn.Sequential(nn.Linear(3, 1), nn.Sigmoid())
        self.act = nn.ReLU()

    def forward(self, x):
        return self.head(self.act(self.cell(self.body(x)))) if x.sum() > 0 else x


def test_what_could_not_be_told_apart_is_said():
    conversion = convert(Untraceable(), levels=4)
    assert list(changed(conversion)) == ["body.1", "cell.tanh", "head.1", "act"]
    assert kept(conversion) == {"cell.sigmoid": GATE}  # Told by the cell alone.
    assert conversion.unclear == ("head.1", "act")
    assert "perhaps outputs or gates: 2\n  head.1\n  act\n" in str(conversion)
    assert "overrides={path: None} keeps one" in str(conversion)
    conversion = convert(Untraceable(), levels=4, overrides={"head.1": None, "act": "sudo-4"})
    assert conversion.unclear == ()
    assert "head.1" not in changed(conversion)


def test_a_part_that_cannot_be_traced_does_not_hide_the_rest():
    model = nn.Sequential(Untraceable(), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1), nn.Sigmoid())
    conversion = convert(model, levels=4)
    assert kept(conversion) == {"0.cell.sigmoid": GATE, "4": OUTPUT}
    assert conversion.unclear == ("0.head.1", "0.act")


def test_models_without_a_forward():
    model = nn.ModuleDict({"a": nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))})
    model["b"] = InvertedResidual(2, nn.Sigmoid())
    conversion = convert(model, levels=4)
    assert conversion.unclear == ()
    assert kept(conversion) == {"b.body.4.gate": GATE}


def test_lazy_layers_are_traced():
    model = nn.Sequential(nn.LazyLinear(3), nn.Tanh(), nn.LazyLinear(1), nn.Sigmoid())
    conversion = convert(model, levels=4)
    assert kept(conversion) == {"3": OUTPUT}
    assert conversion.unclear == ()
    assert model(torch.ones(2, 5)).shape == (2, 1)


def test_units_at_the_output_stay_as_they_are():
    model = nn.Sequential(nn.Linear(2, 2), SUDO(4), nn.Linear(2, 1), SUDO(4))
    conversion = convert(model, Staircase(8))
    assert changed(conversion) == {"1": "sudo-8"}
    assert kept(conversion) == {"3": OUTPUT}
