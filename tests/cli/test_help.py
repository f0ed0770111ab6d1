"""Help texts: quick, in groups, with the values that options take."""

import json
import re
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from sudonet import cli
from sudonet.cli import _choices
from sudonet.deploy import given
from sudonet.deploy.c import plan, tools
from sudonet.deploy.onnx_file import TARGETS
from sudonet.experiments import GRIDS
from sudonet.experiments.data import _fetching
from sudonet.experiments.presets import PRESETS
from sudonet.report import tables
from sudonet.train import ENGINES

SLOW = ("torch", "numpy", "matplotlib", "sklearn", "jinja2")

# All help texts in one process: what one of them loads is seen in the next.
IN_A_PROCESS = f"""
import json, sys
from typer.testing import CliRunner
from sudonet import cli
found = {{}}
for words in json.loads(sys.argv[1]):
    result = CliRunner().invoke(cli.app, words)
    loaded = [name for name in {SLOW} if name in sys.modules]
    found[" ".join(words)] = [result.exit_code, loaded]
print(json.dumps(found))
"""


def commands(command, *names):
    """The words of every command, groups among them."""
    yield list(names)
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, *names, name)


COMMANDS = list(commands(typer.main.get_command(cli.app)))


def help_of(*words):
    result = CliRunner(env={"COLUMNS": "200"}).invoke(cli.app, [*words, "--help"])
    assert result.exit_code == 0
    return result.stdout


def test_help_loads_nothing_slow():
    asked = [["--version"], *([*words, "--help"] for words in COMMANDS)]
    assert len(asked) == 19
    result = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS, json.dumps(asked)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(result.stdout) == {" ".join(words): [0, []] for words in asked}


def test_commands_are_grouped():
    lines = help_of().splitlines()
    panels = [line.strip("╭╮─ ") for line in lines if line.startswith("╭")]
    assert panels == ["Options", "Study", "Integer networks", "The unit", "Installation"]
    listed = [line.split()[1] for line in lines if re.match(r"│ [a-z]", line)]
    assert listed == list(cli.ORDER)


@pytest.mark.parametrize("words", COMMANDS[1:], ids=" ".join)
def test_help_is_plain_text(words):
    text = help_of(*words)
    assert all(ord(character) < 128 or character in "│╭╮╰╯─" for character in text)
    if words != ["data"]:
        assert f"Example: sudonet {' '.join(words)}" in text


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["reproduce"], ["quick|standard|paper", "auto|native|torch", "local|ray"]),
        (["plan"], ["quick|standard|paper", "auto|native|torch"]),
        (["table"], ["terminal|md|csv|json|latex", *_choices.TABLES]),
        (["data", "fetch"], ["mnist|cifar10|imagenet32"]),
        (["compile"], ["int8|int4|ternary|binary|float32", "8|16", "auto|channel|shared"]),
        (["export"], ["onnx|qonnx|c", "onnxruntime|openvino", "speed|flash|ram"]),
        (["size"], ["cortex-m0|cortex-m3|cortex-m4|rv32imac", "speed|flash|ram"]),
    ],
)
def test_choices_are_shown(words, options):
    text = " ".join(help_of(*words).replace("│", " ").split())
    for option in options:
        assert option in text


def values(choice):
    return [one.value for one in choice]


def test_choices_are_those_of_the_package():
    assert values(_choices.PresetName) == list(PRESETS)
    assert values(_choices.EngineName) == list(ENGINES)
    assert values(_choices.DataSet) == list(_fetching.NAMES)
    assert values(_choices.Weights) == list(given.KINDS)
    assert values(_choices.Target) == list(TARGETS)
    assert values(_choices.Optimise) == list(plan.OPTIMISE)
    assert values(_choices.Mcu) == list(tools.MCUS)
    rectified = [f"r-{name}" for name in _choices.TABLES if name != "memorization-1"]
    assert [*_choices.TABLES, *rectified] == list(GRIDS)


def test_formats_are_those_that_tables_have():
    with pytest.raises(ValueError, match=", ".join(values(_choices.TableFormat)[1:])):
        tables.render(GRIDS["mnist-1"], {}, "xml")


@pytest.mark.parametrize(
    "words",
    [
        ["reproduce", "--threads", "x"],
        ["table"],
        ["compile", "model.pt2"],
        ["export", "net.sudo"],
    ],
)
def test_wrong_usage_is_one_line(words):
    result = CliRunner().invoke(cli.app, words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("sudonet: ")
