"""The experiments against the paper's protocol: grids, architectures, data, measures."""

import importlib
import json
from itertools import pairwise

import numpy as np
import pytest
import torch

from sudonet.experiments import (
    EXPERIMENTS,
    GRIDS,
    LEVELS,
    Experiment,
    Trial,
    autoencoder,
    checkerboard,
    memorization,
    parabola,
)
from sudonet.experiments.experiment import ACTIVATIONS, BASELINES, R_SUDO, RATES, SUDO
from sudonet.experiments.presets import PRESETS
from sudonet.experiments.square import even_grid
from sudonet.report.published import tables
from sudonet.train import Data, train
from tests import ROOT

pytestmark = pytest.mark.without_core

RESEARCH = ROOT / "research"


def trial(experiment, shape, column, activation="tanh", rate=0.001, seed=0, steps=10):
    return Trial(experiment, shape, column, activation, rate, seed, steps)


def test_the_grids_are_those_of_the_published_tables():
    assert list(GRIDS) == list(tables())
    for name, published in tables().items():
        assert GRIDS[name].experiment == published.experiment
        assert GRIDS[name].columns == tuple(published.columns)
        assert GRIDS[name].rows == tuple(published.rows)
        assert EXPERIMENTS[published.experiment].higher_is_better == published.higher_is_better
    assert len(GRIDS) == 25
    assert sum(len(grid.cells) for grid in GRIDS.values()) == 1030


def test_the_activations():
    assert LEVELS == (2, 4, 8, 16, 32, 64, 128, 256)
    assert len(set(ACTIVATIONS)) == 18
    assert {row for grid in GRIDS.values() for row in grid.rows} == set(ACTIVATIONS)
    assert set(SUDO).isdisjoint(R_SUDO)


@pytest.mark.parametrize(
    ("name", "replicas", "rates"),
    [
        ("checkerboard", 3, RATES),
        ("regression", 5, RATES),
        ("autoencoder", 5, RATES[:1]),
        ("mnist", 5, RATES[:1]),
    ],
)
def test_replicas_and_rates_of_the_full_protocol(name, replicas, rates):
    for grid in EXPERIMENTS[name].grids:
        protocol = EXPERIMENTS[name].protocol(grid.shape, grid.columns[0])
        assert (protocol.replicas, protocol.rates) == (replicas, rates)
    assert RATES == (0.001, 0.0001, 0.00001)


def test_memorization_trains_every_depth_alike():
    experiment = EXPERIMENTS["memorization"]
    recipes = {
        experiment.protocol(grid.shape, units) for grid in experiment.grids for units in (50, 200)
    }
    assert len(recipes) == 1
    assert len(recipes.pop().rates) == 1  # the paper names no search here


@pytest.mark.parametrize(
    ("name", "optimiser"),
    [("checkerboard", "momentum"), ("memorization", "momentum"), ("regression", "adam")],
)
def test_every_depth_is_trained_by_one_optimiser(name, optimiser):
    experiment = EXPERIMENTS[name]
    for grid in experiment.grids:
        assert experiment.spec(trial(name, grid.shape, 50), None).optimiser == optimiser


def test_only_the_widest_convolutions_have_a_rate_of_their_own():
    experiment = EXPERIMENTS["autoencoder"]
    rates = {
        (grid.shape, column): experiment.protocol(grid.shape, column).rates
        for grid in experiment.grids
        for column in grid.columns
    }
    assert rates.pop(("conv", 8)) == (0.0003,)
    assert len(rates) == 7
    assert set(rates.values()) == {RATES[:1]}


@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
def test_networks_of_a_table_differ_only_where_they_should(grid):
    experiment = EXPERIMENTS[grid.experiment]
    inputs = {"mnist": 784, "autoencoder": 3072}.get(grid.experiment, 2)
    data = Data(np.zeros((1, inputs)), np.zeros((1, 1)))
    for column in grid.columns:
        specs = {
            activation: experiment.spec(
                trial(grid.experiment, grid.shape, column, activation), data
            )
            for activation in grid.rows
        }
        for activation, spec in specs.items():
            assert set(spec.activations) == {activation}
            assert spec.seed == 0
        same = {
            (spec.parameters, spec.batch_size, spec.steps, spec.loss) for spec in specs.values()
        }
        assert len(same) == 1


