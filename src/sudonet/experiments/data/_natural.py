"""Natural images of 32 x 32: ImageNet's, or a stand-in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sudonet.experiments.data import _cifar, _imagenet
from sudonet.experiments.data._bundled import photograph
from sudonet.experiments.data._files import data_root
from sudonet.experiments.data._source import Source

STRIDE = 8
TRAIN_WIDTH = 480
"""Crops of the left 480 of a photograph's 640 columns are for training, the others for tests."""

PRIME = 7919
"""Steps of this size through a list visit every index once, unless it divides the length."""


@dataclass(frozen=True, eq=False)
class Images:
    """Colour images, uint8 (N, 3, 32, 32): red, green and blue plane of each."""

    train: NDArray[np.uint8]
    test: NDArray[np.uint8]
    source: Source


def natural_images() -> Images:
    """What is in the data folder: ImageNet at 32 x 32, else CIFAR-10; else crops of photographs.

    The crops are cut from the two photographs that come with scikit-learn.

    Raises
    ------
    DataError
        If a data set is there in part, or is damaged. Nothing stands in for it then.
    """
    root = data_root()
    if _imagenet.present(root / _imagenet.FOLDER):
        train, test = _imagenet.read(root / _imagenet.FOLDER)
        return _images(_imagenet.name_of(len(train), len(test)), train, test)
    if _cifar.present(root / _cifar.FOLDER):
        return _images(_cifar.NAME, *_cifar.read(root / _cifar.FOLDER))
    return bundled_crops()


def bundled_crops() -> Images:
    """Crops of scikit-learn's photographs.

    No pixel is both in a crop to train on and in a crop to test with.
    """
    both = [photograph(name) for name in ("china.jpg", "flower.jpg")]
    train = _mixed(np.concatenate([_crops(pixels[:, :TRAIN_WIDTH]) for pixels in both]))
    test = _mixed(np.concatenate([_crops(pixels[:, TRAIN_WIDTH:]) for pixels in both]))
    name = (
        f"{len(train):,} + {len(test):,} crops of 32 x 32 of scikit-learn's photographs "
        "(china.jpg by danielbuechele, flower.jpg by vultilion, CC BY 2.0)"
    )
    return _images(name, train, test)


def _crops(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    windows = np.lib.stride_tricks.sliding_window_view(pixels, (32, 32), axis=(0, 1))
    return np.ascontiguousarray(windows[::STRIDE, ::STRIDE]).reshape(-1, 3, 32, 32)


def _mixed(crops: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The crops in an order whose first few come from all over the photographs."""
    return crops[np.arange(len(crops)) * PRIME % len(crops)]


def _images(name: str, train: NDArray[np.uint8], test: NDArray[np.uint8]) -> Images:
    stand_in_for = None if name == _imagenet.NAME else _imagenet.NAME
    return Images(train, test, Source.of(name, train, test, stand_in_for=stand_in_for))
