"""The C core's trainer: one network per thread, the batch in the vector lanes."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sudonet._kernels import native_unit
from sudonet.native.library import Core, Network, Unit, address, aligned, smooth_unit
from sudonet.staircase import Staircase
from sudonet.train._data import Data
from sudonet.train._result import Result
from sudonet.train._spec import AnySpec, Order, Spec, Weights, initial_weights
from sudonet.units import SMOOTH

MAX_LAYERS = 64
"""SUDO_MAX_LAYERS of csrc/sudonet.h."""

MAX_STACK = 32
"""Most networks that share prepared minibatches; more would save nothing."""

STACK_SECONDS = 60
"""Estimated limit of a stack of several networks, which a crash would lose."""

SLICE_SECONDS = 0.2
"""Estimated limit of one call into C, for which an interrupt has to wait."""

SLICE_BYTES = 1 << 20
"""Limit of the prepared minibatches of a call, so that they stay in cache."""

_STEP_SECONDS, _FLOP_SECONDS = 3e-6, 1 / 30e9  # rough, rather too slow

_LOSS = {"squared_error": 0, "cross_entropy": 1}
_OPTIMISER = {"adam": 0, "momentum": 1}


class NativeEngine:
    """Trains fully connected networks in the C core."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.name = f"native-{core.path}"

    @staticmethod
    def refusal(spec: AnySpec) -> str | None:
        """Why ``spec`` cannot be trained here; None if it can."""
        if not isinstance(spec, Spec):
            return "cannot train convolutions"
        layers = len(spec.sizes) - 1
        return f"trains at most {MAX_LAYERS} layers, got {layers}" if layers > MAX_LAYERS else None

    @staticmethod
    def key(spec: AnySpec) -> tuple[Any, ...]:
        """Specs with the same key can share a stack: one shape, the same minibatches."""
        assert isinstance(spec, Spec)
        return spec.sizes, spec.batch_size, spec.steps, spec.seed

    @staticmethod
    def largest_stack(spec: AnySpec) -> int:
        """Few enough that their results, which come together, come soon."""
        assert isinstance(spec, Spec)
        seconds = max(1, spec.steps) * _seconds_a_step(spec, spec.batch_size)
        return max(1, min(MAX_STACK, int(STACK_SECONDS / seconds)))

    @staticmethod
    def least_stack(spec: AnySpec) -> int:
        """Enough that preparing a shared minibatch costs little beside training."""
        return max(1, 2000 // spec.parameters)

    def train(
        self, stack: Sequence[tuple[int, Spec]], data: Data, tick: Callable[[int], bool]
    ) -> list[Result]:
        """Train a stack; ``tick`` takes the network-steps done and returns whether to go on."""
        spec = stack[0][1]
        begun, cpu_begun = time.perf_counter(), time.thread_time()
        batch = min(spec.batch_size, len(data))
        lanes = _padded(batch)
        networks = [_Network(s, lanes) for _, s in stack]
        structures = (Network * len(stack))(*[n.structure for n in networks])
        order = Order(seed=spec.seed, samples=len(data), batch_size=spec.batch_size)
        losses = _Losses(len(stack), order.steps_an_epoch, spec.steps)
        inputs, outputs = spec.sizes[0], spec.sizes[-1]
        floats = self.core.functions.sudo_prepared(inputs, outputs, lanes)
        cost = _seconds_a_step(spec, batch)
        at_once = max(1, min(len(stack), int(SLICE_SECONDS / cost)))
        slice_steps = int(
            max(1, min(SLICE_SECONDS / (cost * at_once), SLICE_BYTES // (4 * floats), 256))
        )
        buffer = aligned(slice_steps * floats)
        scratch = aligned(self.core.functions.sudo_scratch(ctypes.addressof(structures)))
        for done in range(0, spec.steps, slice_steps):
            steps = min(slice_steps, spec.steps - done)
            samples, counts = order.take(steps)
            self.core.functions.sudo_prepare(
                self.core.path_number,
                address(data.inputs),
                address(data.targets),
                inputs,
                outputs,
                lanes,
                address(samples),
                address(counts),
                batch,
                steps,
                address(buffer),
            )
            found = np.empty((len(stack), steps), np.float32)
            for first in range(0, len(stack), at_once):
                some = min(at_once, len(stack) - first)
                self.core.functions.sudo_train(
                    self.core.path_number,
                    ctypes.addressof(structures[first]),
                    some,
                    address(buffer),
                    address(counts),
                    steps,
                    address(found[first:]),
                    address(scratch),
                )
                if not tick(some * steps):
                    return []
            losses.add(found)
        seconds = (time.perf_counter() - begun) / len(stack)
        cpu_seconds = (time.thread_time() - cpu_begun) / len(stack)
        return [
            Result(
                index,
                s,
                network.unpacked(),
                curve,
                structure.diverged if structure.diverged >= 0 else None,
                self.name,
                seconds,
                cpu_seconds,
            )
            for (index, s), network, structure, curve in zip(
                stack, networks, structures, losses.curves(), strict=True
            )
        ]


def _seconds_a_step(spec: Spec, batch: int) -> float:
    return _STEP_SECONDS + 6 * batch * spec.parameters * _FLOP_SECONDS


class _Losses:
    """Averages the losses of steps over epochs."""

    def __init__(self, networks: int, steps_an_epoch: int, steps: int) -> None:
        self._of = steps_an_epoch
        self._sums = np.zeros((networks, -(-steps // steps_an_epoch)))
        self._counts = np.zeros(self._sums.shape[1])
        self._done = 0

    def add(self, losses: NDArray[np.float32]) -> None:
        epochs = (self._done + np.arange(losses.shape[1])) // self._of
        starts = np.flatnonzero(np.diff(epochs, prepend=-1))
        if len(starts):
            self._sums[:, epochs[starts]] += np.add.reduceat(
                losses.astype(np.float64), starts, axis=1
            )
            np.add.at(self._counts, epochs, 1)
        self._done += losses.shape[1]

    def curves(self) -> NDArray[np.float32]:
        return (self._sums / np.maximum(self._counts, 1)).astype(np.float32)


class _Network:
    """A network's memory, and the structure by which C finds it."""

    def __init__(self, spec: Spec, lanes: int) -> None:
        self.sizes = np.array(spec.sizes, np.int32)
        layers = len(spec.sizes) - 1
        last = "tanh" if spec.output == "tanh" else "linear"
        kept = [_unit(name) for name in (*spec.activations, last)]
        self.units = (Unit * layers)(*kept)
        self._kept = kept  # the tables that the copies point to
        weights = np.concatenate([_packed(*layer) for layer in initial_weights(spec)])
        self.weights, self.moment1, self.moment2 = (aligned(len(weights)) for _ in range(3))
        self.weights[:] = weights
        adam = spec.optimiser == "adam"
        self.structure = Network(
            layers=layers,
            sizes=address(self.sizes),
            units=ctypes.addressof(self.units),
            lanes=lanes,
            loss=_LOSS[spec.loss],
            optimiser=_OPTIMISER[spec.optimiser],
            rate=spec.learning_rate,
            beta1=0.9 if adam else spec.momentum,
            beta2=0.999,
            epsilon=1e-8,
            beta1_power=1.0,
            beta2_power=1.0,
            weights=address(self.weights),
            moment1=address(self.moment1),
            moment2=address(self.moment2),
            step=0,
            diverged=-1,
        )

    def unpacked(self) -> Weights:
        layers: Weights = []
        begin = 0
        for inputs, outputs in pairwise(self.sizes):
            stride = _padded(inputs + 1)
            rows = self.weights[begin : begin + outputs * stride].reshape(outputs, stride)
            layers.append((rows[:, :inputs].copy(), rows[:, inputs].copy()))
            begin += outputs * stride
        return layers


def _unit(name: str) -> Unit:
    if name == "linear" or name in SMOOTH:
        return smooth_unit(name)
    return native_unit(Staircase.parse(name))[1]


def _packed(matrix: NDArray[np.float32], bias: NDArray[np.float32]) -> NDArray[np.float32]:
    outputs, inputs = matrix.shape
    rows = np.zeros((outputs, _padded(inputs + 1)), np.float32)
    rows[:, :inputs], rows[:, inputs] = matrix, bias
    return rows.ravel()


def _padded(n: int) -> int:
    return int(-(-n // 16) * 16)
