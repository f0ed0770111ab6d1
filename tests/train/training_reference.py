"""A plain autograd loop in float64, which the engines of sudonet.train are compared with."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import nn

from sudonet.train import Data
from sudonet.train._spec import Order
from sudonet.units import StaircaseUnit, activation_name

CLEARANCE = 1e-5
"""How far pre-activations stay from where an activation jumps or its slope does.

float32 engines are off by less after ten steps. Nearer to a threshold they may emit the
level next to the reference's, which says nothing about a formula.
"""


@dataclass(frozen=True)
class Reference:
    weights: list[tuple[np.ndarray, np.ndarray]]
    losses: np.ndarray  # of every step
    clearance: float


@lru_cache(maxsize=1024)
def samples(spec, count, scale=1):
    """Random inputs with targets, labels for a cross-entropy, that fit ``spec``."""
    generator = np.random.default_rng(count)
    inputs = generator.normal(0, scale, (count, *spec.input_shape))
    if spec.loss == "cross_entropy":
        return Data.of(inputs, generator.integers(0, spec.output_shape[0], count), spec.sizes[-1])
    return Data.of(inputs, generator.uniform(-0.8, 0.8, (count, *spec.output_shape)))


@lru_cache(maxsize=4096)
def reference(spec, count, scale=1):
    """``spec`` trained on ``samples(spec, count, scale)`` by :func:`plain_loop`."""
    return plain_loop(spec, samples(spec, count, scale))


def plain_loop(spec, data, dtype=torch.float64):
    """``spec`` trained on ``data``, one minibatch and one operation after another."""
    model = spec.module().to(dtype)
    clearances = [np.inf]
    for module in model:
        if jumps := _jumps(module):
            module.register_forward_hook(
                _clearance_hook(torch.tensor(jumps, dtype=dtype), clearances)
            )
    if spec.optimiser == "adam":
        optimiser = torch.optim.Adam(model.parameters(), lr=spec.learning_rate)
    else:
        optimiser = torch.optim.SGD(
            model.parameters(), lr=spec.learning_rate, momentum=spec.momentum
        )
    loss_of = nn.CrossEntropyLoss() if spec.loss == "cross_entropy" else nn.MSELoss()
    inputs, targets = (torch.tensor(array, dtype=dtype) for array in (data.inputs, data.targets))
    order = Order(seed=spec.seed, samples=len(data), batch_size=spec.batch_size)
    losses = []
    for rows, used in zip(*order.take(spec.steps), strict=True):
        batch = torch.from_numpy(rows[:used]).long()
        loss = loss_of(model(inputs[batch]), targets[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    layers = [m for m in model if hasattr(m, "weight")]
    weights = [(m.weight.detach().numpy(), m.bias.detach().numpy()) for m in layers]
    return Reference(weights, np.array(losses), min(clearances))


def clear_of_thresholds(spec, count, scale=1):
    """``spec`` with the first seed that keeps the reference away from thresholds and kinks."""
    for seed in range(spec.seed, spec.seed + 500):
        candidate = replace(spec, seed=seed)
        if reference(candidate, count, scale).clearance > CLEARANCE:
            return candidate
    raise AssertionError(f"no seed keeps {spec} away from its thresholds")


def assert_close(result, wanted, count, tolerance):
    """Weights within ``tolerance``, and losses, relative to their size."""
    assert result.diverged is None
    for layer, (ours, theirs) in enumerate(zip(result.weights, wanted.weights, strict=True)):
        for a, b in zip(ours, theirs, strict=True):
            assert a.dtype == np.float32
            np.testing.assert_allclose(
                a, b, rtol=0, atol=tolerance, err_msg=f"layer {layer} of {result.spec}"
            )
    np.testing.assert_allclose(
        result.losses,
        epoch_means(wanted.losses, count, result.spec.batch_size),
        rtol=tolerance,
        atol=tolerance / 5,
        err_msg=f"losses of {result.spec}",
    )


def epoch_means(losses, count, batch_size):
    """Mean of every epoch's losses, the last of which may be incomplete."""
    an_epoch = -(-count // min(batch_size, count))
    return [losses[i : i + an_epoch].mean() for i in range(0, len(losses), an_epoch)]


def assert_identical(a, b):
    """All that a training gives, in every bit."""
    assert (a.spec, a.diverged, a.engine) == (b.spec, b.diverged, b.engine)
    np.testing.assert_array_equal(a.losses, b.losses, err_msg=f"losses of {a.spec}")
    for ours, theirs in zip(a.weights, b.weights, strict=True):
        for x, y in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(x, y, err_msg=f"weights of {a.spec}")


def _jumps(module):
    """Inputs at which an activation's value or slope is not continuous."""
    if isinstance(module, StaircaseUnit):
        unit = module.staircase
        ends = unit.ramp if unit.underlying in ("hardtanh", "relu6") else ()
        return [*unit.thresholds, *ends, *([0.0] if unit.rectified else [])]
    kinks = {"relu": [0.0], "hardtanh": [-1.0, 1.0], "relu6": [0.0, 6.0]}
    return [] if hasattr(module, "weight") else kinks.get(activation_name(module), [])


def _clearance_hook(jumps, clearances):
    jumps = jumps.sort().values

    def hook(module, inputs, output):
        x = inputs[0].detach()
        above = torch.bucketize(x, jumps).clamp(max=len(jumps) - 1)
        distance = torch.minimum(
            (x - jumps[above]).abs(), (x - jumps[(above - 1).clamp(min=0)]).abs()
        )
        clearances.append(distance.min().item())

    return hook
