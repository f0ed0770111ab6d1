import json
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from sudonet import RSUDO, SUDO, deploy
from sudonet.cli import _deploy as commands
from sudonet.cli import app
from sudonet.deploy import Grid
from sudonet.deploy.artefact import dumps, load
from tests.deploy.bombs import bombs

FACTORY = """
from torch import nn
from sudonet import SUDO

def digits():
    return nn.Sequential(nn.Linear(6, 5), SUDO(16), nn.Linear(5, 3))

def nothing():
    return None

def sized(n):
    return nn.Linear(n, 1)
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch, one_thread):
    """A folder with a module of its own, which no other test has imported."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    (tmp_path / "models_of_mine.py").write_text(FACTORY)
    yield tmp_path
    sys.modules.pop("models_of_mine", None)


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def check_user_error(result, *words):
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    for word in words:
        assert word in result.stderr


def dense():
    return nn.Sequential(nn.Linear(6, 5), SUDO(16), nn.Linear(5, 3))


def program(model=None, example=None, dynamic=False):
    model = dense() if model is None else model
    example = torch.zeros(2, 6) if example is None else example
    shapes = ({0: torch.export.Dim("batch", min=1, max=64)},) if dynamic else None
    exported = torch.export.export(model.eval(), (example,), dynamic_shapes=shapes)
    torch.export.save(exported, "model.pt2")
    with zipfile.ZipFile("model.pt2") as archive:
        if not any(name.endswith("weights_config.json") for name in archive.namelist()):
            pytest.skip("this PyTorch saves weights as a pickle, which is refused")
    return model


def network(model=None, shape=None, output=None):
    model = dense() if model is None else model
    model = nn.Sequential(*model, *([output] if output else []))
    made = deploy.compile(model, inputs=Grid.of_range(0, 1), shape=shape)
    made.save("net.sudo")
    return made


def same(one, two):
    """Whether two networks compute alike."""
    inputs = np.random.default_rng(0).integers(0, 256, (20, *one.shape_in)).astype(np.uint8)
    return one.shape_in == two.shape_in and np.array_equal(one(inputs), two(inputs))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_a_program(here, dynamic):
    model = program(dynamic=dynamic)
    result = run("compile", "model.pt2", "--range", "0,1", "--out", "net.sudo")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "wrote net.sudo: 2 layers, 45 B of weights, takes 6 of uint8\n"
    assert same(load("net.sudo"), deploy.compile(model, inputs=Grid.of_range(0, 1)))


def test_compile_a_program_with_everything_in_it(here):
    model = nn.Sequential(
        *(nn.Conv2d(1, 4, 3, padding="same"), nn.BatchNorm2d(4), nn.MaxPool2d(2), RSUDO(8)),
        *(nn.Conv2d(4, 4, 3, groups=2), SUDO(100), nn.AvgPool2d(2)),
        *(nn.Flatten(), nn.Dropout(), nn.Linear(4, 3), nn.Softmax(1)),
    )
    program(model, torch.zeros(2, 1, 8, 8), dynamic=True)
    options = ("--range", "0,1", "--weights", "int4", "--thresholds", "channel")
    assert run("compile", "model.pt2", *options, "--out", "net.sudo").exit_code == 0
    wanted = deploy.compile(
        *(model, "int4"), inputs=Grid.of_range(0, 1), shape=(1, 8, 8), thresholds="channel"
    )
    found = load("net.sudo")
    assert same(found, wanted)
    assert [layer.name for layer in found.layers] == [layer.name for layer in wanted.layers]


def test_compile_what_a_factory_makes(here):
    model = dense()
    torch.save(model.state_dict(), "weights.pt")
    options = ("--state-dict", "weights.pt", "--range", "-1,1", "--bits", "16", "--out", "a.sudo")
    result = run("compile", "models_of_mine:digits", *options)
    assert result.exit_code == 0, result.stderr
    assert "takes 6 of int16" in result.stdout
    found = load("a.sudo")
    assert found.inputs == Grid.of_range(-1, 1, 16)
    integers = np.random.default_rng(0).integers(-(2**15), 2**15, (9, 6)).astype(np.int16)
    wanted = deploy.compile(model, inputs=Grid.of_range(-1, 1, 16))
    assert np.array_equal(found(integers), wanted(integers))
    assert str(here) not in sys.path


