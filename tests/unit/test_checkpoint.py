"""Weights and units go into a file and come back, and what does not fit is named at once."""

import json
import os
import pickle

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import sudonet
from sudonet import RSUDO, SUDO, convert, load, save


def network(*units: nn.Module, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    first, second = units or (SUDO(16), RSUDO(8))
    return nn.Sequential(nn.Linear(3, 4), first, nn.BatchNorm1d(4), second, nn.Linear(4, 2))


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def same(a: nn.Module, b: nn.Module) -> bool:
    left, right = a.state_dict(), b.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


def test_there_and_back(tmp_path):
    path = tmp_path / "net.safetensors"
    model, other = network(), network(seed=1)
    save(model, path)
    assert not same(model, other)
    assert load(other, str(path)) is other
    assert same(model, other)
    with safe_open(path, "pt") as file:
        assert json.loads(file.metadata()["sudonet.units"]) == {"1": "sudo-16", "3": "r-sudo-8"}
    assert list(load_file(path)) != []
    assert names(tmp_path) == ["net.safetensors"]
    assert b"pickle" not in path.read_bytes()


def test_plain_pytorch_still_loads_the_weights_into_tanh(tmp_path):
    model, smooth = network(), network(nn.Tanh(), nn.ReLU(), seed=1)
    smooth.load_state_dict(model.state_dict(), strict=True)
    assert same(model, smooth)
    save(model, tmp_path / "a")
    smooth = network(nn.Tanh(), nn.ReLU(), seed=1)
    smooth.load_state_dict(load_file(tmp_path / "a"), strict=True)
    assert same(model, smooth)


def test_other_units_are_named_with_the_way_out(tmp_path):
    path = tmp_path / "net.safetensors"
    model, other = network(), network(nn.Tanh(), RSUDO(4), seed=1)
    save(model, path)
    before = {k: v.clone() for k, v in other.state_dict().items()}
    with pytest.raises(ValueError, match="does not fit the model") as caught:
        load(other, path)
    assert "\n".join(str(caught.value).splitlines()[1:]) == (
        "  unit 1 is sudo-16 in the file, Tanh in the model\n"
        "  unit 3 is r-sudo-8 in the file, r-sudo-4 in the model\n"
        "  sudonet.convert(model, {}, overrides={'1': 'sudo-16', '3': 'r-sudo-8'}) makes them the "
        "file's; check_units=False loads the weights all the same"
    )
    assert all(torch.equal(v, before[k]) for k, v in other.state_dict().items())
    convert(other, {}, overrides={"1": "sudo-16", "3": "r-sudo-8"})
    assert same(load(other, path), model)
    assert same(load(network(nn.Tanh(), nn.Tanh(), seed=1), path, check_units=False), model)


def test_a_file_of_a_continuous_model_does_not_fit_units(tmp_path):
    save(network(nn.Tanh(), nn.Tanh()), tmp_path / "a")
    with pytest.raises(ValueError, match="unit 1 is none in the file, sudo-16 in the model"):
        load(network(), tmp_path / "a")


@pytest.mark.parametrize("memory", ["lean", "codes"])
def test_units_are_the_same_for_any_memory(tmp_path, memory):
    def make():
        return nn.Sequential(
            nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)
        )

    fused, plain = convert(make(), "sudo-8", memory=memory).model, convert(make(), "sudo-8").model
    save(fused, tmp_path / "a")
    assert same(load(plain, tmp_path / "a"), fused)
    save(plain, tmp_path / "b")
    load(fused, tmp_path / "b")
    with pytest.raises(ValueError, match="unit 1 is sudo-8 in the file, sudo-4 in the model"):
        load(convert(make(), "sudo-4", memory=memory).model, tmp_path / "a")


def test_layers_with_units_of_their_own(tmp_path):
    unit = sudonet.Staircase(4)
    save(nn.Sequential(sudonet.SUDOLinear(2, 2, unit=unit)), tmp_path / "a")
    other = nn.Sequential(sudonet.SUDOLinear(2, 2, unit=sudonet.Staircase(8)))
    with pytest.raises(ValueError, match="unit 0 is sudo-4 in the file, sudo-8 in the model"):
        load(other, tmp_path / "a")


