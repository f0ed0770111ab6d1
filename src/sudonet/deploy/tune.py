"""Fine-tuning with quantised weights, which the model has afterwards."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sudonet.deploy.given import (
    Data,
    Kind,
    check_model,
    inputs_and_targets,
    precision,
    weight_kinds,
)
from sudonet.deploy.layers import WEIGHTS
from sudonet.deploy.network import Codes
from sudonet.deploy.quantise import quantise

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d)

REFRESH = 25
"""Steps between two searches for the best scales, which take longer than a step."""

SCALE_BITS = 17
"""Bits of a scale: its product with an integer of 8 bits has 24, as many as float32 holds."""


def tune(
    model: nn.Module,
    data: Data,
    weights: Kind | Mapping[str, Kind] = "int8",
    *,
    steps: int = 1000,
    batch_size: int = 100,
    learning_rate: float = 0.001,
    loss: str | Loss = "cross_entropy",
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> nn.Module:
    """A copy of a trained model, fine-tuned with the weights that it will be deployed with.

    The forward pass uses quantised weights. Gradients go straight through the rounding to
    the real weights behind them, which Adam updates. The copy that is returned has the
    quantised weights: ``compile(tuned, weights)`` finds exactly the same integers.

    The copy trains in evaluation mode: batch statistics are frozen, and dropout is off.

    Parameters
    ----------
    model
        Trained, with float32 or float64 weights. It stays as it is.
    data
        Inputs and targets, as many of one as of the other: arrays, tensors, or a DataLoader of
        such pairs, all of which is held in memory. Integers are real values here, as there is
        no grid yet: ``grid.values(pixels)`` are those of declared inputs.
    weights
        As in :func:`~sudonet.deploy.compile`: a kind, or a mapping from a layer's path.
        ``float32`` layers train without rounding.
    steps, batch_size, learning_rate
        Of Adam. The learning rate falls linearly to 0.
    loss
        ``cross_entropy`` for targets that are classes, ``squared_error``, or a function of
        outputs and targets.
    seed
        Of the order of the data, which is all that is random.
    progress
        Called after every step with the steps that are done and all steps.

    Returns
    -------
    nn.Module
        In ``eval()`` mode, its weights on the grid.

    Examples
    --------
    >>> from sudonet import SUDO, deploy
    >>> model = nn.Sequential(nn.Linear(4, 3), SUDO(16), nn.Linear(3, 2))
    >>> data = torch.rand(20, 4), torch.arange(20) % 2
    >>> tuned = tune(model, data, "ternary", steps=2)
    >>> len(tuned[0].weight[0].abs().unique()) <= 2  # a scale for each output, and 0
    True
    """
    check_model(model)
    inputs, targets = _tensors(data, model, loss)
    for name, number in (("steps", steps), ("batch_size", batch_size)):
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    if not learning_rate > 0:
        raise ValueError(f"learning_rate must be above 0, got {learning_rate}")
    tuned = copy.deepcopy(model).eval()
    measure = _loss(loss, tuned)
    _check_fit(tuned, inputs, targets, loss)
    rounded = _rounded_layers(tuned, weights)
    optimiser = torch.optim.Adam(tuned.parameters(), learning_rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, steps)
    for step, batch in zip(range(steps), _batches(len(inputs), batch_size, seed), strict=False):
        if step % REFRESH == 0:
            for layer in rounded:
                layer.refresh()
        real = [layer.round() for layer in rounded]
        optimiser.zero_grad()
        measure(tuned(inputs[batch]), targets[batch]).backward()
        for layer, weight in zip(rounded, real, strict=True):
            layer.put(weight)
        optimiser.step()
        schedule.step()
        if progress is not None:
            progress(step + 1, steps)
    for layer in rounded:
        # Scales that fit the last weights make use of the largest integers, from which
        # compile finds the scales again.
        layer.refresh()
        layer.round()
    optimiser.zero_grad()
    return tuned


@dataclass
class _Rounded:
    """A layer that swaps its weights: quantised ones for the passes, real ones for Adam."""

    path: str
    module: nn.Module
    kind: str
    scales: Tensor | None = None

    @property
    def weight(self) -> Tensor:
        weight: Tensor = self.module.get_parameter("weight").data
        return weight

    @property
    def by_channel(self) -> Tensor:
        """The weights as (outputs, others): a view, or a copy where memory has another order."""
        if not isinstance(self.module, nn.ConvTranspose2d):
            return self.weight.flatten(1)
        split = self.weight.unflatten(0, (self.module.groups, -1)).transpose(1, 2)
        rows: Tensor = split.flatten(0, 1).flatten(1)
        return rows

    def refresh(self) -> None:
        """Choose scales for the weights as they are."""
        _, scales = quantise(self.by_channel.double().cpu().numpy(), self.kind)
        self.scales = torch.from_numpy(_shortened(scales)).to(self.weight)

    def round(self) -> Tensor:
        """Put the quantised weights in place of the real ones, which are returned."""
        assert self.scales is not None
        real, rows = self.weight.clone(), self.by_channel
        scales = self.scales[:, None]
        if self.kind == "binary":
            integers = torch.where(rows < 0, -1.0, 1.0).to(rows.dtype)
        else:
            top = 2 ** (WEIGHTS[self.kind] - 1) - 1
            integers = (rows / scales).round().clamp(-top, top)
        self.put(self._as_stored(integers * scales))
        return real

    def put(self, weight: Tensor) -> None:
        self.weight.copy_(weight)

    def _as_stored(self, rows: Tensor) -> Tensor:
        weight = self.weight
        if not isinstance(self.module, nn.ConvTranspose2d):
            return rows.reshape(weight.shape)
        into, out, *kernel = weight.shape
        groups = self.module.groups
        split = rows.reshape(groups, out, into // groups, *kernel)
        return split.transpose(1, 2).reshape(weight.shape)


def _rounded_layers(model: nn.Module, weights: Kind | Mapping[str, Kind]) -> list[_Rounded]:
    found = {path: m for path, m in model.named_modules() if isinstance(m, LAYERS)}
    kinds = weight_kinds(weights, list(found))
    for path, module in found.items():
        dtype = module.weight.dtype
        if dtype not in (torch.float32, torch.float64):
            raise TypeError(
                f"{path} has {dtype} weights: tune needs float32 or float64, use model.float()"
            )
    tied: dict[nn.Parameter, str] = {}
    rounded = []
    for path, kind in kinds.items():
        first = tied.setdefault(found[path].get_parameter("weight"), path)
        if kinds[first] != kind:
            raise ValueError(
                f"{first} and {path} share their weights: give both the same kind, not "
                f"{kinds[first]} and {kind}"
            )
        if kind != "float32" and first == path:
            rounded.append(_Rounded(path, found[path], kind))
    return rounded


def _shortened(scales: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scales with so few bits that integers times scales are exact in float32."""
    share, power = np.frexp(scales)
    short: NDArray[np.float64] = np.ldexp(np.rint(np.ldexp(share, SCALE_BITS)), power - SCALE_BITS)
    return short