def test_calibration_tells_range_and_shape(here):
    (here / "models_of_mine.py").write_text(
        FACTORY + "\nimage = nn.Sequential(nn.Conv2d(1, 2, 3), SUDO(4), nn.Conv2d(2, 1, 2))\n"
    )
    np.save("examples.npy", np.linspace(-3, 5, 2 * 16).reshape(2, 1, 4, 4))
    result = run(
        *("compile", "models_of_mine:image", "--calibration", "examples.npy", "--out", "a.sudo")
    )
    assert result.exit_code == 0, result.stderr
    found = load("a.sudo")
    assert found.shape_in == (1, 4, 4)
    assert found.inputs == Grid.calibrated([-3, 5])


def test_safetensors_have_a_reader_of_their_own(here, monkeypatch):
    for name in ("safetensors", "safetensors.torch"):
        monkeypatch.setitem(sys.modules, name, None)  # as if it was not installed
    (here / "weights.safetensors").write_bytes(b"")
    result = run(
        *("compile", "models_of_mine:digits", "--state-dict", "weights.safetensors"),
        *("--range", "0,1", "--out", "a.sudo"),
    )
    check_user_error(result, "weights.safetensors", "install safetensors")


def test_safetensors_are_read(here):
    safetensors = pytest.importorskip("safetensors.torch")
    model = dense()
    safetensors.save_file(model.state_dict(), "weights.safetensors")
    result = run(
        *("compile", "models_of_mine:digits", "--state-dict", "weights.safetensors"),
        *("--range", "0,1", "--out", "a.sudo"),
    )
    assert result.exit_code == 0, result.stderr
    assert same(load("a.sudo"), deploy.compile(model, inputs=Grid.of_range(0, 1)))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["model.pt"], ["package.module:factory", "'model.pt'", "pickled model is refused"]),
        (["none.pt2", "--range", "0,1"], ["cannot read none.pt2", "No such file"]),
        (["models_of_mine:digits"], ["--range 0,1", "--calibration"]),
        (["models_of_mine:digits", "--range", "0"], ["--range must be two numbers", "'0'"]),
        (["models_of_mine:digits", "--range", "1,0"], ["from low to high, got 1.0 to 0.0"]),
        (
            ["models_of_mine:digits", "--range", "0,1", "--bits", "7"],
            ["--bits", "'7'", "'8', '16'"],
        ),
        (["models_of_mine:digits", "--range", "0,1", "--weights", "int5"], ["int4", "'int5'"]),
        (["models_of_mine:digits", "--range", "0,1", "--shape", "1,x"], ["1,28,28", "'1,x'"]),
        (["models_of_mine:digits", "--range", "0,1", "--shape", "5"], ["input of shape (5,)"]),
        (["models_of_mine:digits", "--range", "0,1", "--thresholds", "x"], ["auto", "'x'"]),
        (["models_of_mine:digits", "--calibration", "none.npy"], ["cannot read none.npy"]),
        (["models_of_mine:letters", "--range", "0,1"], ["cannot find", "letters"]),
        (["missing_models:digits", "--range", "0,1"], ["cannot find", "missing_models"]),
        (["models_of_mine:nothing", "--range", "0,1"], ["torch.nn.Module", "NoneType"]),
        (["models_of_mine:sized", "--range", "0,1"], ["could not be called: TypeError", "'n'"]),
        (["models_of_mine:digits", "--range", "0,1e-323"], ["too narrow for 8 bits"]),
        (
            ["models_of_mine:digits", "--range", "0,1", "--shape", "100000,100000,10000"],
            ["(100000, 100000, 10000)"],
        ),
        (
            ["models_of_mine:digits", "--range", "0,1", "--state-dict", "none.pt"],
            ["cannot read none.pt"],
        ),
    ],
)
def test_compile_refuses_in_one_line(here, arguments, words):
    check_user_error(run("compile", *arguments, "--out", "net.sudo"), *words)
    assert not (here / "net.sudo").exists()


