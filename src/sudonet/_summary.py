"""What a model costs, layer by layer: parameters, multiply-adds, bits and bytes.

The model runs once and hooks write a row for every call of a layer. Multiply-adds are
known for PyTorch's own layers, see ``sudonet._multiply_adds``; the table marks all others.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from sudonet._multiply_adds import counter
from sudonet._text import aligned, readable
from sudonet.lean import CodedLayer, UnitThenLayer
from sudonet.packing import MAX_LEVELS, arena_bytes
from sudonet.staircase import Staircase
from sudonet.units import StaircaseUnit

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

FLOAT32_BYTES = 4


@dataclass(frozen=True)
class Layer:
    """One call of one layer: a row of the table.

    Parameters
    ----------
    path
        The layer's name in the model, as in ``model.named_modules()``.
    kind
        Its class.
    output_shapes
        A shape for every tensor that it emits, nearly always one.
    parameters
        Parameters that no row above has counted: 0 for a layer's second call.
    multiply_adds
        Multiplications, each with its addition; None where they are unknown.
    levels, bits
        Of a discrete unit: its levels, and the bits that tell its outputs apart, log2 of
        their number rounded up. None for all other layers.
    activation_bytes
        Output in float32; 0 where it lies in the memory of the input.
    packed_bytes
        Output of a discrete unit as exported C stores it with ``optimise="ram"``: 1, 2, 4 or
        8 bits a value, see :func:`sudonet.packing.arena_bits`. None for all other layers,
        and for units with more levels than a byte holds, which cannot be exported.
    """

    path: str
    kind: str
    output_shapes: tuple[tuple[int, ...], ...]
    parameters: int
    multiply_adds: int | None
    levels: int | None
    bits: int | None
    activation_bytes: int
    packed_bytes: int | None


@dataclass(frozen=True, repr=False)
class Summary:
    """What :func:`summary` found: a table to read and the same as data.

    Parameters
    ----------
    layers
        A row for every call of a layer, in the order in which the calls ended.
    parameters
        Parameters of the whole model, each once, called or not.
    """

    layers: tuple[Layer, ...]
    parameters: int

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of all rows that know theirs."""
        return sum(layer.multiply_adds or 0 for layer in self.layers)

    @property
    def complete(self) -> bool:
        """Whether every row knows its multiply-adds; else their sum is a lower bound."""
        return all(layer.multiply_adds is not None for layer in self.layers)

    @property
    def activation_bytes(self) -> int:
        """Bytes of all outputs in float32."""
        return sum(layer.activation_bytes for layer in self.layers)

    @property
    def packed_bytes(self) -> int | None:
        """Bytes of the outputs of all discrete units, packed; None if one cannot be."""
        packed = [layer.packed_bytes for layer in self.layers if layer.bits is not None]
        return None if None in packed else sum(size or 0 for size in packed)

    @property
    def discrete(self) -> Summary:
        """The rows of the discrete units alone.

        An integer program keeps no others: it compares a sum with the unit's
        thresholds as soon as it has it, and stores the code.
        """
        rows = tuple(layer for layer in self.layers if layer.bits is not None)
        return Summary(rows, sum(layer.parameters for layer in rows))

    def as_dict(self) -> dict[str, Any]:
        """All numbers, exact, in types that JSON knows.

        Examples
        --------
        >>> from sudonet import SUDO
        >>> data = summary(nn.Sequential(nn.Linear(8, 5), SUDO(4)), (1, 8)).as_dict()
        >>> data["layers"][1]["packed_bytes"], data["total"]["multiply_adds"]
        (4, 40)
        """
        discrete = self.discrete
        return {
            "layers": [
                {**asdict(layer), "output_shapes": [list(shape) for shape in layer.output_shapes]}
                for layer in self.layers
            ],
            "total": {
                "parameters": self.parameters,
                "multiply_adds": self.multiply_adds,
                "complete": self.complete,
                "activation_bytes": self.activation_bytes,
                "packed_bytes": self.packed_bytes,
            },
            "discrete": {
                "values": discrete.activation_bytes // FLOAT32_BYTES,
                "activation_bytes": discrete.activation_bytes,
                "packed_bytes": discrete.packed_bytes,
            },
        }

    def print(self) -> None:
        """Print the table: with rich in a terminal, as plain text elsewhere."""
        if sys.stdout.isatty():
            from rich.console import Console

            Console().print(self)
        else:
            print(self)

    def __repr__(self) -> str:
        return "\n".join([*_aligned(self), *_notes(self)])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.rule import Rule
        from rich.text import Text

        heading, *rows, total = _aligned(self, options.max_width)
        yield Text(heading, "bold")
        yield Rule(style="dim")
        for layer, row in zip(self.layers, rows, strict=True):
            yield Text(row, "cyan" if layer.bits else "")
        yield Rule(style="dim")
        yield Text(total, "bold")
        yield from map(Text, _notes(self))


