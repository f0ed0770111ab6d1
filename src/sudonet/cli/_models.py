"""The models that ``sudonet compile`` takes: exported programs, and what factories make."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sudonet.cli._fail import fail

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram


def model_of(source: str, state_dict: Path | None, max_bytes: int) -> nn.Module | ExportedProgram:
    """The model of a ``.pt2`` file, within a limit of memory, or of a factory."""
    if source.endswith(".pt2"):
        if state_dict is not None:
            fail("--state-dict is for package.module:factory: a .pt2 file has its weights in it")
        return _program(Path(source), max_bytes)
    if not re.fullmatch(r"[^\W\d][\w.]*:[^\W\d]\w*", source):
        fail(
            f"SOURCE must be a .pt2 file of torch.export.save or package.module:factory, got "
            f"{source!r}; a pickled model is refused, since it could run code"
        )
    return _made(source, state_dict)


def _program(path: Path, max_bytes: int) -> ExportedProgram:
    from sudonet.deploy.program_file import load_program

    try:
        return load_program(path, max_bytes=max_bytes)
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror or error}")


def _made(source: str, state_dict: Path | None) -> nn.Module:
    from torch import nn

    module, name = source.split(":")
    with _current_folder():
        try:
            factory = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            fail(f"cannot find {source}: {error}")
        try:
            made = isinstance(factory, nn.Module) or not callable(factory)
            model = factory if made else factory()
        except Exception as error:  # the user's code may raise anything
            fail(f"{source} could not be called: {type(error).__name__}: {error}")
    if not isinstance(model, nn.Module):
        fail(f"{source} must give a torch.nn.Module, got {type(model).__name__}")
    if state_dict is not None:
        tensors = _tensors(state_dict)
        try:
            model.load_state_dict(tensors)
        except (RuntimeError, AttributeError, TypeError) as error:
            fail(f"{state_dict} does not fit {source}: {' '.join(str(error).split())}")
    return model


@contextmanager
def _current_folder() -> Iterator[None]:
    """Search modules in the current folder too, as ``python -m`` does."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


def _tensors(path: Path) -> Mapping[str, Any]:
    """A state dict; nothing but tensors is unpickled."""
    import torch

    try:
        if path.suffix == ".safetensors":
            reader = importlib.import_module("safetensors.torch")
            safe: Mapping[str, Any] = reader.load_file(path)
            return safe
        found = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror or error}")
    except ImportError:
        fail(f"to read {path} install safetensors")
    except Exception:  # a damaged file makes the readers raise anything
        fail(
            f"{path} is damaged or holds more than tensors, which could run code: write it by "
            "torch.save(model.state_dict(), file)"
        )
    if not isinstance(found, Mapping):
        fail(f"{path} must hold a state dict, got {type(found).__name__}")
    return found
