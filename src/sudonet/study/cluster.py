"""Runs a plan on a Ray cluster: the same trials and rows as on one machine.

Ray schedules tasks, moves data and detects failures. Workers train batches and return rows;
only the driver writes to the store.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any

from sudonet import _settings
from sudonet.experiments import Experiment, Task, Trial
from sudonet.study._batches import Batch, batches
from sudonet.study.local import Tasks, recipe, trained, versions
from sudonet.study.plan import Plan
from sudonet.study.store import Row, Store
from sudonet.train import engine_name

TRIES = 3
"""How often a batch is tried before its trials count as failed."""

AHEAD = 2
"""Batches in flight for every task that can run: enough that no CPU waits for the driver."""


LOST_AFTER = 30.0
"""Seconds without an answer of the head after which it counts as lost. After 60 Ray's C++ core
would end the process without a word."""

TOKENS = (
    "the cluster wants a token that this machine does not send. Copy ~/.ray/auth_token of the "
    "head to this machine and set RAY_AUTH_MODE=token, or start every node and this command with "
    "RAY_AUTH_MODE=disabled; docs/cluster.md has both"
)


class ClusterError(RuntimeError):
    """The cluster cannot be used; says why and what to do."""


class ClusterLostError(ClusterError):
    """The cluster's head does not answer any more. Ray cannot be shut down then: it would wait."""


@dataclass(frozen=True)
class Cluster:
    """The current size of a cluster."""

    nodes: int
    cpus: int

    def __str__(self) -> str:
        return (
            f"{self.nodes} node{'s' * (self.nodes != 1)}, {self.cpus} CPU{'s' * (self.cpus != 1)}"
        )


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Ray, connected to the cluster at ``address`` or to a new one on this machine.

    Parameters
    ----------
    address
        ``"auto"`` for the cluster that this machine belongs to, ``"HOST:PORT"`` or
        ``"ray://HOST:PORT"`` for another; None starts one on this machine.
    """
    try:
        import ray
    except ImportError:
        raise ClusterError("the executor ray needs Ray: run pip install 'sudonet[ray]'") from None
    already = ray.is_initialized()
    if not already:
        _mute(ray)
        try:
            _check_that_somebody_listens(address)
            with _signals_kept(), _quiet():
                ray.init(
                    address=address or "local",  # else Ray looks for one that may be gone
                    include_dashboard=None if address else False,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    configure_logging=False,
                )
        except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            if _is_about_tokens(error):
                raise ClusterError(f"the Ray cluster at {address!r} refuses: {TOKENS}") from error
            raise ClusterError(
                f"cannot reach a Ray cluster at {address!r}: {str(error).splitlines()[0]}. "
                "Start one with `ray start --head`, or leave --address out"
            ) from error
    try:
        yield ray
    except ClusterLostError:
        already = True  # to shut down would wait for the head
        raise
    finally:
        if not already:
            ray.shutdown()


def _mute(ray: Any) -> None:
    """Keep Ray's log and its news of workers off the terminal: rows say what failed."""
    _settings.quiet_ray()
    # There is no switch for it. A Ray without this function ignores ours.
    ray._private.worker.print_to_stdstream = lambda *news, **options: None


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Keep the caller's handler of SIGTERM, in place of which Ray puts its own."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    if callable(before) and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _quiet() -> Iterator[None]:
    """Drop what C++ writes to standard error, such as that its log level was set."""
    terminal = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
        os.close(nowhere)


def _is_about_tokens(error: BaseException | None) -> bool:
    """Whether an error, or one that led to it, is Ray's of authentication."""
    while error is not None:
        if "AuthenticationError" in f"{type(error).__name__} {error}":
            return True
        error = error.__cause__ or error.__context__
    return False


def _check_that_somebody_listens(address: str | None) -> None:
    """Fail at once: Ray itself would wait for minutes."""
    if address and address not in ("auto", "local"):
        host, _, port = address.removeprefix("ray://").rpartition(":")
        if not host or not port.isdigit():
            raise ValueError("an address is auto, HOST:PORT or ray://HOST:PORT")
        socket.create_connection((host, int(port)), timeout=10).close()


def size(ray: Any) -> Cluster:
    """The number of live nodes and of their CPUs."""
    alive = sum(bool(node["Alive"]) for node in ray.nodes())
    return Cluster(alive, int(ray.cluster_resources().get("CPU", 0)))


class _Watch(threading.Thread):
    """Asks the head for the cluster's size every second.

    It is a thread because a question to a lost head returns only when Ray ends the process.
    """

    def __init__(self, ray: Any) -> None:
        super().__init__(daemon=True)
        self._ray, self._done = ray, threading.Event()
        self.cluster = size(ray)
        self._heard = time.monotonic()
        self.start()

    def run(self) -> None:
        while not self._done.wait(1.0):
            with suppress(Exception):  # too late an answer is no answer, whatever Ray raises
                self.cluster = size(self._ray)
                self._heard = time.monotonic()

    def check(self) -> None:
        """Raise an error if the head is lost."""
        if time.monotonic() - self._heard > LOST_AFTER:
            raise ClusterLostError(
                f"the head of the Ray cluster has not answered for {LOST_AFTER:.0f} seconds"
            )

    def wait_for_head(self) -> None:
        """Return once the head answers; raise an error if it is lost."""
        before = self._heard
        while self._heard == before:
            self.check()
            time.sleep(0.1)

    def end(self) -> None:
        self._done.set()


