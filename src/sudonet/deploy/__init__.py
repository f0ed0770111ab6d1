"""Trained networks as exact integers, for machines with little memory.

``compile`` makes an :class:`IntegerNetwork` of a PyTorch model. Its numbers are defined by a
reference in numpy; every other form of it is held to that, bit by bit.
"""

from sudonet.deploy.artefact import ArtefactError as ArtefactError
from sudonet.deploy.artefact import load as load
from sudonet.deploy.compiler import compile as compile  # noqa: A004
from sudonet.deploy.errors import CompileError as CompileError
from sudonet.deploy.float_file import float_onnx as float_onnx
from sudonet.deploy.grid import Grid as Grid
from sudonet.deploy.network import IntegerNetwork as IntegerNetwork
from sudonet.deploy.onnx_file import agreement as agreement
from sudonet.deploy.report import Report as Report
from sudonet.deploy.report import report as report
from sudonet.deploy.tune import tune as tune
