"""Samples to train on, checked once and laid out as the engines want them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sudonet.train.spec import AnySpec


@dataclass(frozen=True)
class Data:
    """Inputs and targets, float32, one row a sample."""

    inputs: NDArray[np.float32]
    targets: NDArray[np.float32]

    @classmethod
    def of(cls, inputs: Any, targets: Any, classes: int | None = None) -> Data:
        """Data from arrays or tensors; integer targets are labels of ``classes`` classes.

        Examples
        --------
        >>> Data.of([[0.0], [1.0]], [0, 2], classes=3).targets.tolist()
        [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
        """
        x, t = _array("inputs", inputs), _raw(targets)
        if t.dtype.kind in "iu" and classes is not None:
            if t.ndim != 1 or (t.size and not 0 <= t.min() <= t.max() < classes):
                raise ValueError(f"labels must be a row of integers from 0 to {classes - 1}")
            t = np.eye(classes, dtype=np.float32)[t]
        t = _array("targets", t)
        if len(x) != len(t) or not len(x):
            raise ValueError(f"needs as many targets as inputs, got {len(t)} and {len(x)}")
        return cls(x, t)

    def __len__(self) -> int:
        return len(self.inputs)

    def check(self, spec: AnySpec) -> None:
        """Raise a ValueError if ``spec`` cannot be trained on this data."""
        for name, ours, shape in (
            ("inputs", self.inputs, spec.input_shape),
            ("targets", self.targets, spec.output_shape),
        ):
            if ours.shape[1:] != shape:
                raise ValueError(
                    f"{name} of shape {ours.shape[1:]} do not fit a network that needs {shape}"
                )


def _raw(values: Any) -> NDArray[Any]:
    return values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)


def _array(name: str, values: Any) -> NDArray[np.float32]:
    array = np.ascontiguousarray(_raw(values), np.float32)
    if array.ndim < 2:
        raise ValueError(
            f"{name} must have a row a sample, got shape {array.shape}: use x.reshape(-1, 1)"
        )
    if not np.isfinite(array).all():
        raise ValueError(f"{name} contain NaN or infinity: remove or replace them first")
    return array
