"""Stacked networks in PyTorch: batched products and a hand-written backward pass.

Works on any device and without the C core. Convolutional networks are trained one at
a time with autograd, which was faster than stacking them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sudonet import _kernels
from sudonet.staircase import Staircase
from sudonet.train._data import Data
from sudonet.train._result import Result
from sudonet.train._spec import AnySpec, ConvolutionalSpec, Order, Spec, Weights, initial_weights
from sudonet.units import SMOOTH

ADAM = 0.9, 0.999, 1e-8
ALIGNMENT = 16
"""Floats of a cache line. The alignment of a matrix decides how its product is rounded: all
matrices of a network begin on a line, so that its index in the stack changes nothing."""

STACK_PARAMETERS = 70_000
"""Parameters of a stack that stays in cache; larger ones are slower."""


class TorchEngine:
    """Trains networks in PyTorch on ``device``."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = torch.device(device)
        self.name = f"torch-{self.device.type}"

    @staticmethod
    def key(spec: AnySpec) -> tuple[Any, ...]:
        """Specs with the same key can share a stack."""
        if isinstance(spec, ConvolutionalSpec):
            return (object(),)  # alone
        common = spec.output, spec.loss, spec.optimiser, spec.momentum
        return spec.sizes, spec.batch_size, spec.steps, *common

    @staticmethod
    def largest_stack(spec: AnySpec) -> int:
        return min(max(STACK_PARAMETERS // spec.parameters, 4), 90)

    least_stack = largest_stack

    def train(
        self, stack: Sequence[tuple[int, AnySpec]], data: Data, tick: Callable[[int], bool]
    ) -> list[Result]:
        """Train a stack; ``tick`` is told the network-steps done and returns whether to go on."""
        begun, cpu_begun = time.perf_counter(), time.thread_time()
        specs = [spec for _, spec in stack]
        if len(specs) == 1 and isinstance(specs[0], Spec):
            # A product of one matrix takes another path through the library than a batch of
            # products and rounds differently, so a single network is stacked with itself.
            specs *= 2
        with flushed_denormals(), torch.no_grad():
            network = (
                _Module(specs[0], self.device)
                if isinstance(specs[0], ConvolutionalSpec)
                else _Stack([s for s in specs if isinstance(s, Spec)], self.device)
            )
            losses, diverged = self._run(network, specs, data, lambda: tick(len(stack)))
        if losses is None:
            return []
        seconds = (time.perf_counter() - begun) / len(stack)
        cpu_seconds = (time.thread_time() - cpu_begun) / len(stack)
        return [
            Result(index, spec, weights, curve, step or None, self.name, seconds, cpu_seconds)
            for (index, spec), weights, curve, step in zip(
                stack, network.weights(), losses, diverged, strict=False
            )
        ]

    def _run(
        self,
        network: _Stack | _Module,
        specs: list[AnySpec],
        data: Data,
        tick: Callable[[], bool],
    ) -> tuple[Any, list[int]]:
        if isinstance(specs[0], Spec):
            data = data.flat
        inputs, targets = (
            torch.from_numpy(array).to(self.device) for array in (data.inputs, data.targets)
        )
        steps, batch = specs[0].steps, specs[0].batch_size
        seeds = list(dict.fromkeys(spec.seed for spec in specs))
        orders = [Order(seed=s, samples=len(data), batch_size=batch) for s in seeds]
        which = [seeds.index(spec.seed) for spec in specs]
        an_epoch = orders[0].steps_an_epoch
        sums = torch.zeros(len(specs), -(-steps // an_epoch), device=self.device)
        diverged = [0] * len(specs)
        for step in range(steps):
            place = step % an_epoch
            if place == 0:
                taken = [order.take(an_epoch) for order in orders]
                counts = taken[0][1]
                samples = torch.from_numpy(np.stack([rows for rows, _ in taken])).long()
            rows = samples[:, place, : counts[place]].to(self.device)
            loss = network.step(inputs, targets, rows[which])
            sums[:, step // an_epoch] += loss
            if not loss.isfinite().all():
                for i in (~loss.isfinite()).nonzero().flatten().tolist():
                    diverged[i] = diverged[i] or step + 1
            if not tick():
                return None, diverged
        in_epoch = torch.full((sums.shape[1],), float(an_epoch))
        if steps % an_epoch:
            in_epoch[-1] = steps % an_epoch
        curves = (sums.cpu() / in_epoch).numpy()
        for curve, after in zip(curves, diverged, strict=True):
            if after:  # later losses mean nothing, even if finite
                curve[-(-after // an_epoch) :] = np.nan
        return curves, diverged


class _Stack:
    """Fully connected networks of one shape, their weights side by side."""

    def __init__(self, specs: list[Spec], device: torch.device) -> None:
        self.spec = specs[0]
        sizes, count = self.spec.sizes, len(specs)
        # One row a network: all weights and biases, so that the optimiser is a few calls.
        self.flat = torch.zeros(count, _aligned(sizes), device=device)
        self.gradient = torch.zeros_like(self.flat)
        self.moment1 = torch.zeros_like(self.flat)
        self.moment2 = torch.zeros_like(self.flat)
        self.change = torch.zeros_like(self.flat)
        self.layers = _views(self.flat, sizes)
        self.gradients = _views(self.gradient, sizes)
        for i, spec in enumerate(specs):
            for (matrix, bias), (w, b) in zip(self.layers, initial_weights(spec), strict=True):
                matrix[i] = torch.from_numpy(w.T.copy())
                bias[i] = torch.from_numpy(b)
        self.rates = torch.tensor([[s.learning_rate] for s in specs], device=device)
        self.activations = [
            _runs([spec.activations[layer] for spec in specs]) for layer in range(len(sizes) - 2)
        ]
        self.steps = 0

    def weights(self) -> list[Weights]:
        return [
            [(w[i].T.cpu().numpy().copy(), b[i].cpu().numpy().copy()) for w, b in self.layers]
            for i in range(len(self.flat))
        ]

    def step(self, inputs: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
        """One minibatch for each network, ``rows`` of the data. Returns the losses."""
        count = rows.shape[1]
        rows = nn.functional.pad(rows, (0, -count % ALIGNMENT))  # sample 0, with a gradient of 0
        x, target = inputs[rows], targets[rows]
        hidden, before = [x], []
        for (matrix, bias), runs in zip(self.layers[:-1], self.activations, strict=True):
            z = torch.baddbmm(bias.unsqueeze(1), hidden[-1], matrix)
            before.append(z)
            hidden.append(_each(runs, _value, z))
        matrix, bias = self.layers[-1]
        z = torch.baddbmm(bias.unsqueeze(1), hidden[-1], matrix)
        loss, delta = _loss(self.spec, z, target, count)
        for layer in reversed(range(len(self.layers))):
            matrix, bias = self.layers[layer]
            to_matrix, to_bias = self.gradients[layer]
            torch.bmm(hidden[layer].transpose(1, 2), delta, out=to_matrix)
            torch.sum(delta, 1, out=to_bias)
            if layer:
                back = torch.bmm(delta, matrix.transpose(1, 2))
                delta = _each(self.activations[layer - 1], _slope, back, before[layer - 1])
        self._update()
        return loss

    def _update(self) -> None:
        self.steps += 1
        if self.spec.optimiser == "momentum":
            self.moment1.mul_(self.spec.momentum).add_(self.gradient)
            self.flat.sub_(torch.mul(self.moment1, self.rates, out=self.change))
            return
        first, second, epsilon = ADAM
        self.moment1.lerp_(self.gradient, 1 - first)
        self.moment2.mul_(second).addcmul_(self.gradient, self.gradient, value=1 - second)
        scale = torch.sqrt(self.moment2, out=self.change)
        scale.div_((1 - second**self.steps) ** 0.5).add_(epsilon)
        torch.div(self.moment1, scale, out=self.change)
        self.flat.sub_(self.change.mul_(self.rates / (1 - first**self.steps)))


class _Module:
    """One convolutional network, trained by autograd in channels-last layout."""

    def __init__(self, spec: ConvolutionalSpec, device: torch.device) -> None:
        self.spec = spec
        # mypy: nn.Module.to is overloaded without memory_format
        self.model: Any = spec.module().to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        with torch.enable_grad():
            parameters = self.model.parameters()
            self.optimiser: torch.optim.Optimizer = (
                torch.optim.Adam(parameters, spec.learning_rate, ADAM[:2], ADAM[2], fused=True)
                if spec.optimiser == "adam"
                else torch.optim.SGD(parameters, spec.learning_rate, spec.momentum)
            )

    def weights(self) -> list[Weights]:
        layers = [m for m in self.model if hasattr(m, "weight")]
        return [
            [
                (m.weight.detach().cpu().numpy().copy(), m.bias.detach().cpu().numpy().copy())
                for m in layers
            ]
        ]

    @torch.enable_grad()
    def step(self, inputs: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
        x, target = (
            data[rows[0]].contiguous(memory_format=torch.channels_last)
            for data in (inputs, targets)
        )
        y = self.model(x)
        if self.spec.loss == "cross_entropy":
            loss = nn.functional.cross_entropy(y.flatten(1), target.flatten(1))
        else:
            loss = nn.functional.mse_loss(y, target)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return loss.detach().reshape(1)


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Denormal float32 numbers become 0 inside; the setting is restored afterwards."""
    was = bool((torch.tensor([1e-39]) * 1.0 == 0).item())
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(was)


def _views(flat: Tensor, sizes: tuple[int, ...]) -> list[tuple[Tensor, Tensor]]:
    """Weights (networks x in x out) and biases of every layer inside the flat rows."""
    views, begin = [], 0
    for i, o in pairwise(sizes):
        middle = begin + _up(i * o)
        views.append(
            (flat[:, begin : begin + i * o].unflatten(1, (i, o)), flat[:, middle : middle + o])
        )
        begin = middle + _up(o)
    return views


def _aligned(sizes: tuple[int, ...]) -> int:
    return sum(_up(i * o) + _up(o) for i, o in pairwise(sizes))


def _up(n: int) -> int:
    return -(-n // ALIGNMENT) * ALIGNMENT


def _runs(names: list[str]) -> list[tuple[str, int, int]]:
    """(name, begin, end) of every run of equal names."""
    cuts = [0, *(i for i in range(1, len(names)) if names[i] != names[i - 1]), len(names)]
    return [(names[a], a, b) for a, b in pairwise(cuts)]


def _each(
    runs: list[tuple[str, int, int]], function: Callable[..., Tensor], *tensors: Tensor
) -> Tensor:
    parts = [function(name, *(t[begin:end] for t in tensors)) for name, begin, end in runs]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


_unit = lru_cache(maxsize=1024)(Staircase.parse)


def _value(name: str, z: Tensor) -> Tensor:
    if name not in SMOOTH:
        return _kernels.forward(z, _unit(name))
    if name == "sigmoid":
        # Unlike sigmoid, torch's exp rounds independently of the position in a tensor.
        return z.neg().exp_().add_(1).reciprocal_()
    result: Tensor = getattr(nn.functional, name)(z)
    return result


def _slope(name: str, grad: Tensor, z: Tensor) -> Tensor:
    if name == "relu":
        result: Tensor = torch.ops.aten.threshold_backward(grad, z, 0)
        return result
    # The slope of a staircase is that of its underlying function.
    return _kernels.backward(grad, z, _unit(f"sudo-2-{name}" if name in SMOOTH else name))


def _loss(spec: Spec, z: Tensor, target: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Losses of the networks and their derivatives by the last layer's sums.

    Only the first ``count`` samples matter: the derivatives of the others are 0.
    """
    outputs = z.shape[2]
    delta = torch.zeros_like(z)
    z, target, found = z[:, :count], target[:, :count], delta[:, :count]
    if spec.loss == "cross_entropy":
        logs = z.log_softmax(2)
        torch.sub(logs.exp(), target, out=found).div_(count)
        return -(target * logs).sum((1, 2)) / count, delta
    y = z.tanh() if spec.output == "tanh" else z
    error = y - target
    torch.mul(error, 2 / (count * outputs), out=found)
    if spec.output == "tanh":
        found.mul_(1 - y.square())
    return error.square().mean((1, 2)), delta
