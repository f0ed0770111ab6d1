"""The values of options that take one of a few.

They are written down here as well as where they are used, so that a help text loads neither torch
nor the study. A test compares the two.
"""

from __future__ import annotations

from enum import Enum


class PresetName(str, Enum):
    """How much of the paper's protocol to run."""

    QUICK = "quick"
    STANDARD = "standard"
    PAPER = "paper"


class EngineName(str, Enum):
    """What trains networks."""

    AUTO = "auto"
    NATIVE = "native"
    TORCH = "torch"


class Executor(str, Enum):
    """Where networks are trained."""

    LOCAL = "local"
    RAY = "ray"


class TableFormat(str, Enum):
    """How a table is printed."""

    TERMINAL = "terminal"
    MARKDOWN = "md"
    CSV = "csv"
    JSON = "json"
    LATEX = "latex"


class DataSet(str, Enum):
    """Data sets that can be fetched."""

    MNIST = "mnist"
    CIFAR10 = "cifar10"
    IMAGENET32 = "imagenet32"


class Weights(str, Enum):
    """What weights become."""

    INT8 = "int8"
    INT4 = "int4"
    TERNARY = "ternary"
    BINARY = "binary"
    FLOAT32 = "float32"


class Bits(str, Enum):
    """Of an input's integers."""

    EIGHT = "8"
    SIXTEEN = "16"


class Thresholds(str, Enum):
    """Where a layer keeps its thresholds."""

    AUTO = "auto"
    CHANNEL = "channel"
    SHARED = "shared"


class Format(str, Enum):
    """What an integer network is exported to."""

    ONNX = "onnx"
    QONNX = "qonnx"
    C = "c"


class Target(str, Enum):
    """The run time that an ONNX file is made for."""

    ONNXRUNTIME = "onnxruntime"
    OPENVINO = "openvino"


class Optimise(str, Enum):
    """What C code saves."""

    SPEED = "speed"
    FLASH = "flash"
    RAM = "ram"


class Mcu(str, Enum):
    """Microcontrollers whose cross compilers are known."""

    CORTEX_M0 = "cortex-m0"
    CORTEX_M3 = "cortex-m3"
    CORTEX_M4 = "cortex-m4"
    RV32IMAC = "rv32imac"


TABLES = (
    *("checkerboard-1", "checkerboard-2", "checkerboard-4", "regression-2", "regression-4"),
    *("memorization-1", "memorization-2", "memorization-4", "memorization-10"),
    *("autoencoder-conv", "autoencoder-dense", "mnist-1", "mnist-4"),
)
"""Tables of SUDO units; all but memorization-1 have a twin of R-SUDO units, r-NAME."""

PICTURES = (".png", ".svg", ".pdf")
"""How the names of picture files may end."""