def summary(
    model: nn.Module, input_size: Sequence[int] | Tensor | Sequence[Sequence[int] | Tensor]
) -> Summary:
    """Parameters, multiply-adds, levels, bits and bytes of every layer of a model.

    The model runs once, on zeros, in evaluation mode and without gradients. It is
    left as it was: training flags, batch statistics and the random numbers of torch.

    Parameters
    ----------
    model
        Any module. The zeros have the type and device of its first parameter.
    input_size
        The input's shape with the batch, such as ``(1, 1, 28, 28)``; or an example
        tensor, which a model that expects integers needs; or a list of shapes and
        tensors for a model with several inputs.

    Returns
    -------
    Summary
        Shows itself as a table; ``print()`` prints it, ``as_dict()`` is the data.

    Notes
    -----
    A row is one call of a module that has no children, that PyTorch treats as one
    layer (``nn.LSTM``, ``nn.MultiheadAttention``) or that owns parameters. What a
    ``forward`` computes with functions, outside of any layer, has no row.

    Multiply-adds are the products of a layer; biases only add and do not count.

    - Linear and convolution: one for each weight and output that it enters, the
      zeros of the padding included. Transposed convolution: the same, seen from
      the input. Bilinear: in1 * (in2 + 1) for each output.
    - RNN, LSTM, GRU and their cells: each weight matrix once a step, in every layer
      and direction; gates multiplied with one another do not count.
    - Attention: the four projections, and queries with keys and with values.
    - Normalisation with a weight, PReLU: one for each output.
    - Embeddings and all layers without parameters, such as pooling: none.
    - A layer of another kind which owns parameters: unknown, shown as ``?``, and
      the total is a lower bound.

    Bytes are those of the outputs for the whole batch, four a value in float32. An
    output in the memory of the layer's input (Flatten, an in-place ReLU) adds none.
    Of recurrent layers and attention it is the first output, not states or weights.
    ``packed`` is what the outputs of a discrete unit take in exported C, which runs
    one example at a time, with ``optimise="ram"``: 1, 2, 4 or 8 bits a value, in
    words of 4 bytes. Where a maximum is taken of them, C may store that alone:
    :func:`sudonet.deploy.report` has the sizes of a compiled network.

    Examples
    --------
    >>> from sudonet import SUDO
    >>> summary(nn.Sequential(nn.Linear(784, 100), SUDO(16), nn.Linear(100, 10)), (1, 784))
    layer  kind    output  parameters  multiply-adds  levels  bits  float32  packed
    0      Linear  1x100       78,500         78,400       -     -    400 B       -
    1      SUDO    1x100            0              0      16     4    400 B    52 B
    2      Linear  1x10         1,010          1,000       -     -     40 B       -
    total                      79,510         79,400                  840 B    52 B
    discrete units: 100 values, 400 B float32, 52 B packed, ratio 7.69
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {model!r}")
    for path, tensor in chain(model.named_parameters(), model.named_buffers()):
        if nn.parameter.is_lazy(tensor):
            raise ValueError(f"{path} has no shape yet: run the model once on real data first")
    inputs = _inputs(model, input_size)
    rows = _Rows()
    training = [(module, module.training) for module in model.modules()]
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        cuda = [x.device for x in inputs if x.device.type == "cuda"]
        stack.enter_context(torch.random.fork_rng(cuda[:1]))
        # PyTorch's fused transformer layers would bypass the hooks, or use nested tensors.
        stack.callback(
            torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled()
        )
        torch.backends.mha.set_fastpath_enabled(False)
        if "torch._dynamo" in sys.modules:
            # A compiled model would bypass the hooks. Only a program that compiles has
            # dynamo loaded; others need not wait for its import.
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        for path, module, owned in _layers(model):
            hook = partial(rows.add, path, owned)
            stack.callback(module.register_forward_hook(hook, with_kwargs=True).remove)
        for module, flag in training:
            stack.callback(setattr, module, "training", flag)
            # Not model.eval(): an overridden train() may do more than set the flag.
            module.training = False
        try:
            model(*inputs)
        except Exception as error:
            sizes = ", ".join(str(tuple(x.shape)) for x in inputs)
            raise RuntimeError(
                f"the model cannot run on input_size {sizes}: {error}\n"
                "input_size is the shape with the batch, such as (1, 784), or an example "
                "tensor, or a list of these for several inputs"
            ) from error
    return Summary(tuple(rows.layers), sum(p.numel() for p in model.parameters()))


def _inputs(model: nn.Module, input_size: Any) -> list[Tensor]:
    like = next(
        (x for x in chain(model.parameters(), model.buffers()) if x.is_floating_point()),
        torch.empty(0),
    )
    several = _is_sequence(input_size) and any(
        isinstance(size, Tensor) or _is_sequence(size) for size in input_size
    )
    # A tensor is copied: a model may work in place.
    return [
        size.detach().to(like.device, copy=True)
        if isinstance(size, Tensor)
        else torch.zeros(_checked_shape(size), dtype=like.dtype, device=like.device)
        for size in (input_size if several else [input_size])
    ]


def _is_sequence(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _checked_shape(shape: Any) -> tuple[int, ...]:
    expected = (
        "input_size must be a shape of integers >= 1 with the batch, such as (1, 784), "
        f"or an example tensor, got {shape!r}"
    )
    if not _is_sequence(shape) or any(isinstance(size, bool) for size in shape):
        raise TypeError(expected)
    try:
        whole = tuple(operator.index(size) for size in shape)
    except TypeError:
        raise TypeError(expected) from None
    if not whole or min(whole) < 1:
        raise ValueError(expected)
    return whole


def _layers(model: nn.Module) -> Iterator[tuple[str, nn.Module, list[nn.Parameter]]]:
    """Path, module and own parameters of every layer, each module once."""
    held: set[nn.Module] = set()
    for path, module in model.named_modules():
        if module in held:
            continue
        # Containers of parameters are not called, or, in a parametrization, not as a layer.
        containers = [
            child
            for name, child in module.named_children()
            if name == "parametrizations" or isinstance(child, (nn.ParameterList, nn.ParameterDict))
        ]
        held.update(part for child in containers for part in child.modules())
        known = counter(module) is not None
        owned = list(module.parameters(recurse=known))
        if not known:
            owned += chain.from_iterable(child.parameters() for child in containers)
        if known or owned or next(module.children(), None) is None:
            yield path, module, owned


class _Rows:
    """Turns every call that a hook reports into a row."""

    def __init__(self) -> None:
        self.layers: list[Layer] = []
        self._counted: set[int] = set()
        self._last: list[Tensor] = []

    def add(
        self,
        path: str,
        owned: list[nn.Parameter],
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        output: Any,
    ) -> None:
        outputs = list(_tensors(output))
        if isinstance(module, (nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention)):
            outputs = outputs[:1]
        # The row before counts, too: a module often returns what its last child emitted.
        old = [x.untyped_storage() for x in (*_tensors((args, kwargs)), *self._last)]
        self._last = outputs
        values = sum(x.numel() for x in outputs if not any(x.untyped_storage() is s for s in old))
        new = [p for p in owned if id(p) not in self._counted]
        self._counted.update(map(id, new))
        named = [kwargs[name] for name in ("input", "query", "key") if name in kwargs]
        inputs = list(_tensors((args, named)))
        count = counter(module)
        multiply_adds = None if count or owned else 0
        if count and inputs and outputs:
            multiply_adds = count(module, inputs, outputs[0])
        if isinstance(module, UnitThenLayer) and inputs:
            # The unit in front of the layer is part of it and has an output of its own.
            shape, elements = tuple(inputs[0].shape), inputs[0].numel()
            self._row(f"{path}.unit", "unit", (shape,), 0, 0, module.unit, elements)
        self._row(
            path,
            type(module).__name__,
            tuple(tuple(x.shape) for x in outputs),
            sum(p.numel() for p in new),
            multiply_adds,
            _output_unit(module),
            values,
        )

    def _row(
        self,
        path: str,
        kind: str,
        shapes: tuple[tuple[int, ...], ...],
        parameters: int,
        multiply_adds: int | None,
        unit: Staircase | None,
        values: int,
    ) -> None:
        self.layers.append(
            Layer(
                path=path,
                kind=kind,
                output_shapes=shapes,
                parameters=parameters,
                multiply_adds=multiply_adds,
                levels=unit.levels if unit else None,
                bits=unit.bits if unit else None,
                activation_bytes=values * FLOAT32_BYTES,
                packed_bytes=_packed(unit, values),
            )
        )


def _packed(unit: Staircase | None, values: int) -> int | None:
    if unit is None or unit.highest_integer >= MAX_LEVELS:
        return None
    return arena_bytes(values, unit.highest_integer)


def _output_unit(module: nn.Module) -> Staircase | None:
    if isinstance(module, CodedLayer):
        return module.after
    return module.staircase if isinstance(module, StaircaseUnit) else None


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, PackedSequence):
        yield value.data
    elif isinstance(value, Mapping):
        yield from _tensors(tuple(value.values()))
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)


_HEADINGS = (
    *("layer", "kind", "output", "parameters", "multiply-adds"),
    *("levels", "bits", "float32", "packed"),
)
_TEXT_COLUMNS = 3


def _aligned(table: Summary, width: float = math.inf) -> list[str]:
    """Heading, rows and total; in two lines each if one would be longer than ``width``."""
    cells = [_HEADINGS, *map(_cells, table.layers), _total_cells(table)]
    return aligned(cells, _TEXT_COLUMNS, width, fold_at=_TEXT_COLUMNS)


def _cells(layer: Layer) -> tuple[str, ...]:
    return (
        layer.path or "(model)",
        layer.kind,
        " + ".join("x".join(map(str, s)) or "scalar" for s in layer.output_shapes) or "-",
        f"{layer.parameters:,}",
        "?" if layer.multiply_adds is None else f"{layer.multiply_adds:,}",
        "-" if layer.levels is None else f"{layer.levels:,}",
        "-" if layer.bits is None else f"{layer.bits}",
        readable(layer.activation_bytes),
        "-" if layer.packed_bytes is None else readable(layer.packed_bytes),
    )


def _total_cells(table: Summary) -> tuple[str, ...]:
    packed = table.packed_bytes
    return (
        *("total", "", "", f"{table.parameters:,}"),
        f"{'' if table.complete else '>= '}{table.multiply_adds:,}",
        *("", "", readable(table.activation_bytes), readable(packed) if packed else "-"),
    )


def _notes(table: Summary) -> list[str]:
    notes = []
    found = table.discrete
    whole, packed = found.activation_bytes, found.packed_bytes
    if whole:
        values = f"{whole // FLOAT32_BYTES:,} values, {readable(whole)} float32"
        ratio = f", {readable(packed)} packed, ratio {whole / packed:.3g}" if packed else ""
        notes.append(f"discrete units: {values}{ratio}")
    if not table.complete:
        notes.append("?: a layer of unknown kind, so the multiply-adds are a lower bound")
    return notes
