import io
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn

from sudonet import RSUDO, SUDO, deploy
from sudonet.deploy.layers import Affine
from sudonet.deploy.report import report
from sudonet.deploy.tune import tune
from sudonet.functional import sudo

pytestmark = pytest.mark.without_core

TABLE = """\
layer  kind   unit     weights  same codes  as float64  weights float32   stored   tables  output float32  bytes  packed
0      dense  sudo-16  int8       100.00 %           -          2.3 KiB    600 B  1.8 KiB           120 B   30 B    16 B
2      dense  sudo-9   int8       100.00 %           -          1.8 KiB    450 B    480 B            60 B   15 B     8 B
4      dense  -        int8              -           -            240 B     60 B     48 B            16 B   32 B    32 B
total                                                           4.3 KiB  1.1 KiB  2.3 KiB           196 B   77 B    56 B
accuracy: 100.00 % before, 100.00 % after, 3 rows
the same class: 100.00 % of the rows
the same codes throughout: 100.00 % of the rows; no layer differs
arena of exported C: 48 B, 24 B with --optimise ram"""  # noqa: E501

PIXELS = deploy.Grid.of_range(0, 1)


@pytest.fixture(autouse=True)
def seed_and_one_thread(one_thread):
    torch.manual_seed(0)


def dense(units=(16, 9)):
    first, second = units
    return nn.Sequential(
        nn.Linear(20, 30), SUDO(first), nn.Linear(30, 15), SUDO(second), nn.Linear(15, 4)
    )


def pixels(*shape):
    """Inputs that lie on the grid."""
    return torch.randint(0, 256, shape, dtype=torch.uint8)


def classes(rows, number=4):
    return torch.arange(rows) % number


def test_a_tuned_model_loses_nothing():
    inputs = pixels(700, 20)
    real = torch.from_numpy(PIXELS.values(inputs.numpy())).float()
    model = tune(dense(), (real, classes(700)), steps=20).double()
    found = report(model, deploy.compile(model, inputs=PIXELS), (inputs, classes(700)))
    assert (found.rows, found.metric) == (700, "accuracy")
    assert found.before == found.after
    assert [row.same_codes for row in found.layers] == [1.0, 1.0, None]
    assert found.same_answers == found.same_codes == 1.0
    assert found.first_difference is None
    assert "no layer differs" in str(found)
    assert "100.00 %" in str(found)


def test_accuracy_and_codes_are_those_of_both_networks():
    model, inputs, targets = dense(), pixels(700, 20), classes(700)
    network = deploy.compile(model, "ternary", inputs=PIXELS)
    found = report(model, network, (inputs, targets))
    real = torch.from_numpy(PIXELS.values(inputs.numpy())).float()
    with torch.no_grad():
        before, after = model(real).argmax(1), torch.from_numpy(network(inputs.numpy()).argmax(1))
        first = network.layers[0].grid_out.integers(model[:2](real).numpy())
        second = network.layers[1].grid_out.integers(model[:4](real).numpy())
    assert found.before == pytest.approx((before == targets).float().mean().item())
    assert found.after == pytest.approx((after == targets).float().mean().item())
    assert found.same_answers == pytest.approx((before == after).float().mean().item())
    trace = network.trace(inputs.numpy())
    equal = [trace[0] == first, trace[1] == second]
    assert [row.same_codes for row in found.layers[:2]] == pytest.approx([e.mean() for e in equal])
    assert found.same_codes == pytest.approx((equal[0].all(1) & equal[1].all(1)).mean())
    assert found.first_difference == "0"
    assert found.layers[0].same_codes < 1


def test_the_first_layer_that_differs_is_named():
    inputs = pixels(300, 20)
    real = torch.from_numpy(PIXELS.values(inputs.numpy())).float()
    kinds = {"0": "int8", "2": "binary"}
    model = tune(dense(), (real, classes(300)), {"0": "int8", "2": "float32"}, steps=5).double()
    found = report(model, deploy.compile(model, kinds, inputs=PIXELS), (inputs, classes(300)))
    assert found.layers[0].same_codes == 1.0
    assert found.first_difference == "2"
    assert "the first layer that differs is 2" in str(found)


def test_real_inputs_and_integers_are_the_same_question():
    model, inputs = dense(), pixels(50, 20)
    network = deploy.compile(model, inputs=PIXELS)
    real = torch.from_numpy(PIXELS.values(inputs.numpy())).float()
    assert report(model, network, (inputs, classes(50))) == report(
        model, network, (real, classes(50))
    )


