"""What only the page shows: boards for every number of levels, and autoencoded photographs."""

import numpy as np
import pytest

from sudonet.experiments import EXPERIMENTS
from sudonet.experiments.autoencoder import shades
from sudonet.experiments.data import natural_images, photograph
from sudonet.experiments.presets import PRESETS
from sudonet.study.figures import MORE, read
from sudonet.train import Convolution, ConvolutionalSpec, Spec, train
from tests.study.made_figures import SHARE, made

pytestmark = pytest.mark.slow  # makes all figures first


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made(tmp_path_factory)


def tuples(said):
    """What a file says of a network, as its spec takes it: JSON has lists alone."""
    return {name: tuple(v) if isinstance(v, list) else v for name, v in said.items()}


def test_boards_are_the_networks_of_4_layers_of_10(folder):
    arrays, meta = read(folder / "checkerboard-levels.npz")
    assert list(arrays) == ["tanh", "relu", *(f"sudo-{2**bits}" for bits in range(1, 9))]
    task = EXPERIMENTS["checkerboard"].task()
    axis = (np.arange(125) + 0.5) / 62.5 - 1
    x, y = np.meshgrid(axis, axis)
    for name in ("relu", "sudo-8"):
        said = meta["specs"][name]
        assert said["sizes"] == [2, 10, 10, 10, 10, 1]
        (result,) = train([Spec(**tuples(said))], task.data, threads=1)
        board = np.stack([x.ravel(), y.ravel()], 1)
        answers = result.predict(board).reshape(125, 125)
        assert arrays[name].dtype == np.uint8
        assert np.abs(arrays[name] / 127.5 - 1 - answers).max() < 0.004
        # tables count on a finer grid
        squares = np.floor((axis + 1) * 2.5)
        colour = np.where((squares[:, None] + squares[None, :]) % 2 == 1, 1, -1)
        right = 100 * (np.sign(answers) == colour).mean()
        assert meta["values"][name] == pytest.approx(right, abs=1.0)


def test_only_photographs_that_anybody_may_show_are_kept(folder):
    arrays, meta = read(folder / "autoencoder.npz")
    assert list(arrays) == ["photographs", "tanh", "relu", "sudo-4", "sudo-64"]
    for images in arrays.values():
        assert (images.shape, images.dtype) == ((12, 3, 32, 32), np.uint8)
    squares = arrays["photographs"]
    for number, name in enumerate(("china.jpg", "flower.jpg")):
        pixels = photograph(name)
        for k in range(6):
            top, left = 213 * (k // 3), 213 * (k % 3)
            part = pixels[top : top + 213, left : left + 213].mean((0, 1))
            assert np.abs(squares[6 * number + k].mean((1, 2)) - part).max() < 2
    assert meta["data"]["name"] == natural_images().source.name


def test_reconstructions_are_those_of_the_networks(folder):
    arrays, meta = read(folder / "autoencoder.npz")
    said = meta["specs"]["sudo-4"]
    full = EXPERIMENTS["autoencoder"].protocol("conv", 1)
    assert said["steps"] == round(meta["share"] * full.steps)
    assert meta["share"] == SHARE * PRESETS["standard"].of("autoencoder", "conv").steps
    layers = tuple(Convolution(**layer) for layer in said["layers"])
    spec = ConvolutionalSpec(**tuples(said) | {"layers": layers})
    (result,) = train([spec], EXPERIMENTS["autoencoder"].task().data, threads=1)
    inputs = shades(arrays["photographs"])
    outputs = result.predict(inputs)
    assert np.abs(arrays["sudo-4"] / 127.5 - 1 - outputs).max() < 0.1
    error = np.square(outputs - inputs, dtype=np.float64).sum() / 12
    assert meta["values"]["sudo-4"] == pytest.approx(error, rel=0.01)


def test_there_are_two_of_them():
    assert list(MORE) == ["autoencoder", "checkerboard-levels"]