def run(
    plan: Plan,
    store: Store,
    tasks: Tasks,
    ray: Any,
    *,
    engine: str = "auto",
    cpus_per_task: int = 1,
    cost: Callable[[Trial], float],
    show: Callable[[Cluster], None] = lambda cluster: None,
) -> Iterator[Row]:
    """Train everything in the plan; a row is in the store before it is yielded.

    A batch whose worker or node dies, or that runs out of memory, is tried three times in
    all. After that its trials become rows that say why they failed; a later run tries them
    again.

    Raises
    ------
    ClusterLostError
        If the head of the cluster has not answered for 30 seconds.
    """
    waiting = deque(batches(plan.trials, cost))
    expected = versions()
    data: dict[str, Any] = {}
    train = ray.remote(_train).options(num_cpus=cpus_per_task, max_retries=TRIES - 1)
    flying: dict[Any, Batch] = {}
    watch = _Watch(ray)
    try:
        while waiting or flying:
            watch.check()
            show(watch.cluster)
            most = AHEAD * max(1, watch.cluster.cpus // cpus_per_task)
            while waiting and len(flying) < most:
                batch = waiting.popleft()
                if batch.experiment not in data:
                    data[batch.experiment] = ray.put(tasks.experiment(batch.experiment).load())
                experiment = tasks.experiment(batch.experiment)
                names = _engines(batch.trials, experiment, tasks[batch.experiment], engine)
                reference = train.remote(
                    batch.trials,
                    experiment,
                    data[batch.experiment],
                    tasks[batch.experiment].source.checksum,
                    engine,
                    names,
                    cpus_per_task,
                    expected,
                )
                flying[reference] = batch
            ready, _ = ray.wait(list(flying), timeout=1.0)
            for reference in ready:
                rows = _rows(ray, reference, flying.pop(reference), tasks, engine)
                if any(row.failed for row in rows):
                    watch.wait_for_head()  # of a lost head's batches nothing is known
                for row in rows:
                    store.add(row)
                    yield row
    except ClusterLostError:
        flying.clear()
        raise
    finally:
        watch.end()
        for reference in flying:
            with suppress(Exception):  # its node may be gone already
                ray.cancel(reference, force=True)


def _engines(
    trials: Iterable[Trial], experiment: Experiment, task: Task, engine: str
) -> dict[Trial, str]:
    """The engine that this machine uses for each trial; workers must use the same."""
    return {trial: engine_name(experiment.spec(trial, task.data), engine) for trial in trials}


def _rows(ray: Any, reference: Any, batch: Batch, tasks: Tasks, engine: str) -> list[Row]:
    """The rows of a task, or rows that say why its trials failed."""
    try:
        rows: list[Row] = ray.get(reference)
        return rows
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ClusterError):
            raise error.cause from None
        reason = f"{type(error.cause).__name__}: {error.cause}"
    except ray.exceptions.RayError as error:
        reason = f"{type(error).__name__} after {TRIES} tries: {str(error).splitlines()[0]}"
    return [_failed(trial, reason, tasks, engine) for trial in batch.trials]


def _failed(trial: Trial, reason: str, tasks: Tasks, engine: str) -> Row:
    source = tasks[trial.experiment].source
    spec = tasks.experiment(trial.experiment).spec(trial, tasks[trial.experiment].data)
    return Row(
        trial=trial,
        engine=engine_name(spec, engine),
        source=source.name,
        checksum=source.checksum,
        stand_in_for=source.stand_in_for,
        recipe=recipe(spec),
        spec="{}",
        versions="{}",
        cpu="",
        metrics={},
        diverged=None,
        loss=None,
        wall_seconds=0.0,
        cpu_seconds=0.0,
        finished=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        failed=reason,
    )


def _train(
    trials: tuple[Trial, ...],
    experiment: Experiment,
    loaded: Any,
    checksum: str,
    engine: str,
    names: dict[Trial, str],
    threads: int,
    expected: dict[str, str],
) -> list[Row]:
    """Train a batch in a worker, if the worker computes the same rows as the driver would."""
    ours = versions()
    if ours != expected:
        differing = [
            f"{what} {ours.get(what)} instead of {version}"
            for what, version in expected.items()
            if ours.get(what) != version
        ]
        raise ClusterError(
            f"a worker has {', '.join(differing)}: install the driver's versions on every node"
        )
    task = _task(_Loaded(experiment, loaded, checksum))
    for trial, own in _engines(trials, experiment, task, engine).items():
        if own != names[trial]:
            raise ClusterError(
                f"a worker's engine is {own}, the driver's {names[trial]}, which rounds "
                "differently: use nodes of one kind, or set SUDONET_NATIVE alike on all of them"
            )
    return list(trained(trials, task, engine, threads))


@dataclass(frozen=True)
class _Loaded:
    """An experiment and its data from the object store, identified by the data's checksum."""

    experiment: Experiment = field(compare=False)
    data: Any = field(compare=False)
    checksum: str


@lru_cache(maxsize=2)
def _task(loaded: _Loaded) -> Task:
    """The task of an experiment, prepared once in a worker and not for every batch."""
    return loaded.experiment.task(loaded.data)
