"""A PyTorch model with staircase units as an ONNX file, in real arithmetic."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sudonet.deploy.grid import Grid
from sudonet.deploy.real_form import Ramp, regular
from sudonet.staircase import Staircase

OPERATORS = 18
FIXED = 2.0**60
"""Units of the fixed-point numbers below: 64 bits hold u up to 6, the end of relu6."""


def float_onnx(model: nn.Module, example: Tensor, path: str | Path) -> None:
    """Write a model with its real weights, in standard ONNX operators.

    A staircase unit becomes ``y = q + (u - fixed(u))``. q is the staircase as arithmetic,
    with a ceiling in it, and u the underlying function. ``fixed`` goes through 64-bit
    integers and back, so it returns u, and the bracket is 0: the file gives q, in which a
    code may differ from the model's where u lies within a rounding error of a step. Neither
    a ceiling nor an integer has a derivative, so a tool that differentiates the graph finds
    that of u alone, by which the model was trained, and can train it further. ONNX has no
    operator that stops gradients.

    Parameters
    ----------
    model
        Any model that :func:`torch.export.export` can trace; it is written in eval mode.
    example
        A batch of inputs. The file takes batches of any size.
    path
        The file to write.
    """
    try:
        import onnx
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"writing ONNX needs {error.name}: run pip install 'sudonet[onnx]'"
        ) from None
    if len(example) == 1:
        example = torch.cat([example, example])  # torch.export would fix a batch of 1
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with _quiet():
            program = torch.onnx.export(
                model,
                (example,),
                dynamo=True,
                verbose=False,
                opset_version=OPERATORS,
                input_names=["input"],
                output_names=["output"],
                dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
                custom_translation_table={torch.ops.sudonet.staircase.default: _staircase},
            )
    finally:
        for module in training:
            module.training = True
    assert program is not None
    onnx.checker.check_model(program.model_proto, full_check=True)
    Path(path).write_bytes(program.model_proto.SerializeToString())


def _staircase(x: Any, unit: str) -> Any:
    """Replaces ``torch.ops.sudonet.staircase`` in the exported graph."""
    import onnx
    import onnxscript

    op: Any = onnxscript.opset18
    kinds = onnx.TensorProto
    kind = int(x.dtype)
    real = kind if kind == kinds.DOUBLE else kinds.FLOAT

    def number(value: float) -> Any:
        dtype = np.float64 if real == kinds.DOUBLE else np.float32
        return op.Constant(value=onnx.numpy_helper.from_array(np.array(value, dtype)))

    staircase = Staircase.parse(unit)
    ramp, grid = Ramp.of(staircase), Grid.of_unit(staircase)
    # Half types are computed in float32 and rounded once, as in PyTorch.
    x = x if kind == real else op.Cast(x, to=real)
    if staircase.underlying == "tanh":
        u = op.Tanh(x)
    elif staircase.underlying == "sigmoid":
        u = op.Sigmoid(x)
    else:
        u = op.Clip(x, *(number(end) for end in staircase.ramp))
    if staircase.rectified:
        u = op.Where(op.Less(x, number(0.0)), number(0.0), u)
    steps = op.Add(op.Mul(u, number(ramp.gain)), number(ramp.offset))
    code = op.Clip(op.Ceil(steps), number(0.0), number(ramp.top))
    if not regular(staircase):
        code = op.Relu(op.Sub(op.Mul(code, number(2.0)), number(1.0)))
    q = op.Mul(op.Sub(code, number(grid.zero)), number(grid.scale))
    whole = op.Cast(op.Mul(u, number(FIXED)), to=kinds.INT64)
    fixed = op.Mul(op.Cast(whole, to=real), number(1 / FIXED))
    y = op.Add(q, op.Sub(u, fixed))
    return y if kind == real else op.Cast(y, to=kind)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences the exporter's messages about packages that no model here needs."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
            yield
    finally:
        logger.setLevel(level)
