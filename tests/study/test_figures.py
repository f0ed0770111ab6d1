import json
import zipfile

import numpy as np
import pytest
import torch

from sudonet.experiments import EXPERIMENTS, parabola
from sudonet.experiments.data import picture
from sudonet.study import figure_file
from sudonet.study.figures import FIGURES, MORE, FigureError, histograms, make, read
from sudonet.train import Spec, engine_name, train
from tests.study.made_figures import SHARE, made

slow = pytest.mark.slow  # makes all figures, or trains for longer
AXIS = (np.arange(250) + 0.5) / 125 - 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made(tmp_path_factory)


@pytest.fixture
def figure(folder):
    return lambda name: read(folder / f"{name}.npz")


def trained_again(meta, name, task):
    """The network that a file says it shows, from nothing but what it says."""
    said = meta["specs"][name]
    tuples = {key: tuple(value) for key, value in said.items() if isinstance(value, list)}
    (result,) = train([Spec(**said | tuples)], task.data, threads=1)
    return result


def state(path):
    found = path.stat()
    return found.st_ino, found.st_mtime_ns


def rewritten(path, **changes):
    arrays, meta = read(path)
    figure_file.write(path, arrays, meta | changes)


def test_the_ten_figures_are_in_the_order_of_the_paper():
    assert list(FIGURES) == [
        "unit",
        *("parabola-2", "parabola-4", "parabola-10"),
        *("checkerboard-samples", "checkerboard-surfaces", "checkerboard-binary"),
        *("regression", "histogram", "memorization"),
    ]


@slow
def test_files_come_in_the_order_of_the_paper_and_nothing_else_is_left(folder, tmp_path):
    paths = make(tmp_path, share=SHARE, names=["parabola-2", "checkerboard-samples", "unit"])
    assert [path.name for path in paths] == [
        "unit.npz",
        "parabola-2.npz",
        "checkerboard-samples.npz",
    ]
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    assert sorted(path.stem for path in folder.iterdir()) == sorted([*FIGURES, *MORE])


@slow
def test_meta_tells_what_was_really_done(figure):
    _, meta = figure("checkerboard-binary")
    task = EXPERIMENTS["checkerboard"].task()
    steps = round(SHARE * EXPERIMENTS["checkerboard"].protocol("4", 50).steps)
    assert (meta["share"], meta["steps"]) == (SHARE, steps)
    assert meta["data"]["checksum"] == task.source.checksum
    assert meta["data"]["name"] == task.source.name
    spec = Spec(sizes=(2, 10, 1), steps=1)
    assert meta["engine"] == engine_name(spec)
    assert meta["versions"]["torch"] == torch.__version__
    said = meta["specs"]["4 x 50 sudo-2"]
    assert (said["sizes"], said["steps"]) == ([2, 50, 50, 50, 50, 1], steps)
    assert (said["learning_rate"], said["seed"]) == (0.001, 0)
    assert set(meta["values"]) == set(meta["specs"])


@slow
@pytest.mark.parametrize("units", parabola.UNITS)
def test_the_first_fit_of_a_parabola_is_the_untrained_network(figure, units):
    arrays, _ = figure(f"parabola-{units}")
    x = torch.from_numpy(arrays["x"]).reshape(-1, 1)
    for spec in parabola.specs(units):
        if spec.steps == 0:
            with torch.no_grad():
                untrained = spec.module()(x).numpy()[:, 0]
            assert np.array_equal(arrays[spec.activations[0]][0], untrained)


@slow
def test_every_fit_of_a_parabola_is_the_network_at_its_moment(figure):
    arrays, meta = figure("parabola-4")
    assert arrays["steps"].tolist() == [0, 1, 1, 2, 20]
    task = parabola.task()
    for name in ("tanh", "sudo-8"):
        for moment, fit in enumerate(arrays[name]):
            result = trained_again(meta, f"{name} at moment {moment}", task)
            assert result.spec.steps == arrays["steps"][moment]
            assert np.array_equal(fit, result.predict(arrays["x"].reshape(-1, 1))[:, 0])
            error = result.predict(task.data.inputs) - task.data.inputs**2
            value = meta["values"][f"{name} at moment {moment}"]
            assert value == pytest.approx(float((error**2).mean()), rel=1e-5)


