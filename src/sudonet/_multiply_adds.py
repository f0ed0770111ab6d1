"""Multiply-adds of PyTorch's own layers, for :func:`sudonet.summary`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from torch import Tensor, nn


def _convolution(layer: Any, inputs: list[Tensor], output: Tensor) -> int:
    # Each input of a transposed convolution, as each output of an ordinary one, meets
    # the kernel once, with the channels of its group on the other side.
    positions, channels = (
        (inputs[0], layer.out_channels) if layer.transposed else (output, layer.in_channels)
    )
    return int(positions.numel() * channels // layer.groups * math.prod(layer.kernel_size))


def _recurrent(layer: Any, inputs: list[Tensor], output: Tensor) -> int:
    cell = isinstance(layer, nn.RNNCellBase)
    groups = [(layer.weight_ih, layer.weight_hh)] if cell else layer.all_weights
    matrices = sum(weight.numel() for group in groups for weight in group if weight.dim() == 2)
    steps = inputs[0].numel() // inputs[0].shape[-1]
    return int(steps * matrices)


def _attention(layer: Any, inputs: list[Tensor], output: Tensor) -> int:
    query = inputs[0]
    key = inputs[1] if len(inputs) > 1 else query  # a subclass may attend to its input alone
    width = layer.embed_dim
    batch = 1 if query.dim() == 2 else query.shape[0 if layer.batch_first else 1]
    queries, keys = query.numel() // width, key.numel() // layer.kdim
    projections = 2 * queries * width + keys * (layer.kdim + layer.vdim)
    attended = keys // batch + (layer.bias_k is not None) + bool(layer.add_zero_attn)
    return int((projections + 2 * queries * attended) * width)


def _scaling(layer: Any, inputs: list[Tensor], output: Tensor) -> int:
    return 0 if layer.weight is None else output.numel()


Counter: TypeAlias = Callable[[Any, list[Tensor], Tensor], int]
COUNTERS: dict[type[nn.Module], Counter] = {
    nn.Linear: lambda layer, _, output: output.numel() * layer.in_features,
    nn.Bilinear: lambda layer, _, output: (
        output.numel() * layer.in1_features * (layer.in2_features + 1)
    ),
    nn.modules.conv._ConvNd: _convolution,
    nn.RNNBase: _recurrent,
    nn.RNNCellBase: _recurrent,
    nn.MultiheadAttention: _attention,
    nn.modules.batchnorm._NormBase: _scaling,  # batch and instance normalisation
    nn.LayerNorm: _scaling,
    nn.GroupNorm: _scaling,
    nn.RMSNorm: _scaling,
    nn.PReLU: _scaling,
    nn.Embedding: lambda *_: 0,
    nn.EmbeddingBag: lambda *_: 0,
}
"""Counters by class; they hold for derived classes too."""


def counter(module: nn.Module) -> Counter | None:
    """The counter of ``module``; None if its class is unknown."""
    return next((count for kind, count in COUNTERS.items() if isinstance(module, kind)), None)
