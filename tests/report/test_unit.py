import numpy as np
import pytest
from matplotlib.patches import StepPatch

from sudonet import Staircase
from sudonet.report import draw_unit

NAMES = ["sudo-2", "sudo-9", "sudo-256", "r-sudo-2", "r-sudo-16-full", "sudo-64-sigmoid"]
NAMES += ["sudo-5-hardtanh", "sudo-8-relu6", "r-sudo-3"]


def steps(axes):
    (patch,) = (p for p in axes.patches if isinstance(p, StepPatch))
    return patch.get_data()


@pytest.mark.parametrize("name", NAMES)
def test_the_drawn_steps_are_the_staircase_itself(name):
    unit = Staircase.parse(name)
    forward, _ = draw_unit([unit]).axes[:2]
    drawn = steps(forward)
    assert np.array_equal(drawn.values, unit.values)
    assert np.array_equal(drawn.edges[1:-1], unit.thresholds)
    low, high = forward.get_xlim()
    assert low < unit.thresholds[0]
    assert unit.thresholds[-1] < high
    assert tuple(drawn.edges[[0, -1]]) == (low, high)


@pytest.mark.parametrize("name", NAMES)
def test_the_drawn_derivative_is_the_units(name):
    unit = Staircase.parse(name)
    _, backward = draw_unit([unit]).axes[:2]
    x, slope = backward.lines[0].get_data()
    assert np.array_equal(slope, unit.derivative(x))


@pytest.mark.parametrize("name", ["r-sudo-8", "sudo-5-hardtanh", "sudo-8-relu6"])
def test_jumps_of_the_derivative_are_drawn_upright(name):
    _, backward = draw_unit([Staircase.parse(name)]).axes[:2]
    x, slope = backward.lines[0].get_data()
    jumps = np.abs(np.diff(slope)) > 0.5
    assert jumps.any()
    assert np.diff(x)[jumps].max() < 1e-12


def test_titles_tell_name_levels_outputs_and_bits():
    figure = draw_unit([Staircase.parse("sudo-2"), Staircase.parse("r-sudo-16")])
    first, second = figure.axes[:2]
    assert (first.get_title(), second.get_title()) == ("sudo-2", "r-sudo-16")
    assert first.texts[0].get_text() == "2 levels, 2 outputs, 1 bit"
    assert second.texts[0].get_text() == "16 levels, 9 outputs, 4 bits"


def test_units_side_by_side_share_their_axes():
    figure = draw_unit([Staircase(4), Staircase(4, "relu6")])
    first, second = figure.axes[:2]
    assert first.get_xlim() == second.get_xlim()
    assert first.get_ylim() == second.get_ylim()


def test_nothing_to_draw_is_an_error():
    with pytest.raises(ValueError, match="at least one"):
        draw_unit([])
