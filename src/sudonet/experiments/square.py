"""Points of the square [-1, 1]^2, which three of the experiments use."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def random_points(count: int, seed: int) -> NDArray[np.float32]:
    """Points drawn uniformly from the square, one row each."""
    return np.random.default_rng(seed).uniform(-1, 1, (count, 2)).astype(np.float32)


def even_grid(side: int) -> NDArray[np.float32]:
    """``side`` x ``side`` points, each in the middle of its cell, x slowest."""
    axis = (np.arange(side) + 0.5) / side * 2 - 1
    return np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2).astype(np.float32)
