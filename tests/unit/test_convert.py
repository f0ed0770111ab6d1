"""Activations are exchanged, nothing else is, and what cannot be exchanged is named."""

import copy
import inspect
import random
import re
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn, tanh

from sudonet import RSUDO, SUDO, Staircase
from sudonet._convert import Change, convert
from sudonet._hidden_activations import NotReplaced
from sudonet.units import SMOOTH, StaircaseUnit

pytestmark = pytest.mark.without_core

torch.set_num_threads(1)

FIVE = [nn.Tanh, nn.ReLU, nn.Sigmoid, nn.Hardtanh, nn.ReLU6]


def network(*activations: nn.Module) -> nn.Sequential:
    """4 -> 8 -> ... -> 8 -> 1, the same weights every time; activations at 1, 3, 5 ..."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Linear(4, 8)]
    for activation in activations:
        layers += [activation, nn.Linear(8, 8)]
    return nn.Sequential(*layers, nn.Linear(8, 1))


def inputs() -> torch.Tensor:
    return torch.randn(16, 4, generator=torch.Generator().manual_seed(1))


def what(conversion) -> list[tuple[str, str]]:
    return [(item.where, item.what) for item in conversion.not_replaced]


def line_of(function, text: str) -> str:
    """``file:line`` of the only line of a function that has ``text`` in it."""
    lines, first = inspect.getsourcelines(function)
    (offset,) = [i for i, line in enumerate(lines) if text in line]
    return f"test_convert.py:{first + offset}"


# What is replaced


@pytest.mark.parametrize("kind", FIVE)
def test_all_five_kinds_are_replaced_in_place(kind):
    model = network(kind(), kind())
    conversion = convert(model, "sudo-32")
    assert conversion.model is model
    assert [change.path for change in conversion.changes] == ["1", "3"]
    assert all(type(model[i]) is SUDO and model[i].name == "sudo-32" for i in (1, 3))


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("R-SUDO-8-full", "RSUDO(r-sudo-8-full)"),
        ("sudo-16-sigmoid", "SUDO(sudo-16-sigmoid)"),
        (Staircase(5), "SUDO(sudo-5)"),
        (Staircase(4, rectified=True), "RSUDO(r-sudo-4)"),
        ("relu6", "ReLU6()"),
    ],
)
def test_every_name_of_a_unit_is_a_target(to, expected):
    model = network(nn.Tanh())
    convert(model, to)
    assert repr(model[1]) == expected


def test_a_mapping_replaces_its_kinds_and_leaves_the_others():
    model = network(nn.Tanh(), nn.ReLU(), nn.Sigmoid(), nn.GELU(), nn.Hardtanh())
    to = {"Tanh": "sudo-32", nn.ReLU: Staircase(8, rectified=True), nn.GELU: "sudo-2", "relu6": "x"}
    with pytest.raises(ValueError, match="'x'"):
        convert(model, to)
    convert(model, to | {"relu6": None, nn.Hardtanh: None})
    found = [repr(model[i]) for i in range(1, 10, 2)]
    assert found == [
        "SUDO(sudo-32)",
        "RSUDO(r-sudo-8)",
        "Sigmoid()",
        "SUDO(sudo-2)",
        "Hardtanh(min_val=-1.0, max_val=1.0)",
    ]


def test_relu6_is_not_a_hardtanh():
    model = network(nn.Hardtanh(), nn.ReLU6())
    convert(model, {"hardtanh": "sudo-4-hardtanh"})
    assert repr(model[1]) == "SUDO(sudo-4-hardtanh)"
    assert type(model[3]) is nn.ReLU6


def test_derived_classes_are_left_alone():
    class Shifted(nn.Tanh):
        def forward(self, x):
            return super().forward(x) + 1

    class OwnUnit(SUDO):
        pass

    model = network(Shifted(), OwnUnit(3))
    before = list(model)
    with pytest.raises(ValueError, match="'3' matches no activation: there are none"):
        convert(model, "sudo-4", overrides={"3": "sudo-8"})
    with pytest.warns(UserWarning, match=r"1: torch\.tanh"):
        assert convert(model, "sudo-4").changes == ()
    assert all(a is b for a, b in zip(model, before, strict=True))


def test_an_activation_that_would_not_change_is_no_change():
    model = network(nn.Tanh(), nn.ReLU(inplace=True))
    tanh_module = model[1]
    conversion = convert(model, {"tanh": "tanh", "relu": "relu"})
    assert model[1] is tanh_module
    assert str(conversion) == "activations replaced: 1\n  3: ReLU(inplace=True) -> ReLU()"


def test_nested_containers():
    model = nn.ModuleDict(
        {
            "encoder": nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.Tanh())),
            "heads": nn.ModuleList([nn.Sequential(nn.Linear(2, 1), nn.Sigmoid()), nn.ReLU()]),
        }
    )
    paths = [change.path for change in convert(model, "sudo-8").changes]
    assert paths == ["encoder.1.1", "heads.0.1", "heads.1"]
    assert not any(type(module) in FIVE for module in model.modules())
    assert list(model) == ["encoder", "heads"]


def test_weights_load_strictly_both_ways_and_outputs_come_close():
    smooth = network(nn.Tanh(), nn.Tanh())
    fine = convert(smooth, "sudo-4096", copy=True).model
    assert list(smooth.state_dict()) == list(fine.state_dict())
    other = network(nn.Tanh(), nn.Tanh())
    with torch.no_grad():
        other[0].weight.mul_(-2)
    fine.load_state_dict(other.state_dict(), strict=True)
    torch.testing.assert_close(fine(inputs()), other(inputs()), atol=5e-3, rtol=0)
    smooth.load_state_dict(fine.state_dict(), strict=True)
    torch.testing.assert_close(smooth(inputs()), other(inputs()), atol=0, rtol=0)


def test_only_the_chosen_levels_come_out():
    model = network(nn.Tanh())
    convert(model, "sudo-3")
    assert set(model[:2](inputs()).unique().tolist()) <= {-1.0, 0.0, 1.0}


# Overrides


def test_levels_are_mixed_by_path_and_pattern_and_the_last_match_wins():
    model = nn.Sequential()
    for name in ("encoder", "decoder"):
        model.add_module(name, network(nn.Tanh(), nn.Tanh(), nn.Tanh()))
    overrides = {"encoder.*": "sudo-4", "*.3": "sudo-16", "decoder.5": None, "encoder.5": "relu"}
    conversion = convert(model, "sudo-32", overrides=overrides)
    assert {change.path: repr(change.after) for change in conversion.changes} == {
        "encoder.1": "SUDO(sudo-4)",
        "encoder.3": "SUDO(sudo-16)",
        "encoder.5": "ReLU()",
        "decoder.1": "SUDO(sudo-32)",
        "decoder.3": "SUDO(sudo-16)",
    }
    assert type(model.decoder[5]) is nn.Tanh


def test_units_that_are_there_are_converted_too():
    model = network(SUDO(4), RSUDO(8), nn.Tanh(), StaircaseUnit(Staircase(5)), SUDO(32))
    modules = list(model)
    conversion = convert(model, "sudo-32", overrides={"1": "sudo-2", "3": None, "7": "tanh"})
    assert [change.path for change in conversion.changes] == ["1", "5", "7"]
    assert model[1].name == "sudo-2"
    assert model[3] is modules[3]
    assert type(model[7]) is nn.Tanh
    assert model[9] is modules[9]
    convert(model, "sudo-4")
    assert [model[i].name for i in (1, 3, 5, 7, 9)] == ["sudo-4"] * 5


def test_levels_of_units_change_and_their_form_stays():
    model = network(SUDO(4, "sigmoid"), RSUDO(8, placement="full"), StaircaseUnit(Staircase(5)))
    modules = list(model)
    conversion = convert(model, levels=16)
    assert [model[i].name for i in (1, 3, 5)] == ["sudo-16-sigmoid", "r-sudo-16-full", "sudo-16"]
    conversion.undo()
    assert all(a is b for a, b in zip(model, modules, strict=True))


def test_discrete_units_can_be_turned_back_by_class():
    model = network(SUDO(4), RSUDO(8))
    convert(model, {SUDO: "tanh", RSUDO: "relu"})
    assert [type(model[1]), type(model[3])] == [nn.Tanh, nn.ReLU]


def test_an_override_without_a_match_names_the_paths_that_exist():
    model = network(nn.Tanh(), SUDO(2))
    with pytest.raises(ValueError, match=r"'encoder\.\*' matches no activation: there are 1, 3"):
        convert(model, "sudo-4", overrides={"encoder.*": "sudo-2"})
    with pytest.raises(ValueError, match="'0' matches no activation"):
        convert(model, "sudo-4", overrides={"0": "sudo-2"})
    assert type(model[1]) is nn.Tanh


# Shared modules, hooks, modes


def test_a_shared_module_stays_shared_where_it_gets_the_same_unit():
    act = nn.Tanh()
    model = network(act, act, act)
    conversion = convert(model, "sudo-32", overrides={"5": "sudo-2"})
    assert model[1] is model[3]
    assert model[5].name == "sudo-2"
    assert conversion.undo() is model
    assert model[1] is model[3] is model[5] is act


def test_a_shared_parent_is_one_place():
    block = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    model = nn.Sequential(block, nn.Linear(4, 4), block, nn.Linear(4, 4))
    with pytest.raises(ValueError, match=r"0\.1 and 2\.1 are one place.*sudo-4 and sudo-2"):
        convert(model, "sudo-4", overrides={"2.*": "sudo-2"})
    with pytest.raises(ValueError, match=r"sudo-4 and None"):
        convert(model, "sudo-4", overrides={"2.*": None})
    conversion = convert(model, "sudo-4")
    assert [change.path for change in conversion.changes] == ["0.1", "2.1"]
    assert type(conversion.undo()[0][1]) is nn.Tanh


def test_units_take_over_the_mode_and_give_it_back():
    model = network(nn.Tanh()).eval()
    conversion = convert(model, "sudo-4")
    assert not model[1].training
    model.train()
    conversion.undo()
    assert model[1].training


def test_hooks_go_on_working_and_handles_still_remove_them():
    model = network(nn.Tanh())
    seen = []
    act = model[1]
    handles = [
        act.register_forward_hook(lambda module, args, out: seen.append(("forward", module))),
        act.register_forward_pre_hook(
            lambda module, args, kwargs: seen.append(("before", module)), with_kwargs=True
        ),
        act.register_full_backward_hook(lambda module, *grads: seen.append(("backward", module))),
    ]
    conversion = convert(model, "sudo-4")
    assert seen == []  # The search for functions calls no hooks.
    late = model[1].register_forward_hook(lambda module, args, out: seen.append(("late", module)))
    model(inputs()).sum().backward()
    names = ["before", "forward", "late", "backward"]
    assert seen == [(name, model[1]) for name in names]

    seen.clear()
    conversion.undo()
    model(inputs()).sum().backward()
    assert seen == [(name, act) for name in names]

    seen.clear()
    for handle in [*handles, late]:
        handle.remove()
    convert(model, "sudo-4")
    model(inputs()).sum().backward()
    assert seen == []


# Undo and copy


def test_undo_restores_the_same_objects_and_outputs():
    model = network(nn.Tanh(), nn.ReLU(inplace=True), nn.Sigmoid())
    modules, output = list(model), model(inputs())
    conversion = convert(model, "sudo-2")
    assert not torch.equal(model(inputs()), output)
    assert conversion.undo() is model
    assert all(a is b for a, b in zip(model, modules, strict=True))
    assert torch.equal(model(inputs()), output)


def test_undo_refuses_a_place_that_was_changed_and_changes_nothing():
    model = network(nn.Tanh(), nn.Tanh())
    conversion = convert(model, "sudo-4")
    unit, model[3] = model[3], nn.ReLU()
    with pytest.raises(RuntimeError, match=r"3 holds ReLU\(\), not the SUDO\(sudo-4\)"):
        conversion.undo()
    assert repr(model[1]) == "SUDO(sudo-4)"
    model[3] = unit
    conversion.undo()
    with pytest.raises(RuntimeError, match=r"1 holds Tanh\(\).*each only once"):
        conversion.undo()


def test_undo_names_a_place_that_is_gone():
    model = nn.ModuleDict({"act": nn.Tanh()})
    conversion = convert(model, "sudo-4")
    del model["act"]
    with pytest.raises(RuntimeError, match="act holds None"):
        conversion.undo()


def test_conversions_on_top_of_each_other_are_undone_in_turn():
    model = network(nn.Tanh())
    act = model[1]
    first = convert(model, "sudo-4")
    second = convert(model, "sudo-4", overrides={"1": "sudo-8"})
    with pytest.raises(RuntimeError, match="Undo later conversions first"):
        first.undo()
    second.undo()
    assert first.undo()[1] is act


def test_a_copy_leaves_the_original_alone():
    model = network(nn.Tanh(), nn.ReLU())
    modules, output = list(model), model(inputs())
    conversion = convert(model, "sudo-4", copy=True)
    assert conversion.model is not model
    assert repr(conversion.model[1]) == "SUDO(sudo-4)"
    with torch.no_grad():
        conversion.model[0].weight.zero_()
    assert all(a is b for a, b in zip(model, modules, strict=True))
    assert torch.equal(model(inputs()), output)


def test_a_model_that_is_an_activation_needs_a_copy():
    act = nn.Tanh()
    with pytest.raises(ValueError, match=r"activation Tanh\(\).*copy=True and take \.model"):
        convert(act, "sudo-4")
    conversion = convert(act, "sudo-4", copy=True)
    assert repr(conversion.model) == "SUDO(sudo-4)"
    assert str(conversion.changes[0]).strip() == "the model itself: Tanh() -> SUDO(sudo-4)"
    assert type(conversion.undo()) is type(conversion.model) is nn.Tanh


# Activations that cannot be replaced


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.act = nn.Tanh()

    def forward(self, x):
        return F.relu(self.act(self.linear(x)))


class Branching(nn.Module):
    """Has control flow that depends on data: torch.fx cannot trace it."""

    def __init__(self):
        super().__init__()
        self.block = Block()
        self.relu = nn.ReLU()
        self.gate = torch.sigmoid
        self.spare = [nn.Tanh(), {}]

    def forward(self, x):
        if x.sum() > 0:
            x = x.relu_()
        x = self.relu(self.block(x))
        x = self.squashed(x) * np.tanh(0.5)
        return self.gate(x) + F.hardtanh(x, -2.0, 2.0)

    def squashed(self, x):
        act = tanh if x.mean() > 0 else torch.nn.functional.relu6
        return helper(act(x))

    def unused(self, x):
        return F.relu(x)


class Derived(Branching):
    def forward(self, x):
        return super().forward(x) + 1


def helper(x):
    return x.sigmoid()


def test_a_function_in_a_traceable_model_is_named_with_its_place():
    model = nn.Sequential(Block(), nn.Linear(4, 4), Block())
    with pytest.warns(UserWarning, match=r"0: F\.relu at test_convert\.py") as caught:
        conversion = convert(model, "sudo-4")
    at = line_of(Block.forward, "F.relu")
    assert conversion.not_replaced == tuple(
        NotReplaced(where, "F.relu", "called as a function", at) for where in ("0", "2")
    )
    assert [change.path for change in conversion.changes] == ["0.act", "2.act"]
    (warning,) = caught
    assert warning.filename == __file__
    assert "self.act = nn.ReLU()" in str(warning.message)
    assert f"not replaced: 2\n  0: F.relu at {at}, called as a function" in str(conversion)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: F.relu(x), "F.relu"),
        (lambda x: F.relu(x, inplace=True), "F.relu"),
        (lambda x: F.relu6(x), "F.relu6"),
        (lambda x: F.hardtanh(x), "F.hardtanh"),
        (lambda x: F.tanh(x), "x.tanh()"),
        (lambda x: F.sigmoid(x), "x.sigmoid()"),
        (lambda x: torch.relu(x), "torch.relu"),
        (lambda x: torch.relu_(x), "torch.relu_"),
        (lambda x: tanh(x), "torch.tanh"),
        (lambda x: torch.sigmoid(x), "torch.sigmoid"),
        (lambda x: x.relu(), "x.relu()"),
        (lambda x: x.relu_(), "x.relu_()"),
        (lambda x: x.tanh(), "x.tanh()"),
        (lambda x: x.sigmoid_(), "x.sigmoid_()"),
        (lambda x: torch.ops.aten.relu.default(x), "aten.relu"),
    ],
)
def test_every_spelling_is_found_by_tracing(function, name):
    class Model(nn.Module):
        def forward(self, x):
            return function(x)

    for model, where in ((Model(), ""), (nn.Sequential(Model()), "0")):
        with pytest.warns(UserWarning, match=f"{where or 'the model itself'}: "):
            conversion = convert(model, "sudo-4")
        assert what(conversion) == [(where, name)]


def test_a_function_of_a_weight_or_a_buffer_is_found():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))
            self.register_buffer("scale", torch.ones(3))

        def forward(self, x):
            return x * torch.tanh(self.weight) * self.scale.sigmoid()

    with pytest.warns(UserWarning, match=r"torch\.tanh"):
        assert what(convert(Scaled(), "sudo-4")) == [("", "torch.tanh"), ("", "x.sigmoid()")]


@pytest.mark.parametrize("model", [Branching(), Derived()])
def test_where_tracing_fails_the_source_is_read(model):
    with pytest.raises(torch.fx.proxy.TraceError):
        torch.fx.symbolic_trace(model)
    with pytest.warns(UserWarning, match=r"block: F\.relu") as caught:
        conversion = convert(model, "sudo-4", copy=True)
    assert len(caught) == 1
    assert set(what(conversion)) == {
        ("", "torch.sigmoid"),  # self.gate
        ("", "Tanh()"),  # in a list, not registered
        ("", "x.relu_()"),
        ("", "F.hardtanh"),
        ("", "torch.tanh"),  # in another method, under another name
        ("", "F.relu6"),
        ("", "x.sigmoid()"),  # in a function of this file
        ("block", "F.relu"),
    }
    by_what = {item.what: item for item in conversion.not_replaced}
    assert by_what["x.relu_()"].at == line_of(Branching.forward, "relu_()")
    assert by_what["F.relu6"].at == line_of(Branching.squashed, "relu6")
    assert by_what["torch.sigmoid"].why == "a function, in .gate"
    assert [change.path for change in conversion.changes] == ["block.act", "relu"]


def test_names_imported_inside_forward_are_known(monkeypatch):
    monkeypatch.delitem(globals(), "F")

    class Local(nn.Module):
        def forward(self, x):
            import torch.nn.functional as F  # noqa: N812

            return F.relu(x) if x.sum() > 0 else x

    with pytest.warns(UserWarning, match=r"the model itself: F\.relu"):
        assert what(convert(Local(), "sudo-4")) == [("", "F.relu")]


def test_modules_that_the_trace_does_not_reach_are_read():
    class Auxiliary(nn.Module):
        def __init__(self):
            super().__init__()
            self.main, self.spare = nn.Linear(4, 4), Block()

        def forward(self, x):
            return self.main(x)

    with pytest.warns(UserWarning, match=r"spare: F\.relu"):
        convert(Auxiliary(), "sudo-4")


def test_both_modes_are_looked_at():
    class Moody(nn.Module):
        def train(self, mode=True):  # Returns nothing, as many do.
            super().train(mode)

        def forward(self, x):
            return torch.tanh(x) if self.training else torch.relu(x)

    for mode in (True, False):
        model = Moody()
        model.train(mode)
        with pytest.warns(UserWarning, match=r"torch\.relu"):
            conversion = convert(model, "sudo-4")
        assert what(conversion) == [("", "torch.tanh"), ("", "torch.relu")]
        assert model.training is mode


def test_a_forward_without_source_is_said_to_be_closed():
    scope = {"nn": nn}
    code = "class Closed(nn.Module):\n def forward(self, x):\n  return x if x.sum() > 0 else -x"
    exec(code, scope)
    model = nn.Sequential(scope["Closed"](), nn.Tanh(), nn.Linear(2, 2))
    with pytest.warns(UserWarning, match=r"0: Closed\.forward, could not be searched"):
        conversion = convert(model, "sudo-4")
    assert [change.path for change in conversion.changes] == ["1"]


@pytest.mark.parametrize(
    "module",
    [nn.LSTM(4, 4), nn.GRU(4, 4), nn.RNN(4, 4), nn.LSTMCell(4, 4), nn.GRUCell(4, 4)],
    ids=lambda module: type(module).__name__,
)
def test_recurrent_modules_are_named(module):
    name = type(module).__name__
    for model, path in ((nn.Sequential(module), "0"), (module, "")):
        with pytest.warns(UserWarning, match=re.escape(name)):
            assert what(convert(model, "sudo-4")) == [(path, name)]


@pytest.mark.parametrize("layer", [nn.TransformerEncoderLayer, nn.TransformerDecoderLayer])
def test_transformer_layers_are_named_if_their_activation_is_a_function(layer):
    with pytest.warns(UserWarning, match=r"0: F\.relu, a function, in \.activation"):
        assert what(convert(nn.Sequential(layer(4, 2, 8)), "sudo-4")) == [("0", "F.relu")]
    with pytest.warns(UserWarning, match=r"0: F\.gelu, a function, in \.activation"):
        convert(nn.Sequential(layer(4, 2, 8, activation="gelu")), "sudo-4")
    conversion = convert(nn.Sequential(layer(4, 2, 8, activation=nn.ReLU())), "sudo-4")
    assert [change.path for change in conversion.changes] == ["0.activation"]


def test_a_converted_transformer_computes_the_same_in_training_and_evaluation():
    """PyTorch's fused path for evaluation has a ReLU of its own."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, activation=nn.ReLU(), batch_first=True)
    model = nn.TransformerEncoder(layer, 2)
    x = torch.randn(2, 5, 4)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    conversion = convert(model, "sudo-2")
    discrete = model(x, src_key_padding_mask=padding)
    with torch.no_grad():
        evaluated = model.eval()(x, src_key_padding_mask=padding)
    torch.testing.assert_close(evaluated[~padding], discrete[~padding])
    conversion.undo()
    assert model.use_nested_tensor
    assert all(layer.activation_relu_or_gelu == 1 for layer in model.layers)