@pytest.mark.parametrize(("shape", "units"), [("1", 5), ("2", 10), ("4", 200)])
def test_the_checkerboard_network(shape, units):
    spec = EXPERIMENTS["checkerboard"].spec(trial("checkerboard", shape, units), None)
    sizes = [2, *[units] * int(shape), 1]
    assert spec.sizes == tuple(sizes)
    assert spec.parameters == sum(i * o + o for i, o in pairwise(sizes))
    assert (spec.output, spec.loss) == ("tanh", "squared_error")


def test_the_mnist_network():
    data = Data(np.zeros((1, 784)), np.ones((1, 1)))
    spec = EXPERIMENTS["mnist"].spec(trial("mnist", "4", 100), data)
    assert spec.sizes == (784, 100, 100, 100, 100, 10)
    assert (spec.output, spec.loss) == ("softmax", "cross_entropy")


def test_the_regression_network_is_linear_at_the_end():
    spec = EXPERIMENTS["regression"].spec(trial("regression", "2", 20), None)
    assert (spec.sizes, spec.output) == ((2, 20, 20, 1), "linear")


def test_the_memorization_network_has_up_to_ten_layers():
    spec = EXPERIMENTS["memorization"].spec(trial("memorization", "10", 50), None)
    assert spec.sizes == (2, *[50] * 10, 1)
    assert spec.output == "tanh"


@pytest.mark.parametrize("scale", autoencoder.SCALES)
def test_the_convolutional_autoencoder_parameter_by_parameter(scale):
    spec = autoencoder.convolutional(trial("autoencoder", "conv", scale))
    channels = [3, *(n * scale for n in (50, 50, 40, 20, 40, 50, 50, 20)), 3]
    by_hand = sum(9 * i * o + o for i, o in pairwise(channels))
    assert spec.parameters == by_hand
    model = spec.module()
    assert sum(p.numel() for p in model.parameters()) == by_hand
    assert spec.output_shape == (3, 32, 32)
    assert len([m for m in model if type(m).__name__ == "ConvTranspose2d"]) == 4


@pytest.mark.parametrize("scale", autoencoder.SCALES)
def test_the_dense_autoencoder_parameter_by_parameter(scale):
    spec = autoencoder.dense(trial("autoencoder", "dense", scale))
    sizes = [3072, *(n * scale for n in (50, 50, 40, 20, 40, 50, 50)), 3072]
    assert spec.sizes == tuple(sizes)
    assert spec.parameters == sum(i * o + o for i, o in pairwise(sizes))


def test_the_bottleneck_is_small():
    """80 numbers at scale 1: 20 channels of 2 x 2."""
    spec = autoencoder.convolutional(trial("autoencoder", "conv", 1))
    assert spec.module()[:8](torch.zeros(1, 3, 32, 32)).shape == (1, 20, 2, 2)


def test_the_labels_of_the_checkerboard():
    points = np.array([[-0.9, -0.9], [-0.9, -0.4], [-0.4, -0.4], [0.9, 0.9], [0.9, -0.5], [1, 1]])
    assert checkerboard.colours(points).ravel().tolist() == [-1, 1, -1, -1, 1, -1]
    board = checkerboard.colours(even_grid(500))
    assert len(board) == 250_000
    assert (board == -1).sum() == 130_000  # 13 of the 25 squares
    squares = board.reshape(500, 500)[50::100, 50::100]  # the middles
    assert squares.ravel().tolist() == [-1, 1] * 12 + [-1]


def test_the_samples_of_the_checkerboard():
    points = checkerboard.samples()
    assert points.shape == (5000, 2)
    assert np.abs(points).max() <= 1
    assert len(np.unique(points, axis=0)) == 5000
    assert abs(checkerboard.colours(points).mean() + 1 / 25) < 0.05
    assert np.array_equal(points, checkerboard.samples())