def test_names_shapes_and_types_are_named_all_at_once(tmp_path):
    save(network(), tmp_path / "a")
    other = network(SUDO(16), SUDO(8)).double()
    other[0] = nn.Linear(3, 4, bias=False).double()
    other[4] = nn.Linear(5, 2)
    other.append(nn.Linear(1, 1))
    with pytest.raises(ValueError, match="does not fit") as caught:
        load(other, tmp_path / "a")
    lines = str(caught.value).splitlines()
    assert "  0.weight is torch.float32 in the file, torch.float64 in the model" in lines[1]
    for line in (
        "  4.weight has the shape (2, 4) in the file, (2, 5) in the model",
        "  5.weight is not in the file",
        "  0.bias is not in the model",
        "  unit 3 is r-sudo-8 in the file, sudo-8 in the model",
    ):
        assert line in lines


def test_tied_weights_are_stored_once(tmp_path):
    def make(tied=True):
        model = nn.ModuleDict({"embed": nn.Embedding(50, 8), "head": nn.Linear(8, 50, bias=False)})
        if tied:
            model["head"].weight = model["embed"].weight
        return model

    model = make()
    save(model, tmp_path / "a")
    assert (tmp_path / "a").stat().st_size < 50 * 8 * 4 + 500
    other = load(make(), tmp_path / "a")
    assert same(model, other)
    assert other["head"].weight is other["embed"].weight
    assert same(load(make(tied=False), tmp_path / "a"), model)
    save(make(tied=False), tmp_path / "b")
    with pytest.raises(ValueError, match=r"embed\.weight and head\.weight are one tensor"):
        load(make(), tmp_path / "b")


def test_views_that_overlap(tmp_path):
    class Views(nn.Module):
        def __init__(self):
            super().__init__()
            base = torch.arange(6.0)
            self.register_buffer("left", base[:4])
            self.register_buffer("right", base[2:])
            self.register_buffer("turned", base.view(2, 3).t())

    save(Views(), tmp_path / "a")
    other = Views()
    other.left, other.right, other.turned = (torch.zeros(4), torch.zeros(4), torch.zeros(3, 2))
    assert same(load(other, tmp_path / "a"), Views())


def test_files_of_others(tmp_path):
    model = network()
    save_file({k: v.clone() for k, v in model.state_dict().items()}, tmp_path / "a")
    with pytest.raises(ValueError, match=r"names no units.*check_units=False"):
        load(network(seed=1), tmp_path / "a")
    assert same(load(network(seed=1), tmp_path / "a", check_units=False), model)
    (tmp_path / "b").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(ValueError, match="is not a whole safetensors file"):
        load(model, tmp_path / "b")
    save(model, tmp_path / "c")
    (tmp_path / "c").write_bytes((tmp_path / "c").read_bytes()[:-5])
    with pytest.raises(ValueError, match="is not a whole safetensors file"):
        load(model, tmp_path / "c")
    with pytest.raises(FileNotFoundError):
        load(model, tmp_path / "missing")


@pytest.mark.parametrize("text", ["[]", "{", '{"1": 3}'])
def test_forged_metadata(tmp_path, text):
    tensors = {k: v.clone() for k, v in network().state_dict().items()}
    save_file(tensors, tmp_path / "a", {"sudonet.units": text})
    with pytest.raises(ValueError, match=r"no valid sudonet\.units in its metadata"):
        load(network(), tmp_path / "a")


def test_what_cannot_be_stored_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"0\.weight, which has no numbers yet: run a batch"):
        save(nn.Sequential(nn.LazyLinear(2)), tmp_path / "a")
    with pytest.raises(ValueError, match=r"weight, which has no numbers yet"):
        save(nn.Linear(2, 2, device="meta"), tmp_path / "a")

    class Extra(nn.Linear):
        def get_extra_state(self):
            return {"a": 1}

    with pytest.raises(ValueError, match=r"_extra_state, which is a dict and no tensor"):
        save(Extra(1, 1), tmp_path / "a")
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module, got OrderedDict"):
        save(network().state_dict(), tmp_path / "a")
    assert names(tmp_path) == []


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a"
    save(network(), path)
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save(network(seed=1), path)
    assert path.read_bytes() == before
    assert names(tmp_path) == ["a"]
