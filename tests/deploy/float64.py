"""A model's codes by float64 arithmetic with quantised weights, to compare integers with."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import nn

import sudonet
from sudonet.deploy import IntegerNetwork
from sudonet.deploy.layers import Affine, emitted
from sudonet.deploy.quantise import quantise

WITH_WEIGHTS = nn.Linear | nn.Conv1d | nn.Conv2d | nn.ConvTranspose2d


def with_quantised_weights(model: nn.Sequential, kinds: str | Mapping[str, str]) -> nn.Sequential:
    """The model in float64 with the weights that ``kinds`` leaves of it, norms folded in."""
    layers = list(copy.deepcopy(model).double().eval())
    for place, layer in enumerate(layers):
        if isinstance(layer, nn.BatchNorm2d):
            layers[place] = nn.Identity()
        if not isinstance(layer, WITH_WEIGHTS):
            continue
        following = layers[place + 1] if place + 1 < len(layers) else None
        if isinstance(following, nn.BatchNorm2d):
            layers[place] = layer = nn.utils.fuse_conv_bn_eval(layer, following)
        kind = kinds if isinstance(kinds, str) else kinds.get(str(place), "int8")
        _quantise(layer, kind)
    return nn.Sequential(*layers)


def _quantise(layer: nn.Module, kind: str) -> None:
    """Leave of a layer's weights what integers of ``kind`` can say, by its outputs."""
    weight = layer.weight.data
    groups = layer.groups if isinstance(layer, nn.ConvTranspose2d) else None
    if groups is not None:  # inputs come first, and outputs are those of a group
        split = weight.unflatten(0, (groups, -1))
        weight = split.transpose(1, 2).flatten(0, 1)
    integers, scales = quantise(weight.numpy(), kind)
    kept = torch.from_numpy(integers * scales.reshape(-1, *[1] * (weight.ndim - 1)))
    if groups is not None:
        kept = kept.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
    layer.weight.data = kept


def _units_inputs(model: nn.Sequential, x: torch.Tensor) -> Iterator[tuple[np.ndarray, bool]]:
    """What every unit of the model is given, and whether that is a maximum."""
    pooled = False
    for layer in model:
        if isinstance(layer, sudonet.StaircaseUnit):
            yield x.detach().numpy(), pooled
        x = layer(x)
        pooled = isinstance(layer, nn.MaxPool1d | nn.MaxPool2d)


def assert_codes_equal(
    model: nn.Sequential,
    network: IntegerNetwork,
    kinds: str | Mapping[str, str],
    integers: np.ndarray,
) -> None:
    """Every code is that of float64 arithmetic, but where the two sums cannot be told apart."""
    twin = with_quantised_weights(model, kinds)
    units = [m.staircase for m in twin if isinstance(m, sudonet.StaircaseUnit)]
    sums = list(_units_inputs(twin, torch.from_numpy(network.inputs.values(integers))))
    traced = network.trace(integers)
    places = [
        place
        for place, layer in enumerate(network.layers)
        if isinstance(layer, Affine) and layer.grid_out is not None
    ]
    assert len(places) == len(sums) == len(units)
    for unit, (wanted, pooled), place in zip(units, sums, places, strict=True):
        # Where a maximum was taken before the unit, its codes are those after the maximum.
        found = traced[place + pooled].reshape(wanted.shape)
        near = np.abs(wanted[..., None] - unit.thresholds).min(-1) < 1e-9
        expected = emitted(unit)[unit.codes(wanted)]
        np.testing.assert_array_equal(found[~near], expected[~near])
        assert near.mean() < 0.01