def test_models_with_discrete_units_are_traced_and_found_clean():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.unit = SUDO(4)
            self.act = nn.Tanh()

        def forward(self, x):
            return self.act(self.unit(x)) + 1

    assert convert(Model(), "sudo-4").not_replaced == ()
    with pytest.warns(UserWarning, match=r"1: F\.relu"):
        convert(nn.Sequential(Model(), Block()), "sudo-4")


def test_a_class_of_the_mapping_is_not_searched():
    class Own(nn.Module):
        def forward(self, x):
            return torch.tanh(x)

    model = network(Own())
    assert convert(model, {Own: "sudo-4"}, copy=True).not_replaced == ()
    with pytest.warns(UserWarning, match=r"1: torch\.tanh"):
        convert(model, "sudo-4")


def test_the_search_touches_neither_the_model_nor_random_numbers():
    class Restless(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))
            self.register_buffer("steps", torch.zeros(3))
            self.calls = []

        def forward(self, x):
            self.calls.append(x)
            self.last = x
            self.steps.add_(1)
            with torch.no_grad():
                for tensor in [*self.parameters(), *self.buffers()]:
                    tensor.add_(1)
            noise = torch.randn(3) + random.random() + np.random.rand()  # noqa: NPY002
            return x * self.weight + noise

    model = nn.Sequential(Restless(), nn.Tanh())
    hooked = []
    model[0].register_forward_hook(lambda module, args, out: hooked.append(out))
    torch.manual_seed(0)
    state = copy.deepcopy(model.state_dict())
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    convert(model, "sudo-4")
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.array_equal(np.random.get_state()[1], before[2])  # noqa: NPY002
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert model[0].calls == hooked == []
    assert not hasattr(model[0], "last")


