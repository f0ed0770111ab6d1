"""A network whose numbers are fixed, whatever training and compiling do."""

import numpy as np

from sudonet import Staircase
from sudonet.deploy import Grid, IntegerNetwork
from sudonet.deploy.layers import Affine, ChannelThresholds, MaxPool, Scores, SharedThresholds


def golden():
    """Every kind of layer but pools of sums, and every kind of integer table."""
    pixels = Grid(1 / 255, 0.0, 0, 255)
    first, second = Staircase(4), Staircase(8, rectified=True)
    return IntegerNetwork(
        inputs=pixels,
        shape_in=(1, 3, 3),
        layers=(
            Affine(
                name="conv",
                kind="conv",
                weights=np.array([[1, -1, 0, 1], [0, 1, 1, -1]], np.int8).reshape(2, 1, 2, 2),
                weight_kind="ternary",
                shape_in=(1, 3, 3),
                shape_out=(2, 4, 4),
                grid_in=pixels,
                padding=(1, 1),
                after=ChannelThresholds(first, np.array([[-9, 0, 80], [5, 5, 200]], np.int32)),
            ),
            MaxPool("pool", (2, 2), (2, 2), (0, 0), (2, 4, 4), (2, 2, 2), Grid.of_unit(first)),
            Affine(
                name="dense",
                kind="dense",
                weights=np.arange(-7, 9, dtype=np.int8).reshape(2, 8).clip(-7, 7),
                weight_kind="int4",
                shape_in=(8,),
                shape_out=(2,),
                grid_in=Grid.of_unit(first),
                after=SharedThresholds(
                    second,
                    np.array([3, 2**31 - 1], np.int32),
                    np.array([2**10, -(2**30)], np.int64),
                    np.array([-5, 0, 2**33, 2**36], np.int64),
                    31,
                ),
            ),
            Affine(
                name="out",
                kind="dense",
                weights=np.array([[-127, 100], [3, 5]], np.int8),
                weight_kind="int8",
                shape_in=(2,),
                shape_out=(2,),
                grid_in=Grid.of_unit(second),
                after=Scores(np.array([1, 2], np.int32), np.array([10, -(2**62)], np.int64), 8),
            ),
        ),
        output="argmax",
        notes={"made": "by hand", "accuracy": 0.1},
    )
