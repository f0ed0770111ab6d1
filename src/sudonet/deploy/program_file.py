"""Reads programs of torch.export from files, without running anything in a file.

``torch.export.load`` trusts what it reads: it unpickles example inputs and some tensors, loads
shared libraries, evaluates the text of sizes and makes Python code from the names of nodes.
Here a file is first rewritten in memory. Only the graph is copied, each of its strings checked
against what a plain model needs, and tensors that are stored as raw numbers, each with as many
bytes as its shape needs.
"""

from __future__ import annotations

import io
import json
import logging
import math
import re
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch
from torch.export import ExportedProgram

from sudonet.deploy.checks import check_geometry
from sudonet.deploy.grid import Grid
from sudonet.deploy.layers import Affine, MaxPool, RealScores, SumPool
from sudonet.deploy.memory import LIMIT, exceeded
from sudonet.deploy.steps import CompileError, Norm, Pool, Products, steps
from sudonet.staircase import Staircase

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


DTYPES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 2, 7: 4, 8: 8, 12: 1, 13: 2}
"""Bytes of a number by the type's number in a file: integers, floats, bool and bfloat16."""

STRIDED = 7
"""The number of the layout of plain tensors."""

COPIES = 3
"""Copies of the file's bytes in memory: as read, as rewritten, as tensors."""

OBJECTS = 128
"""Bytes of the objects that a byte of the graph becomes, at most."""

WEIGHT, THRESHOLD = 48, 64
"""Bytes that compiling a weight and a threshold of a channel takes, at most."""


def load_program(path: str | Path, *, max_bytes: int = LIMIT) -> ExportedProgram:
    """The program in a file that :func:`torch.export.save` of PyTorch 2.10 or later wrote.

    Parameters
    ----------
    path
        Of the file.
    max_bytes
        Limit of the memory that reading and compiling the program may take.

    Raises
    ------
    CompileError
        If the file is something else, if there is anything in it that would have to be
        unpickled or run, or if it needs more memory.
    """
    with Path(path).open("rb") as file:
        checked = _checked(file, path, max_bytes)
    try:
        with _quiet():
            program = torch.export.load(checked)
            _check_memory(program, max_bytes)
            _check_steps(program)
    except CompileError as error:
        raise CompileError(f"{path}: {error}") from error
    except Exception as error:  # the reader raises whatever it runs into
        raise CompileError(
            f"{path} is not a program that this PyTorch reads: "
            f"{_first_line(error.__cause__ or error)}"
        ) from error
    return program


def _checked(file: IO[bytes], path: str | Path, max_bytes: int) -> io.BytesIO:
    """What :func:`_checked_copy` gives, or a CompileError that names the file."""
    try:
        size = file.seek(0, io.SEEK_END)
        with zipfile.ZipFile(file) as archive:
            _check_directory(archive, size, max_bytes)
            return _checked_copy(archive)
    except CompileError as error:
        raise CompileError(f"{path} {error}") from None
    except Exception as error:  # a damaged file makes zipfile and the checks raise anything
        raise CompileError(
            f"{path} is not a program that torch.export.save of PyTorch 2.10 or later wrote: "
            f"{_first_line(error)}"
        ) from error


def _check_memory(program: ExportedProgram, max_bytes: int) -> None:
    """Refuse a program that uses its weights so often, or with so many levels, that it is large."""
    tensors = {**program.state_dict, **program.constants}
    signature = program.graph_signature
    names = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    numbers = channels = 0
    levels = 1
    for node in program.graph.nodes:
        numbers += tensors[names[node.name]].numel() * len(node.users) if node.name in names else 0
        if str(node.target) == "sudonet.staircase.default":
            levels = max(levels, Staircase.parse(str(node.args[1])).outputs)
            channels += int(node.meta["val"].shape[1])
    needed = WEIGHT * numbers + THRESHOLD * channels * levels
    if needed > max_bytes:
        raise CompileError(f"it needs {exceeded(needed, max_bytes)}")


def _check_steps(program: ExportedProgram) -> None:
    """Refuse layers whose weights, settings and shapes do not fit together."""
    made, found = steps(program)
    grid = Grid(1.0, 0.0, 0, 1)
    for step in found:
        if isinstance(step, Norm) and not all(map(math.isfinite, step.factor + step.constant)):
            raise CompileError(f"{step.path} has a variance below 0: train the model again")
        if not isinstance(step, Products | Pool):
            continue
        if math.prod(step.shape_in) != math.prod(made):
            raise CompileError(f"{step.path} takes {step.shape_in}, but what comes in is {made}")
        try:
            check_geometry(_layer(step, grid))
        except ValueError as error:
            raise CompileError(f"{step.path}: {error}") from error
        made = step.shape_out