def test_where_warnings_are_errors_the_model_stays_as_it_was():
    model = Block()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match=r"F\.relu"):
            convert(model, "sudo-4")
    assert type(model.act) is nn.Tanh


# Wrong inputs


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("net", "sudo-4"), TypeError, "model must be a torch.nn.Module, got str"),
        ((nn.ReLU, "sudo-4"), TypeError, "model must be a torch.nn.Module, got type"),
        ((network(nn.Tanh()), "sodu-4"), ValueError, "unknown unit 'sodu-4'"),
        ((network(nn.Tanh()), "sudo-1"), ValueError, "levels must be .* got 1"),
        ((network(nn.Tanh()), ""), ValueError, "unknown unit ''"),
        ((network(nn.Tanh()), 32), TypeError, "to must be a unit such as 'sudo-32'.*got 32"),
        ((network(nn.Tanh()), None), TypeError, "to must be .* got None"),
        ((network(nn.Tanh()), {"gelu": "sudo-4"}), ValueError, "'gelu'.*one of tanh, relu"),
        ((network(nn.Tanh()), {torch.Tensor: "sudo-4"}), ValueError, "or a module class"),
        ((network(nn.Tanh()), {nn.Tanh: 32}), TypeError, "got 32"),
        ((network(nn.Tanh()), {nn.Linear: "sudo-4"}), ValueError, "0 is a Linear.*lost"),
    ],
)
def test_wrong_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        convert(*arguments)


