"""ONNX files in ONNX Runtime, and QONNX files in the package qonnx."""

import numpy as np
import onnxruntime
from qonnx.core.modelwrapper import ModelWrapper
from qonnx.core.onnx_exec import execute_onnx
from qonnx.transformation.change_batchsize import ChangeBatchSize
from qonnx.transformation.infer_shapes import InferShapes


def session(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run(path, x):
    """The outputs of a file by name."""
    opened = session(path)
    names = [output.name for output in opened.get_outputs()]
    return dict(zip(names, opened.run(names, {"input": x}), strict=True))


def assert_exact(network, path, x):
    """The exact form of a network gives the reference's integers and real numbers."""
    found, raw = run(path, x), network.trace(x)[-1]
    whole = found["codes" if network.output == "codes" else "scores"]
    assert (whole.dtype, whole.shape) == (raw.dtype, raw.shape)
    np.testing.assert_array_equal(whole, raw)
    real = network(x)
    assert (found["output"].dtype, found["output"].shape) == (real.dtype, real.shape)
    if network.output in ("tanh", "softmax"):
        np.testing.assert_array_max_ulp(found["output"], real, maxulp=1)
    else:
        np.testing.assert_array_equal(found["output"], real)


def values_inside(path, x):
    """All tensors of a QONNX model, by name, for a batch of inputs."""
    model = ModelWrapper(str(path))
    model = model.transform(ChangeBatchSize(len(x))).transform(InferShapes())
    return model, execute_onnx(
        model, {"input": x.astype(np.float32)}, return_full_exec_context=True
    )