def test_weights_that_do_not_fit(here):
    torch.save({"0.weight": torch.zeros(5, 6)}, "weights.pt")
    torch.save([torch.zeros(2)], "list.pt")
    torch.save({0: torch.zeros(2)}, "numbered.pt")
    (here / "damaged.pt").write_bytes(b"PK\x03\x04 and then nothing")
    for name, word in [
        ("weights.pt", "Missing key(s)"),
        ("list.pt", "a state dict, got list"),
        ("numbered.pt", "does not fit"),
        ("damaged.pt", "damaged"),
    ]:
        options = ("--range", "0,1", "--state-dict", name, "--out", "net.sudo")
        check_user_error(run("compile", "models_of_mine:digits", *options), name, word)
    program()
    options = ("--range", "0,1", "--state-dict", "weights.pt", "--out", "net.sudo")
    check_user_error(run("compile", "model.pt2", *options), "has its weights in it")


def test_a_file_that_cannot_be_written(here):
    program()
    result = run("compile", "model.pt2", "--range", "0,1", "--out", "no/such/folder/net.sudo")
    check_user_error(result, "cannot write no/such/folder/net.sudo")


class Payload:
    """Unpickled, it makes a folder."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def test_the_payload_is_live(here):
    pickle.loads(pickle.dumps(Payload("caught")))
    assert (here / "caught").is_dir()


@pytest.mark.parametrize("name", ["weights.pt", "weights.pth", "weights.safetensors"])
def test_a_state_dict_runs_nothing(here, name):
    torch.save({"0.weight": Payload("caught")}, name)
    options = ("--range", "0,1", "--state-dict", name, "--out", "net.sudo")
    check_user_error(run("compile", "models_of_mine:digits", *options), name)
    assert not (here / "caught").exists()


@pytest.mark.parametrize("suffix", [".pt2", ".pt"])
def test_a_pickled_model_runs_nothing(here, suffix):
    torch.save(Payload("caught"), f"model{suffix}")
    result = run("compile", f"model{suffix}", "--range", "0,1", "--out", "net.sudo")
    check_user_error(result, f"model{suffix}")
    (here / f"plain{suffix}").write_bytes(pickle.dumps(Payload("caught")))
    result = run("compile", f"plain{suffix}", "--range", "0,1", "--out", "net.sudo")
    check_user_error(result, f"plain{suffix}")
    assert not (here / "caught").exists()


def rewritten(change, additions=()):
    """model.pt2 with ``change(name, content)`` in place of each content, and more files."""
    with zipfile.ZipFile("model.pt2") as archive:
        parts = {name.split("/", 1)[1]: archive.read(name) for name in archive.namelist()}
    parts = {name: change(name, content) for name, content in parts.items()} | dict(additions)
    parts = {name: content for name, content in parts.items() if content is not None}
    with zipfile.ZipFile("model.pt2", "w") as archive:
        for name, content in parts.items():
            archive.writestr(f"model/{name}", content)


def in_graph(old, new):
    """A change of the graph's text."""

    def change(name, content):
        if name != "models/model.json":
            return content
        assert old in content.decode()
        return content.decode().replace(old, new).encode()

    return change


def test_example_inputs_are_not_unpickled(here):
    model = program()
    payload = pickle.dumps(Payload("caught"))
    rewritten(lambda name, content: payload if "sample_inputs" in name else content)
    assert run("compile", "model.pt2", "--range", "0,1", "--out", "net.sudo").exit_code == 0
    assert same(load("net.sudo"), deploy.compile(model, inputs=Grid.of_range(0, 1)))
    assert not (here / "caught").exists()


def test_libraries_and_other_models_are_left_alone(here):
    program()
    rewritten(
        lambda name, content: content,
        {
            "data/aotinductor/model/wrapper.so": b"\x7fELF",
            "models/other.json": b"{",
            "extra/text": b"text",
        },
    )
    assert run("compile", "model.pt2", "--range", "0,1", "--out", "net.sudo").exit_code == 0


