"""Autoencoding: squeeze small colour images through a bottleneck and draw them again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sudonet.experiments.data import Images, natural_images
from sudonet.experiments.experiment import (
    BASELINES,
    R_SUDO,
    RATES,
    SUDO,
    Experiment,
    Protocol,
    TableGrid,
    Task,
    Trial,
)
from sudonet.train import AnySpec, Convolution, ConvolutionalSpec, Data, Result, Spec

CHANNELS, SIDE = 3, 32
SCALES = (1, 2, 4, 8)
"""Factors of all hidden widths."""

ENCODER = (50, 50, 40, 20)
CONV_DECODER = (40, 50, 50, 20)
DENSE_DECODER = (40, 50, 50)

CONV_BATCH, CONV_STEPS = 25, 20_000  # 25 epochs of 20,000 images
DENSE_STEPS = 2_500  # 12.5 epochs
WIDE, WIDE_RATE = 8, 0.0003
"""Convolutional tanh networks of this scale get worse again at 0.001: see docs/recipe.md."""


class Autoencoder(Experiment):
    """Images through a bottleneck to a tanh output; test error relative to one network's.

    The stored value is the mean over the test images of an image's summed squared error.
    Tables divide it by that of the convolutional tanh network of scale 1.
    """

    name = "autoencoder"
    metric = "squared error, relative to the convolutional tanh network of scale 1"
    higher_is_better = False
    reference = "conv", 1, "tanh"
    grids = tuple(
        TableGrid(
            f"{prefix}autoencoder-{shape}", "autoencoder", shape, SCALES, (*BASELINES, *units)
        )
        for prefix, units in (("", SUDO), ("r-", R_SUDO))
        for shape in ("conv", "dense")
    )

    def protocol(self, shape: str, column: int) -> Protocol:
        if shape == "dense":
            return Protocol(DENSE_STEPS, replicas=5)
        return Protocol(CONV_STEPS, replicas=5, rates=(WIDE_RATE,) if column == WIDE else RATES[:1])

    def load(self) -> Images:
        return natural_images()

    def task(self, loaded: Images | None = None) -> Task:
        found = loaded or self.load()
        test = shades(found.test)

        def score(result: Result) -> dict[str, float]:
            shape = (-1, *result.spec.input_shape)
            error = result.predict(test.reshape(shape), rows=500) - test.reshape(shape)
            return {"value": float(np.square(error, dtype=np.float64).sum() / len(test))}

        train = shades(found.train)
        return Task(Data(train, train), found.source, score, len(test))

    def spec(self, trial: Trial, data: Data | None = None) -> AnySpec:
        make = convolutional if trial.shape == "conv" else dense
        return make(trial)


def convolutional(trial: Trial) -> ConvolutionalSpec:
    """Four convolutions that halve the image, four that double it, and one for the colours."""
    widths = [
        *(Convolution(width * trial.column, stride=2) for width in ENCODER),
        *(Convolution(width * trial.column, stride=2, transposed=True) for width in CONV_DECODER),
        Convolution(CHANNELS),
    ]
    return ConvolutionalSpec(
        input_shape=(CHANNELS, SIDE, SIDE),
        layers=tuple(widths),
        activation=trial.activation,
        output="tanh",
        learning_rate=trial.rate,
        steps=trial.steps,
        batch_size=CONV_BATCH,
        seed=trial.seed,
    )


def dense(trial: Trial) -> Spec:
    """The fully connected counterpart."""
    pixels = CHANNELS * SIDE * SIDE
    hidden = (width * trial.column for width in (*ENCODER, *DENSE_DECODER))
    return Spec(
        sizes=(pixels, *hidden, pixels),
        activation=trial.activation,
        output="tanh",
        learning_rate=trial.rate,
        steps=trial.steps,
        seed=trial.seed,
    )


def shades(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Pixels from 0..255 to -1..1, tanh's range."""
    return np.asarray(images / np.float32(127.5) - 1, np.float32)
