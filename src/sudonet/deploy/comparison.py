"""A model and its integer network, side by side on the same inputs."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sudonet.deploy import reference
from sudonet.deploy.compiler import compile as compiled
from sudonet.deploy.given import Data, check_model, inputs_and_targets, precision
from sudonet.deploy.grid import array_of
from sudonet.deploy.layers import Affine, Layer, MaxPool, SharedThresholds, image
from sudonet.deploy.network import Inputs, IntegerNetwork
from sudonet.staircase import Staircase
from sudonet.units import StaircaseUnit

Numbers: TypeAlias = NDArray[Any]
Emitted: TypeAlias = list[tuple[Staircase, Numbers]]

BATCH = 500


@dataclass(frozen=True)
class Comparison:
    """What :func:`compare` found.

    Parameters
    ----------
    rows
        How many examples there were.
    before, after
        Of the model and of the integer network: the share of right classes or, where
        targets are not classes, the mean squared error.
    same_answers
        Share of the rows with the same class in both; None where targets are not classes.
    same_codes
        Share of the rows in which all units give the same codes; None where the model
        does not call its units as modules.
    codes
        Share of the codes that are the same, by the index of the layer.
    float64_codes
        Share of the codes of shared thresholds that float64 gives as well.
    """

    rows: int
    before: float
    after: float
    same_answers: float | None
    same_codes: float | None
    codes: dict[int, float]
    float64_codes: dict[int, float]


def compare(model: nn.Module, integer: IntegerNetwork, data: Data) -> Comparison:
    """Run both on the same inputs, as the network takes them: real values or codes."""
    check_model(model)
    if not isinstance(integer, IntegerNetwork):
        found = type(integer).__name__
        raise TypeError(f"the second must be what deploy.compile made of the model, got {found}")
    inputs, targets = inputs_and_targets(data)
    used = copy.deepcopy(model).cpu().eval()
    emitted = _recorded(used)
    wanted = array_of(targets)
    classes = wanted.dtype.kind in "iu"
    exact = _exact_layers(model, integer)
    tally = _Tally(integer)
    for start in range(0, len(inputs), BATCH):
        chunk = slice(start, start + BATCH)
        integers, _ = integer.integers(inputs[chunk])
        emitted.clear()
        with torch.no_grad():
            outputs = array_of(used(_real(inputs[chunk], integers, integer, used)))
        made = list(reference.run(integer.layers, integers, np.float64))
        tally.outputs(outputs, integer.real(made[-1]), wanted[chunk], classes)
        tally.units(made, emitted)
        tally.shared(integers, made, exact)
    return tally.result()


def _real(inputs: Inputs, integers: Numbers, network: IntegerNetwork, model: nn.Module) -> Tensor:
    """Inputs for the model: codes become the values that they stand for."""
    codes = network.takes_as_codes(inputs)
    real = network.inputs.values(integers) if codes else array_of(inputs)
    return torch.from_numpy(real.astype(np.float64)).to(precision(model))


def _recorded(model: nn.Module) -> Emitted:
    """A list to which hooks add what the model's units emit, in the order of calls."""
    emitted: Emitted = []

    def record(module: StaircaseUnit, args: tuple[Any, ...], output: Tensor) -> None:
        emitted.append((module.staircase, output.float().numpy()))

    for module in model.modules():
        if isinstance(module, StaircaseUnit):
            module.register_forward_hook(record)
    return emitted


def _exact_layers(model: nn.Module, integer: IntegerNetwork) -> dict[int, Affine]:
    """By index, for each layer with shared thresholds, its twin with exact thresholds.

    A twin with other weights is left out: the network comes from another model.
    """
    affine = {i: layer for i, layer in enumerate(integer.layers) if isinstance(layer, Affine)}
    shared = {i: a for i, a in affine.items() if isinstance(a.after, SharedThresholds)}
    if not shared:
        return {}
    kinds = {layer.name: layer.weight_kind for layer in affine.values()}
    exact = compiled(
        model, kinds, inputs=integer.inputs, shape=integer.shape_in, thresholds="channel"
    ).layers
    twins = {place: exact[place] for place in shared if place < len(exact)}
    return {
        place: twin
        for place, twin in twins.items()
        if isinstance(twin, Affine) and np.array_equal(twin.weights, shared[place].weights)
    }


