"""The table of a model's costs: counted by hand, and by PyTorch's own counter."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.flop_counter import FlopCounterMode

from sudonet import RSUDO, SUDO
from sudonet._summary import Layer, summary

pytestmark = pytest.mark.without_core


def mlp(activation: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(784, 100), activation, nn.Linear(100, 10))


def only(model: nn.Module, *input_size: Any) -> Layer:
    (layer,) = summary(model, list(input_size)).layers
    return layer


def counted_by_torch(model: nn.Module, *inputs: Tensor) -> int:
    # In float64, for which oneDNN has no fused LSTM, and without fused attention: the
    # counter knows neither.
    model.eval().double()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with (
            torch.no_grad(),
            sdpa_kernel(SDPBackend.MATH),
            FlopCounterMode(display=False) as counter,
        ):
            model(*(x.double() if x.is_floating_point() else x for x in inputs))
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    return counter.get_total_flops() // 2


class TestTable:
    def test_mlp_by_hand(self) -> None:
        table = summary(mlp(SUDO(32)), (1, 784))
        assert table.layers == (
            Layer("0", "Linear", ((1, 100),), 78_500, 78_400, None, None, 400, None),
            Layer("1", "SUDO", ((1, 100),), 0, 0, 32, 5, 400, 100),
            Layer("2", "Linear", ((1, 10),), 1_010, 1_000, None, None, 40, None),
        )
        assert (table.parameters, table.multiply_adds, table.complete) == (79_510, 79_400, True)
        assert (table.activation_bytes, table.packed_bytes) == (840, 100)

    def test_snapshot(self) -> None:
        model = nn.Sequential(
            nn.Conv2d(1, 8, 5, padding=2),
            nn.BatchNorm2d(8),
            SUDO(16),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(1568, 500),
            RSUDO(16),
            Scale(500),
        )
        assert f"\n{summary(model, (4, 1, 28, 28))}\n" == SNAPSHOT
        assert repr(summary(model, (4, 1, 28, 28))) == SNAPSHOT.strip()

    def test_one_layer_is_a_model(self) -> None:
        assert "(model)  Linear  1x2" in str(summary(nn.Linear(3, 2), (1, 3)))

    def test_as_dict_survives_json(self) -> None:
        data = summary(mlp(SUDO(32)), (2, 784)).as_dict()
        assert json.loads(json.dumps(data)) == data
        assert data["layers"][1] == {
            "path": "1",
            "kind": "SUDO",
            "output_shapes": [[2, 100]],
            "parameters": 0,
            "multiply_adds": 0,
            "levels": 32,
            "bits": 5,
            "activation_bytes": 800,
            "packed_bytes": 200,
        }
        assert data["total"] == {
            "parameters": 79_510,
            "multiply_adds": 158_800,
            "complete": True,
            "activation_bytes": 1_680,
            "packed_bytes": 200,
        }
        assert data["discrete"] == {"values": 200, "activation_bytes": 800, "packed_bytes": 200}

    def test_prints_plain_text_without_a_terminal(self, capsys: pytest.CaptureFixture[str]) -> None:
        table = summary(mlp(SUDO(32)), (1, 784))
        table.print()
        printed = capsys.readouterr().out
        assert printed == f"{table}\n"
        assert printed.isascii()

    def test_prints_with_rich_in_a_terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = io.StringIO()
        terminal.isatty = lambda: True  # type: ignore[method-assign]
        monkeypatch.setattr(sys, "stdout", terminal)
        summary(mlp(SUDO(32)), (1, 784)).print()
        assert "─" in terminal.getvalue()

    @pytest.mark.parametrize("width", [80, 120])
    def test_rich_never_breaks_a_number(self, width: int) -> None:
        model = nn.Sequential(nn.ConvTranspose2d(128, 32, 4, stride=2), SUDO(8))
        table = summary(model, (8, 128, 16, 16))
        console = Console(width=width, record=True, file=io.StringIO())
        console.print(table)
        lines = console.export_text().splitlines()
        assert max(map(len, lines)) <= width
        for text in ("ConvTranspose2d  8x32x34x34", "65,568    134,217,728", "144.5 KiB"):
            assert any(text in line for line in lines)
        assert lines[-1].startswith("discrete units: 295,936 values, 1.1 MiB float32")

    def test_rich_is_imported_only_to_print(self) -> None:
        code = (
            "import sys, torch; from sudonet._summary import summary; "
            "str(summary(torch.nn.Tanh(), (1,))); sys.exit('rich' in sys.modules)"
        )
        subprocess.run([sys.executable, "-c", code], check=True)


class Scale(nn.Module):
    """A layer with parameters that nobody knows."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


