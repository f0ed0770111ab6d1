"""Weights in a safetensors file, together with the names of the units that they belong to."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from sudonet._fusion import units_of
from sudonet._hidden_activations import place

_UNITS, _SHARED = "sudonet.units", "sudonet.shared"


def save(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Write a model's weights and the names of its units into a safetensors file.

    A state_dict says nothing about units, since they have no parameters: weights that were
    trained with 16 levels load into a model with 4, or with tanh, without a word. The file
    records the units, and :func:`load` compares them. Any program that reads safetensors can
    read the weights. Tensors that share their memory are stored once. If writing fails, a file
    that was there before stays as it was.

    Parameters
    ----------
    model
        The model. Only its ``state_dict`` and its units are stored.
    path
        The file, by custom ``*.safetensors``.

    Examples
    --------
    >>> import tempfile, sudonet
    >>> model = nn.Sequential(nn.Linear(2, 3), sudonet.SUDO(16), nn.Linear(3, 1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, f"{folder}/model.safetensors")
    ...     loaded = load(model, f"{folder}/model.safetensors")
    >>> loaded is model
    True
    """
    tensors, shared = _distinct(_state(model, "save"))
    metadata = {_UNITS: json.dumps(units_of(model)), _SHARED: json.dumps(shared)}
    # Copies, since views that overlap without being the same are stored each on its own.
    copies = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    data = to_bytes(copies, metadata)
    path = Path(path)
    # A unique name, so that two processes that write at once do not share it.
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def load(model: nn.Module, path: str | os.PathLike[str], *, check_units: bool = True) -> nn.Module:
    """Read weights that :func:`save` wrote into a model with the same units.

    Everything is compared before the first weight is written: if anything differs, the model
    stays as it was and one error names all differences.

    Parameters
    ----------
    model
        The model. It gets the weights in place, on the device where it is.
    path
        The file.
    check_units
        False loads weights whatever the units are, for instance into the same model with tanh,
        and also files that other programs wrote.

    Returns
    -------
    torch.nn.Module
        The model itself.

    Raises
    ------
    ValueError
        If the file is no safetensors file, or units, names, shapes or types differ.
    """
    state = _state(model, "load")
    try:
        with safe_open(os.fspath(path), framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from None
    for name, source in _mapping(metadata, _SHARED, path).items():
        if source in tensors:
            tensors.setdefault(name, tensors[source])
    problems = list(_tensor_problems(state, tensors))
    if check_units:
        if _UNITS not in metadata:
            problems.append(
                "the file names no units, since sudonet.save did not write it: "
                "check_units=False loads it all the same"
            )
        else:
            problems += _unit_problems(model, _mapping(metadata, _UNITS, path))
    if problems:
        raise ValueError(f"{path} does not fit the model:\n  " + "\n  ".join(problems))
    model.load_state_dict(tensors)
    return model


def _state(model: nn.Module, verb: str) -> dict[str, Tensor]:
    """The state of a model, if all of it is tensors with numbers."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    state = model.state_dict()
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise ValueError(
                f"cannot {verb} {name}, which is a {type(value).__name__} and no tensor: "
                "safetensors holds nothing else"
            )
        if is_lazy(value) or value.is_meta:
            raise ValueError(f"cannot {verb} {name}, which has no numbers yet: run a batch first")
    return state


def _distinct(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors that are stored, and for each other name the one that it is the same as."""
    tensors: dict[str, Tensor] = {}
    shared: dict[str, str] = {}
    first: dict[Any, str] = {}
    for name, tensor in state.items():
        source = first.setdefault(_identity(tensor) if tensor.numel() else name, name)
        if source == name:
            tensors[name] = tensor
        else:
            shared[name] = source
    return tensors, shared


def _identity(tensor: Tensor) -> Any:
    return tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def _mapping(metadata: Mapping[str, str], key: str, path: object) -> dict[str, str]:
    try:
        found = json.loads(metadata.get(key, "{}"))
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise ValueError(f"{path} has no valid {key} in its metadata: write the file again")
    return found


def _tensor_problems(state: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> Iterator[str]:
    for name in [*state, *(name for name in tensors if name not in state)]:
        if name not in tensors:
            yield f"{name} is not in the file"
        elif name not in state:
            yield f"{name} is not in the model"
        elif state[name].shape != tensors[name].shape:
            here, there = tuple(state[name].shape), tuple(tensors[name].shape)
            yield f"{name} has the shape {there} in the file, {here} in the model"
        elif state[name].dtype != tensors[name].dtype:
            here_type, there_type = state[name].dtype, tensors[name].dtype
            yield f"{name} is {there_type} in the file, {here_type} in the model: use model.to(...)"
    first: dict[Any, str] = {}
    for name, tensor in state.items():
        source = first.setdefault(_identity(tensor) if tensor.numel() else name, name)
        if name in tensors and source in tensors and not _same(tensors[name], tensors[source]):
            yield f"{source} and {name} are one tensor in the model, two that differ in the file"


def _same(a: Tensor, b: Tensor) -> bool:
    return a is b or (a.shape == b.shape and a.dtype == b.dtype and bool(torch.equal(a, b)))


def _unit_problems(model: nn.Module, wanted: Mapping[str, str]) -> Iterator[str]:
    present = units_of(model)
    modules = dict(model.named_modules(remove_duplicate=False))
    differing = [p for p in {**wanted, **present} if wanted.get(p) != present.get(p)]
    for path in differing:
        module = modules.get(path)
        here = present.get(path) or ("nothing" if module is None else type(module).__name__)
        yield f"unit {place(path)} is {wanted.get(path, 'none')} in the file, {here} in the model"
    if differing:
        overrides = {path: wanted[path] for path in differing if path in wanted}
        same = f"sudonet.convert(model, {{}}, overrides={overrides}) makes them the file's; "
        yield (same if overrides else "") + "check_units=False loads the weights all the same"
