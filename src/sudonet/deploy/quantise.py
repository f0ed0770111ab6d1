"""Weights as small integers, with one scale for each output channel."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sudonet.deploy.layers import WEIGHTS

Real: TypeAlias = NDArray[np.float64]

CLIPS = np.linspace(0.3, 1.0, 71)
"""Shares of the largest weight at which a channel of few bits may be clipped."""


def quantise(weights: Real, kind: str) -> tuple[NDArray[np.int8], Real]:
    """Integers and scales that stand for ``weights``, whose first axis is the channels.

    ``int8`` reaches the channel's largest weight. ``int4`` and ``ternary`` may clip it:
    they take the scale with the least squared error. ``binary`` keeps the sign and the
    mean size. Weights that lie on such a grid already come back as they are.

    Examples
    --------
    >>> integers, scales = quantise(np.array([[0.5, -1.0, 0.25]]), "int8")
    >>> integers.tolist(), (integers * scales[:, None]).round(2).tolist()
    ([[64, -127, 32]], [[0.5, -1.0, 0.25]])
    """
    if kind not in WEIGHTS:
        raise ValueError(f"weights must be one of {', '.join(WEIGHTS)}, got {kind!r}")
    flat = weights.reshape(len(weights), -1)
    # Weights below float32's smallest normal number count as 0, so that no scale becomes 0.
    flat = np.where(np.abs(flat) < np.finfo(np.float32).tiny, 0.0, flat)
    if kind == "binary":
        sizes = np.abs(flat).mean(1)
        signs = np.where(flat < 0, -1, 1)
        # A channel of zeros has no sign: its scale is 0, which a threshold cannot divide by.
        scales = np.where(sizes > 0, sizes, np.finfo(np.float32).tiny)
        return signs.astype(np.int8).reshape(weights.shape), scales
    top = 2 ** (WEIGHTS[kind] - 1) - 1
    largest = np.abs(flat).max(1)
    largest = np.where(largest > 0, largest, float(top))
    scales = largest / top
    if kind != "int8":
        scales = _least_error(flat, scales, top)
    integers = _rounded(flat, scales, top)
    return integers.astype(np.int8).reshape(weights.shape), scales


def _rounded(flat: Real, scales: Real, top: int) -> Real:
    return np.clip(np.rint(flat / scales[:, None]), -top, top)


def _least_error(flat: Real, scales: Real, top: int) -> Real:
    # The largest scale comes first, so that a channel that lies on its grid keeps it.
    tried = [scales * clip for clip in CLIPS[::-1]]
    errors = [np.square(_rounded(flat, s, top) * s[:, None] - flat).sum(1) for s in tried]
    best = np.argmin(errors, axis=0)
    chosen: Real = np.stack(tried)[best, np.arange(len(flat))]
    return chosen