def _tensors(data: Data, model: nn.Module, loss: str | Loss) -> tuple[Tensor, Tensor]:
    """Inputs and targets where the model is, and of the types that it and the loss take."""
    inputs, targets = inputs_and_targets(data)
    if isinstance(inputs, Codes):
        raise TypeError("tune takes real values, got codes: give network.inputs.values(codes)")
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    wanted = targets.dtype
    if loss == "squared_error":
        wanted = precision(model)
    elif loss == "cross_entropy" and not targets.is_floating_point():
        wanted = torch.long
    return inputs.to(device, precision(model)), targets.to(device, wanted)


def _check_fit(model: nn.Module, inputs: Tensor, targets: Tensor, loss: str | Loss) -> None:
    """Try one example, so that a wrong shape is named before anything is trained."""
    try:
        with torch.no_grad():
            outputs = model(inputs[:1])
    except (RuntimeError, ValueError, IndexError) as error:
        raise ValueError(
            f"the model cannot run on inputs of shape {tuple(inputs.shape)}: "
            f"{str(error).splitlines()[0]}"
        ) from error
    probabilities = targets.is_floating_point() and targets.shape[1:] == outputs.shape[1:]
    if loss != "cross_entropy" or probabilities:
        return
    classes = outputs.shape[1]
    if targets.is_floating_point() or targets.shape[1:] != outputs.shape[2:]:
        raise ValueError(
            f"targets of cross_entropy must be classes, integers of shape "
            f"{(len(targets), *outputs.shape[2:])}, got {targets.dtype} of {tuple(targets.shape)}; "
            "squared_error takes real numbers"
        )
    low, high = int(targets.min()), int(targets.max())
    if low < 0 or high >= classes:
        raise ValueError(
            f"targets must be classes from 0 to {classes - 1}, as the model has {classes} outputs, "
            f"got {low} to {high}"
        )


def _batches(length: int, size: int, seed: int) -> Iterator[Tensor]:
    """Indices of minibatches, shuffled anew in every epoch, without end."""
    order = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.randperm(length, generator=order).split(size)


def _loss(loss: str | Loss, model: nn.Module) -> Loss:
    if callable(loss):
        return loss
    if loss == "cross_entropy":
        *_, last = model.modules()
        if isinstance(last, nn.Softmax):
            raise ValueError(
                "the model ends in a softmax, but cross_entropy takes logits: give "
                "loss=lambda outputs, targets: nn.functional.nll_loss(outputs.log(), targets)"
            )
        return nn.functional.cross_entropy
    if loss == "squared_error":
        return _squared_error
    raise ValueError(f"loss must be cross_entropy, squared_error or a function, got {loss!r}")


def _squared_error(outputs: Tensor, targets: Tensor) -> Any:
    if outputs.shape != targets.shape:
        raise ValueError(
            f"outputs have shape {tuple(outputs.shape)} and targets {tuple(targets.shape)}: "
            "reshape the targets"
        )
    return nn.functional.mse_loss(outputs, targets)