@slow
def test_two_binary_units_make_a_symmetric_staircase(tmp_path):
    (path,) = make(tmp_path, names=["parabola-2"])
    arrays, _ = read(path)
    x, fit = arrays["x"], arrays["sudo-2"][-1]
    left, right = np.flatnonzero(np.diff(fit))
    assert -0.7 < x[left] < -0.5
    assert x[left] == pytest.approx(-x[right], abs=0.05)
    assert fit[0] == pytest.approx(fit[-1], abs=0.05)
    assert fit[200] == pytest.approx(0.12, abs=0.05)  # the mean of x^2 between the steps


@slow
def test_samples_have_the_colours_of_their_squares(figure):
    arrays, _ = figure("checkerboard-samples")
    assert arrays["points"].shape == (5000, 2)
    columns, rows = np.floor((arrays["points"] + 1) * 2.5).astype(int).T
    assert np.array_equal(arrays["colour"] == 1, (columns + rows) % 2 == 1)


@slow
@pytest.mark.parametrize("name", ["4 x 10 sudo-2", "4 x 50 sudo-2"])
def test_a_surface_is_the_network_over_the_board(figure, name):
    arrays, meta = figure("checkerboard-binary")
    result = trained_again(meta, name, EXPERIMENTS["checkerboard"].task())
    x, y = np.meshgrid(AXIS, AXIS)
    board = np.stack([x.ravel(), y.ravel()], 1)
    answers = result.predict(board).reshape(250, 250)
    assert np.array_equal(arrays[name], answers.astype(np.float16))


@slow
def test_accuracy_is_that_of_the_surface(figure):
    arrays, meta = figure("checkerboard-binary")
    squares = np.floor((AXIS + 1) * 2.5)
    colour = np.where((squares[:, None] + squares[None, :]) % 2 == 1, 1, -1)
    for name, surface in arrays.items():
        accuracy = 100 * (np.sign(surface) == colour).mean()
        # tables count on a grid twice as fine, which differs along the edges of pieces only
        assert meta["values"][name] == pytest.approx(accuracy, abs=0.3)
    assert meta["values"]["4 x 200 sudo-2"] > 60


@slow
def test_regression_surfaces_and_their_errors(figure):
    arrays, meta = figure("regression")
    expected = np.sin(10 * AXIS)[None, :] * np.cos(5 * AXIS)[:, None]
    assert np.abs(arrays["target"] - expected).max() < 1e-3
    assert list(arrays) == ["target", "tanh", "relu", "sudo-2", "sudo-8", "sudo-256"]
    for name, value in meta["values"].items():
        error = arrays[name].astype(np.float64) - expected
        # tables take the mean over fewer points
        assert value == pytest.approx(100 * (error**2).mean(), rel=0.01)


@slow
def test_every_hidden_output_is_counted_once_at_its_level(figure):
    arrays, meta = figure("histogram")
    task = EXPERIMENTS["memorization"].task()
    assert {name: len(counts) for name, counts in arrays.items()} == {
        "sudo-4": 4,
        "sudo-8": 8,
        "sudo-16": 16,
        "sudo-64": 64,
        "tanh": 8,
    }
    for name, counts in arrays.items():
        outputs = hidden_outputs(trained_again(meta, name, task).module(), task.data.inputs)
        assert counts.sum() == outputs.size == 4 * 50 * 22_500
        if name == "tanh":
            passed = sum((outputs > edge).astype(int) for edge in np.arange(-0.75, 1, 0.25))
            expected = np.bincount(passed)  # on an edge counts below it, as for SUDO
        else:
            emitted, found = np.unique(outputs, return_counts=True)
            levels = np.linspace(-1, 1, len(counts))
            which = np.abs(emitted[:, None] - levels).argmin(1)
            assert np.abs(emitted - levels[which]).max() < 1e-6
            expected = np.zeros_like(counts)
            expected[which] = found
        assert np.array_equal(counts, expected)


