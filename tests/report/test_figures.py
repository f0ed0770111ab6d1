from itertools import combinations

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.image import imread
from matplotlib.patches import StepPatch
from matplotlib.text import Text

from sudonet import Staircase
from sudonet.experiments import BASELINES, LEVELS, parabola
from sudonet.report.figures import (
    CAPTIONS,
    FORMATS,
    bars,
    caption,
    colour,
    draw,
    draw_all,
)
from sudonet.study.figures import FIGURES, FigureError, read
from tests.study.made_figures import made

pytestmark = pytest.mark.slow  # makes all figures first


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made(tmp_path_factory)


@pytest.fixture(scope="module")
def pictures(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("pictures") / "new"
    return draw_all(folder, out)


@pytest.fixture
def drawn(folder):
    def of(name):
        arrays, meta = read(folder / f"{name}.npz")
        return draw(name, arrays, meta), arrays, meta

    return of


def panels(figure):
    """Axes with a title, which colour bars have not."""
    return [axes for axes in figure.axes if axes.get_title()]


def not_drawn(figure):
    """Labels of ticks beyond the ends of an axis, or of an axis that is switched off."""
    found = set()
    for axes in figure.findobj(Axes):
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if not axes.axison or not low <= tick.get_loc() <= high:
                    found |= {tick.label1, tick.label2}
    return found


def image(axes):
    (found,) = axes.images
    return np.asarray(found.get_array())


def test_all_ten_are_drawn_in_the_order_of_the_paper(pictures):
    assert [path.name for path in pictures] == [f"{name}.png" for name in FIGURES]
    for path in pictures:
        pixels = imread(path)
        assert pixels.shape[1] >= 900
        assert pixels[0, 0, :3].tolist() == [1, 1, 1]
        assert pixels[..., :3].std() > 0.05


@pytest.mark.parametrize("name", FIGURES)
def test_no_text_is_cut_off_or_lies_on_another(drawn, name):
    figure, _, _ = drawn(name)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    edge, unseen = figure.bbox, not_drawn(figure)
    shown = [
        (text.get_text(), text.get_window_extent(canvas.get_renderer()))
        for text in figure.findobj(Text)
        if text.get_visible() and text.get_text().strip() and text not in unseen
    ]
    assert len(shown) > 5
    for text, box in shown:
        assert box.x0 >= -1, text
        assert box.y0 >= -1, text
        assert box.x1 <= edge.x1 + 1, text
        assert box.y1 <= edge.y1 + 1, text
    for (one, first), (other, second) in combinations(shown, 2):
        width = min(first.x1, second.x1) - max(first.x0, second.x0)
        height = min(first.y1, second.y1) - max(first.y0, second.y0)
        assert width < 1 or height < 1, (one, other)


@pytest.mark.parametrize("name", FIGURES)
def test_text_can_be_read_900_pixels_wide(drawn, name):
    figure, _, _ = drawn(name)
    pixels_a_point = 900 / figure.get_figwidth() / 72
    sizes = [text.get_fontsize() for text in figure.findobj(Text) if text.get_text().strip()]
    assert min(sizes) * pixels_a_point > 9


def test_the_unit_has_the_papers_levels(drawn):
    figure, _, _ = drawn("unit")
    assert [axes.get_title() for axes in panels(figure)] == [
        f"sudo-{levels}" for levels in (2, 4, 9, 64, 256)
    ]
    steps = [p for p in panels(figure)[2].patches if isinstance(p, StepPatch)]
    assert np.array_equal(steps[0].get_data().values, Staircase(9).values)


@pytest.mark.parametrize("units", parabola.UNITS)
def test_parabolas_show_target_fit_and_the_area_between(drawn, units):
    figure, arrays, _ = drawn(f"parabola-{units}")
    assert [axes.get_title() for axes in panels(figure)] == list(parabola.ACTIVATIONS)
    grid = np.reshape(figure.axes, (5, 7))
    assert [axes.get_ylabel() for axes in grid[:, 0]] == [
        *("0 steps", "1 step", "1 step", "2 steps", "20 steps")
    ]
    x = arrays["x"]
    for column, name in zip(grid.T, parabola.ACTIVATIONS, strict=True):
        for axes, fit in zip(column, arrays[name], strict=True):
            target, prediction = axes.lines
            assert np.array_equal(target.get_ydata(), x**2)
            assert np.array_equal(prediction.get_ydata(), fit)
            assert to_hex(prediction.get_color()) == colour(name).lower()
            (area,) = axes.collections
            low, high = area.get_datalim(axes.transData).intervaly
            assert low == pytest.approx(min(0, fit.min()), abs=1e-4)
            assert high == pytest.approx(max(1, fit.max()), abs=1e-4)


def test_every_sample_is_drawn_in_its_colour(drawn):
    figure, arrays, _ = drawn("checkerboard-samples")
    (axes,) = (axes for axes in figure.axes if axes.collections)
    for points, sign in zip(axes.collections, (-1, 1), strict=True):
        expected = arrays["points"][arrays["colour"] == sign]
        assert np.array_equal(points.get_offsets(), expected)
    first, second = (to_hex(points.get_facecolor()[0]) for points in axes.collections)
    assert first != second


def test_boards_show_every_network_and_its_accuracy(drawn):
    for name, count in (("checkerboard-surfaces", 12), ("checkerboard-binary", 3)):
        figure, arrays, meta = drawn(name)
        found = panels(figure)
        assert len(found) == count
        for axes, (network, answers) in zip(found, arrays.items(), strict=True):
            assert axes.get_title() == f"{network}: {meta['values'][network]:.1f} %"
            assert np.array_equal(image(axes), answers.astype(np.float32))
            assert axes.images[0].origin == "lower"


def test_the_rows_of_boards_are_shapes_and_their_columns_activations(drawn):
    figure, _, _ = drawn("checkerboard-surfaces")
    names = [axes.get_title().partition(":")[0] for axes in panels(figure)]
    assert names == [
        f"{shape} {activation}"
        for shape in ("1 x 200", "2 x 200", "4 x 200", "4 x 5")
        for activation in ("relu", "tanh", "sudo-256")
    ]


def test_below_every_fit_is_its_error(drawn):
    figure, arrays, meta = drawn("regression")
    target, *fits = panels(figure)
    assert target.get_title() == "target"
    names = ["tanh", "relu", "sudo-2", "sudo-8", "sudo-256"]
    assert [axes.get_title().split("\n")[0] for axes in fits] == names
    errors = [axes for axes in figure.axes if axes.images and not axes.get_title()]
    assert len(errors) == len(fits)
    FigureCanvasAgg(figure).draw()
    for name, fit, error in zip(names, fits, errors, strict=True):
        assert fit.get_title().endswith(f"error {meta['values'][name]:.3g}")
        assert np.array_equal(image(fit), arrays[name].astype(np.float32))
        off = np.abs(arrays[name].astype(np.float32) - arrays["target"].astype(np.float32))
        assert np.allclose(image(error), off.clip(1e-3, 1))
        assert error.get_position().x0 == pytest.approx(fit.get_position().x0)
        assert error.get_position().y1 < fit.get_position().y0


def test_the_bars_of_histograms_are_shares_of_all_outputs(drawn):
    figure, arrays, _ = drawn("histogram")
    found = {axes.get_title().partition(",")[0]: axes for axes in figure.axes}
    assert set(found) == set(arrays)
    for name, axes in found.items():
        heights = [bar.get_height() for bar in axes.patches]
        assert np.allclose(heights, 100 * arrays[name] / arrays[name].sum())
        assert sum(heights) == pytest.approx(100)
        middles = [bar.get_x() + bar.get_width() / 2 for bar in axes.patches]
        assert np.allclose(middles, bars(name, len(arrays[name]))[0])


def test_bars_stand_at_levels_or_in_bins():
    for levels in (2, 4, 64):
        places, apart = bars(f"sudo-{levels}", levels)
        assert np.allclose(places, Staircase(levels).values)
        assert np.allclose(np.diff(places), apart)
    places, apart = bars("tanh", 8)
    assert places[0] - apart / 2 == -1
    assert places[-1] + apart / 2 == 1


def test_pictures_have_their_errors_in_their_titles(drawn):
    figure, arrays, meta = drawn("memorization")
    original, *rest = panels(figure)
    assert np.array_equal(image(original), arrays["picture"])
    assert len(rest) == 6
    for axes in rest:
        name, error = axes.get_title().split("\n")
        assert error == f"squared error {meta['values'][name]:,.0f}"
        assert np.array_equal(image(axes), arrays[name])


def test_every_activation_has_a_colour_of_its_own():
    names = [*BASELINES, *(f"sudo-{levels}" for levels in LEVELS)]
    assert len({colour(name) for name in names}) == len(names)


def test_captions_say_how_long_and_on_what(folder):
    assert list(FIGURES) == list(CAPTIONS)
    found = {name: caption(name, read(folder / f"{name}.npz")[1]) for name in FIGURES}
    _, meta = read(folder / "memorization.npz")
    steps = f"Trained for {meta['steps']} steps, 0.2 % of the full protocol's."
    assert steps in found["memorization"]
    assert found["memorization"].endswith("in place of the paper's picture.")
    assert "china.jpg" in found["memorization"]
    assert "Trained" not in found["unit"] + found["checkerboard-samples"]
    full = caption("regression", meta | {"share": 1.0, "steps": 150_000})
    assert "Trained for 150,000 steps." in full


def test_a_part_of_the_figures_in_other_formats(folder, tmp_path):
    (tmp_path / "unit.npz").write_bytes((folder / "unit.npz").read_bytes())
    paths = draw_all(tmp_path, tmp_path / "out", formats=("svg", "pdf"))
    assert [path.name for path in paths] == ["unit.svg", "unit.pdf"]
    assert b"<svg" in paths[0].read_bytes()
    assert paths[1].read_bytes().startswith(b"%PDF")


def test_a_figure_drawn_again_is_the_same_file(folder, tmp_path):
    (tmp_path / "unit.npz").write_bytes((folder / "unit.npz").read_bytes())
    first, second = (draw_all(tmp_path, tmp_path / name, FORMATS) for name in ("a", "b"))
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def test_what_cannot_be_drawn_is_named(folder, tmp_path):
    with pytest.raises(FigureError, match=r"there are no figures in .*: make them first"):
        draw_all(tmp_path, tmp_path / "out")
    with pytest.raises(ValueError, match="no format is called 'gif': choose from png, svg, pdf"):
        draw_all(folder, tmp_path / "out", formats=("png", "gif"))
    with pytest.raises(ValueError, match="no figure is called 'mnist': choose from unit, "):
        draw("mnist", {}, {})
    assert not (tmp_path / "out").exists()
    (tmp_path / "unit.npz").write_bytes(b"nothing")
    with pytest.raises(FigureError, match=r"cannot read the figure .*unit\.npz"):
        draw_all(tmp_path, tmp_path / "out")
    (tmp_path / "unit.npz").write_bytes((folder / "unit.npz").read_bytes())
    (tmp_path / "out" / "unit.png").mkdir(parents=True)
    with pytest.raises(FigureError, match=r"cannot write .*unit\.png: .*Choose a folder"):
        draw_all(tmp_path, tmp_path / "out")
