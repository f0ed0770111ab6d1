"""Everything in PyTorch that an activation is expected to live with."""

import copy
import io
import pickle
import shutil

import pytest
import torch
from torch import nn

import sudonet
from sudonet import RSUDO, SUDO, Staircase, functional
from sudonet.lean import CodedLinear, SUDOLinear

pytestmark = pytest.mark.without_core

UNITS = [SUDO(2), SUDO(16), SUDO(9, "sigmoid"), RSUDO(8), RSUDO(16, placement="full")]
units = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)


def network(activation: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 32), activation, nn.Linear(32, 32), activation, nn.Linear(32, 1)
    )


def inputs(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


@units
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "empty", "scalar"])
def test_operators_pass_opcheck(unit, layout):
    x = {
        "contiguous": inputs(3, 5),
        "transposed": inputs(3, 5).t(),
        "empty": inputs(0, 4),
        "scalar": inputs(),
    }[layout].requires_grad_()
    grad = torch.ones_like(x).detach().requires_grad_()
    torch.library.opcheck(torch.ops.sudonet.staircase.default, (x, unit.name))
    torch.library.opcheck(torch.ops.sudonet.staircase_backward.default, (grad, x, unit.name))


@units
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile_fullgraph(unit, backend):
    if backend == "inductor" and shutil.which("g++") is None:
        pytest.skip("inductor needs a C++ compiler and there is no g++")
    torch.compiler.reset()
    model, x = network(unit), inputs(40, 6)
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    (ours,) = torch.autograd.grad(compiled(x).sum(), model[0].weight)
    (plain,) = torch.autograd.grad(model(x).sum(), model[0].weight)
    assert torch.equal(compiled(x), model(x))
    torch.testing.assert_close(ours, plain)
    with torch.no_grad():
        assert torch.equal(compiled(inputs(17, 6)), model(inputs(17, 6)))


@units
def test_vmap(unit):
    x = inputs(4, 5, 6)
    for dim in range(3):
        out = torch.func.vmap(unit, in_dims=dim, out_dims=dim)(x)
        assert torch.equal(out, unit(x))
    nested = torch.func.vmap(torch.func.vmap(unit))(x)
    assert torch.equal(nested, unit(x))


@units
def test_grad_and_per_sample_gradients(unit):
    x = inputs(7, 5).requires_grad_()
    (plain,) = torch.autograd.grad(unit(x).sum(), x)
    assert torch.equal(torch.func.grad(lambda x: unit(x).sum())(x.detach()), plain)
    per_sample = torch.func.vmap(torch.func.grad(lambda row: unit(row).sum()))(x.detach())
    assert torch.equal(per_sample, plain)


@units
def test_jacrev_and_hessian(unit):
    x = inputs(5).double()
    slope = torch.from_numpy(unit.staircase.derivative(x.numpy()))
    jacobian = torch.func.jacrev(unit)(x)
    torch.testing.assert_close(jacobian, torch.diag(slope))
    hessian = torch.func.jacrev(torch.func.jacrev(lambda x: unit(x).sum()))(x)
    h = 1e-6
    finite = unit.staircase.derivative((x + h).numpy()) - unit.staircase.derivative((x - h).numpy())
    torch.testing.assert_close(
        hessian, torch.diag(torch.from_numpy(finite / (2 * h))), atol=1e-7, rtol=1e-6
    )


@units
def test_forward_mode(unit):
    x, v = inputs(5).double(), inputs(5).double().flip(0)
    slope = torch.from_numpy(unit.staircase.derivative(x.numpy()))
    y, tangent = torch.func.jvp(unit, (x,), (v,))
    assert torch.equal(y, unit(x))
    torch.testing.assert_close(tangent, slope * v)
    forward_over_reverse = torch.func.hessian(lambda x: unit(x).sum())(x)
    reverse_over_reverse = torch.func.jacrev(torch.func.jacrev(lambda x: unit(x).sum()))(x)
    torch.testing.assert_close(forward_over_reverse, reverse_over_reverse)


