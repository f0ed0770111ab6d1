"""Data that comes with scikit-learn, for where nothing else is available."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def small_digits() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """1,797 digits of 8 x 8 pixels, a row of grey values 0..255 each, and their labels.

    They are a part of UCI's "Optical Recognition of Handwritten Digits", CC BY 4.0.
    """
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    digits = load_digits()
    return np.rint(digits.data * (255 / 16)).astype(np.uint8), digits.target.astype(np.uint8)


def photograph(name: str) -> NDArray[np.uint8]:
    """A photograph of 427 x 640 pixels, red, green and blue.

    ``"china.jpg"`` is by danielbuechele, https://www.flickr.com/photos/danielbuechele/6061409035,
    ``"flower.jpg"`` by vultilion, https://www.flickr.com/photos/vultilion/6056698931; both are
    CC BY 2.0.
    """
    from sklearn.datasets import load_sample_image

    pixels: NDArray[np.uint8] = load_sample_image(name)
    return pixels
