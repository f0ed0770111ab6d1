"""Modules that begin with an underscore belong to their own folder."""

import ast

import pytest

from tests import ROOT

SOURCES = ROOT / "src"
MODULES = {
    ".".join(path.relative_to(SOURCES).with_suffix("").parts): path
    for path in sorted(SOURCES.rglob("*.py"))
}
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def imported(path):
    """Full names of what a file imports from sudonet: modules, or names in them."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def intrusions(importer, path):
    """Imports that reach an internal module from outside of the folder that it lies in."""
    for name in imported(path):
        parts = name.split(".")
        for number, part in enumerate(parts):
            module = ".".join(parts[: number + 1])
            folder = ".".join(parts[:number])
            if part.startswith("_") and module in MODULES and not importer.startswith(folder + "."):
                yield name


@pytest.mark.parametrize("importer", MODULES)
def test_internal_modules_are_imported_by_their_own_folder_alone(importer):
    assert not list(intrusions(importer, MODULES[importer]))


def test_examples_import_no_internal_module():
    found = {path.name: list(intrusions("outside", path)) for path in EXAMPLES}
    assert found
    assert not {name: names for name, names in found.items() if names}


def test_an_intrusion_is_seen(tmp_path):
    path = tmp_path / "intruder.py"
    path.write_text("from sudonet.train._spec import Spec\nfrom sudonet import _settings, native\n")
    assert list(intrusions("sudonet.deploy.compiler", path)) == ["sudonet.train._spec.Spec"]
    assert len(list(intrusions("outside", path))) == 2