@dataclass
class _Tally:
    """Adds up, batch by batch. Lists hold a number for each row."""

    integer: IntegerNetwork
    before: list[Numbers] = field(default_factory=list)
    after: list[Numbers] = field(default_factory=list)
    answers: list[Numbers] = field(default_factory=list)
    throughout: list[Numbers] = field(default_factory=list)
    codes: dict[int, list[Numbers]] = field(default_factory=dict)
    float64_codes: dict[int, list[Numbers]] = field(default_factory=dict)
    compared_at: dict[int, int] = field(default_factory=dict)

    def outputs(self, model: Numbers, network: Numbers, targets: Numbers, classes: bool) -> None:
        if classes:
            one, two = _class(model), _class(network)
            if one.shape != targets.shape:
                raise ValueError(
                    f"targets that are classes must have shape {one.shape}, got {targets.shape}; "
                    "targets that are outputs must be real numbers"
                )
            self.answers.append(np.all(_rows(one == two), 1))
            self.before.append(_rows(one == targets).mean(1))
            self.after.append(_rows(two == targets).mean(1))
            return
        if model.shape != targets.shape:
            raise ValueError(
                f"outputs have shape {model.shape} and targets {targets.shape}: reshape the targets"
            )
        wanted = _rows(targets).astype(np.float64)
        self.before.append(np.square(_rows(model) - wanted).mean(1))
        self.after.append(np.square(_rows(network) - wanted).mean(1))

    def units(self, made: list[Numbers], emitted: Emitted) -> None:
        layers = self.integer.layers
        units = dict(_units(layers))
        if [unit for unit, _ in emitted] != list(units.values()):
            return
        throughout = np.ones(len(made[0]), bool)
        for place, (_, values) in zip(units, emitted, strict=True):
            grid = layers[place].grid_out
            assert grid is not None
            theirs = _rows(grid.integers(values))
            if place not in self.compared_at:
                self.compared_at[place] = _where(layers, place, made, theirs)
            same = _rows(made[self.compared_at[place]]) == theirs
            throughout &= same.all(1)
            self.codes.setdefault(place, []).append(same.mean(1))
        self.throughout.append(throughout)

    def shared(self, integers: Numbers, made: list[Numbers], exact: dict[int, Affine]) -> None:
        for place, twin in exact.items():
            layer = self.integer.layers[place]
            assert isinstance(layer, Affine)
            into = made[place - 1] if place else integers
            batch = into.reshape(len(into), *image(layer.shape_in))
            total = reference.accumulate(layer, batch, np.float64)
            ours, theirs = reference.codes_of(layer, total), reference.codes_of(twin, total)
            assert ours is not None
            assert theirs is not None
            self.float64_codes.setdefault(place, []).append(_rows(ours == theirs).mean(1))

    def result(self) -> Comparison:
        return Comparison(
            rows=sum(map(len, self.before)),
            before=_mean(self.before),
            after=_mean(self.after),
            same_answers=_mean(self.answers) if self.answers else None,
            same_codes=_mean(self.throughout) if self.throughout else None,
            codes={place: _mean(shares) for place, shares in self.codes.items()},
            float64_codes={place: _mean(shares) for place, shares in self.float64_codes.items()},
        )


def _units(layers: tuple[Layer, ...]) -> Iterator[tuple[int, Staircase]]:
    """Index and unit of every layer that has one."""
    for place, layer in enumerate(layers):
        if isinstance(layer, Affine) and layer.grid_out is not None:
            yield place, layer.after.unit  # type: ignore[union-attr]


def _where(layers: tuple[Layer, ...], place: int, made: list[Numbers], theirs: Numbers) -> int:
    """The layer whose integers stand where the model's unit does.

    A unit after a maximum in the model comes before it in the network. Sizes tell the two
    apart; where they are equal, the layer that agrees more is taken.
    """
    choices = [place]
    while choices[-1] + 1 < len(layers) and isinstance(layers[choices[-1] + 1], MaxPool):
        choices.append(choices[-1] + 1)
    fitting = [i for i in choices if _rows(made[i]).shape == theirs.shape]
    return max(fitting, key=lambda i: float((_rows(made[i]) == theirs).mean()))


def _class(outputs: Numbers) -> Numbers:
    places: Numbers = outputs if outputs.dtype.kind in "iu" else outputs.argmax(1)
    return places


def _rows(numbers: Numbers) -> Numbers:
    return numbers.reshape(len(numbers), -1)


def _mean(rows: list[Numbers]) -> float:
    return float(np.concatenate(rows).mean())