def test_a_wrong_override_is_named_before_anything_changes():
    model = network(nn.Tanh())
    with pytest.raises(ValueError, match="unknown unit 'sudo'"):
        convert(model, "sudo-4", overrides={"1": "sudo"})
    assert type(model[1]) is nn.Tanh


def test_the_account_reads_well():
    model = network(nn.Tanh(), nn.ReLU())
    conversion = convert(model, "sudo-4", overrides={"3": "r-sudo-8"})
    assert conversion.changes[0] == Change("1", conversion.changes[0].before, model[1])
    assert repr(conversion.changes[0]) == "Change(path='1', before=Tanh(), after=SUDO(sudo-4))"
    assert str(conversion) == (
        "activations replaced: 2\n  1: Tanh() -> SUDO(sudo-4)\n  3: ReLU() -> RSUDO(r-sudo-8)"
    )
    assert str(convert(nn.Linear(1, 1), "sudo-4")) == "activations replaced: 0"


def test_the_five_kinds_are_those_that_have_a_name():
    assert list(SMOOTH.values()) == FIVE


# Training


def two_moons(points: int = 400) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, np.pi, points)
    moon = np.arange(points) % 2
    x = np.where(moon, 1 - np.cos(angle), np.cos(angle))
    y = np.where(moon, 0.5 - np.sin(angle), np.sin(angle))
    xy = np.stack([x, y], 1) + rng.normal(0, 0.1, (points, 2))
    return torch.tensor(xy, dtype=torch.float32), torch.tensor(moon, dtype=torch.float32)


def trained(model: nn.Module, steps: int = 400) -> tuple[list[float], float]:
    """Losses on the way, and the accuracy on points that training did not see."""
    x, y = two_moons()
    half = len(x) // 2
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        loss = F.binary_cross_entropy_with_logits(model(x[:half]).squeeze(1), y[:half])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    with torch.no_grad():
        correct = (model(x[half:]).squeeze(1) > 0) == (y[half:] > 0)
    return losses, correct.float().mean().item()


def test_two_moons_from_the_same_weights():
    torch.manual_seed(0)
    smooth = nn.Sequential(
        nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)
    )
    fine = convert(smooth, "sudo-32", copy=True).model
    coarse = convert(smooth, "sudo-2", copy=True).model
    mixed = convert(smooth, "sudo-32", overrides={"3": "sudo-4"}, copy=True).model
    _, reference = trained(smooth)
    losses, accuracy = trained(fine)
    assert reference > 0.95
    assert losses[-1] < losses[0] / 4
    assert abs(accuracy - reference) <= 0.02
    assert trained(mixed)[1] > 0.9
    assert trained(coarse)[1] > 0.7
