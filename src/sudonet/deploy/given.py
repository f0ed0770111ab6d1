"""What users give to the compiler, to ``tune`` and to ``report``, in the forms they have it in."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize
from torch.utils.data import DataLoader, Dataset

from sudonet.deploy.errors import CompileError
from sudonet.deploy.grid import Grid, array_of
from sudonet.deploy.layers import WEIGHTS, Shape
from sudonet.deploy.network import Codes

Data: TypeAlias = "tuple[Any, Any] | DataLoader[Any] | Dataset[Any]"
Kind: TypeAlias = "str | torch.dtype"

KINDS = (*WEIGHTS, "float32")
BATCH = 500

# Before parametrizations PyTorch kept the tensors of a computed weight under these names.
_COMPUTED = {
    "weight_g": "torch.nn.utils.remove_weight_norm(module)",
    "weight_mask": "torch.nn.utils.prune.remove(module, 'weight')",
    "weight_u": "torch.nn.utils.remove_spectral_norm(module)",
}
STORE_WEIGHTS = "torch.nn.utils.parametrize.remove_parametrizations(module, 'weight')"
"""What stores the weight of a module that computes it."""


def check_model(model: object, *, program: bool = False) -> None:
    """Raise an error if ``model`` is no model whose weights are there and stored."""
    if program and isinstance(model, ExportedProgram):
        return
    if not isinstance(model, nn.Module):
        also = " or a program of torch.export.export" if program else ""
        raise TypeError(f"the model must be a torch.nn.Module{also}, got {_instead(model)}")
    for path, module in model.named_modules():
        name = f"{path or 'the model'} ({type(module).__name__})"
        own = {**module._parameters, **module._buffers}
        if any(tensor is not None and is_lazy(tensor) for tensor in own.values()):
            raise CompileError(f"{name} has no weights yet: run the model once on an example")
        stores = [way for part, way in _COMPUTED.items() if part in own]
        if parametrize.is_parametrized(module) or stores:
            raise CompileError(
                f"{name} computes its weight: store it by {(stores or [STORE_WEIGHTS])[0]}"
            )


def _instead(model: object) -> str:
    if isinstance(model, str | os.PathLike):
        path = os.fspath(model)
        way = "deploy.load reads it" if str(path).endswith(".sudo") else "load it first"
        more = f", or run sudonet compile {path}" if str(path).endswith(".pt2") else ""
        return f"the path {path!r}: {way}{more}"
    if isinstance(model, type):
        return f"the class {model.__name__}: make one by {model.__name__}(...)"
    if isinstance(model, Mapping):
        return "a mapping: make the model, then model.load_state_dict(it)"
    return type(model).__name__


def precision(model: nn.Module) -> torch.dtype:
    """The type of the model's numbers."""
    kinds = (p.dtype for p in model.parameters() if p.is_floating_point())
    return next(kinds, torch.float32)


def grid_of(inputs: Grid | Sequence[float] | None, examples: NDArray[Any] | None) -> Grid:
    """The input's grid: as given, or of a pair (low, high), or calibrated by examples."""
    if isinstance(inputs, Grid):
        return inputs
    if inputs is not None:
        try:
            low, high = map(float, inputs)
        except (TypeError, ValueError):
            raise TypeError(
                f"inputs must be a Grid or a range such as (0, 1), got {inputs!r}"
            ) from None
        return Grid.of_range(low, high)
    if examples is None:
        raise CompileError(
            "the range of the inputs is not known: give inputs=Grid.of_range(0, 1) for pixels "
            "that were divided by 255, or calibration=examples"
        )
    return Grid.calibrated(examples)


def examples_of(calibration: Any) -> NDArray[Any] | None:
    """The batch that calibrates a network, as an array."""
    if calibration is None:
        return None
    found = None if isinstance(calibration, DataLoader | Dataset) else array_of(calibration)
    if found is None or found.dtype.kind not in "biuf":
        what = type(calibration).__name__
        raise TypeError(f"calibration must be a batch of inputs, an array of numbers, got {what}")
    return found


def shape_of(
    model: nn.Module, shape: int | Sequence[int] | None, examples: NDArray[Any] | None
) -> Shape:
    """The shape of one example."""
    if shape is not None:
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        if not all(isinstance(size, int | np.integer) and size > 0 for size in sizes):
            raise CompileError(f"shape must be sizes such as (1, 28, 28), got {shape!r}")
        if examples is not None and examples.ndim > 1 and examples.shape[1:] != sizes:
            raise CompileError(
                f"shape is {sizes}, but the examples of calibration have {examples.shape[1:]}"
            )
        return tuple(map(int, sizes))
    if examples is not None:
        if examples.ndim < 2:
            raise CompileError(
                f"calibration must be a batch of inputs, got an array of shape {examples.shape}: "
                "put examples along its first axis"
            )
        return tuple(examples.shape[1:])
    first = next((m for m in model.modules() if not list(m.children())), None)
    if isinstance(first, nn.Linear):
        return (first.in_features,)
    raise CompileError(
        "the shape of an input is not known: give shape=(1, 28, 28), say, or calibration=examples"
    )


def weight_kinds(weights: Kind | Mapping[str, Kind], paths: list[str]) -> dict[str, str]:
    """The kind of weights of every layer in ``paths``."""
    given = dict(weights) if isinstance(weights, Mapping) else {}
    for path in given:
        if path not in paths:
            raise CompileError(f"weights names {path!r}, but the layers are {', '.join(paths)}")
    usual = "int8" if isinstance(weights, Mapping) else weights
    return {path: _kind(given.get(path, usual)) for path in paths}


def _kind(given: object) -> str:
    """A word for weights; PyTorch's and numpy's types are called by the same words."""
    word = given.__name__ if isinstance(given, type) else str(given).removeprefix("torch.")
    if word not in KINDS:
        raise CompileError(f"weights must be one of {', '.join(KINDS)}, got {given!r}")
    return word


def inputs_and_targets(data: Data) -> tuple[Tensor | Codes, Tensor]:
    """As many inputs as targets: of a pair of arrays, or of all batches of a DataLoader.

    Inputs are a tensor, or codes as they were given.
    """
    if isinstance(data, Dataset):
        data = DataLoader(data, BATCH)
    inputs: Tensor | Codes
    if isinstance(data, DataLoader):
        batches = [_pair(batch, "a batch of the DataLoader") for batch in data]
        inputs, targets = (
            torch.cat([tensor_of(batch[i]) for batch in batches]) if batches else torch.empty(0)
            for i in (0, 1)
        )
    else:
        given, wanted = _pair(data, "data")
        inputs = given if isinstance(given, Codes) else tensor_of(given)
        targets = tensor_of(wanted)
    if len(inputs) != len(targets) or not len(inputs):
        raise ValueError(
            f"data must be inputs and as many targets, at least one, got {len(inputs)} "
            f"and {len(targets)}"
        )
    return inputs, targets


def _pair(data: object, what: str) -> tuple[Any, Any]:
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise TypeError(
            f"{what} must be inputs and targets, (x, y), or a DataLoader of such batches, got "
            f"{type(data).__name__}{f' of {len(data)}' if isinstance(data, tuple | list) else ''}"
        )
    return data[0], data[1]


def tensor_of(values: Any) -> Tensor:
    """Numbers of any kind as a tensor with at least one axis."""
    found = values if isinstance(values, Tensor) else torch.from_numpy(np.array(values))
    return found.detach().reshape(-1) if found.ndim == 0 else found.detach()