def test_targets_that_are_no_classes_are_a_matter_of_squares():
    model, inputs, targets = dense(), pixels(50, 20), torch.rand(50, 4)
    network = deploy.compile(model, inputs=PIXELS)
    found = report(model, network, (inputs, targets))
    error = np.square(network(inputs.numpy()) - targets.numpy()).mean()
    assert (found.metric, found.same_answers) == ("mean squared error", None)
    assert found.after == pytest.approx(error, rel=1e-5)
    assert "mean squared error: " in str(found)
    with pytest.raises(ValueError, match=r"shape \(50, 4\) and targets \(50,\): reshape"):
        report(model, network, (inputs, targets[:, 0]))


@pytest.mark.parametrize(
    "middle",
    [
        [nn.MaxPool2d(2), RSUDO(8)],
        [RSUDO(8), nn.MaxPool2d(2)],
        [nn.MaxPool2d(3, 1, 1), RSUDO(8), nn.MaxPool2d(2)],
        [RSUDO(8), nn.MaxPool2d(3, 1, 1), nn.MaxPool2d(2)],
    ],
)
def test_units_are_compared_on_their_side_of_a_maximum(middle):
    inputs = pixels(40, 1, 8, 8)
    model = nn.Sequential(
        *(nn.Conv2d(1, 4, 3, padding=1), *middle, nn.Conv2d(4, 3, 3), SUDO(4)),
        *(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(3, 4)),
    )
    real = torch.from_numpy(PIXELS.values(inputs.numpy())).float()
    model = tune(model, (real, classes(40)), steps=2).double()
    network = deploy.compile(model, inputs=PIXELS, shape=(1, 8, 8))
    found = report(model, network, (inputs, classes(40)))
    units = [row.same_codes for row in found.layers if row.unit]
    assert units == [1.0, 1.0]
    assert [row.same_codes for row in found.layers if row.unit is None] == [None] * (
        len(found.layers) - 2
    )


def test_shared_thresholds_are_compared_with_float64():
    model, inputs = dense((200, 9)), pixels(400, 20)
    network = deploy.compile(model, inputs=PIXELS)
    found = report(model, network, (inputs, classes(400)))
    assert [row.float64_codes is None for row in found.layers] == [False, True, True]
    layer = network.layers[0]
    # Coarser fixed-point numbers than compile would take, so that some codes must differ.
    coarse = deploy.IntegerNetwork(
        network.inputs,
        network.shape_in,
        (_with_fraction(layer, layer.after.fraction - 18), *network.layers[1:]),
    )
    share = report(model, coarse, (inputs, classes(400))).layers[0].float64_codes
    assert 0.5 < share < found.layers[0].float64_codes
    exact = deploy.compile(model, inputs=PIXELS, thresholds="channel")
    same = coarse.trace(inputs.numpy())[0] == exact.trace(inputs.numpy())[0]
    assert share == pytest.approx(same.mean())


def _with_fraction(layer, fraction):
    shift = layer.after.fraction - fraction
    after = replace(
        layer.after,
        factor=np.maximum(layer.after.factor >> shift, 1),
        constant=layer.after.constant >> shift,
        table=layer.after.table >> shift,
        fraction=fraction,
    )
    return replace(layer, after=after)


def test_thresholds_of_another_model_are_not_compared():
    network = deploy.compile(dense((200, 9)), inputs=PIXELS)
    found = report(dense((200, 9)), network, (pixels(10, 20), classes(10)))
    assert found.layers[0].float64_codes is None