SNAPSHOT = """
layer  kind         output     parameters  multiply-adds  levels  bits    float32    packed
0      Conv2d       4x8x28x28         208        627,200       -     -   98.0 KiB         -
1      BatchNorm2d  4x8x28x28          16         25,088       -     -   98.0 KiB         -
2      SUDO         4x8x28x28           0              0      16     4   98.0 KiB  12.2 KiB
3      MaxPool2d    4x8x14x14           0              0       -     -   24.5 KiB         -
4      Flatten      4x1568              0              0       -     -        0 B         -
5      Linear       4x500         784,500      3,136,000       -     -    7.8 KiB         -
6      RSUDO        4x500               0              0      16     4    7.8 KiB   1,000 B
7      Scale        4x500             500              ?       -     -    7.8 KiB         -
total                             785,224   >= 3,788,288                341.9 KiB  13.2 KiB
discrete units: 27,088 values, 105.8 KiB float32, 13.2 KiB packed, ratio 8
?: a layer of unknown kind, so the multiply-adds are a lower bound
"""


class TestMultiplyAdds:
    @pytest.mark.parametrize(
        ("layer", "size", "output", "parameters", "multiply_adds"),
        [
            (nn.Linear(3, 5), (2, 4, 3), (2, 4, 5), 20, 40 * 3),
            (nn.Conv1d(4, 6, 3), (2, 4, 9), (2, 6, 7), 78, 84 * 4 * 3),
            (
                nn.Conv2d(4, 6, (3, 2), stride=2, padding=1, groups=2),
                (2, 4, 9, 8),
                (2, 6, 5, 5),
                6 * 2 * 6 + 6,
                300 * 2 * 6,
            ),
            (nn.Conv2d(4, 4, 3, dilation=2, groups=4), (4, 9, 9), (4, 5, 5), 40, 100 * 9),
            (nn.Conv3d(2, 3, 2, bias=False), (1, 2, 4, 4, 4), (1, 3, 3, 3, 3), 48, 81 * 2 * 8),
            (
                nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, groups=2),
                (2, 4, 5, 5),
                (2, 6, 9, 9),
                4 * 3 * 9 + 6,
                200 * 3 * 9,
            ),
            (nn.ConvTranspose1d(2, 3, 4, stride=4), (1, 2, 5), (1, 3, 20), 27, 10 * 3 * 4),
            (nn.BatchNorm2d(3), (2, 3, 4, 4), (2, 3, 4, 4), 6, 96),
            (nn.BatchNorm2d(3, affine=False), (2, 3, 4, 4), (2, 3, 4, 4), 0, 0),
            (nn.InstanceNorm1d(3, affine=True), (2, 3, 4), (2, 3, 4), 6, 24),
            (nn.LayerNorm(4), (2, 3, 4), (2, 3, 4), 8, 24),
            (nn.GroupNorm(2, 4), (2, 4, 3), (2, 4, 3), 8, 24),
            (nn.RMSNorm(4), (2, 3, 4), (2, 3, 4), 4, 24),
            (nn.PReLU(), (2, 3), (2, 3), 1, 6),
            (nn.MaxPool2d(2), (1, 3, 4, 4), (1, 3, 2, 2), 0, 0),
            (nn.Tanh(), (2, 3), (2, 3), 0, 0),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
    )
    def test_by_hand(
        self,
        layer: nn.Module,
        size: tuple[int, ...],
        output: tuple[int, ...],
        parameters: int,
        multiply_adds: int,
    ) -> None:
        row = only(layer, size)
        assert row.output_shapes == (output,)
        assert (row.parameters, row.multiply_adds) == (parameters, multiply_adds)

    def test_bilinear(self) -> None:
        assert only(nn.Bilinear(3, 4, 5), (2, 3), (2, 4)).multiply_adds == 2 * 5 * (3 * 4 + 3)

    def test_embedding_looks_up(self) -> None:
        row = only(nn.Embedding(20, 8), torch.tensor([[1, 2, 19]]))
        assert (row.output_shapes, row.parameters, row.multiply_adds) == (((1, 3, 8),), 160, 0)

    def test_lstm_with_layers_directions_and_projection(self) -> None:
        lstm = nn.LSTM(7, 5, num_layers=2, bidirectional=True, proj_size=3)
        row = only(lstm.double(), (4, 2, 7))  # in float32 oneDNN warns of the projection
        first = 4 * 5 * (7 + 3) + 5 * 3
        second = 4 * 5 * (2 * 3 + 3) + 5 * 3
        assert row.multiply_adds == 4 * 2 * 2 * (first + second) == 6560
        assert row.parameters == 2 * (first + second + 2 * 2 * 4 * 5) == 980
        assert row.output_shapes == ((4, 2, 6),)
        assert row.activation_bytes == 4 * 2 * 6 * 4

    def test_gru_without_a_batch(self) -> None:
        row = only(nn.GRU(3, 4), (6, 3))
        assert (row.output_shapes, row.multiply_adds) == (((6, 4),), 6 * 3 * 4 * (3 + 4))

    @pytest.mark.parametrize("batch_first", [True, False])
    def test_rnn_counts_every_step(self, batch_first: bool) -> None:
        row = only(nn.RNN(3, 4, batch_first=batch_first), (2, 6, 3))
        assert (row.output_shapes, row.multiply_adds) == (((2, 6, 4),), 2 * 6 * 4 * (3 + 4))

    def test_packed_sequence_skips_the_padding(self) -> None:
        class Packed(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.rnn = nn.LSTM(3, 4)

            def forward(self, x: Tensor) -> Any:
                return self.rnn(input=pack_padded_sequence(x, [3, 1]))

        row = only(Packed(), (3, 2, 3))
        assert row.multiply_adds == (3 + 1) * 4 * 4 * (3 + 4)
        assert row.output_shapes == ((4, 4),)

    def test_cell_in_a_loop_has_a_row_a_step(self) -> None:
        class Loop(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.cell = nn.RNNCell(3, 4)

            def forward(self, x: Tensor) -> Tensor:
                state = x.new_zeros(x.shape[1], 4)
                for step in x:
                    state = self.cell(step, state)
                return state

        table = summary(Loop(), (5, 2, 3))
        assert [row.path for row in table.layers] == ["cell"] * 5
        assert [row.multiply_adds for row in table.layers] == [2 * 4 * (3 + 4)] * 5
        assert [row.parameters for row in table.layers] == [36, 0, 0, 0, 0]
        assert table.parameters == 36

    @pytest.mark.parametrize(("cell", "gates"), [(nn.GRUCell, 3), (nn.LSTMCell, 4)])
    def test_cells_emit_their_output_not_the_state(self, cell: Any, gates: int) -> None:
        row = only(cell(3, 4), (2, 3))
        assert (row.output_shapes, row.multiply_adds) == (((2, 4),), 2 * gates * 4 * (3 + 4))

    def test_attention(self) -> None:
        attention = nn.MultiheadAttention(8, 2, kdim=6, vdim=4, batch_first=True)
        row = only(attention, (3, 5, 8), (3, 7, 6), (3, 7, 4))
        projections = 3 * (5 * 8 * 8 + 7 * 6 * 8 + 7 * 4 * 8 + 5 * 8 * 8)
        assert row.multiply_adds == projections + 3 * 2 * (5 * 7 * 8)
        assert row.output_shapes == ((3, 5, 8),)
        assert row.parameters == sum(p.numel() for p in attention.parameters())

    def test_attention_extra_keys(self) -> None:
        attention = nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True)
        row = only(attention, (5, 8), (7, 8), (7, 8))
        assert row.multiply_adds == 2 * 5 * 64 + 2 * 7 * 64 + 2 * (5 * 9 * 8)

    def test_attention_called_with_names(self) -> None:
        class Cross(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.attention = nn.MultiheadAttention(8, 2)

            def forward(self, x: Tensor, y: Tensor) -> Any:
                return self.attention(value=y, key=y, query=x, need_weights=False)

        inputs = [torch.zeros(5, 3, 8), torch.zeros(7, 3, 8)]
        assert only(Cross(), *inputs).multiply_adds == counted_by_torch(Cross(), *inputs)

    @pytest.mark.parametrize(
        ("model", "size"),
        [
            (mlp(nn.Tanh()), (3, 784)),
            (nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), (2, 4, 9, 9)),
            (nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2), (2, 4, 9, 9)),
            (nn.ConvTranspose3d(2, 3, 2), (1, 2, 4, 4, 4)),
            (nn.RNN(3, 4, num_layers=2, bidirectional=True), (5, 2, 3)),
            (nn.GRU(3, 4, num_layers=2, bidirectional=True), (5, 2, 3)),
            (nn.LSTM(3, 4, num_layers=2, bidirectional=True, proj_size=2), (5, 2, 3)),
            (nn.LSTMCell(3, 4), (5, 3)),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
    )
    def test_agrees_with_torch(self, model: nn.Module, size: tuple[int, ...]) -> None:
        expected = counted_by_torch(model, torch.zeros(size))
        assert summary(model, size).multiply_adds == expected

    @settings(max_examples=50, deadline=None)
    @given(
        groups=st.integers(1, 3),
        channels=st.tuples(st.integers(1, 3), st.integers(1, 3)),
        kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
        stride=st.integers(1, 3),
        padding=st.integers(0, 1),
        transposed=st.booleans(),
    )
    def test_convolutions_agree_with_torch(
        self,
        groups: int,
        channels: tuple[int, int],
        kernel: tuple[int, int],
        stride: int,
        padding: int,
        transposed: bool,
    ) -> None:
        kind = nn.ConvTranspose2d if transposed else nn.Conv2d
        model = kind(
            channels[0] * groups, channels[1] * groups, kernel, stride, padding, groups=groups
        )
        x = torch.zeros(2, channels[0] * groups, 5, 6)
        assert summary(model, x.shape).multiply_adds == counted_by_torch(model, x)

    def test_unknown_layer_makes_the_total_a_lower_bound(self) -> None:
        table = summary(nn.Sequential(nn.Linear(3, 4), Scale(4)), (2, 3))
        assert table.layers[1].multiply_adds is None
        assert (table.multiply_adds, table.complete, table.parameters) == (24, False, 20)
        assert ">= 24" in str(table)


class TestRows:
    def test_module_used_twice_has_two_rows_and_one_set_of_parameters(self) -> None:
        layer = nn.Linear(4, 4)
        table = summary(nn.Sequential(layer, nn.Tanh(), layer), (1, 4))
        assert [row.parameters for row in table.layers] == [20, 0, 0]
        assert [row.multiply_adds for row in table.layers] == [16, 0, 16]
        assert table.parameters == 20

    def test_tied_weights_count_once(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        model[1].weight = model[0].weight
        table = summary(model, (1, 4))
        assert [row.parameters for row in table.layers] == [20, 4]
        assert table.parameters == 24

    def test_parameters_of_layers_that_never_run_are_in_the_total(self) -> None:
        class Idle(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.used, self.idle = nn.Linear(2, 2), nn.Linear(2, 3)

            def forward(self, x: Tensor) -> Tensor:
                return self.used(x)

        table = summary(Idle(), (1, 2))
        assert [row.path for row in table.layers] == ["used"]
        assert table.parameters == 6 + 9

    @pytest.mark.parametrize("returned", ["child", "product"])
    def test_module_with_children_and_parameters_of_its_own(self, returned: str) -> None:
        class Owner(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.shift = nn.Parameter(torch.zeros(3))
                self.more = nn.ParameterList([torch.zeros(2)])
                self.linear = nn.Linear(3, 4)

            def forward(self, x: Tensor) -> Tensor:
                y = self.linear(x + self.shift)
                return y if returned == "child" else y * 2

        linear, owner = summary(Owner(), (2, 3)).layers
        assert (linear.path, linear.parameters) == ("linear", 16)
        assert (owner.path, owner.parameters, owner.multiply_adds) == ("", 5, None)
        assert owner.activation_bytes == (0 if returned == "child" else 32)

    def test_parametrized_layer_is_one_row(self) -> None:
        row = only(weight_norm(nn.Linear(3, 4)), (2, 3))
        assert (row.multiply_adds, row.parameters) == (24, 12 + 4 + 4)
        assert only(weight_norm(nn.GRU(3, 4), "weight_hh_l0"), (5, 3)).multiply_adds == 5 * 84

    def test_fused_transformer_shows_its_layers(self) -> None:
        class Encoder(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.embedding = nn.Embedding(20, 16)
                layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
                self.encoder = nn.TransformerEncoder(layer, 2)

            def forward(self, x: Tensor) -> Tensor:
                return self.encoder(self.embedding(x), src_key_padding_mask=x == 0)

        words = torch.tensor([[1, 2, 3, 0], [4, 5, 0, 0]])
        table = summary(Encoder(), words)
        assert [row.kind for row in table.layers].count("MultiheadAttention") == 2
        normalisation = 2 * 2 * words.numel() * 16
        assert table.multiply_adds - normalisation == counted_by_torch(Encoder(), words)
        assert table.parameters == sum(row.parameters for row in table.layers)
        assert torch.backends.mha.get_fastpath_enabled()

    def test_all_tensors_of_dicts_and_tuples(self) -> None:
        class Two(nn.Module):
            def forward(self, x: Tensor) -> Any:
                return {"sum": x.sum(), "rest": (x + 1, [x * 2, "text"], None)}

        row = only(Two(), (2, 3))
        assert row.output_shapes == ((), (2, 3), (2, 3))
        assert row.activation_bytes == 13 * 4
        assert "scalar + 2x3 + 2x3" in str(summary(Two(), (2, 3)))

    def test_several_inputs(self) -> None:
        row = only(nn.RNNCell(3, 4), (2, 3), torch.ones(2, 4))
        assert row.multiply_adds == 2 * 4 * (3 + 4)


class TestBytes:
    @pytest.mark.parametrize("device", ["cpu", "meta"])
    @pytest.mark.parametrize(
        "layer",
        [nn.Flatten(), nn.Identity(), nn.Dropout(), nn.ReLU(inplace=True), nn.Sequential()],
        ids=lambda layer: type(layer).__name__,
    )
    def test_output_in_the_memory_of_the_input_is_free(self, layer: nn.Module, device: str) -> None:
        model = nn.Sequential(nn.Conv1d(2, 3, 1), layer).to(device)
        rows = summary(model, (1, 2, 4)).layers
        assert [row.activation_bytes for row in rows] == [48, 0]
        assert [row.packed_bytes for row in rows] == [None, None]

    @pytest.mark.parametrize("device", ["cpu", "meta"])
    def test_a_new_output_is_not(self, device: str) -> None:
        rows = summary(nn.Sequential(nn.Conv1d(2, 3, 1), nn.ReLU()).to(device), (1, 2, 4)).layers
        assert [row.activation_bytes for row in rows] == [48, 48]

    @pytest.mark.parametrize(
        ("unit", "levels", "bits", "stored"),
        [
            (SUDO(2), 2, 1, 1),
            (SUDO(3), 3, 2, 2),
            (SUDO(9), 9, 4, 4),
            (SUDO(17), 17, 5, 8),
            (RSUDO(16), 16, 4, 4),
            (RSUDO(6), 6, 2, 4),  # 0, 1, 3 and 5
            (RSUDO(6, placement="full"), 6, 3, 4),
        ],
    )
    @pytest.mark.parametrize("values", [1, 8, 13])
    def test_packed_bytes_round_up(
        self, unit: nn.Module, levels: int, bits: int, stored: int, values: int
    ) -> None:
        row = only(unit, (1, values))
        assert (row.levels, row.bits) == (levels, bits)
        assert row.packed_bytes == 4 * -(-values * stored // 32)
        assert row.activation_bytes == 4 * values

    def test_units_that_bytes_do_not_hold_have_no_packed_size(self) -> None:
        table = summary(nn.Sequential(SUDO(1000), SUDO(4)), (1, 8))
        assert [row.packed_bytes for row in table.layers] == [None, 4]
        assert table.packed_bytes is None
        assert str(table).splitlines()[-1] == "discrete units: 16 values, 64 B float32"
        assert only(RSUDO(511), (1, 8)).packed_bytes == 8
        assert only(RSUDO(512), (1, 8)).packed_bytes is None

    def test_discrete_units_alone(self) -> None:
        model = nn.Sequential(nn.Linear(3, 8), SUDO(4), nn.Linear(8, 8), nn.Tanh(), RSUDO(16))
        units = summary(model, (2, 3)).discrete
        assert [row.kind for row in units.layers] == ["SUDO", "RSUDO"]
        assert (units.activation_bytes, units.packed_bytes) == (128, 4 + 8)
        assert "32 values, 128 B float32, 12 B packed, ratio 10.7" in str(units)

    def test_no_discrete_units_no_line(self) -> None:
        assert "discrete" not in str(summary(mlp(nn.Tanh()), (1, 784)))

    @pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
    def test_bytes_are_float32_whatever_the_type(self, dtype: torch.dtype) -> None:
        assert summary(mlp(SUDO(32)).to(dtype), (1, 784)) == summary(mlp(SUDO(32)), (1, 784))

    def test_meta_device_gives_the_same_table(self) -> None:
        model = nn.Sequential(nn.Conv2d(1, 2, 3), SUDO(8), nn.Flatten(), nn.Linear(72, 3))
        assert summary(model, (2, 1, 8, 8)) == summary(model.to("meta"), (2, 1, 8, 8))


class TestModelIsLeftAlone:
    def test_flags_hooks_statistics_and_random_numbers(self) -> None:
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(), Noise())
        model[2].eval()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        torch.manual_seed(1)
        state = torch.get_rng_state()
        summary(model, (1, 3))
        assert torch.equal(torch.get_rng_state(), state)
        assert [module.training for module in model.modules()] == [True, True, True, False, True]
        assert not any(module._forward_hooks for module in model.modules())
        assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
        assert torch.is_grad_enabled()

    def test_after_a_forward_that_fails(self) -> None:
        model = nn.Sequential(nn.Linear(3, 4), nn.Linear(5, 4))
        with pytest.raises(RuntimeError, match=r"input_size \(2, 3\): mat1 and mat2") as caught:
            summary(model, (2, 3))
        assert isinstance(caught.value.__cause__, RuntimeError)
        assert all(module.training for module in model.modules())
        assert not any(module._forward_hooks for module in model.modules())
        assert torch.backends.mha.get_fastpath_enabled()

    def test_runs_once_in_evaluation_mode_without_gradients(self) -> None:
        modes = []

        class Watch(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                modes.append((self.training, torch.is_grad_enabled(), x.abs().sum().item()))
                return x

        summary(Watch(), (2, 3))
        assert modes == [(False, False, 0.0)]

    def test_train_is_not_called(self) -> None:
        class Fussy(nn.Linear):
            def train(self, mode: bool = True) -> Any:
                raise AssertionError("train() may do more than set a flag")

        assert only(Fussy(3, 4), (1, 3)).multiply_adds == 12

    def test_example_tensor_is_not_changed(self) -> None:
        x = torch.tensor([[-1.0, 2.0]])
        summary(nn.ReLU(inplace=True), x)
        assert x.tolist() == [[-1.0, 2.0]]

    def test_compiled_model_that_has_run(self) -> None:
        model = mlp(SUDO(32)).eval()
        compiled = torch.compile(model, backend="eager")
        with torch.no_grad():
            compiled(torch.zeros(1, 784))
        rows = summary(compiled, (1, 784)).layers
        assert [row.path for row in rows] == ["_orig_mod.0", "_orig_mod.1", "_orig_mod.2"]


class Noise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x)


class TestErrors:
    @pytest.mark.parametrize("size", ["784", 784, 1.5, None, (1, 7.84), (1, "784"), (True, 3), {}])
    def test_no_shape(self, size: Any) -> None:
        with pytest.raises(TypeError, match="input_size must be a shape of integers >= 1"):
            summary(mlp(SUDO(32)), size)

    @pytest.mark.parametrize("size", [(), [], (0, 784), (1, -784), [(1, 784), ()]])
    def test_impossible_shape(self, size: Any) -> None:
        with pytest.raises(ValueError, match=r"such as \(1, 784\).* got [(\[]"):
            summary(mlp(SUDO(32)), size)

    def test_no_module(self) -> None:
        with pytest.raises(TypeError, match=r"model must be a torch.nn.Module, got <function"):
            summary(mlp, (1, 784))  # type: ignore[arg-type]

    def test_lazy_layer(self) -> None:
        with pytest.raises(ValueError, match=r"0.weight has no shape yet: run the model once"):
            summary(nn.Sequential(nn.LazyLinear(3)), (1, 784))
