"""What ``import sudonet`` gives, and what it does not load."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import sudonet

pytestmark = pytest.mark.without_core


def check(*lines):
    """Run lines in a Python of their own."""
    result = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


def test_the_import_loads_neither_torch_nor_numpy():
    check(
        "import sys, sudonet",
        "assert not {'torch', 'numpy', 'rich', 'typer'} & set(sys.modules)",
        "assert sudonet.Staircase(4).name == 'sudo-4'",
        "assert 'torch' not in sys.modules",
    )


def test_type_checkers_see_the_names_that_there_are():
    tree = ast.parse(Path(sudonet.__file__).read_text())
    (branch,) = (
        node for node in tree.body if isinstance(node, ast.If) and node.test.id == "TYPE_CHECKING"
    )
    seen = {alias.asname: node.module for node in branch.body for alias in node.names}
    assert sorted(seen) == sorted(sudonet.__all__)
    for name, module in seen.items():
        wanted = sys.modules.get(f"sudonet.{name}") if module == "sudonet" else None
        found = getattr(sudonet, name)
        assert found is (wanted or getattr(sys.modules[module], name))
    assert set(seen) <= set(dir(sudonet))


def test_a_name_that_there_is_not():
    assert not hasattr(sudonet, "SUDDO")
    with pytest.raises(ImportError, match="SUDDO"):
        from sudonet import SUDDO  # noqa: F401


@pytest.mark.parametrize(
    "first", ["import sudonet._convert, sudonet._summary", "from sudonet import *"]
)
def test_functions_are_not_hidden_by_modules(first):
    check(
        "import sudonet",
        first,
        "assert sudonet.convert.__name__ == 'convert', sudonet.convert",
        "assert sudonet.summary.__name__ == 'summary', sudonet.summary",
        "import sudonet._convert, sudonet._summary",
        "assert sudonet.convert is sudonet._convert.convert",
        "assert sudonet.summary is sudonet._summary.summary",
        "assert sudonet.functional.sudo and sudonet.deploy.compile",
    )


def test_exported_programs_find_the_operator(tmp_path):
    exported = torch.export.export(nn.Sequential(sudonet.SUDO(4)), (torch.zeros(3),))
    torch.export.save(exported, tmp_path / "model.pt2")
    check(
        "import sudonet, torch",
        f"program = torch.export.load({str(tmp_path / 'model.pt2')!r})",
        "x = torch.linspace(-1, 1, 3)",
        "found = program.module()(x)",
        "assert torch.equal(found, sudonet.SUDO(4)(x))",
    )


def test_torch_is_found_by_those_who_only_look_for_it():
    check(
        "import importlib.util, sys, sudonet",
        "for _ in range(2): assert importlib.util.find_spec('torch').name == 'torch'",
        "assert 'torch' not in sys.modules",
        "finders = list(sys.meta_path)",
        "import torch",
        "assert len(sys.meta_path) == len(finders) - 1",
        "assert torch.ops.sudonet.staircase",
    )


def test_torch_may_be_there_before():
    check("import torch, sudonet", "assert torch.ops.sudonet.staircase")