@pytest.mark.parametrize("kind", ["weight", "constant", "opaque", "custom", "elsewhere"])
def test_pickled_tensors_are_refused(here, kind):
    program()
    payload = pickle.dumps(Payload("caught"))

    def change(name, content):
        if kind in ("weight", "elsewhere") and name.endswith("weights_config.json"):
            listed = json.loads(content)
            entry = listed["config"]["0.weight"]
            if kind == "weight":
                entry["use_pickle"] = True
            else:
                entry["path_name"] = "../constants/opaque_obj_0"
            return json.dumps(listed).encode()
        if kind not in ("weight", "elsewhere") and name.endswith("constants_config.json"):
            place = {"constant": "tensor_0", "opaque": "opaque_obj_0", "custom": "custom_obj_0"}
            entry = {"path_name": place[kind], "is_param": False, "use_pickle": True}
            return json.dumps({"config": {"c": entry | {"tensor_meta": None}}}).encode()
        return payload if name.endswith("weights/weight_0") else content

    names = ("tensor_0", "opaque_obj_0", "custom_obj_0")
    rewritten(change, {f"data/constants/{name}": payload for name in names})
    result = run("compile", "model.pt2", "--range", "0,1", "--out", "net.sudo")
    check_user_error(result, "model.pt2", "could run code" if kind != "elsewhere" else "model.pt2")
    assert not (here / "caught").exists()


@pytest.mark.parametrize("folder", ["weights", "constants"])
def test_older_formats_are_refused(here, folder):
    program()
    payload = pickle.dumps(Payload("caught"))
    rewritten(
        lambda name, content: None if f"{folder}_config" in name else content,
        {f"data/{folder}/model.pt": payload},
    )
    result = run("compile", "model.pt2", "--range", "0,1", "--out", "net.sudo")
    check_user_error(result, "model.pt2 keeps its weights in a pickle", "2.10")
    with zipfile.ZipFile("model.pt2", "w") as archive:
        archive.writestr("version", "8.20")
        archive.writestr("serialized_state_dict.pt", payload)
        archive.writestr("serialized_constants.pt", payload)
        archive.writestr("serialized_exported_program.json", "{}")
    result = run("compile", "model.pt2", "--range", "0,1", "--out", "net.sudo")
    check_user_error(result, "model.pt2", "save it again")
    assert not (here / "caught").exists()


CODE = "__import__('os').mkdir('caught')"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # Sizes are read by sympy, which evaluates them.
        (R"""Symbol('s""", CODE + R""" or Symbol('s"""),
        # Names stand in the code that torch makes of a graph.
        ('"p_0_weight"', f'"p_0_weight={CODE}"'),
        ('"forward_arg_names": ["input"]', f'"forward_arg_names": ["input={CODE}"]'),
        # Operators are looked up in the whole of torch.
        ("torch.ops.aten.linear.default", "torch.load"),
        ("torch.ops.aten.linear.default", "_operator.methodcaller"),
        # Containers are made by what they name.
        ("builtins.tuple", "collections.defaultdict"),
        ("builtins.tuple", "collections.namedtuple"),
        ('"as_tensor": {"name": "linear"}', '"as_custom_obj": {"name": "linear"}'),
        ('"as_string": "sudo-16"', f'"as_string": "{CODE}"'),
    ],
)
def test_graphs_with_code_in_them_are_refused(here, old, new):
    program(dynamic=True)
    rewritten(in_graph(old, new))
    result = run("compile", "model.pt2", "--range", "0,1", "--out", "net.sudo")
    check_user_error(
        result, "model.pt2 has", "in its graph" if "builtins" not in old else "tensors"
    )
    assert not (here / "caught").exists()


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"[" * 100_000, b'{"graph_module": 3}'])
def test_damaged_graphs_are_refused(here, content):
    program()
    rewritten(lambda name, old: content if name == "models/model.json" else old)
    result = run("compile", "model.pt2", "--range", "0,1", "--out", "net.sudo")
    check_user_error(result, "model.pt2 is not a program")


def test_damaged_bytes_are_refused_or_do_no_harm(here):
    program(dynamic=True)
    whole = (here / "model.pt2").read_bytes()
    random = np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(whole)
        for place in random.integers(0, len(whole), 3):
            damaged[place] = random.integers(32, 127)
        if random.random() < 0.3:
            damaged = damaged[: random.integers(0, len(whole))]
        (here / "damaged.pt2").write_bytes(damaged)
        result = run("compile", "damaged.pt2", "--range", "0,1", "--out", "net.sudo")
        if result.exit_code != 0:
            check_user_error(result)