def test_a_constant_network_gets_the_squares_of_its_colour():
    task = EXPERIMENTS["checkerboard"].task()
    spec = EXPERIMENTS["checkerboard"].spec(trial("checkerboard", "1", 5, steps=0), task.data)
    (result,) = train([spec], task.data)
    for weight, bias in result.weights:
        weight[:], bias[:] = 0, 0
    result.weights[-1][1][:] = 1
    assert task.score(result) == {"value": 48.0}  # 12 of the 25 squares


def test_the_regression_error_of_a_network_that_learned_nothing():
    """The variance of the surface, times 100, is what R-SUDO-2 prints in the paper."""
    task = EXPERIMENTS["regression"].task()
    spec = EXPERIMENTS["regression"].spec(trial("regression", "2", 10, steps=0), task.data)
    (result,) = train([spec], task.data)
    for weight, bias in result.weights:
        weight[:], bias[:] = 0, 0
    assert task.score(result)["value"] == pytest.approx(22.56, abs=1)


def test_the_pixels_of_a_picture_stand_at_their_places():
    pixels = np.zeros((150, 150), np.float32)
    pixels[3, 140] = 1  # the fourth row, far to the right
    places = even_grid(150)
    (found,) = np.flatnonzero(memorization.pixel_targets(pixels) == 1)
    x, y = (places[found] + 1) / 2 * 150
    assert (int(x), int(y)) == (140, 3)


def test_the_summed_error_of_a_grey_guess():
    experiment = EXPERIMENTS["memorization"]
    task = experiment.task()
    (result,) = train([experiment.spec(trial("memorization", "1", 50, steps=0), None)], task.data)
    for weight, bias in result.weights:
        weight[:], bias[:] = 0, 0
    assert len(task.data) == 22_500
    assert task.score(result)["value"] == pytest.approx(float((task.data.targets**2).sum()), 1e-6)


def test_parabola_specs():
    specs = parabola.specs(2)
    assert len(specs) == len(parabola.ACTIVATIONS) * len(parabola.MOMENTS)
    assert {spec.sizes for spec in specs} == {(1, 2, 1)}
    assert {spec.optimiser for spec in specs} == {"momentum"}
    x, y = parabola.samples()
    assert np.allclose(y, x * x)


def test_a_short_training_is_the_beginning_of_a_longer_one():
    short, long = (spec for spec in parabola.specs(4)[:4] if spec.steps in (100, 1000))
    short, long = train([short, long], parabola.samples())
    assert short.spec.steps < long.spec.steps
    assert np.array_equal(long.losses[: len(short.losses)], short.losses)


def test_presets_ask_for_no_more_than_the_protocol():
    for preset in PRESETS.values():
        for grid in GRIDS.values():
            experiment: Experiment = EXPERIMENTS[grid.experiment]
            for column in grid.columns:
                full = experiment.protocol(grid.shape, column)
                found = preset.protocol(experiment, grid.shape, column)
                assert found.steps <= full.steps
                assert found.replicas <= full.replicas
                assert set(found.rates) <= set(full.rates)
                if preset.name == "paper":
                    assert found == full


@pytest.fixture
def calibrate(monkeypatch):
    monkeypatch.syspath_prepend(RESEARCH)
    return importlib.import_module("calibrate")


def test_no_sudo_unit_is_trained_for_calibration(calibrate):
    for name, variants in calibrate.VARIANTS.items():
        for variant in variants:
            some = list(calibrate.trials(EXPERIMENTS[name], variant))
            assert {t.activation for t in some} == set(BASELINES)
            assert {t.rate for t in some} == {calibrate.RATE}


def test_the_record_of_the_calibration_has_no_sudo_row(calibrate):
    record = json.loads((RESEARCH / "calibration.json").read_text())
    assert {row["activation"] for row in record} == set(BASELINES)
    assert {row["experiment"] for row in record} == set(EXPERIMENTS) - {"parabola"}
    page = (RESEARCH / "calibration.md").read_text()
    assert calibrate.page(record) in page
