"""Whether two networks are the same."""

from dataclasses import fields, is_dataclass

import numpy as np

from sudonet import Staircase
from sudonet.deploy import Grid


def equal(one, other):
    """Whether two parts of networks hold the same numbers, of the same types."""
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if is_dataclass(one) and not isinstance(one, Grid | Staircase):
        return type(one) is type(other) and all(
            equal(getattr(one, f.name), getattr(other, f.name)) for f in fields(one)
        )
    if isinstance(one, tuple) and one and is_dataclass(one[0]):
        return len(one) == len(other) and all(map(equal, one, other))
    return type(one) is type(other) and one == other