def test_compressed_programs_are_refused(here):
    program()
    with zipfile.ZipFile("model.pt2") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile("model.pt2", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    result = run("compile", "model.pt2", "--range", "0,1", "--out", "net.sudo")
    check_user_error(result, "model.pt2 has", "compressed")


INSPECTED = """\
input: 6, uint8 0 to 255 for 0 to 1; output: real
layer  kind   output  unit     weights  thresholds  stored  tables  bytes  packed  multiply-adds
0      dense  5       sudo-16  int8     channel       30 B   300 B    5 B     4 B             30
2      dense  3       -        int8     -             15 B    36 B   24 B    24 B             15
total                                                 45 B   336 B   29 B    28 B             45
arena of exported C: 8 B, 4 B with --optimise ram
"""


def test_inspect(here):
    network()
    result = run("inspect", "net.sudo")
    assert (result.exit_code, result.stdout) == (0, INSPECTED)


def test_inspect_counts_codes_and_draws_them(here):
    model = nn.Sequential(nn.Linear(6, 5), SUDO(16), nn.Linear(5, 3), RSUDO(8), nn.Linear(3, 1))
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].bias.fill_(9.0)  # the largest code, always
    made = network(model)
    np.save("inputs.npy", np.random.default_rng(0).random((700, 6)))
    result = run("inspect", "net.sudo", "--data", "inputs.npy", "--picture", "codes.png")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[-1] == "wrote codes.png"
    assert lines[-3].endswith(f"|{' ' * 15}█|")
    assert "1 of 16" in lines[-3]
    codes = made.trace(made.integers(np.load("inputs.npy"))[0])[1]
    assert f"{len(np.unique(codes))} of 5" in lines[-2]
    assert (here / "codes.png").read_bytes().startswith(b"\x89PNG")


def test_inspect_refuses_in_one_line(here):
    network()
    np.save("wrong.npy", np.zeros((3, 5)))
    np.save("objects.npy", np.array([Payload("caught")]), allow_pickle=True)
    for arguments, words in [
        (["none.sudo"], ["cannot read none.sudo"]),
        (["models_of_mine.py"], ["not the file of an integer network"]),
        (["net.sudo", "--picture", "a.png"], ["--data inputs.npy"]),
        (["net.sudo", "--data", "wrong.npy", "--picture", "a.gif"], [".png, .svg, .pdf"]),
        (["net.sudo", "--data", "wrong.npy"], ["wrong.npy", "shape (6,)", "(3, 5)"]),
        (["net.sudo", "--data", "objects.npy"], ["objects.npy is no array of numbers"]),
        (["net.sudo", "--data", "net.sudo"], ["net.sudo is no array of numbers"]),
    ]:
        check_user_error(run("inspect", *arguments), *words)
    assert not (here / "caught").exists()


def test_run_a_batch_and_a_single_input(here):
    made = network()
    inputs = np.random.default_rng(0).integers(0, 256, (20, 6)).astype(np.uint8)
    np.save("inputs.npy", inputs)
    result = run("run", "net.sudo", "inputs.npy", "--out", "outputs.npy")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "20 outputs of shape 3, float32"
    wanted = made(inputs)
    best, times = np.unique(wanted.argmax(1), return_counts=True)
    for place, count in zip(best, times, strict=True):
        assert f"{place} ({count})" in lines[1]
    assert lines[2].endswith(f"-> {wanted[0].argmax()}")
    assert lines[-2:] == ["and 12 more", "wrote outputs.npy: float32 of shape 20x3"]
    assert np.array_equal(np.load("outputs.npy"), wanted)
    np.save("input.npy", Grid.of_range(0, 1).values(inputs[0]))
    result = run("run", "net.sudo", "input.npy", "--out", "output")
    assert result.stdout.splitlines()[0] == "1 outputs of shape 3, float32"
    assert np.array_equal(np.load(here / "output"), wanted[0])


class Best(nn.Module):
    def forward(self, x):
        return x.argmax(1)


