"""The result of training: one network, independent of the engine that trained it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sudonet.train._data import floats
from sudonet.train._spec import AnySpec, Weights, with_weights


@dataclass(frozen=True, eq=False)
class Result:
    """A network after training.

    Parameters
    ----------
    index
        Index of its spec in the list that was given.
    spec
        What was trained.
    weights
        Weight matrix and bias of every layer.
    losses
        Mean loss of the minibatches of every epoch, the last of which may be incomplete.
    diverged
        The step after which the loss was no longer finite, or None.
    engine
        Which engine trained it. SUDO training is chaotic: compare results of one engine.
    seconds, cpu_seconds
        Wall time and CPU time spent on it: its share of its stack's.
    measures
        What ``judge`` found, if one was given to :func:`sudonet.train.stream`.
    """

    index: int
    spec: AnySpec
    weights: Weights = field(repr=False)
    losses: NDArray[np.float32] = field(repr=False)
    diverged: int | None
    engine: str
    seconds: float
    cpu_seconds: float
    measures: dict[str, float] = field(default_factory=dict)

    def module(self) -> nn.Sequential:
        """The network as an ordinary module, ready for use or for further training."""
        return with_weights(self.spec.module(), self.weights)

    def predict(self, inputs: Any, rows: int = 10_000) -> NDArray[np.float32]:
        """Outputs for ``inputs``, computed in PyTorch, ``rows`` samples at a time."""
        model = self.module()
        x = torch.from_numpy(floats(inputs))
        with torch.no_grad():
            # How a product is rounded depends on its operands' alignment, which copies fix.
            return np.concatenate([model(part.clone()).numpy() for part in x.split(rows)])
