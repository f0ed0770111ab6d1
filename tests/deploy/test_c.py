"""Networks as C: the same outputs on four microcontrollers and here, bit by bit."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import sudonet
from sudonet import deploy
from sudonet.deploy import c
from sudonet.deploy.c.tools import STRICT
from sudonet.deploy.grid import Grid
from sudonet.deploy.layers import ChannelThresholds, SharedThresholds
from sudonet.staircase import Staircase
from tests import ROOT
from tests.deploy import handwriting, zoo
from tests.deploy import microcontrollers as rig
from tests.deploy.c_tools import (
    SANITIZE,
    Case,
    Program,
    answers,
    hosted,
    needed,
    program,
    usable,
    zoo_cases,
)
from tests.deploy.handwriting import SAMPLES, reference
from tests.deploy.random_models import PIXELS

pytestmark = [pytest.mark.mcu, pytest.mark.slow]  # together; nothing here depends on the C core

PAGE = ROOT / "docs" / "microcontrollers.md"

# From the compiler's own library (libgcc), for products of 64 bits where the processor has no
# instruction for them.
HELPERS = {"cortex-m0": {"__aeabi_lmul"}, "cortex-m3": set(), "cortex-m4": set(), "rv32imac": set()}

# Instructions of a multiply-add that 784-100-10 may take, thresholds and all.
LIMITS = {"cortex-m0": 6.0, "cortex-m3": 3.0, "cortex-m4": 1.8, "rv32imac": 4.5}


@pytest.fixture(scope="module", params=[target.name for target in rig.TARGETS])
def target(request):
    return usable(request.param)


# Of the zoo, what fits the smallest board together.
DENSE = tuple((name, kind) for name, kind in zoo.CASES if name in zoo.OF_LEVELS)
WINDOWS = (
    *(("pooled before the unit", kind) for kind in ("int8", "int4")),
    *(("odd windows", kind) for kind in ("int8", "ternary")),
    *(("grown", kind) for kind in ("int8", "binary")),
    *(("sequences of single channels, codes", kind) for kind in ("int8", "int4")),
    *(("bits", kind) for kind in ("binary", "ternary")),
    ("a pool comes first", "int8"),
    *(("dense words", kind) for kind in ("int8", "int4", "binary")),
    *(("words of pixels", kind) for kind in ("int8", "int4", "binary")),
)


@cache
def everything() -> dict[str, list[Case]]:
    """Cases in groups that fit the smallest board."""
    return {
        "reference": [reference()],
        "mnist": handwriting.mnist(),
        "dense": zoo_cases(DENSE, SAMPLES),
        "windows": zoo_cases(WINDOWS, SAMPLES),
    }


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> dict[str, Program]:
    folder = tmp_path_factory.mktemp("c")
    return {name: program(cases, _made(folder / name)) for name, cases in everything().items()}


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def objects(programs, target, tmp_path_factory) -> dict[str, list[Path]]:
    """Every network, compiled for the target without a warning."""
    work = tmp_path_factory.mktemp(target.name)
    return {
        name: [
            rig.compile_object(target, one.source, work, options=("-O2", "-Wconversion"))
            for one in found.written
        ]
        for name, found in programs.items()
    }


@pytest.fixture(scope="module")
def ran(programs, objects, target, tmp_path_factory) -> dict[str, rig.Result]:
    results = {}
    for name, found in programs.items():
        work = tmp_path_factory.mktemp(f"{target.name}-{name}")
        sources = [found.main, *objects[name]]
        built = rig.build(target, sources, work, include=[found.main.parent])
        results[name] = rig.emulate(target, built, found.stream)
    return results


@pytest.mark.parametrize("group", ["reference", "mnist", "dense", "windows"])
def test_every_output_is_that_of_the_reference(programs, ran, group):
    found = answers(ran[group].output)
    assert found.keys() == {case.name for case in programs[group].cases}
    assert {name: wrong for name, (wrong, _) in found.items() if wrong} == {}
    assert ran[group].status == 0
    assert all(len(case.samples) >= 200 for case in programs[group].cases)


def test_what_is_tested_covers_what_there_is():
    cases = [case for group in everything().values() for case in group]
    layers = [layer for case in cases for layer in case.network.layers]
    affine = [layer for layer in layers if isinstance(layer, deploy.layers.Affine)]
    units = {layer.after.unit for layer in affine if hasattr(layer.after, "unit")}
    for levels in (2, 3, 4, 16, 100, 256):
        assert {Staircase(levels), Staircase(levels, rectified=True)} <= units
    assert {layer.kind for layer in affine} == {"dense", "conv", "transposed"}
    assert {layer.weight_kind for layer in affine} == {"int8", "int4", "ternary", "binary"}
    assert {(layer.kind, layer.centred) for layer in affine} >= {
        ("conv", True),
        ("conv", False),
        ("transposed", True),
    }
    assert {type(layer.after) for layer in affine} >= {ChannelThresholds, SharedThresholds}
    assert any(layer.groups > 1 for layer in affine if layer.kind == "conv")
    assert any(layer.groups > 1 for layer in affine if layer.kind == "transposed")
    assert {type(layer).__name__ for layer in layers} == {"Affine", "MaxPool", "SumPool"}
    texts = "".join(c.plan.plan(case.network, case.optimise).layers.__repr__() for case in cases)
    for storage in ("b1", "b2", "b4", "u8", "s16"):
        assert f"Buffer(storage='{storage}'" in texts
    for count in ("and", "xor"):
        assert f"count='{count}'" in texts
    assert "pool=MaxPool" in texts


def test_the_networks_of_handwriting_are_those_asked_for():
    cases = handwriting.mnist()
    assert {case.network.layers[0].after.unit for case in cases} == {
        Staircase(levels, rectified=rectified)
        for levels in (2, 3, 4, 16, 100, 256)
        for rectified in (False, True)
    }
    assert {case.network.shape_in for case in cases} == {(784,)}
    weights = {layer.weight_kind for case in cases for layer in case.network.layers}
    assert weights == {"int8"}


def test_the_trained_network_is_a_network_that_works():
    labels = handwriting.handwritten().test_labels[:SAMPLES]
    right = {
        case.name: (case.network.raw(case.samples).argmax(1) == labels).mean()
        for case in (reference(), *handwriting.mnist())
    }
    assert right["reference"] > 0.9
    # The worst has 0.85. With a first layer that does not learn, nearly all stay below 0.7.
    assert min(right.values()) > 0.75, right


def test_a_wrong_output_is_found_on_the_microcontroller(tmp_path):
    target = usable("cortex-m3")
    case = zoo_cases(DENSE[:1], 5)[0]
    found = program([case], tmp_path)
    stream = bytearray(found.stream)
    stream[64 + 3 * (64 + 80)] ^= 1  # the lowest bit of the fourth sample's first score
    sources = [found.main, *(one.source for one in found.written)]
    result = rig.run(target, sources, tmp_path, bytes(stream), include=[tmp_path])
    assert (answers(result.output)[case.name][0], result.status) == (1, 1)


def test_limits_of_784_100_10(target, objects, ran, record_property):
    """Flash, RAM and instructions, as they are promised."""
    case, result = reference(), ran["reference"]
    instructions = result.instructions[0] / 79_400
    record_property("instructions per multiply-add", instructions)
    assert 1 < instructions <= LIMITS[target.name]
    found = rig.sizes(target, objects["reference"][0])
    thresholds = 4 * 100 * 15 + 12 * 10
    assert 79_400 + thresholds <= found.flash <= 79_400 + thresholds + 6 * 1024
    assert found.code < 1500
    assert c.write(case.network, objects["reference"][0].parent).sizes.arena <= 160
    stack = answers(result.output)[case.name][1]
    assert 40 < stack <= 256


def test_objects_hold_no_variables_and_call_only_the_compilers_own_library(target, objects):
    program_of = target.compiler.removesuffix("gcc") + "nm"
    called = set()
    for path in [path for group in objects.values() for path in group]:
        found = rig.sizes(target, path)
        assert (found.data, found.zeroed) == (0, 0), path
        listed = subprocess.run([program_of, path], capture_output=True, text=True, check=True)
        symbols = [line.split()[-2:] for line in listed.stdout.splitlines()]
        called |= {name for kind, name in symbols if kind == "U"}
        ours = {name for kind, name in symbols if kind != "U" and not name.startswith(("$", "."))}
        assert all(name.startswith(f"{path.stem}_") for name in ours), path
        public = {name for kind, name in symbols if kind == "T"}
        assert public <= {f"{path.stem}_run", f"{path.stem}_argmax"}
    assert called <= HELPERS[target.name]


@pytest.mark.parametrize("options", [("-O0",), ("-Os",), ("-O3",)])
def test_other_optimisations_call_no_library_either(target, programs, tmp_path, options):
    program_of = target.compiler.removesuffix("gcc") + "nm"
    sources = [programs["windows"].written[place].source for place in (0, 3, 8, 11)]
    for source in sources:
        path = rig.compile_object(target, source, tmp_path, options=(*options, "-Wconversion"))
        listed = subprocess.run([program_of, "-u", path], capture_output=True, text=True)
        assert {line.split()[-1] for line in listed.stdout.splitlines()} <= HELPERS[target.name]


@pytest.mark.parametrize("group", ["reference", "dense", "windows"])
def test_sanitizers_find_nothing_here(programs, tmp_path, group):
    found = answers(hosted(programs[group], tmp_path, ("-O1", *SANITIZE)))
    assert {name: wrong for name, (wrong, _) in found.items()} == {
        case.name: 0 for case in programs[group].cases
    }


@pytest.mark.parametrize(
    "options",
    [
        ("gcc",),
        ("clang", "-Weverything", "-Wno-declaration-after-statement", "-Wno-padded"),
        ("clang", "--target=arm-none-eabi", "-mcpu=cortex-m0", "-mthumb"),
        ("clang", "--target=arm-none-eabi", "-mcpu=cortex-m4", "-mthumb"),
        ("clang", "--target=riscv32-unknown-elf", "-march=rv32imac"),
    ],
    ids=lambda options: " ".join(options[:2]),
)
def test_compilers_have_nothing_to_say(programs, options):
    compiler, *rest = options
    sources = [one.source for found in programs.values() for one in found.written]
    command = [needed(compiler), *STRICT, *rest, "-O2", "-ffreestanding", "-fsyntax-only"]
    done = subprocess.run([*command, *sources], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_headers_can_be_used_from_cpp(programs, tmp_path):
    source = tmp_path / "use.cpp"
    source.write_text('#include "reference.h"\nint main() { return REFERENCE_OUTPUTS - 10; }\n')
    folder = programs["reference"].main.parent
    command = [needed("g++"), "-Wall", "-Werror", f"-I{folder}", "-fsyntax-only", source]
    assert subprocess.run(command).returncode == 0


def test_the_c_needs_neither_libraries_nor_floating_point(programs):
    for found in programs.values():
        for one in found.written:
            text = re.sub(r"/\*.*?\*/", "", one.source.read_text(), flags=re.DOTALL)
            allowed = {f'"{one.header.name}"', "<arm_acle.h>"}
            assert set(re.findall(r"#include (\S+)", text)) <= allowed
            assert not re.search(
                r"\b(float|double|malloc|static (?!const|inline|void|u?int))\b", text
            )


def test_check_compiles_runs_and_compares(tmp_path):
    needed("cc")
    case = everything()["windows"][0]
    found = c.check(case.network, case.samples[:7], tmp_path / "new", "digits")
    assert found == c.Check(True, 7, "PASS: 7 samples, every output as expected")
    real = case.network.inputs.values(case.samples[:3])
    assert c.check(case.network, real, tmp_path, optimise="ram").samples == 3


def test_the_written_program_finds_a_wrong_number(tmp_path):
    compiler = needed("cc")
    case = everything()["dense"][0]
    made = c.write(case.network, tmp_path, samples=case.samples[:9])
    text = made.source.read_text()
    wrong = re.sub(r"(net_factor\d\[10\] = {\n    )\d+", r"\g<1>1", text)
    assert wrong != text
    made.source.write_text(wrong)
    command = [compiler, *STRICT, made.source, made.main, "-o", tmp_path / "net_main"]
    assert subprocess.run(command).returncode == 0
    done = subprocess.run([tmp_path / "net_main"], capture_output=True, text=True)
    assert done.returncode == 1
    assert re.search(r"^sample \d, output 0: -?\d+ instead of -?\d+$", done.stdout, re.MULTILINE)
    assert re.search(r"^FAIL: \d of 9 samples differ$", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("mcu", ["cortex-m0", "cortex-m3", "cortex-m4", "rv32imac"])
def test_sizes_by_the_cross_compiler(mcu):
    usable(mcu)
    found = {mode: c.size(reference().network, mcu, optimise=mode) for mode in c.plan.OPTIMISE}
    sections = {section.name: section.bytes for section in found["speed"].sections}
    assert (sections["weights"], sections["thresholds"]) == (79_400, 6_120)
    assert (sections["arena"], sections["output"], sections["input"]) == (100, 80, 784)
    assert 500 < sections["code"] < 1500
    assert found["speed"].flash == sum(
        sections[name] for name in ("code", "weights", "thresholds", "layers")
    )
    assert found["flash"].flash < found["speed"].flash - 1500  # thresholds of 3 bytes
    assert found["ram"].ram == found["speed"].ram - 48  # two codes a byte
    assert re.search(r"^flash +in all +8\d,\d\d\d$", str(found["speed"]), re.MULTILINE)


def test_packing_and_pooling_save_memory():
    unit = sudonet.SUDO(16)
    model = nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), unit, nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 3, padding=1), unit, nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(784, 10)),
    )
    network = deploy.compile(model, inputs=PIXELS, shape=(1, 28, 28))
    arena = {mode: c.plan.plan(network, mode).arena for mode in c.plan.OPTIMISE}
    # The pooled images, 8 * 14 * 14 and 16 * 7 * 7, a window of 72 and 16 sums.
    assert arena["speed"] == arena["flash"] == 1568 + 784 + 72 + 64
    assert arena["ram"] == 784 + 392 + 72 + 64


def test_the_header_states_what_comes_in_and_goes_out(tmp_path):
    case = next(case for case in everything()["windows"] if case.network.output == "softmax")
    text = c.write(case.network, tmp_path, "soft").header.read_text()
    assert "The model goes on with their softmax, which is left to the caller." in text
    fraction = case.network.layers[-1].after.fraction
    assert f"#define SOFT_FRACTION {fraction}\n" in text
    assert "#define SOFT_INPUTS 64\n#define SOFT_OUTPUTS 7\n" in text
    assert "uint32_t soft_argmax(const uint8_t *input, uint8_t *arena);" in text
    codes = next(case for case in everything()["windows"] if case.network.output == "codes")
    text = c.write(codes.network, tmp_path, "codes").header.read_text()
    assert "Codes from 0 to 8: n stands for 0.25 * (n - 4)." in text
    assert "void codes_run(const uint8_t *input, uint8_t *output, uint8_t *arena);" in text
    assert "argmax" not in text


def test_a_network_writes_itself(tmp_path):
    network, samples = reference().network, np.zeros((2, 784), np.uint8)
    options = {"optimise": "flash", "samples": samples}
    made = network.to_c(str(tmp_path / "new" / "folder"), "digits", **options)
    wanted = c.write(network, tmp_path, "digits", **options)
    assert made.sizes == wanted.sizes
    for found, other in zip(
        (made.source, made.header, made.main),
        (wanted.source, wanted.header, wanted.main),
        strict=True,
    ):
        assert found == tmp_path / "new" / "folder" / other.name
        assert found.read_bytes() == other.read_bytes()
    assert network.to_c(tmp_path / "plain").main is None


def test_floating_point_is_refused():
    model = nn.Sequential(nn.Linear(4, 3), sudonet.SUDO(4), nn.Linear(3, 2))
    network = deploy.compile(model, {"2": "float32"}, inputs=PIXELS)
    with pytest.raises(deploy.CompileError, match=r"^2 has float32 weights.*weights='int8'"):
        c.write(network, Path("nowhere"))
    assert not Path("nowhere").exists()


def test_integers_that_a_byte_does_not_hold_are_refused(tmp_path):
    model = nn.Sequential(nn.Linear(4, 3), sudonet.RSUDO(300), nn.Linear(3, 2))
    with pytest.raises(deploy.CompileError):  # 151 outputs, but the integers 0, 1, 3, ... 299
        c.write(deploy.compile(model, inputs=PIXELS), tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "a-b"}, "a name must be a letter.*'a-b'"),
        ({"name": "_net"}, "a name must be a letter"),
        ({"optimise": "size"}, "optimise must be one of speed, flash, ram, got 'size'"),
        ({"samples": np.zeros((0, 784), np.uint8)}, "at least one"),
        ({"samples": np.zeros((1, 5), np.uint8)}, r"shape \(784,\)"),
    ],
)
def test_wrong_arguments(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        c.write(reference().network, tmp_path, **arguments)


def test_missing_tools_are_named(tmp_path, monkeypatch):
    case = reference()
    with pytest.raises(ValueError, match=r"mcu must be one of cortex-m0.*got 'avr'"):
        c.size(case.network, "avr")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="apt-get install gcc-riscv64-unknown-elf"):
        c.size(case.network, "rv32imac")
    with pytest.raises(RuntimeError, match=r"no C compiler \(cc\) here.*gcc"):
        c.check(case.network, case.samples[:1], tmp_path)


def test_a_layer_without_weights_but_zero_and_a_far_away_zero(tmp_path):
    """Numbers that do not matter may be too wide for their storage."""
    needed("gcc")
    model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), sudonet.SUDO(4), nn.Flatten())
    model.append(nn.Linear(32, 2))
    for parameter in model[0].parameters():
        torch.nn.init.zeros_(parameter)
    grid = Grid(1e-9, 2.0**40, 0, 255)
    network = deploy.compile(model, inputs=grid, shape=(1, 4, 4))
    samples = np.arange(48, dtype=np.uint8).reshape(3, 1, 4, 4)
    found = program([Case("zeros", network, samples)], tmp_path)
    assert answers(hosted(found, tmp_path, ("-O1", *SANITIZE)))["zeros"][0] == 0


def test_rows_longer_than_32_bits_hold_at_once(tmp_path):
    needed("gcc")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(66_003, 5), sudonet.SUDO(16), nn.Linear(5, 2))
    network = deploy.compile(model, inputs=PIXELS)
    weights = network.layers[0].weights
    weights[:] = np.where(np.arange(66_003) % 2, 127, -127)  # biased, they add up to 2^31
    samples = np.full((2, 66_003), 255, np.uint8)
    samples[1, ::2] = 0
    samples[1, ::8] = 254
    found = program([Case("long", network, samples)], tmp_path)
    assert answers(hosted(found, tmp_path, ("-O1", *SANITIZE)))["long"][0] == 0


def test_the_rig_measures_the_stack(target, tmp_path):
    (tmp_path / "deep.c").write_text(
        "#include <stdint.h>\n"
        "uint8_t deep(uint32_t at);\n"
        "uint8_t deep(uint32_t at)\n"
        "{ volatile uint8_t room[1000]; room[0] = 7; room[at] = 5; return room[0]; }\n"
    )
    (tmp_path / "main.c").write_text(
        '#include "rig.h"\n'
        "uint8_t deep(uint32_t at);\n"
        "int main(void) { stack_clear(); int found = deep(999);\n"
        "write_number((int32_t)stack_used()); return found; }\n"
    )
    result = rig.run(target, [tmp_path / "main.c", tmp_path / "deep.c"], tmp_path)
    assert result.status == 7
    assert 970 <= int(result.output) <= 1060


def test_the_page_leads_to_a_running_image(tmp_path, monkeypatch):
    """Every block of docs/microcontrollers.md in turn: Python, C, the linker's script, commands."""
    target = usable("cortex-m4")
    bash = needed("bash")
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "page"}
    text = PAGE.read_text()
    for kind, block in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        named = re.match(r"/\* (\w+\.\w+) \*/\n", block)
        if kind == "python":
            exec(compile(block, str(PAGE), "exec"), namespace)
        elif kind == "sh":
            said = subprocess.check_output(
                [bash, "-e", "-c", block], stderr=subprocess.STDOUT, text=True, timeout=60
            )
        elif named:
            Path(named[1]).write_text(block)
        else:
            assert kind == "c"
            header = Path("net.h").read_text()
            assert all(line in header for line in block.splitlines())
    assert said.splitlines()[-1] == f"this is a {namespace['labels'][7]}"
    assert target.compiler in text
