"""Layers that keep less: the same gradients to the last bit, and fewer bytes."""

import gc

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import sudonet
from sudonet import Staircase
from sudonet._convert import convert
from sudonet.lean import CodedLinear, SUDOLinear, codes_of, values_of

pytestmark = pytest.mark.without_core

NAMES = ["sudo-2", "sudo-16", "sudo-300", "sudo-9-sigmoid", "sudo-5-relu6", "r-sudo-8", "r-sudo-7"]
NAMES += ["r-sudo-9-full", "sudo-6-hardtanh"]
modes = pytest.mark.parametrize("memory", ["lean", "codes"])


def network(bias: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(40, 50, bias),
        nn.Tanh(),
        nn.Linear(50, 60, bias),
        nn.Tanh(),
        nn.Linear(60, 3, bias),
    )


def gradients(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    x = x.clone().requires_grad_()
    model.zero_grad()
    y = model(x)
    y.square().sum().backward()
    return [y.detach(), x.grad, *(p.grad.clone() for p in model.parameters())]


@modes
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(100,), (4, 25), ()])
@pytest.mark.parametrize("bias", [True, False])
def test_gradients_are_the_same_to_the_last_bit(memory, name, shape, bias):
    x = torch.randn(*shape, 40)
    plain, fused = network(bias), network(bias)
    convert(plain, name)
    convert(fused, name, memory=memory)
    for ours, theirs in zip(gradients(fused, x), gradients(plain, x), strict=True):
        assert torch.equal(ours, theirs)


@modes
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["sudo-16", "sudo-256", "r-sudo-256", "sudo-1000"])
def test_other_types(memory, name, dtype):
    x = torch.randn(32, 40, dtype=dtype)
    plain, fused = network().to(dtype), network().to(dtype)
    convert(plain, name)
    convert(fused, name, memory=memory)
    for ours, theirs in zip(gradients(fused, x), gradients(plain, x), strict=True):
        assert torch.equal(ours, theirs)


@modes
def test_only_what_needs_a_gradient_gets_one(memory):
    model = network()
    convert(model, "sudo-8", memory=memory)
    model[0].weight.requires_grad_(False)
    model[4].bias.requires_grad_(False)
    model(torch.randn(5, 40)).sum().backward()
    assert model[0].weight.grad is None
    assert model[4].bias.grad is None
    assert model[2].weight.grad is not None


@modes
def test_autocast_inference_and_compiling_take_the_plain_way(memory):
    plain, fused = network(), network()
    convert(plain, "sudo-16")
    convert(fused, "sudo-16", memory=memory)
    x = torch.randn(8, 40)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for ours, theirs in zip(gradients(fused, x), gradients(plain, x), strict=True):
            assert torch.equal(ours, theirs)
    with torch.inference_mode():
        assert torch.equal(fused(x), plain(x))
    compiled = torch.compile(fused, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), plain(x))
    assert torch.equal(torch.func.vmap(fused)(x[:, None])[:, 0], plain(x[:, None])[:, 0])


class Skip(nn.Sequential):
    def forward(self, x):
        h = self[0](x)
        return self[2](h + self[1](h))


@modes
def test_a_sequence_with_a_forward_of_its_own_stays_as_it_is(memory):
    model = Skip(nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 3))
    plain, fused = (convert(model, "sudo-4", copy=True, memory=m).model for m in ("plain", memory))
    x = torch.randn(8, 40)
    assert torch.equal(fused(x), plain(x))


@modes
@pytest.mark.parametrize("place", range(5))
def test_hooks_see_and_change_what_they_did_before(memory, place):
    x, seen = torch.randn(8, 40), []

    def hook(module, args, output):
        seen.append((args[0].detach(), output.detach()))
        return output * 0.5

    found = []
    for kind in ("plain", memory):
        model = network()
        model[place].register_forward_hook(hook)
        convert(model, "sudo-4", memory=kind)
        found.append(gradients(model, x))
    for ours, theirs in zip(*found, strict=True):
        assert torch.equal(ours, theirs)
    for ours, theirs in zip(*seen, strict=True):
        assert torch.equal(ours, theirs)


@modes
def test_pruned_layers_stay_as_they_are(memory):
    plain, fused = network(), network()
    for model, kind in ((plain, "plain"), (fused, memory)):
        prune.l1_unstructured(model[2], "weight", 0.5)
        convert(model, "sudo-4", memory=kind)
    x = torch.randn(8, 40)
    assert torch.equal(fused(x), plain(x))


