"""The study on a real Ray with two nodes on this machine: same rows, whatever dies."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from sudonet.experiments import EXPERIMENTS, GRIDS, Trial
from sudonet.experiments.regression import Regression
from sudonet.study import cluster
from sudonet.study.local import Tasks, remaining
from sudonet.study.plan import Plan
from sudonet.study.store import Store
from tests import ROOT
from tests.study.test_local import rows_of, small_plan, timeless

ray = pytest.importorskip("ray", reason="needs Ray: pip install 'sudonet[ray]'")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Ray's own, of its sockets and processes
]

STEPS = 2_000


def plan_for_two(seeds=range(3)):
    return small_plan(steps=STEPS, seeds=seeds)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What the local executor makes of the plan."""
    path = tmp_path_factory.mktemp("local") / "store"
    rows_of(plan_for_two(), path)
    return timeless(path)


@pytest.fixture(scope="class")
def two_nodes():
    """A cluster of two nodes with a CPU each; the driver is connected to it."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        # Workers import this file.
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *sys.path]))
        found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        second = found.add_node(num_cpus=1)
        ray.init(address=found.address, log_to_driver=False)
        yield found, second
        ray.shutdown()
        for node in reversed(found.list_all_nodes()):  # gracefully takes minutes
            found.remove_node(node, allow_graceful=False)
    # who looks for a cluster would wait for this one
    Path("/tmp/ray/ray_current_cluster").unlink(missing_ok=True)


def cost(trial):
    """So that a batch has about ten trials."""
    return 8.0


def run_on(path, plan, tasks=None, **options):
    tasks = tasks or Tasks()
    with cluster.connected(None) as here, Store.open(path) as store:
        left = remaining(plan, store, tasks)
        yield from cluster.run(left, store, tasks, here, cost=cost, **options)


def _worker():
    """A process that trains at this moment; waits until there is one."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with suppress(OSError):
                    if "ray::_train" in (folder / "cmdline").read_text():
                        return int(folder.name)
    pytest.fail("no worker trains")


class Deadly(Regression):
    """An experiment whose data kills whoever loads it, wherever that is not the driver."""

    def __init__(self, driver):
        self.driver = driver

    def task(self, loaded=None):
        if os.getpid() != self.driver:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().task(loaded)


class Faulty(Deadly):
    """One that raises an error there."""

    def task(self, loaded=None):
        if os.getpid() != self.driver:
            raise MemoryError("no room for the surface")
        return Regression.task(self, loaded)


class Replaced(Tasks):
    def __init__(self, experiment):
        super().__init__()
        self.replaced = experiment

    def experiment(self, name):
        return self.replaced if name == self.replaced.name else EXPERIMENTS[name]


# Each with a cluster of its own: workers keep the data of experiments.
@pytest.mark.parametrize(
    ("kind", "reason"), [(Deadly, "after 3 tries"), (Faulty, "no room for the surface")]
)
def test_what_cannot_be_trained_is_recorded_and_tried_again_later(
    two_nodes, tmp_path, kind, reason
):
    plan = small_plan(steps=10, seeds=[0])
    tasks = Replaced(kind(os.getpid()))
    rows = list(run_on(tmp_path / "store", plan, tasks))
    failed = [row for row in rows if row.failed]
    assert {row.trial.experiment for row in failed} == {"regression"}
    assert {row.trial.experiment for row in rows if not row.failed} == {"checkerboard"}
    assert all(reason in row.failed for row in failed)
    assert len(rows) == len(plan.trials)
    again = list(run_on(tmp_path / "store", plan))
    assert {row.trial for row in again} == {row.trial for row in failed}
    assert not any(row.failed for row in timeless(tmp_path / "store"))


class TestTwoNodes:
    """One cluster for all of them: to start it takes longer than most."""

    def test_rows_are_those_of_the_local_executor(self, two_nodes, undisturbed, tmp_path):
        seen = []
        list(run_on(tmp_path / "store", plan_for_two(), show=seen.append))
        assert timeless(tmp_path / "store") == undisturbed
        assert {str(one) for one in seen} == {"2 nodes, 2 CPUs"}

    def test_a_worker_with_another_version_is_refused(self, two_nodes, tmp_path, monkeypatch):
        ours = cluster.versions()
        monkeypatch.setattr(cluster, "versions", lambda: ours | {"torch": "1.2.3"})
        expected = re.escape(f"a worker has torch {ours['torch']} instead of 1.2.3:")
        with pytest.raises(cluster.ClusterError, match=f"^{expected}"):
            list(run_on(tmp_path / "store", small_plan(steps=10, seeds=[0])))

    @pytest.mark.parametrize("shapes", [("dense",), ("conv", "dense")])  # PyTorch trains the first
    def test_a_worker_with_another_engine_is_refused(
        self, two_nodes, tmp_path, native_path, shapes
    ):
        native_path("portable")
        trials = tuple(Trial("autoencoder", shape, 1, "tanh", 0.001, 0, 1) for shape in shapes)
        plan = Plan(trials, tuple(GRIDS[f"autoencoder-{shape}"] for shape in shapes))
        with pytest.raises(cluster.ClusterError, match="the driver's native-portable"):
            list(run_on(tmp_path / "store", plan))

    def test_a_killed_worker_and_a_lost_node_change_nothing(self, two_nodes, undisturbed, tmp_path):
        """The last of these tests: it leaves one node."""
        found, second = two_nodes
        killed = False
        for number, _ in enumerate(run_on(tmp_path / "store", plan_for_two())):
            if number == 0:
                os.kill(_worker(), signal.SIGKILL)
                killed = True
            if number == 20:
                found.remove_node(second, allow_graceful=False)
        assert killed
        assert timeless(tmp_path / "store") == undisturbed


DRIVER = """
import sys
sys.path.insert(0, sys.argv[2])
from tests.study import test_cluster as t
print("begun", flush=True)
for row in t.run_on(t.Path(sys.argv[1]), t.plan_for_two()):
    print("row", flush=True)
"""


def test_a_killed_driver_goes_on_from_the_store(undisturbed, tmp_path):
    command = [sys.executable, "-c", DRIVER, tmp_path / "store", ROOT]
    rows = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            rows += line == "row\n"
            if rows == 12:
                process.send_signal(signal.SIGKILL)
                break
    assert rows == 12
    kept = timeless(tmp_path / "store")
    assert 12 <= len(kept) < len(undisturbed)
    time.sleep(1)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("row") == len(undisturbed) - len(kept)
    assert timeless(tmp_path / "store") == undisturbed


def test_the_command_gives_the_rows_of_the_local_executor(tmp_path):
    small = "--preset quick --tables regression-2 --levels 8 --seeds 0"
    for executor in ("local", "ray"):
        command = f"reproduce {small} --executor {executor} --store {tmp_path / executor}"
        done = subprocess.run(
            [sys.executable, "-m", "sudonet.cli", *command.split()],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
    assert timeless(tmp_path / "ray") == timeless(tmp_path / "local")


def test_without_ray_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(cluster.ClusterError, match=r"pip install 'sudonet\[ray\]'"),
        cluster.connected(None),
    ):
        pass


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "nowhere", "auto"])
def test_a_cluster_that_is_not_there(address):
    with (
        pytest.raises(cluster.ClusterError, match=f"'{address}'.*ray start --head"),
        cluster.connected(address),
    ):
        pass