@pytest.mark.parametrize(("output", "said"), [(nn.Softmax(1), True), (nn.Tanh(), False)])
def test_classes_are_told_where_there_are_some(here, output, said):
    network(output=output)
    np.save("inputs.npy", np.zeros((2, 6)))
    result = run("run", "net.sudo", "inputs.npy")
    assert ("how often" in result.stdout) == said
    assert ("->" in result.stdout) == said


def test_an_argmax_is_a_number(here):
    made = network(output=Best(), shape=(6,))
    np.save("input.npy", np.zeros(6))
    result = run("run", "net.sudo", "input.npy", "--out", "output.npy")
    (place,) = made(np.zeros((1, 6)))
    assert result.stdout.splitlines() == [
        "1 outputs of shape one number, int64",
        f"largest, and how often: {place} (1)",
        f"0: {place}",
        "wrote output.npy: int64 of shape one number",
    ]
    assert np.load("output.npy") == place


def test_run_refuses_in_one_line(here):
    network()
    np.save("wrong.npy", np.zeros((2, 3)))
    np.save("integers.npy", np.zeros((2, 6), np.int64))
    np.save("missing.npy", np.full((2, 6), np.nan))
    whole = Path("wrong.npy").read_bytes()
    Path("cut.npy").write_bytes(whole.replace(b"(2, 3), }", b"(2, 3,   "))
    Path("endless.npy").write_bytes(
        whole.replace(b"(2, 3), }            ", b"(99999999999999999,)}")
    )
    for name, word in [
        ("wrong.npy", "shape (6,)"),
        ("integers.npy", "uint8 as they are, or real values; got int64"),
        ("missing.npy", "NaN"),
        ("none.npy", "No such file"),
        ("cut.npy", "no array of numbers"),
        ("endless.npy", "no array of numbers"),
    ]:
        check_user_error(run("run", "net.sudo", name), name, word)


def test_files_that_would_take_too_much_memory(here):
    Path("net.sudo").write_bytes(dumps(bombs()["long sequence"]))
    np.save("input.npy", np.zeros(3, np.uint8))
    for command in (
        ["inspect", "net.sudo"],
        ["run", "net.sudo", "input.npy"],
        ["size", "net.sudo"],
        ["export", "net.sudo", "--to", "c"],
    ):
        refused = run(*command)
        check_user_error(refused, "net.sudo", "(5.", "GiB", "is 2,147,483,648 (2.0 GiB)")
        assert "--max-memory" in refused.stderr
        check_user_error(run(*command, "--max-memory", "1.5G"), "is 1,610,612,736 (1.5 GiB)")
        check_user_error(run(*command, "--max-memory", "lots"), "such as 500M or 8G, got 'lots'")
    result = run("inspect", "net.sudo", "--max-memory", "6G")
    assert result.exit_code == 0, result.stderr
    assert f"{2**26:,}" in result.stdout
    program()
    options = ("--range", "0,1", "--out", "made.sudo", "--max-memory")
    check_user_error(run("compile", "model.pt2", *options, "9K"), "model.pt2 needs", "is 9,216")
    assert run("compile", "model.pt2", *options, "500M").exit_code == 0
    np.save("inputs.npy", np.zeros((2000, 6)))
    check_user_error(
        run("run", "made.sudo", "inputs.npy", "--max-memory", "64K"), "made.sudo", "is 65,536"
    )


def test_arrays_that_are_larger_than_the_limit_or_their_file(here):
    network()
    np.save("inputs.npy", np.zeros((200_000, 6)))
    result = run("run", "net.sudo", "inputs.npy", "--max-memory", "4M")
    check_user_error(result, "inputs.npy needs 9,600,128 bytes of memory", "--max-memory")
    whole = Path("inputs.npy").read_bytes()
    for shape in (b"(10000000000, 6), }", b"(-200000, -6), }   ", b"(200001, 6), }     "):
        forged = whole.replace(b"(200000, 6), }     ", shape)
        assert forged != whole
        Path("forged.npy").write_bytes(forged)
        result = run("run", "net.sudo", "forged.npy")
        check_user_error(result, "forged.npy is no array of numbers", "9,600,000 are there")
    np.save("text.npy", np.array(["a", "b"]))
    check_user_error(run("run", "net.sudo", "text.npy"), "it holds <U1, not numbers")