@slow
def test_histograms_are_read_as_counts_by_activation(figure, folder, tmp_path):
    found = histograms(folder)
    arrays, meta = figure("histogram")
    assert found.counts == {name: list(counts) for name, counts in arrays.items()}
    assert found.share == meta["share"]
    assert histograms(tmp_path) is None


def hidden_outputs(model, inputs):
    """What the units between the first and the last layer emit, all in a row."""
    outputs = []
    for unit in list(model)[1:-1:2]:
        unit.register_forward_hook(lambda *of: outputs.append(of[-1].numpy().ravel()))
    with torch.no_grad():
        model(torch.from_numpy(inputs))
    return np.concatenate(outputs)


@slow
def test_pictures_are_upright_and_as_far_off_as_they_say(figure):
    arrays, meta = figure("memorization")
    pixels = picture().pixels
    assert np.abs(arrays["picture"] - 255 * pixels).max() <= 0.51
    task = EXPERIMENTS["memorization"].task()
    for name, value in meta["values"].items():
        shades = trained_again(meta, name, task).predict(task.data.inputs)
        upright = shades.reshape(pixels.shape).T
        assert np.abs(arrays[name] - (upright + 1) * 127.5).max() <= 0.51
        assert value == pytest.approx(float(((upright - (2 * pixels - 1)) ** 2).sum()), rel=1e-5)


@slow
def test_a_network_of_two_figures_is_trained_once(tmp_path):
    seen = []
    make(
        tmp_path,
        share=0.001,
        names=["histogram", "memorization", "parabola-2"],
        progress=lambda done, total: seen.append((done, total)),
    )
    steps = round(0.001 * EXPERIMENTS["memorization"].protocol("4", 50).steps)
    total = 8 * steps + 7 * (1 + 10)  # of eleven memorization networks; of five moments
    assert seen[-1] == (total, total)
    assert {of for _, of in seen} == {total}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    for name in ("tanh", "sudo-4", "sudo-8"):
        values = {
            read(tmp_path / f"{f}.npz")[1]["values"][name] for f in ("histogram", "memorization")
        }
        assert len(values) == 1


@slow
def test_what_is_there_is_not_made_again(folder):
    before = {path: state(path) for path in folder.iterdir()}
    seen = []
    make(folder, share=SHARE, progress=lambda *at: seen.append(at))
    assert {path: state(path) for path in folder.iterdir()} == before
    assert seen == []


def test_another_share_or_engine_is_made_again(tmp_path):
    (path,) = make(tmp_path, share=0.002, names=["parabola-2"])
    first = state(path)
    make(tmp_path, share=0.003, names=["parabola-2"])
    second = state(path)
    assert second != first
    assert read(path)[1]["steps"] == 30
    make(tmp_path, share=0.003, names=["parabola-2"], engine="torch")
    assert read(path)[1]["engine"] == "torch-cpu"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("data", {"name": "y = x^2", "checksum": "0", "stand_in_for": None}),
        ("specs", {}),
        ("format", 0),
        ("figure", "parabola-4"),
    ],
)
def test_other_data_or_networks_are_made_again(tmp_path, key, value):
    (path,) = make(tmp_path, share=SHARE, names=["parabola-2"])
    good = path.read_bytes()
    rewritten(path, **{key: value})
    make(tmp_path, share=SHARE, names=["parabola-2"])
    assert path.read_bytes() == good


