"""``sudonet compile``, ``inspect``, ``export``, ``size`` and ``run``: integer networks in files."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from sudonet.cli._fail import fail

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import nn
    from torch.export import ExportedProgram

    from sudonet.deploy import Grid, IntegerNetwork

NetworkFile = Annotated[
    Path, typer.Argument(metavar="NET", help="An integer network, the file of sudonet compile.")
]

FORMATS = ("onnx", "qonnx", "c")
PICTURES = (".png", ".svg", ".pdf")


def compile_(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A program of torch.export.save (model.pt2), or package.module:factory, a "
            "function that makes the model; the current folder is searched too.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The network's file.")],
    weights: Annotated[str, typer.Option(help="int8, int4, ternary, binary or float32.")] = "int8",
    value_range: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--range", metavar="LOW,HIGH", help="Between which values inputs lie: 0,1."),
    ] = None,
    bits: Annotated[int, typer.Option(help="Of the input's integers: 8 or 16.")] = 8,
    shape: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="SIZES", help="Of one example: 1,28,28."),
    ] = None,
    calibration: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="Examples of inputs, .npy: they tell range and shape."),
    ] = None,
    thresholds: Annotated[str, typer.Option(help="auto, channel or shared.")] = "auto",
    state_dict: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="Weights for the model of a factory."),
    ] = None,
) -> None:
    """Make an integer network of a trained model.

    Nothing in a file is unpickled or run: programs and weights that would need it are refused.

    Example: sudonet compile model.pt2 --range 0,1 --out net.sudo

    Example: sudonet compile models:digits --state-dict digits.pt --range 0,1 --out net.sudo
    """
    from sudonet import deploy
    from sudonet.deploy.listing import in_short

    examples = None if calibration is None else _array(calibration)
    try:
        found = deploy.compile(
            _model(source, state_dict),
            weights,
            examples,
            inputs=_grid(value_range, examples, bits),
            shape=None if shape is None else _sizes(shape),
            thresholds=thresholds,
        )
        found.save(out)
    except ValueError as error:
        fail(str(error))
    typer.echo(f"wrote {out}: {in_short(found)}")


def inspect(
    network: NetworkFile,
    data: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="Inputs, .npy: which codes come out of each layer?"),
    ] = None,
    picture: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="Draw them: .png, .svg or .pdf. Needs --data."),
    ] = None,
) -> None:
    """Show a network's layers: shapes, units, weights, thresholds, bytes, multiply-adds.

    Example: sudonet inspect net.sudo

    Example: sudonet inspect net.sudo --data inputs.npy --picture codes.png
    """
    from sudonet.deploy.histograms import code_counts, draw_codes
    from sudonet.deploy.listing import listing

    found = _network(network)
    if picture is not None and data is None:
        fail("--picture draws the codes of some inputs: give them by --data inputs.npy")
    if picture is not None and picture.suffix.lower() not in PICTURES:
        fail(f"cannot write {picture}: its name must end in one of {', '.join(PICTURES)}")
    counts = None
    try:
        if data is not None:
            counts = code_counts(found, _array(data))
        for line in listing(found, counts):
            typer.echo(line)
        if picture is not None and counts is not None:
            draw_codes(found, counts).savefig(picture)
            typer.echo(f"wrote {picture}")
    except (ValueError, TypeError) as error:
        fail(f"{data}: {error}" if data is not None else str(error))
    except OSError as error:
        fail(f"cannot write {picture}: {error.strerror or error}")


def export(
    network: NetworkFile,
    to: Annotated[str, typer.Option(metavar="FORMAT", help=f"{', '.join(FORMATS)}.")],
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="PATH",
            help="The file to write, for C the folder. By default the network's name with "
            "another ending, and this folder.",
        ),
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="ONNX with every number as in the reference; slower.")
    ] = False,
    target: Annotated[
        str, typer.Option(help="For whom ONNX is to be fast: onnxruntime or openvino.")
    ] = "onnxruntime",
    optimise: Annotated[str, typer.Option(help="C for speed, flash or ram.")] = "speed",
    main: Annotated[
        bool, typer.Option("--main", help="With the C, a program that tests it on samples.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Compile that program here, run it and compare.")
    ] = False,
    samples: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="Inputs for --main and --check, .npy; else random."),
    ] = None,
) -> None:
    """Write a network in a format that others read.

    Example: sudonet export net.sudo --to onnx

    Example: sudonet export net.sudo --to c --out firmware --check
    """
    if to not in FORMATS:
        fail(f"--to must be one of {', '.join(FORMATS)}, got {to!r}")
    if to != "onnx" and (exact or target != "onnxruntime"):
        fail(f"--exact and --target are for --to onnx, got --to {to}")
    if to != "c" and (optimise != "speed" or main or check or samples):
        fail(f"--optimise, --main, --check and --samples are for --to c, got --to {to}")
    found = _network(network)
    path = out or (Path() if to == "c" else Path(f"{network.stem}.{to}"))
    try:
        if to == "onnx":
            found.to_onnx(path, exact=exact, target=target)
        elif to == "qonnx":
            found.to_qonnx(path)
        else:
            inputs = _samples(found, samples) if main or check or samples else None
            _to_c(found, path, network.stem, optimise, inputs, check)
            return
    except (ImportError, RuntimeError, TypeError, ValueError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror or error}")
    typer.echo(f"wrote {path}")


def _to_c(
    network: IntegerNetwork,
    folder: Path,
    name: str,
    optimise: str,
    inputs: NDArray[Any] | None,
    run_it: bool,
) -> None:
    from sudonet.deploy import c

    made = c.write(network, folder, name, optimise=optimise, samples=inputs)
    files = [made.source, made.header, *([made.main] if made.main else [])]
    typer.echo(f"wrote {', '.join(map(str, files))}")
    if run_it and inputs is not None:
        checked = c.check(network, inputs, folder, name, optimise=optimise)
        typer.echo(checked.report)
        if not checked.passed:
            raise typer.Exit(1)


def _samples(network: IntegerNetwork, path: Path | None) -> NDArray[Any]:
    import numpy as np

    if path is not None:
        return _array(path)
    low, high = network.inputs.low, network.inputs.high
    drawn = np.random.default_rng(0).integers(low, high + 1, (16, *network.shape_in))
    return drawn.astype(network.inputs.dtype)


def size(
    network: NetworkFile,
    mcu: Annotated[
        str, typer.Option(help="cortex-m0, cortex-m3, cortex-m4 or rv32imac.")
    ] = "cortex-m4",
    optimise: Annotated[str, typer.Option(help="speed, flash or ram.")] = "speed",
) -> None:
    """Say what flash and RAM a network takes of a microcontroller, by its cross compiler.

    Example: sudonet size net.sudo --mcu cortex-m0
    """
    from sudonet.deploy import c

    found = _network(network)
    try:
        typer.echo(c.size(found, mcu, optimise=optimise))
    except (RuntimeError, ValueError) as error:
        fail(str(error))


def run(
    network: NetworkFile,
    inputs: Annotated[
        Path, typer.Argument(metavar="INPUT", help="One input or a batch, .npy: integers or reals.")
    ],
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="Where outputs go, .npy."),
    ] = None,
) -> None:
    """Run a network on inputs.

    Example: sudonet run net.sudo input.npy

    Example: sudonet run net.sudo inputs.npy --out outputs.npy
    """
    import numpy as np

    from sudonet.deploy.listing import by, described

    found = _network(network)
    array = _array(inputs)
    try:
        single = array.shape == found.shape_in
        outputs = found(array)
    except (ValueError, TypeError) as error:
        fail(f"{inputs}: {error}")
    for line in described(found, outputs[None] if single else outputs):
        typer.echo(line)
    if out is None:
        return
    try:
        with out.open("wb") as file:  # a name would get .npy at its end
            np.save(file, outputs, allow_pickle=False)
    except OSError as error:
        fail(f"cannot write {out}: {error.strerror or error}")
    typer.echo(f"wrote {out}: {outputs.dtype} of shape {by(outputs.shape) or 'one number'}")


def _network(path: Path) -> IntegerNetwork:
    from sudonet.deploy.artefact import ArtefactError, load

    try:
        return load(path)
    except ArtefactError as error:
        fail(str(error))


def _array(path: Path) -> NDArray[Any]:
    import numpy as np

    try:
        with path.open("rb") as file:
            found: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror or error}")
    except Exception as error:  # a damaged header may be anything
        fail(f"{path} is no array of numbers, as numpy.save writes it: {error}")
    return found


def _model(source: str, state_dict: Path | None) -> nn.Module | ExportedProgram:
    if source.endswith(".pt2"):
        if state_dict is not None:
            fail("--state-dict is for package.module:factory: a .pt2 file has its weights in it")
        return _program(Path(source))
    if not re.fullmatch(r"[^\W\d][\w.]*:[^\W\d]\w*", source):
        fail(
            f"SOURCE must be a .pt2 file of torch.export.save or package.module:factory, got "
            f"{source!r}; a pickled model is refused, since it could run code"
        )
    return _made(source, state_dict)


def _program(path: Path) -> ExportedProgram:
    from sudonet.deploy.program_file import load_program

    try:
        return load_program(path)
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
        except Exception as error:  # it is the user's own
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
    """A state dict, of which nothing is unpickled but tensors."""
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


def _grid(text: str | None, examples: NDArray[Any] | None, bits: int) -> Grid:
    from sudonet.deploy import Grid

    if text is None:
        if examples is None:
            fail(
                "how far do inputs range? Give --range 0,1 for pixels that were divided by 255, "
                "or --calibration examples.npy"
            )
        return Grid.calibrated(examples, bits)
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        fail(f"--range must be two numbers such as 0,1, got {text!r}")
    return Grid.of_range(low, high, bits)


def _sizes(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", text):
        fail(f"--shape must be sizes such as 1,28,28, got {text!r}")
    return tuple(map(int, text.split(",")))