@modes
def test_undo_keeps_weights_that_were_put_in(memory):
    model = network()
    conversion = convert(model, "sudo-4", memory=memory)
    sevens = {name: torch.full_like(value, 7) for name, value in model.state_dict().items()}
    model.load_state_dict(sevens, assign=True)
    conversion.undo()
    assert all((value == 7).all() for value in model.state_dict().values())


def test_second_derivatives():
    plain, lean, coded = network().double(), network().double(), network().double()
    convert(plain, "sudo-16")
    convert(lean, "sudo-16", memory="lean")
    convert(coded, "sudo-16", memory="codes")
    x = torch.randn(3, 40, dtype=torch.float64, requires_grad=True)

    def second(model):
        (first,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    torch.testing.assert_close(second(lean), second(plain))
    with pytest.raises(RuntimeError, match=r"no second derivatives.*memory='lean'"):
        second(coded)


def kept_bytes(model: nn.Module, x: torch.Tensor) -> int:
    """Bytes of all tensors that autograd keeps, apart from parameters and the input."""
    known = {p.untyped_storage().data_ptr() for p in model.parameters()}
    known.add(x.untyped_storage().data_ptr())
    storages = {}

    def pack(t):
        storages[t.untyped_storage().data_ptr()] = (t, t.untyped_storage().nbytes())
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = model(x)
    assert y.requires_grad
    gc.collect()
    return sum(size for pointer, (_, size) in storages.items() if pointer not in known)


def test_bytes_that_are_kept():
    x = torch.randn(1000, 40)
    elements = 1000 * (50 + 60)
    found = {}
    for memory in ("plain", "lean", "codes"):
        model = network()
        convert(model, "sudo-16", memory=memory)
        found[memory] = kept_bytes(model, x) / elements
    assert found == {"plain": 8, "lean": 4, "codes": 1}


@modes
def test_convert_undo_and_state(memory):
    model = network()
    before, state = list(model), {k: v.clone() for k, v in model.state_dict().items()}
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    conversion = convert(model, "sudo-16", memory=memory)
    assert list(model.state_dict()) == list(state)
    kind = SUDOLinear if memory == "lean" else CodedLinear
    assert isinstance(model[2], kind)
    assert all(isinstance(m, nn.Identity) for m in (model[1], model[3]))
    assert len(conversion.changes) == 2
    assert str(conversion).count("->") == (4 if memory == "lean" else 5)
    model(torch.randn(9, 40)).sum().backward()
    optimiser.step()
    assert not torch.equal(model[2].weight, state["2.weight"])
    conversion.undo()
    assert all(now is then for now, then in zip(model, before, strict=True))


def test_what_is_not_next_to_a_linear_layer_stays_a_unit():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Dropout(0.1), nn.Linear(4, 4), nn.ReLU())
    convert(model, "sudo-8", memory="lean", overrides={"4": "sudo-8"})
    assert isinstance(model[1], sudonet.SUDO)
    assert isinstance(model[4], sudonet.SUDO)
    shared = nn.Linear(4, 4)
    model = nn.Sequential(shared, nn.Tanh(), shared, nn.Tanh())
    convert(model, "sudo-8", memory="codes")
    assert model[0] is model[2] is shared


def test_mixed_levels():
    plain, fused = network(), network()
    for model, memory in ((plain, "plain"), (fused, "codes")):
        convert(model, "sudo-16", overrides={"3": "r-sudo-4"}, memory=memory)
    assert (fused[2].before.name, fused[2].after.name) == ("sudo-16", "r-sudo-4")
    x = torch.randn(6, 40)
    assert all(map(torch.equal, gradients(fused, x), gradients(plain, x)))


def test_unknown_memory():
    with pytest.raises(ValueError, match="one of plain, lean, codes, got 'small'"):
        convert(network(), "sudo-8", memory="small")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_codes_of_every_unit(dtype):
    for levels in [*range(2, 260), 4096, 65_536]:
        for pattern in (
            "sudo-{}",
            "sudo-{}-relu6",
            "sudo-{}-sigmoid",
            "r-sudo-{}",
            "r-sudo-{}-full",
        ):
            unit = Staircase.parse(pattern.format(levels))
            values = torch.tensor(unit.values).to(dtype)
            codes = codes_of(values.clone(), unit)
            assert codes.tolist() == list(range(unit.outputs)), unit
            assert torch.equal(values_of(codes, unit, dtype), values)


@pytest.mark.parametrize("memory", ["lean", "codes"])
def test_a_summary_shows_the_levels_of_units_inside_of_layers(memory):
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    fused = sudonet.convert(model, "sudo-16", memory=memory).model
    shown = [layer for layer in sudonet.summary(fused, (1, 4)).layers if layer.levels]
    assert [(layer.levels, layer.packed_bytes) for layer in shown] == [(16, 4)]
