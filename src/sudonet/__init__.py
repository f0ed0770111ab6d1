"""Neural networks whose hidden units emit only a few values."""

from importlib import import_module
from typing import TYPE_CHECKING

from sudonet import _operator_hook

__version__ = "0.1.0"

# Names are loaded when they are first used: PyTorch takes two seconds, and help texts need none
# of it. Type checkers and editors read the imports, Python reads the two tables.
if TYPE_CHECKING:
    from sudonet import deploy as deploy
    from sudonet import experiments as experiments
    from sudonet import functional as functional
    from sudonet import lean as lean
    from sudonet import native as native
    from sudonet import packing as packing
    from sudonet import report as report
    from sudonet import staircase as staircase
    from sudonet import study as study
    from sudonet import train as train
    from sudonet import units as units
    from sudonet._checkpoint import load as load
    from sudonet._checkpoint import save as save
    from sudonet._convert import Conversion as Conversion
    from sudonet._convert import convert as convert
    from sudonet._summary import Summary as Summary
    from sudonet._summary import summary as summary
    from sudonet.lean import CodedConv1d as CodedConv1d
    from sudonet.lean import CodedConv2d as CodedConv2d
    from sudonet.lean import CodedLinear as CodedLinear
    from sudonet.lean import SUDOConv1d as SUDOConv1d
    from sudonet.lean import SUDOConv2d as SUDOConv2d
    from sudonet.lean import SUDOLinear as SUDOLinear
    from sudonet.staircase import Staircase as Staircase
    from sudonet.units import RSUDO as RSUDO
    from sudonet.units import SUDO as SUDO
    from sudonet.units import StaircaseUnit as StaircaseUnit
    from sudonet.units import activation as activation
    from sudonet.units import activation_name as activation_name
else:
    _MODULES = (
        *("deploy", "experiments", "functional", "lean", "native", "packing", "report"),
        *("staircase", "study", "train", "units"),
    )
    _HOMES = {
        "CodedConv1d": "lean",
        "CodedConv2d": "lean",
        "CodedLinear": "lean",
        "Conversion": "_convert",
        "RSUDO": "units",
        "SUDO": "units",
        "SUDOConv1d": "lean",
        "SUDOConv2d": "lean",
        "SUDOLinear": "lean",
        "Staircase": "staircase",
        "StaircaseUnit": "units",
        "Summary": "_summary",
        "activation": "units",
        "activation_name": "units",
        "convert": "_convert",
        "load": "_checkpoint",
        "save": "_checkpoint",
        "summary": "_summary",
    }
    __all__ = (*_MODULES, *_HOMES)

    def __getattr__(name):
        if name in _MODULES:
            return import_module(f"sudonet.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module 'sudonet' has no attribute {name!r}")
        found = getattr(import_module(f"sudonet.{_HOMES[name]}"), name)
        globals()[name] = found
        return found

    def __dir__():
        return sorted({*globals(), *__all__})


_operator_hook.install()
