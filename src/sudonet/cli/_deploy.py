"""``sudonet compile``, ``inspect``, ``export``, ``size`` and ``run``: integer networks in files."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from sudonet.cli._choices import Bits, Format, Mcu, Optimise, Target, Thresholds, Weights
from sudonet.cli._fail import fail, say
from sudonet.cli._models import model_of
from sudonet.cli._options import MEMORY, MaxMemory, check_picture, memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sudonet.deploy import Grid, IntegerNetwork

NetworkFile = Annotated[
    Path,
    typer.Argument(metavar="NET", help="An integer network: a file that sudonet compile wrote."),
]


def compile_(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A program that torch.export.save wrote (model.pt2), or package.module:factory, "
            "a function that returns the model. The current folder is searched too.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file to write.")],
    weights: Annotated[Weights, typer.Option(help="What weights become.")] = Weights.INT8,
    value_range: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--range",
            metavar="LOW,HIGH",
            help="The range of the inputs: 0,1. Integers of 8 or 16 bits stand for it.",
        ),
    ] = None,
    bits: Annotated[Bits, typer.Option(help="Of the input's integers.")] = Bits.EIGHT,
    shape: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="SIZES", help="The shape of one example: 1,28,28."),
    ] = None,
    calibration: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="FILE",
            help="Inputs (.npy), real values of any type, that give range and shape.",
        ),
    ] = None,
    thresholds: Annotated[
        Thresholds,
        typer.Option(help="Per channel (exact) or shared (smaller); auto decides for each unit."),
    ] = Thresholds.AUTO,
    state_dict: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="Weights for the factory's model."),
    ] = None,
    max_memory: MaxMemory = MEMORY,
) -> None:
    """Compile a trained model to an integer network.

    Nothing in a file is unpickled or run: a program or weights that would need it are refused.

    Example: sudonet compile model.pt2 --range 0,1 --out net.sudo

    Example: sudonet compile models:digits --state-dict digits.pt --range 0,1 --out net.sudo
    """
    from sudonet import deploy
    from sudonet.deploy.listing import in_short

    max_bytes = memory(max_memory)
    examples = None if calibration is None else _array(calibration, max_bytes)
    try:
        found = deploy.compile(
            model_of(source, state_dict, max_bytes),
            weights.value,
            examples,
            inputs=_grid(value_range, examples, int(bits.value)),
            shape=None if shape is None else _sizes(shape),
            thresholds=thresholds.value,
        )
        found.save(out)
    except (ValueError, TypeError) as error:
        fail(str(error))
    say(f"wrote {out}: {in_short(found)}")


def inspect(
    network: NetworkFile,
    data: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="Inputs (.npy), to count the codes of each layer."),
    ] = None,
    picture: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="Draw the counts: .png, .svg or .pdf. Needs --data."),
    ] = None,
    max_memory: MaxMemory = MEMORY,
) -> None:
    """Show a network's layers: shapes, units, weights, thresholds, bytes, multiply-adds.

    Example: sudonet inspect net.sudo

    Example: sudonet inspect net.sudo --data inputs.npy --picture codes.png
    """
    from sudonet.deploy.histograms import code_counts, draw_codes
    from sudonet.deploy.listing import listing
    from sudonet.deploy.memory import check_memory

    max_bytes = memory(max_memory)
    found = _network(network, max_bytes)
    if picture is not None and data is None:
        fail("--picture draws the codes of some inputs: give them by --data inputs.npy")
    if picture is not None:
        check_picture(picture)
    counts = None
    try:
        if data is not None:
            check_memory(found, max_bytes, by_reference=True)
            with _warnings_in_one_line():
                counts = code_counts(found, _array(data, max_bytes))
        for line in listing(found, counts):
            say(line)
        if picture is not None and counts is not None:
            draw_codes(found, counts).savefig(picture)
            say(f"wrote {picture}")
    except (ValueError, TypeError) as error:
        fail(f"{data}: {error}" if data is not None else str(error))
    except OSError as error:
        fail(f"cannot write {picture}: {error.strerror or error}")


def export(
    network: NetworkFile,
    to: Annotated[Format, typer.Option(help="The format to write.")],
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="PATH",
            help="The file to write, or the folder for C. By default NET's name with the "
            "format's suffix, or the current folder for C.",
        ),
    ] = None,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="ONNX that agrees with the reference bit by bit, but slower."),
    ] = False,
    target: Annotated[
        Target, typer.Option(help="The run time that ONNX is made for.")
    ] = Target.ONNXRUNTIME,
    optimise: Annotated[Optimise, typer.Option(help="What C is optimised for.")] = Optimise.SPEED,
    main: Annotated[
        bool, typer.Option("--main", help="Write a C program, too, that tests the C on samples.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Compile and run that program here.")
    ] = False,
    samples: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="Inputs (.npy) for --main and --check; else random."),
    ] = None,
    max_memory: MaxMemory = MEMORY,
) -> None:
    """Write a network in a format that others read.

    Example: sudonet export net.sudo --to onnx

    Example: sudonet export net.sudo --to c --out firmware --check
    """
    if to is not Format.ONNX and (exact or target is not Target.ONNXRUNTIME):
        fail(f"--exact and --target are for --to onnx, got --to {to.value}")
    if to is not Format.C and (optimise is not Optimise.SPEED or main or check or samples):
        fail(f"--optimise, --main, --check and --samples are for --to c, got --to {to.value}")
    max_bytes = memory(max_memory)
    found = _network(network, max_bytes)
    path = out or (Path() if to is Format.C else Path(f"{network.stem}.{to.value}"))
    try:
        if to is Format.ONNX:
            found.to_onnx(path, exact=exact, target=target.value)
        elif to is Format.QONNX:
            found.to_qonnx(path)
        else:
            inputs = _samples(found, samples, max_bytes) if main or check or samples else None
            _to_c(found, path, network.stem, optimise.value, inputs, check)
            return
    except (ImportError, RuntimeError, TypeError, ValueError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror or error}")
    say(f"wrote {path}")


def _to_c(
    network: IntegerNetwork,
    folder: Path,
    name: str,
    optimise: str,
    inputs: NDArray[Any] | None,
    run_it: bool,
) -> None:
    made = network.to_c(folder, name, optimise=optimise, samples=inputs)
    files = [made.source, made.header, *([made.main] if made.main else [])]
    say(f"wrote {', '.join(map(str, files))}")
    if run_it and inputs is not None:
        from sudonet.deploy import c

        checked = c.check(network, inputs, folder, name, optimise=optimise)
        say(checked.report)
        if not checked.passed:
            raise typer.Exit(1)


def _samples(network: IntegerNetwork, path: Path | None, max_bytes: int) -> NDArray[Any]:
    import numpy as np

    if path is not None:
        return _array(path, max_bytes)
    low, high = network.inputs.low, network.inputs.high
    drawn = np.random.default_rng(0).integers(low, high + 1, (16, *network.shape_in))
    return network.inputs.values(drawn)


def size(
    network: NetworkFile,
    mcu: Annotated[Mcu, typer.Option(help="The microcontroller.")] = Mcu.CORTEX_M4,
    optimise: Annotated[
        Optimise, typer.Option(help="What the C is optimised for.")
    ] = Optimise.SPEED,
    max_memory: MaxMemory = MEMORY,
) -> None:
    """Show the flash and RAM that a network takes of a microcontroller.

    The network is compiled by the microcontroller's cross compiler.

    Example: sudonet size net.sudo --mcu cortex-m0
    """
    from sudonet.deploy import c

    found = _network(network, memory(max_memory))
    try:
        say(c.size(found, mcu.value, optimise=optimise.value))
    except (RuntimeError, ValueError) as error:
        fail(str(error))


def run(
    network: NetworkFile,
    inputs: Annotated[
        Path,
        typer.Argument(
            metavar="INPUT",
            help="One input or a batch (.npy): real values, or integers that stand for --range.",
        ),
    ],
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="Write the outputs (.npy)."),
    ] = None,
    max_memory: MaxMemory = MEMORY,
) -> None:
    """Run a network on inputs.

    What calibrated a network can be passed in again and means the same: after --calibration
    integers are real values. After --range integers of its 8 or 16 bits stand for the range.

    Example: sudonet run net.sudo input.npy

    Example: sudonet run net.sudo inputs.npy --out outputs.npy
    """
    import numpy as np

    from sudonet.deploy.listing import by, described

    max_bytes = memory(max_memory)
    found = _network(network, max_bytes)
    array = _array(inputs, max_bytes)
    try:
        single = array.shape == found.shape_in
        with _warnings_in_one_line():
            outputs = found(array)
    except (ValueError, TypeError) as error:
        fail(f"{inputs}: {error}")
    for line in described(found, outputs[None] if single else outputs):
        say(line)
    if out is None:
        return
    try:
        with out.open("wb") as file:  # a name would get .npy at its end
            np.save(file, outputs, allow_pickle=False)
    except OSError as error:
        fail(f"cannot write {out}: {error.strerror or error}")
    say(f"wrote {out}: {outputs.dtype} of shape {by(outputs.shape) or 'one number'}")


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Say what a network warns of as one line, without the place in the source."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield
    for one in found:
        typer.echo(f"warning: {one.message}", err=True)


def _network(path: Path, max_bytes: int) -> IntegerNetwork:
    from sudonet.deploy.artefact import ArtefactError, load

    try:
        return load(path, max_bytes=max_bytes)
    except ArtefactError as error:
        fail(str(error))


def _array(path: Path, max_bytes: int) -> NDArray[Any]:
    from sudonet import _npy
    from sudonet.deploy.memory import exceeded

    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            found = _npy.read(file, size) if size <= max_bytes else None
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror or error}")
    except Exception as error:  # a damaged header may be anything
        fail(f"{path} is no array of numbers that numpy.save wrote: {error}")
    if found is None:
        fail(f"{path} needs {exceeded(size, max_bytes)}")
    return found


def _grid(text: str | None, examples: NDArray[Any] | None, bits: int) -> Grid:
    from sudonet.deploy import Grid

    if text is None:
        if examples is None:
            fail(
                "the range of the inputs is not known: give --range 0,1 for pixels divided by "
                "255, or --calibration examples.npy"
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