@pytest.mark.parametrize(("part", "again"), [(2, False), (1, True)])
def test_only_a_new_release_makes_figures_old(tmp_path, part, again):
    (path,) = make(tmp_path, share=SHARE, names=["parabola-2"])
    versions = read(path)[1]["versions"]
    numbers = versions["python"].split(".")
    numbers[part] = "99"
    rewritten(path, versions=versions | {"python": ".".join(numbers)})
    before = state(path)
    make(tmp_path, share=SHARE, names=["parabola-2"])
    assert (state(path) != before) == again


def test_a_stopped_run_goes_on_where_it_was(tmp_path):
    first, second = tmp_path / "parabola-2.npz", tmp_path / "parabola-4.npz"

    def stop(done, total):
        if first.exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(tmp_path, share=SHARE, names=["parabola-2", "parabola-4"], progress=stop)
    assert list(tmp_path.iterdir()) == [first]
    before = state(first)
    assert make(tmp_path, share=SHARE, names=["parabola-2", "parabola-4"]) == [first, second]
    assert state(first) == before
    read(second)


def test_a_damaged_file_is_an_error_to_read_and_is_made_again(tmp_path):
    (path,) = make(tmp_path, share=SHARE, names=["unit"])
    good = path.read_bytes()
    damages = [good[:length] for length in range(0, len(good), 7)]
    damages += [
        good[:place] + bytes([good[place] ^ 255]) + good[place + 1 :]
        for place in range(0, len(good), 5)
    ]
    arrays, meta = read(path)
    messages = []
    for damage in damages:
        path.write_bytes(damage)
        try:
            found, its = read(path)
        except FigureError as error:
            messages.append(str(error))
        else:  # some bytes of the archive's directory say nothing
            assert its == meta
            assert np.array_equal(found["levels"], arrays["levels"])
    assert len(messages) > 0.8 * len(damages)
    assert all(str(path) in text and "make it again" in text for text in messages)
    path.write_bytes(good[: len(good) // 2])
    make(tmp_path, share=SHARE, names=["unit"])
    assert path.read_bytes() == good


def test_files_that_are_no_figures(tmp_path):
    path = tmp_path / "unit.npz"
    with pytest.raises(FigureError, match=r"there is no figure .*unit\.npz: make it first"):
        read(path)
    np.savez(path, levels=np.arange(3))
    with pytest.raises(FigureError, match="meta"):
        read(path)
    np.savez(path, meta=np.array([{"format": 1}], dtype=object))
    with pytest.raises(FigureError, match="allow_pickle=False"):
        read(path)
    np.savez(path, meta=np.array(json.dumps({"format": 7})))
    with pytest.raises(FigureError, match="its format is 7, not 1"):
        read(path)
    np.savez(path, meta=np.array("no JSON"))
    with pytest.raises(FigureError, match="make it again"):
        read(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("meta.npy", b"no array")
    with pytest.raises(FigureError, match="make it again"):
        read(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(FigureError, match="directory"):
        read(path)


@pytest.mark.parametrize("name", ["unit", "parabola-2"])
def test_a_file_that_cannot_be_written_ends_the_run(tmp_path, name):
    (tmp_path / f"{name}.npz").mkdir()
    with pytest.raises(FigureError, match=rf"cannot write .*{name}\.npz: .*Choose a folder"):
        make(tmp_path, share=SHARE, names=[name, "parabola-4"])
    assert [path.name for path in tmp_path.iterdir()] == [f"{name}.npz"]


def test_a_folder_that_is_a_file(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(FigureError, match=r"cannot write .*below: .*Choose a folder"):
        make(file / "below", names=["unit"])


@pytest.mark.parametrize("share", [0, -0.5, 1.5, float("nan")])
def test_a_share_is_a_part(tmp_path, share):
    with pytest.raises(ValueError, match=r"share must be .*above 0 and at most 1, got"):
        make(tmp_path, share=share)


def test_unknown_figures_are_named(tmp_path):
    with pytest.raises(ValueError, match="no figure is called 'mnist': choose from unit, parab"):
        make(tmp_path, names=["unit", "mnist"])
    assert list(tmp_path.iterdir()) == []
