"""Groups any list of specs into stacks and trains these by an engine."""

from __future__ import annotations

import threading
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any, TypeAlias

import torch

from sudonet import native
from sudonet.train._data import Data
from sudonet.train._native_engine import NativeEngine
from sudonet.train._result import Result
from sudonet.train._spec import AnySpec, whole
from sudonet.train._torch_engine import TorchEngine

ENGINES = ("auto", "native", "torch")

Engine: TypeAlias = NativeEngine | TorchEngine
Stack: TypeAlias = list[tuple[int, AnySpec]]
Progress: TypeAlias = Callable[[int, int], None]
Judge: TypeAlias = Callable[[Result], dict[str, float]]


def train(
    specs: Sequence[AnySpec],
    data: Data | tuple[Any, Any],
    *,
    engine: str = "auto",
    threads: int | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
) -> list[Result]:
    """Train networks, many at once, and return them in the order of their specs.

    A network's result depends on its spec, the data and the engine alone: not on what else
    is trained, in which order or with how many threads. An interrupt (Ctrl-C) ends the
    training within a second; what was finished by then is returned, with a warning.

    Parameters
    ----------
    specs
        What to train: any mixture of shapes, activations, rates and seeds.
    data
        Inputs and targets that all specs share: :class:`Data` or a pair of arrays.
    engine
        ``"native"`` is the C core, for fully connected networks on the CPU; ``"torch"``
        trains all networks on all devices; ``"auto"`` takes the C core where it can, which
        was faster at every width that was measured, from 5 to 1,600 units.
    threads
        How many to use; by default as many as torch uses.
    device
        Where the torch engine computes.
    progress
        Called several times a second with (network-steps done, network-steps in all).

    Examples
    --------
    >>> import numpy as np
    >>> from sudonet.train import Spec, train
    >>> x = np.linspace(-1, 1, 200).reshape(-1, 1)
    >>> specs = [
    ...     Spec(sizes=(1, 10, 1), activation=name, steps=300, learning_rate=0.01)
    ...     for name in ("tanh", "sudo-8")
    ... ]
    >>> for result in train(specs, (x, x**2)):
    ...     print(result.spec.activations, result.losses[-1] < result.losses[0])
    ('tanh',) True
    ('sudo-8',) True
    """
    results: list[Result] = []
    try:
        for result in stream(
            specs, data, engine=engine, threads=threads, device=device, progress=progress
        ):
            results.append(result)  # noqa: PERF402 (an interrupt keeps the results so far)
    except KeyboardInterrupt:
        warnings.warn(
            f"interrupted: {len(results)} of {len(specs)} networks are finished", stacklevel=2
        )
    return sorted(results, key=lambda result: result.index)


def stream(
    specs: Sequence[AnySpec],
    data: Data | tuple[Any, Any],
    *,
    engine: str = "auto",
    threads: int | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
    judge: Judge | None = None,
) -> Iterator[Result]:
    """Like :func:`train`, but yields each result as soon as it is finished, in any order.

    Only the networks in training are in memory, however many specs there are. An interrupt
    is not caught.

    Parameters
    ----------
    specs, data, engine, threads, device, progress
        As in :func:`train`.
    judge
        Called with each network that did not diverge, in the thread that trained it; what
        it returns becomes the result's ``measures``.
    """
    _check_specs(specs)
    if not isinstance(data, Data):
        classes = next((s.output_shape[0] for s in specs if s.loss == "cross_entropy"), None)
        data = Data.of(*data, classes=classes)
    for spec in specs:
        data.check(spec)
    threads = torch.get_num_threads() if threads is None else whole("threads", threads, 1)
    by_engine: dict[Engine, Stack] = defaultdict(list)
    chosen = _engines(engine, device)
    for index, spec in enumerate(specs):
        by_engine[chosen(spec)].append((index, spec))
    tracker = _Tracker(sum(spec.steps for spec in specs), progress)
    return _results(by_engine, data, threads if device == "cpu" else 1, tracker, judge)


def _check_specs(specs: object) -> None:
    if isinstance(specs, AnySpec):
        raise TypeError("specs must be a list of them, got a single one: use train([spec], data)")
    if not isinstance(specs, Sequence) or isinstance(specs, str):
        raise TypeError(f"specs must be a list of them, got {type(specs).__name__}")
    for spec in specs:
        if not isinstance(spec, AnySpec):
            raise TypeError(f"specs must be a list of Spec or ConvolutionalSpec, got {spec!r}")


