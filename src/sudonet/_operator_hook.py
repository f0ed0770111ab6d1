"""Registers ``torch.ops.sudonet.staircase`` as soon as both sudonet and torch are imported.

``import sudonet`` does not import torch. A program that only loads an exported graph may use
nothing else of the package, and still needs the operator.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType


def install() -> None:
    """Register the operator now if torch is imported, otherwise once it is."""
    if "torch" in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _AfterTorch())


def _register() -> None:
    import_module("sudonet.functional")


class _AfterTorch:
    """A finder that lets the others find torch, and registers the operator once it is loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torch":
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in specs if spec), None)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def load_and_register(module: ModuleType) -> None:
            load(module)
            sys.meta_path.remove(self)
            _register()

        spec.loader.exec_module = load_and_register  # type: ignore[method-assign]
        return spec