class Functions(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(20, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.two(sudo(self.one(x), 16))


def test_units_that_are_no_modules_are_not_heard():
    model = Functions()
    network = deploy.compile(model, inputs=PIXELS, shape=(20,))
    found = report(model, network, (pixels(30, 20), classes(30)))
    assert (found.same_codes, found.layers[0].same_codes, found.first_difference) == (None,) * 3
    assert found.same_answers > 0.5
    assert "make them modules" in str(found)


def test_sizes():
    model = nn.Sequential(
        *(nn.Conv2d(1, 6, 3, padding=1), nn.MaxPool2d(2), RSUDO(8)),
        *(nn.Conv2d(6, 5, 3), SUDO(200), nn.AvgPool2d(3)),
        *(nn.Flatten(), nn.Linear(5, 4)),
    )
    network = deploy.compile(model, {"3": "int4"}, inputs=PIXELS, shape=(1, 10, 10))
    found = report(model, network, (pixels(5, 1, 10, 10), classes(5)))
    conv, pool, second, mean, last = found.layers
    assert [row.kind for row in found.layers] == ["conv", "max", "conv", "sum", "dense"]
    assert [row.weight_kind for row in found.layers] == ["int8", None, "int4", None, "int8"]
    assert (found.input.plain_bytes, found.input.packed_bytes) == (100, 100)
    # C takes the maximum before it stores anything.
    assert conv.output.float32_bytes == 4 * 600
    assert (conv.output.plain_bytes, conv.output.packed_bytes) == (600, None)
    # r-sudo-8 emits 0, 1, 3, 5 and 7: in 4 bits each when packed, in words of 4 bytes.
    assert (pool.output.plain_bytes, pool.output.packed_bytes) == (150, 76)
    # 199 needs a byte, sums of nine such codes need two.
    assert (second.output.plain_bytes, second.output.packed_bytes) == (45, 48)
    assert (mean.output.plain_bytes, mean.output.packed_bytes) == (10, 12)
    assert (last.output.plain_bytes, last.output.packed_bytes) == (4 * 8, 4 * 8)
    assert (conv.weight_float32_bytes, conv.weight_bytes) == (4 * 54, 54)
    assert (second.weight_float32_bytes, second.weight_bytes) == (4 * 270, 135)
    assert conv.threshold_bytes == 4 * 4 * 6
    assert second.threshold_bytes == 12 * 5 + 8 * 199
    assert last.threshold_bytes == 12 * 4
    # The pooled codes, the second layer's, and the window of 54 codes that it gathers.
    assert found.arena_bytes == 152 + 48 + 56
    assert found.arena_packed_bytes == 76 + 48 + 56
    assert re.search(r"^3 .* 45 B +48 B$", str(found), re.MULTILINE)
    assert re.search(r"^0 .* 600 B +-$", str(found), re.MULTILINE)
    assert found.weight_bytes == 54 + 135 + 20
    assert found.threshold_bytes == 96 + 1652 + 48


def test_float32_weights_save_nothing():
    model = dense()
    network = deploy.compile(model, "float32", inputs=PIXELS)
    found = report(model, network, (pixels(20, 20), classes(20)))
    assert found.weight_bytes == found.weight_float32_bytes
    assert [row.threshold_bytes for row in found.layers] == [8 * 30 + 8 * 15, 8 * 15 + 8 * 8, 8 * 4]
    # Such a network cannot be exported as C, so that there is nothing packed to state.
    assert (found.arena_bytes, found.arena_packed_bytes) == (None, None)
    assert [row.output.packed_bytes for row in found.layers] == [None] * 3
    assert "arena" not in str(found)
    assert all(line.endswith("-") for line in str(found).splitlines()[1:5])


def test_the_table_in_full():
    model = dense()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.5)
    network = deploy.compile(model, inputs=PIXELS)
    found = report(model, network, (torch.ones(3, 20), torch.zeros(3, dtype=torch.int64)))
    assert repr(found) == TABLE


def test_rich_shows_it_in_wide_and_narrow_terminals():
    model = dense()
    network = deploy.compile(model, inputs=PIXELS)
    found = report(model, network, (pixels(5, 20), classes(5)))
    for width in (90, 200):
        console = Console(width=width, file=io.StringIO())
        console.print(found)
        lines = console.file.getvalue().splitlines()
        assert max(map(len, lines)) <= width
        assert sum("dense" in line for line in lines) == 3
        assert len(lines) == (16 if width == 90 else 11)


def test_the_model_is_left_as_it_is():
    model = nn.Sequential(nn.Linear(20, 8), nn.BatchNorm1d(8), SUDO(4), nn.Linear(8, 4))
    model(torch.rand(10, 20))
    network = deploy.compile(model, inputs=PIXELS)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    report(model, network, (pixels(5, 20), classes(5)))
    assert model.training
    assert not model[2]._forward_hooks
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("rows", [(3, 2), (0, 0)])
def test_data_that_does_not_fit(rows):
    model = dense()
    network = deploy.compile(model, inputs=PIXELS)
    with pytest.raises(ValueError, match=f"got {rows[0]} and {rows[1]}"):
        report(model, network, (pixels(rows[0], 20), classes(rows[1])))


def test_an_argmax_is_a_class_already():
    class Best(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = dense()

        def forward(self, x):
            return self.body(x).argmax(1)

    model = Best()
    network = deploy.compile(model, inputs=PIXELS, shape=(20,))
    found = report(model, network, (pixels(60, 20), classes(60)))
    assert found.same_answers > 0.8
    assert math.isclose(found.before * 60, round(found.before * 60))
    assert isinstance(network.layers[0], Affine)