def _layer(step: Products | Pool, grid: Grid) -> Affine | MaxPool | SumPool:
    """A layer of that geometry."""
    shapes = step.shape_in, step.shape_out
    if isinstance(step, Pool):
        if step.kind == "max":
            return MaxPool(step.path, step.kernel, step.stride, step.padding, *shapes, grid)
        return SumPool(step.path, step.kernel, step.stride, *shapes, grid)
    if step.bias.shape != step.shape_out[:1]:
        raise CompileError(f"its bias has the shape {step.bias.shape}, its output {step.shape_out}")
    return Affine(
        *(step.path, step.kind, step.weights, "float32", *shapes, grid),
        RealScores(1.0, step.bias),
        *(step.stride, step.padding, step.dilation, step.output_padding, step.groups),
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without PyTorch's log and warnings: what is wrong with a file is in the error."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _first_line(error: BaseException) -> str:
    text = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
    return text if text.isprintable() else repr(text)


def _check_directory(archive: zipfile.ZipFile, size: int, max_bytes: int) -> None:
    """Refuse an archive that claims more than it has, or that is too large to be read."""
    members = archive.infolist()
    stored = sum(member.compress_size for member in members)
    if stored > size or any(m.file_size != m.compress_size for m in members if not _packed(m)):
        raise CompileError(f"has {size:,} bytes, but its parts claim {stored:,}")
    graph = sum(m.file_size for m in members if m.filename.endswith(".json"))
    needed = COPIES * stored + OBJECTS * graph
    if needed > max_bytes:
        raise CompileError(f"needs {exceeded(needed, max_bytes)}")


def _packed(member: zipfile.ZipInfo) -> bool:
    return member.compress_type != zipfile.ZIP_STORED


def _checked_copy(archive: zipfile.ZipFile) -> io.BytesIO:
    """A copy of the archive, with nothing in it but what was checked."""
    names = archive.namelist()
    roots = [name.removesuffix(MARKS[0]) for name in names if name.endswith("/" + MARKS[0])]
    if len(roots) != 1:
        raise CompileError("is not in the format of PyTorch 2.10 or later: save it again with that")
    root = roots[0]
    parts = {mark: _read(archive, root + mark) for mark in MARKS if root + mark in names}
    parts[GRAPH] = _dumped(_graph(json.loads(_read(archive, root + GRAPH))))
    tensors: dict[str, tuple[str, Any]] = {}
    for folder, (config, numbered) in TENSORS.items():
        if root + folder + config not in names:
            raise CompileError(
                "keeps its weights in a pickle, which could run code: save it again with "
                "PyTorch 2.10 or later"
            )
        listed = json.loads(_read(archive, root + folder + config))
        _check(listed, "")
        for name, entry in listed["config"].items():
            if entry["use_pickle"] is not False or not numbered.fullmatch(entry["path_name"]):
                raise CompileError(
                    f"keeps {name} in a pickle, which could run code: make it a plain tensor"
                )
            tensors[folder + name] = folder + entry["path_name"], entry["tensor_meta"]
        parts[folder + config] = _dumped(listed)
    for name, (record, meta) in tensors.items():
        if record not in parts:
            parts[record] = _read(archive, root + record)
        _check_tensor(name.rsplit("/", 1)[1], meta, len(parts[record]))
    # Example inputs are always a pickle, and not needed: an empty record means none.
    parts[EXAMPLES] = b""
    copy = io.BytesIO()
    with zipfile.ZipFile(copy, "w", zipfile.ZIP_STORED) as target:
        for name, content in parts.items():
            target.writestr(f"model/{name}", content)
    copy.seek(0)
    return copy


def _read(archive: zipfile.ZipFile, name: str) -> bytes:
    if _packed(archive.getinfo(name)):
        raise CompileError(f"has {name} compressed, which torch.export.save does not do")
    return archive.read(name)


def _check_tensor(name: str, meta: Any, stored: int) -> None:
    """Refuse a tensor that is not a plain one, within the bytes that are stored."""
    if meta["dtype"] not in DTYPES or meta["layout"] != STRIDED:
        raise CompileError(f"keeps {name} in a type that is not compiled: use float32")
    sizes, strides = ([_whole(n) for n in meta[key]] for key in ("sizes", "strides"))
    offset = _whole(meta["storage_offset"])
    count, room = math.prod(sizes), stored // DTYPES[meta["dtype"]]
    reach = sum((n - 1) * stride for n, stride in zip(sizes, strides, strict=True)) + 1
    # An expanded tensor has more numbers than are stored.
    if count > room or (count and offset + reach > room):
        raise CompileError(
            f"stores {room:,} numbers of {name}, too few for shape {sizes} with strides "
            f"{strides} from {offset}: make it contiguous before torch.export"
        )


def _whole(number: Any) -> int:
    found = number["as_int"]
    if set(number) != {"as_int"} or type(found) is not int or not 0 <= found < 2**63:
        raise CompileError(f"has {str(number)[:60]!r} as a size: it must be an integer")
    return found


def _check_device(device: Any) -> None:
    if device["type"] != "cpu":
        raise CompileError(
            f"keeps a tensor on {str(device['type'])[:20]!r}: move the model to the CPU before "
            "torch.export"
        )


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
                raise CompileError(f"has {name[:60]!r} in its graph: use plain tensors only")
            if name in ("device", "as_device"):
                _check_device(inner)
            _check(inner, name)
    elif isinstance(value, list):
        for inner in value:
            _check(inner, key)
    elif key in ("in_spec", "out_spec"):
        _check_tree(json.loads(value)[1])
    elif isinstance(value, str):
        allowed = {"target": OPERATOR, "expr_str": SIZE}.get(key, TEXT)
        if not allowed.fullmatch(value):
            raise CompileError(
                f"has {value[:60]!r} in its graph: only operators of PyTorch, SUDO units and "
                "sizes that are numbers or one symbol are allowed"
            )


def _check_tree(tree: Any) -> None:
    """Refuse inputs and outputs in other containers, whose classes PyTorch would look up."""
    if tree["type"] not in TREES or tree["context"] not in (None, "null", "[]"):
        raise CompileError(f"has inputs or outputs in a {tree['type']!r}: use plain tensors only")
    for child in tree["children_spec"]:
        _check_tree(child)