def test_run_takes_a_batch_of_nothing(here):
    network()
    np.save("empty.npy", np.zeros((0, 6), np.uint8))
    result = run("run", "net.sudo", "empty.npy")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("0 outputs")


def test_export_refuses_in_one_line(here):
    network()
    check_user_error(
        run("export", "net.sudo", "--to", "h5", "--out", "a"),
        "--to",
        "'onnx', 'qonnx', 'c'",
        "'h5'",
    )
    check_user_error(run("export", "none.sudo", "--to", "onnx", "--out", "a"), "none.sudo")
    for option in (["--exact"], ["--target", "openvino"]):
        result = run("export", "net.sudo", "--to", "qonnx", "--out", "a", *option)
        check_user_error(result, "are for --to onnx, got --to qonnx")


@pytest.mark.parametrize("exact", [True, False])
def test_export_to_onnx(here, exact):
    runtime = pytest.importorskip("onnxruntime")
    made = network()
    options = ["--exact"] if exact else []
    result = run("export", "net.sudo", "--to", "onnx", "--out", "net.onnx", *options)
    assert (result.exit_code, result.stdout) == (0, "wrote net.onnx\n"), result.stderr
    session = runtime.InferenceSession("net.onnx")
    inputs = np.random.default_rng(0).integers(0, 256, (20, 6)).astype(np.uint8)
    outputs = session.run(["output"], {session.get_inputs()[0].name: inputs})[0]
    assert np.allclose(outputs, made(inputs), atol=1e-5)


def test_export_to_c_compiles_runs_and_agrees(here):
    network()
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    result = run("export", "net.sudo", "--to", "c", "--out", "firmware", "--check")
    assert result.exit_code == 0, result.output
    assert "PASS: 16 samples" in result.output
    assert {path.name for path in Path("firmware").iterdir()} >= {"net.c", "net.h", "net_main.c"}


def test_export_to_c_says_what_is_wrong(here, monkeypatch):
    network()
    np.save("integers.npy", np.zeros((2, 6), np.int64))
    to_c = ["export", "net.sudo", "--to", "c", "--main", "--samples", "integers.npy"]
    check_user_error(run(*to_c), "got int64")
    if shutil.which("cc"):
        monkeypatch.setattr("sudonet.deploy.c.tools.SECONDS", 0.0001)
        result = run("export", "net.sudo", "--to", "c", "--check")
        assert result.exit_code == 2
        assert "did not finish within 0.0001 seconds" in result.stderr
    check_user_error(
        run("export", "net.sudo", "--to", "c", "--optimise", "fun"), "'fun'", "'flash'"
    )
    check_user_error(run("export", "net.sudo", "--to", "c", "--exact"), "--exact")
    check_user_error(run("export", "net.sudo", "--to", "onnx", "--check"), "for --to c")
    check_user_error(run("size", "net.sudo", "--mcu", "z80"), "cortex-m4", "'z80'")


def test_size_shows_flash_and_ram(here):
    network()
    if shutil.which("arm-none-eabi-gcc") is None:
        pytest.skip("needs arm-none-eabi-gcc")
    result = run("size", "net.sudo", "--mcu", "cortex-m0")
    assert result.exit_code == 0, result.output
    assert "weights" in result.output
    assert "arena" in result.output


def test_export_to_qonnx(here):
    onnx = pytest.importorskip("onnx")
    network()
    result = run("export", "net.sudo", "--to", "qonnx", "--out", "net.qonnx")
    assert (result.exit_code, result.stdout) == (0, "wrote net.qonnx\n"), result.stderr
    assert "MultiThreshold" in [node.op_type for node in onnx.load("net.qonnx").graph.node]


@pytest.mark.parametrize("command", ["compile_", "inspect", "export", "run"])
def test_help_has_an_example(command):
    assert f"Example: sudonet {command.rstrip('_')} " in getattr(commands, command).__doc__


def test_the_commands_load_matplotlib_only_to_draw():
    code = "import sys, sudonet.cli._deploy; sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