def _results(
    by_engine: dict[Engine, Stack], data: Data, threads: int, tracker: _Tracker, judge: Judge | None
) -> Iterator[Result]:
    # A separate generator, so that stream checks its arguments when it is called.
    for engine, some in by_engine.items():
        stacks = _stacks(engine, some, threads)
        yield from _in_threads(engine, stacks, data, threads, tracker, judge)


def engine_name(spec: AnySpec, engine: str = "auto", device: str = "cpu") -> str:
    """Name of the engine that :func:`train` would give ``spec`` to.

    Parameters
    ----------
    spec
        The network.
    engine, device
        As in :func:`train`.
    """
    return _engines(engine, device)(spec).name


def _engines(engine: str, device: str) -> Callable[[AnySpec], Engine]:
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    core = native.core() if engine != "torch" and device == "cpu" else None
    if engine == "native" and core is None:
        reason = native.status().reason if device == "cpu" else f"it cannot use {device}"
        raise ValueError(f"engine='native' needs the C core, {reason}: use engine='torch'")
    in_torch = TorchEngine(device)
    in_c = NativeEngine(core) if core else None

    def chosen(spec: AnySpec) -> Engine:
        refusal = NativeEngine.refusal(spec)
        if refusal and engine == "native":
            raise ValueError(f"engine='native' {refusal}: use engine='auto'")
        return in_c if in_c and not refusal else in_torch

    return chosen


def _stacks(engine: Engine, some: Stack, threads: int) -> list[Stack]:
    """Stacks of specs that can share one, the longest first; enough for every thread."""
    groups: dict[Any, Stack] = defaultdict(list)
    for index, spec in some:
        groups[engine.key(spec)].append((index, spec))
    stacks = []
    for group in groups.values():
        group.sort(key=lambda item: item[1].activations)  # equal activations side by side
        largest = engine.largest_stack(group[0][1])
        if len(groups) < 2 * threads:
            least = min(largest, engine.least_stack(group[0][1]))
            largest = min(largest, _even_share(len(group), least, threads))
        stacks += [group[i : i + largest] for i in range(0, len(group), largest)]
    return sorted(stacks, key=lambda s: -len(s) * s[0][1].steps * s[0][1].parameters)


def _even_share(networks: int, least: int, threads: int) -> int:
    """A size of stacks, at least ``least``, that gives every thread equally many."""
    rounds = -(-networks // (threads * max(least, -(-networks // (4 * threads)))))
    return -(-networks // (threads * rounds))


class _Tracker:
    """Counts network-steps from any thread, and tells engines when to stop."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.stop = threading.Event()
        self._lock = threading.Lock()
        self._done, self._total, self._progress = 0, total, progress

    def __call__(self, steps: int) -> bool:
        with self._lock:
            self._done += steps
        return not self.stop.is_set()

    def show(self) -> None:
        """Report progress, from the caller's thread."""
        if self._progress:
            self._progress(self._done, self._total)


def _in_threads(
    engine: Engine,
    stacks: list[Stack],
    data: Data,
    threads: int,
    tracker: _Tracker,
    judge: Judge | None,
) -> Iterator[Result]:
    before = torch.get_num_threads()

    def work(stack: Any) -> list[Result]:
        if tracker.stop.is_set():
            return []
        try:
            # How threads share a product or a convolution changes its rounding, so each
            # thread has stacks of its own. torch keeps this number for each thread.
            torch.set_num_threads(1)
            results = engine.train(stack, data, tracker)
            for result in results:
                if judge and result.diverged is None:
                    result.measures.update(judge(result))
            return results
        finally:
            torch.set_num_threads(before)

    with ThreadPoolExecutor(threads) as pool:
        try:
            # Only a few stacks are submitted ahead, so that a slow caller does not fill memory
            # with results. Workers never wait for the caller, which may have gone away:
            # Python could not exit.
            left = iter(stacks)
            begun = {pool.submit(work, stack) for stack in islice(left, 2 * threads)}
            while begun:
                finished, begun = wait(begun, timeout=0.1, return_when=FIRST_COMPLETED)
                tracker.show()
                for future in finished:
                    results = future.result()
                    begun |= {pool.submit(work, stack) for stack in islice(left, 1)}
                    yield from results
        except BaseException:  # an interrupt, an error, or a caller that stopped
            tracker.stop.set()
            raise
