"""Reads programs of torch.export from files, without running anything in a file.

``torch.export.load`` trusts what it reads: it unpickles example inputs and some tensors, loads
shared libraries, evaluates the text of sizes and makes Python code from the names of nodes.
Here a file is first rewritten in memory. Only the graph is copied, each of its strings checked
against what a plain model needs, and tensors that are stored as raw numbers.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

GRAPH = "models/model.json"
TENSORS = {
    "data/weights/": ("model_weights_config.json", re.compile(r"weight_\d+")),
    "data/constants/": ("model_constants_config.json", re.compile(r"tensor_\d+")),
}
EXAMPLES = "data/sample_inputs/model.pt"
MARKS = ("archive_format", "archive_version", "byteorder", ".data/version")

# What a graph may contain. None of it can be a call, or name anything but an operator.
TEXT = re.compile(r"[\w.+-]*", re.ASCII)
OPERATOR = re.compile(r"torch\.ops\.(aten|sudonet)\.\w+\.\w+", re.ASCII)
SIZE = re.compile(r"-?\d+|Symbol\('[su]\d+'(, (positive|integer)=True)*\)", re.ASCII)
TREES = ("builtins.tuple", "builtins.list", "builtins.dict", None)
ARGUMENTS = frozenset(
    f"as_{kind}"
    for kind in (
        *("none", "tensor", "tensors", "optional_tensor", "optional_tensors", "nested_tensors"),
        *("int", "ints", "float", "floats", "bool", "bools", "string", "strings", "complex"),
        *("sym_int", "sym_ints", "sym_float", "sym_floats", "sym_bool", "sym_bools"),
        *("name", "expr", "scalar_type", "memory_format", "layout", "device"),
    )
)


class ProgramError(ValueError):
    """A file is not an exported program, or holds more than a graph and tensors."""


def load_program(path: str | Path) -> ExportedProgram:
    """The program in a file that :func:`torch.export.save` of PyTorch 2.10 or later wrote.

    Raises
    ------
    ProgramError
        If the file is something else, or if there is anything in it that would have to be
        unpickled or run.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            checked = _checked_copy(archive)
    except OSError:
        raise
    except ProgramError as error:
        raise ProgramError(f"{path} {error}") from None
    except Exception as error:  # a damaged file makes zipfile and the checks raise anything
        raise ProgramError(
            f"{path} is not a program that torch.export.save of PyTorch 2.10 or later wrote: "
            f"{_first_line(error)}"
        ) from error
    try:
        return torch.export.load(checked)
    except Exception as error:  # the reader raises whatever it runs into
        raise ProgramError(
            f"{path} is not a program that this PyTorch reads: {_first_line(error)}"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _checked_copy(archive: zipfile.ZipFile) -> io.BytesIO:
    """A copy of the archive, with nothing in it but what was checked."""
    names = archive.namelist()
    roots = [name.removesuffix(MARKS[0]) for name in names if name.endswith("/" + MARKS[0])]
    if len(roots) != 1:
        raise ProgramError("is not in the format of PyTorch 2.10 or later: save it again with that")
    root = roots[0]
    parts = {mark: _read(archive, root + mark) for mark in MARKS if root + mark in names}
    parts[GRAPH] = _dumped(_graph(json.loads(_read(archive, root + GRAPH))))
    for folder, (config, numbered) in TENSORS.items():
        if root + folder + config not in names:
            raise ProgramError(
                "keeps its weights in a pickle, which could run code: save it again with "
                "PyTorch 2.10 or later"
            )
        listed = json.loads(_read(archive, root + folder + config))
        _check(listed, "")
        for name, entry in listed["config"].items():
            if entry["use_pickle"] is not False or not numbered.fullmatch(entry["path_name"]):
                raise ProgramError(
                    f"keeps {name} in a pickle, which could run code: make it a plain tensor"
                )
            record = folder + entry["path_name"]
            parts[record] = _read(archive, root + record)
        parts[folder + config] = _dumped(listed)
    # Example inputs are always a pickle, and not needed: an empty record means none.
    parts[EXAMPLES] = b""
    copy = io.BytesIO()
    with zipfile.ZipFile(copy, "w", zipfile.ZIP_STORED) as target:
        for name, content in parts.items():
            target.writestr(f"model/{name}", content)
    copy.seek(0)
    return copy


def _read(archive: zipfile.ZipFile, name: str) -> bytes:
    if archive.getinfo(name).compress_type != zipfile.ZIP_STORED:
        raise ProgramError(f"has {name} compressed, which torch.export.save does not do")
    return archive.read(name)


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


def _graph(program: Any) -> Any:
    """The graph without its metadata, its strings checked."""
    program["guards_code"] = []
    graph = program["graph_module"]
    graph["metadata"] = {}
    for node in graph["graph"]["nodes"]:
        stack = node["metadata"].get("nn_module_stack", "")
        # The module that a node comes from. It is only read as text, and may hold brackets.
        node["metadata"] = {}
        _check(node, "")
        node["metadata"] = {"nn_module_stack": stack} if str(stack).isprintable() else {}
    nodes, graph["graph"]["nodes"] = graph["graph"]["nodes"], []
    _check(program, "")
    graph["graph"]["nodes"] = nodes
    return program


def _check(value: Any, key: str) -> None:
    """Refuse strings that could be more than names, wherever they are."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if not TEXT.fullmatch(name) or (name.startswith("as_") and name not in ARGUMENTS):
                raise ProgramError(f"has {name[:60]!r} in its graph: use plain tensors only")
            _check(inner, name)
    elif isinstance(value, list):
        for inner in value:
            _check(inner, key)
    elif key in ("in_spec", "out_spec"):
        _check_tree(json.loads(value)[1])
    elif isinstance(value, str):
        allowed = {"target": OPERATOR, "expr_str": SIZE}.get(key, TEXT)
        if not allowed.fullmatch(value):
            raise ProgramError(
                f"has {value[:60]!r} in its graph: only operators of PyTorch, SUDO units and "
                "sizes that are numbers or one symbol are allowed"
            )


def _check_tree(tree: Any) -> None:
    """Refuse inputs and outputs in other containers, whose classes PyTorch would look up."""
    if tree["type"] not in TREES or tree["context"] not in (None, "null", "[]"):
        raise ProgramError(f"has inputs or outputs in a {tree['type']!r}: use plain tensors only")
    for child in tree["children_spec"]:
        _check_tree(child)
