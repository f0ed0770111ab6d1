"""Samples to train on, checked once and laid out for the engines."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sudonet.train._spec import AnySpec, Spec


@dataclass(frozen=True)
class Data:
    """Inputs and targets, float32, one row a sample; a row may be an image."""

    inputs: NDArray[np.float32]
    targets: NDArray[np.float32]

    def __post_init__(self) -> None:
        for name in ("inputs", "targets"):
            object.__setattr__(self, name, _array(name, getattr(self, name)))
        x, t = self.inputs, self.targets
        if len(x) != len(t) or not len(x):
            raise ValueError(
                f"data needs as many targets as inputs, at least one, got {len(t)} and {len(x)}"
            )

    @classmethod
    def of(cls, inputs: Any, targets: Any, classes: int | None = None) -> Data:
        """Data from arrays or tensors; one-dimensional integers are labels of ``classes``.

        Examples
        --------
        >>> Data.of([[0.0], [1.0]], [0, 2], classes=3).targets.tolist()
        [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
        """
        t = _raw(targets)
        if t.dtype.kind in "iu" and t.ndim == 1 and classes is not None:
            wrong = t[(t < 0) | (t >= classes)]
            if wrong.size:
                raise ValueError(
                    f"labels must be integers from 0 to {classes - 1}, got {wrong[0]}: the "
                    "network needs an output for every class"
                )
            t = np.eye(classes, dtype=np.float32)[t]
        return cls(inputs, t)

    def __len__(self) -> int:
        return len(self.inputs)

    @cached_property
    def flat(self) -> Data:
        """The same samples, each flattened, as fully connected networks take them."""
        if self.inputs.ndim == self.targets.ndim == 2:
            return self
        return Data(self.inputs.reshape(len(self), -1), self.targets.reshape(len(self), -1))

    def check(self, spec: AnySpec) -> None:
        """Raise a ValueError if ``spec`` cannot be trained on this data."""
        data = self.flat if isinstance(spec, Spec) else self
        for name, ours, shape in (
            ("inputs", data.inputs, spec.input_shape),
            ("targets", data.targets, spec.output_shape),
        ):
            if ours.shape[1:] != shape:
                raise ValueError(
                    f"{name} of shape {ours.shape[1:]} do not fit a network that needs {shape}"
                )
        if spec.loss == "cross_entropy" and not self._are_probabilities:
            raise ValueError(
                "targets for cross_entropy must be probabilities that add up to 1 for every "
                "sample: give labels as one-dimensional integers, or use loss='squared_error'"
            )

    @cached_property
    def _are_probabilities(self) -> bool:
        rows = self.targets.reshape(len(self), -1)
        return bool((rows >= 0).all() and np.allclose(rows.sum(1), 1, atol=1e-4))


def floats(values: Any) -> NDArray[np.float32]:
    """float32 and contiguous; writeable too, since PyTorch warns about read-only memory."""
    return np.require(_raw(values), np.float32, ["C", "W"])


def _raw(values: Any) -> NDArray[Any]:
    if not isinstance(values, torch.Tensor):
        return np.asarray(values)
    tensor = values.detach().cpu()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def _array(name: str, values: Any) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # overflow becomes infinity, which is refused below
        array = floats(values)
    if array.ndim < 2:
        raise ValueError(
            f"{name} must have a row a sample, got shape {array.shape}: use x.reshape(-1, 1)"
        )
    if not np.isfinite(array).all():
        raise ValueError(f"{name} contain NaN or infinity: remove or replace them first")
    return array