@units
def test_autocast(unit):
    model, x = network(unit), inputs(8, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = model[0](x)
        out = unit(hidden)
        model(x).float().sum().backward()
    assert hidden.dtype == out.dtype == torch.bfloat16
    assert torch.equal(out, unit(hidden.float()).to(torch.bfloat16))
    assert model[0].weight.grad.isfinite().all()


@units
def test_inference_mode(unit):
    x = inputs(100)
    with torch.inference_mode():
        out = unit(x)
    assert out.is_inference()
    assert torch.equal(out.clone(), unit(x))


@units
def test_export_names_the_unit_and_saves(unit, tmp_path):
    model, x = network(unit), inputs(4, 6)
    batch = torch.export.Dim("batch")
    program = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
    calls = [n for n in program.graph.nodes if n.target == torch.ops.sudonet.staircase.default]
    assert [call.args[1] for call in calls] == [unit.name, unit.name]
    torch.export.save(program, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    for rows in (4, 11):
        assert torch.equal(loaded(inputs(rows, 6)), model(inputs(rows, 6)))


@units
def test_operators_train_when_called_directly(unit):
    """As in an exported graph that goes on training."""
    x = inputs(50).requires_grad_()
    (direct,) = torch.autograd.grad(torch.ops.sudonet.staircase(x, unit.name).sum(), x)
    (plain,) = torch.autograd.grad(unit(x).sum(), x)
    assert torch.equal(direct, plain)


@units
def test_meta_device(unit):
    x = torch.empty(3, 4, device="meta", dtype=torch.bfloat16).t().requires_grad_()
    out = unit(x)
    out.sum().backward()
    assert (out.device.type, out.shape, out.stride(), out.dtype) == (
        "meta",
        (4, 3),
        (1, 4),
        torch.bfloat16,
    )
    assert x.grad.device.type == "meta"


@units
def test_copies(unit):
    for twin in (copy.deepcopy(unit), pickle.loads(pickle.dumps(unit))):
        assert type(twin) is type(unit)
        assert twin.staircase == unit.staircase
        assert torch.equal(twin(inputs(50)), unit(inputs(50)))


@units
def test_torch_save_round_trips_with_weights_only(unit):
    model, file = network(unit), io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = network(nn.Tanh())
    nn.init.zeros_(other[0].weight)
    other.load_state_dict(torch.load(file, weights_only=True), strict=True)
    assert torch.equal(other[0].weight, model[0].weight)

    whole = io.BytesIO()
    torch.save(unit, whole)
    whole.seek(0)
    with torch.serialization.safe_globals([type(unit), Staircase]):
        loaded = torch.load(whole, weights_only=True)
    assert torch.equal(loaded(inputs(50)), unit(inputs(50)))


@units
def test_no_parameters_no_buffers_and_strict_loading_both_ways(unit):
    assert not list(unit.parameters())
    assert not list(unit.buffers())
    assert not unit.state_dict()
    smooth, discrete = network(nn.Tanh()), network(unit)
    assert list(smooth.state_dict()) == list(discrete.state_dict())
    discrete.load_state_dict(smooth.state_dict(), strict=True)
    smooth.load_state_dict(discrete.state_dict(), strict=True)


@units
def test_shapes_with_nothing_in_them(unit):
    for shape in ((0,), (3, 0, 2), ()):
        x = inputs(*shape).requires_grad_()
        y = unit(x)
        y.sum().backward()
        assert y.shape == x.grad.shape == shape


def test_gradient_checkpointing():
    model, x = network(SUDO(8)), inputs(9, 6)
    torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).sum().backward()
    again = network(SUDO(8))
    again(x).sum().backward()
    assert torch.equal(model[0].weight.grad, again[0].weight.grad)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("sudo-32", SUDO),
        ("r-sudo-8", RSUDO),
        ("r-sudo-16-full", RSUDO),
        ("sudo-16-sigmoid", SUDO),
        ("sudo-8-relu6", SUDO),
        ("r-sudo-8-hardtanh-full", RSUDO),
        ("tanh", nn.Tanh),
        ("relu", nn.ReLU),
    ],
)
def test_names_make_modules_and_print_back(name, kind):
    for spelling in (name, name.upper(), f" {name.title()} "):
        module = sudonet.activation(spelling)
        assert type(module) is kind
        assert sudonet.activation_name(module) == name
    if kind in (SUDO, RSUDO):
        assert module.name == str(module.staircase) == name
        assert repr(module) == f"{kind.__name__}({name})"


def test_activation_takes_a_staircase():
    assert sudonet.activation(Staircase(5, "hardtanh")).name == "sudo-5-hardtanh"


@pytest.mark.parametrize("name", ["gelu", "sudo", "r-tanh", ""])
def test_unknown_names(name):
    with pytest.raises(ValueError, match=f"unknown unit '{name}'.*sudo-32"):
        sudonet.activation(name)


def test_graphs_of_fx_and_traces_of_jit_compute_the_same():
    model = nn.Sequential(nn.Linear(3, 4), SUDO(4), nn.Linear(4, 2), RSUDO(8))
    x = torch.randn(5, 3)
    graph = torch.fx.symbolic_trace(model)
    assert torch.equal(graph(x), model(x))
    (slope,) = torch.autograd.grad(graph(x).sum(), model[0].weight)
    assert torch.equal(slope, torch.autograd.grad(model(x).sum(), model[0].weight)[0])
    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(model, x), file)
    file.seek(0)
    assert torch.equal(torch.jit.load(file)(x), model(x))


def test_names_of_another_type():
    with pytest.raises(TypeError, match="must be a string, got 32"):
        sudonet.activation(32)
    with pytest.raises(TypeError, match="expected a Staircase, got 'sudo-8'"):
        sudonet.StaircaseUnit("sudo-8")
    with pytest.raises(TypeError, match=r"expected a Staircase, got 'sudo-4'.*parse"):
        SUDOLinear(3, 2, unit="sudo-4")
    for units in ({"before": "sudo-4", "after": None}, {"before": None, "after": "sudo-4"}):
        with pytest.raises(TypeError, match="got 'sudo-4'"):
            CodedLinear(3, 2, **units)
    with pytest.raises(ValueError, match="GELU is not an activation with a name"):
        sudonet.activation_name(nn.GELU())


@pytest.mark.parametrize("levels", [0, 1, -3, 2.5, True, "8", 65_537])
def test_bad_levels_are_refused_by_modules(levels):
    for kind in (SUDO, RSUDO):
        with pytest.raises((TypeError, ValueError), match=f"2 to 65,536, got {levels!r}"):
            kind(levels)


def test_function_and_module_agree():
    x = inputs(500)
    assert torch.equal(SUDO(9, "sigmoid")(x), functional.sudo(x, 9, "sigmoid"))
    assert torch.equal(RSUDO(9, "hardtanh", "full")(x), functional.rsudo(x, 9, "hardtanh", "full"))
