import io
import json
import logging
import re
import subprocess
import sys

import pytest
import torch

from sudonet.deploy import CompileError
from sudonet.deploy.program_file import load_program
from tests.deploy.fuzz_pt2 import named, packed, programs, unpacked

CONFIG = "weights_config.json"
GRAPH = "models/model.json"


@pytest.fixture(scope="module")
def archives():
    made = programs()
    if not any(name.endswith(CONFIG) for name in unpacked(made["dense"])):
        pytest.skip("this PyTorch saves weights as a pickle, which is refused")
    return made


def forged(data, end, change, records=None):
    """The archive with its JSON and records changed."""
    parts = unpacked(data)
    value = json.loads(parts[named(parts, end)])
    change(value)
    parts[named(parts, end)] = json.dumps(value).encode()
    for name, content in (records or {}).items():
        parts[named(parts, name)] = content
    return packed(parts)


def refused(tmp_path, data, match, **options):
    path = tmp_path / "model.pt2"
    path.write_bytes(data)
    with pytest.raises(CompileError, match=rf"^{re.escape(str(path))}:? .*{match}"):
        load_program(path, **options)


def tensor(**changes):
    def change(listed):
        listed["config"]["0.weight"]["tensor_meta"] |= changes

    return change


def sizes(*numbers):
    return [{"as_int": n} for n in numbers]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (tensor(sizes=sizes(2**20, 6)), "stores 30 numbers of 0.weight, too few for shape"),
        (tensor(sizes=sizes(2**20, 6), strides=sizes(0, 1)), "too few for shape .* make it cont"),
        (tensor(strides=sizes(60, 1)), r"too few for shape \[5, 6\] with strides \[60, 1\]"),
        (tensor(storage_offset={"as_int": 1}), "from 1: make it contiguous"),
        (tensor(strides=sizes(6)), "is not a program that torch.export.save"),
        (tensor(sizes=sizes(-5, -6)), "it must be an integer"),
        (tensor(sizes=[{"as_int": 5.0}, {"as_int": 6}]), "it must be an integer"),
        (tensor(device={"type": "cuda", "index": 0}), "keeps a tensor on 'cuda': move the model"),
        (tensor(device={"type": "meta", "index": None}), "'meta': move the model to the CPU"),
        (tensor(dtype=11), "keeps 0.weight in a type that is not compiled"),
        (tensor(layout=1), "keeps 0.weight in a type that is not compiled"),
        (lambda listed: listed["config"].pop("0.weight"), "is not a program that this PyTorch"),
    ],
)  # fmt: skip
def test_tensors_must_fit_their_bytes(archives, tmp_path, change, message):
    refused(tmp_path, forged(archives["dense"], CONFIG, change), message)


def test_a_record_without_bytes_is_no_tensor_of_any_size(archives, tmp_path):
    change = tensor(sizes=sizes(2**31, 6), strides=sizes(6, 1))
    data = forged(archives["dense"], CONFIG, change, {"weights/weight_0": b""})
    assert len(data) < 30_000
    refused(tmp_path, data, "stores 0 numbers of 0.weight, too few for shape")


def argument(node, name, **value):
    def change(program):
        found = program["graph_module"]["graph"]["nodes"]
        (chosen,) = (n for n in found if n["name"] == node)
        given = [a for a in chosen["inputs"] if a["name"] == name]
        if given:
            given[0]["arg"] = value
        else:
            chosen["inputs"].append({"name": name, "arg": value, "kind": 1})

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (argument("conv2d", "stride", as_ints=[2, 1]), "shape_out has height 4, but"),
        (argument("conv2d", "groups", as_int=2**40), "dilation must be from 1 to"),
        (argument("conv2d", "weight", as_int=3), "."),
        (argument("conv2d", "weight", as_tensor={"name": "p_0_bias"}), "."),
        (argument("conv2d", "input", as_tensor={"name": "linear"}), "."),
        (argument("max_pool2d", "kernel_size", as_ints=[2**40, 1]), "."),
        (argument("max_pool2d", "kernel_size", as_ints=[]), "."),
        (argument("staircase", "unit", as_string="sudo-1"), "levels must be"),
        (argument("staircase", "unit", as_float=3.0), "."),
        (argument("batch_norm", "eps", as_float=-1e9), "variance below 0"),
        (argument("conv2d", "stride", as_device={"type": "cuda", "index": 0}), "CPU"),
    ],
)  # fmt: skip
def test_layers_must_fit_together(archives, tmp_path, change, message, capfd, caplog):
    caplog.set_level(logging.DEBUG)
    caplog.clear()
    refused(tmp_path, forged(archives["conv"], GRAPH, change), message)
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


def test_cyclic_graphs_are_refused(archives, tmp_path):
    def change(program):
        program["graph_module"]["graph"]["nodes"].reverse()

    refused(tmp_path, forged(archives["dense"], GRAPH, change), "is not a program")


def test_the_log_is_as_before(archives, tmp_path):
    path = tmp_path / "model.pt2"
    path.write_bytes(archives["dense"])
    logging.disable(logging.INFO)
    try:
        load_program(path)
        assert logging.root.manager.disable == logging.INFO
    finally:
        logging.disable(logging.NOTSET)


def test_memory_is_planned_before_it_is_compiled(archives, tmp_path):
    data = archives["dense"]
    refused(tmp_path, data, r"needs [\d,]+ bytes of memory .* the limit is 10,000", max_bytes=10**4)
    model = torch.nn.Linear(1000, 100)
    stream = io.BytesIO()
    torch.export.save(torch.export.export(model, (torch.zeros(2, 1000),)), stream)
    refused(
        tmp_path,
        stream.getvalue(),
        r"it needs 4,80\d,\d+ bytes .* --max-memory",
        max_bytes=4 * 10**6,
    )


def test_hundreds_of_mutants_are_refused_or_compile():
    done = subprocess.run(
        [sys.executable, "-m", "tests.deploy.fuzz_pt2", "300", "--seed", "1"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d+ compiles", done.stdout)
    assert re.search(r"\d+ refused", done.stdout)
    assert "0 lines on stderr" in done.stdout
