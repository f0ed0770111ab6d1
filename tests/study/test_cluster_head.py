"""Clusters of machines with home folders of their own: tokens, and a head that is lost."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress

import pytest

from sudonet.study.store import Store

pytest.importorskip("ray", reason="needs Ray: pip install 'sudonet[ray]'")

pytestmark = pytest.mark.slow

RAY = [sys.executable, "-c", "from ray.scripts.scripts import main; main()"]
REPRODUCE = [sys.executable, "-m", "sudonet.cli", "reproduce"]


class Machine:
    """A home folder, and the settings of its user."""

    def __init__(self, folder, **settings):
        folder.mkdir()
        self.home = folder
        plain = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        self.settings = plain | {"HOME": str(folder)} | settings

    def run(self, command, **options):
        return subprocess.run(
            command, env=self.settings, capture_output=True, text=True, timeout=120, **options
        )

    def connect(self, address):
        code = (
            "import sys\n"
            "from sudonet.study import cluster\n"
            "with cluster.connected(sys.argv[1]) as ray: print(cluster.size(ray))"
        )
        return self.run([sys.executable, "-c", code, address])

    @contextmanager
    def node(self, *options):
        """``ray start`` until the end of the block."""
        temporary = tempfile.mkdtemp(dir="/tmp")  # sockets need short paths
        command = [*RAY, "start", *options, "--num-cpus=1", f"--temp-dir={temporary}", "--block"]
        log = self.home / "ray.log"
        with log.open("w") as file:
            process = subprocess.Popen(
                command, env=self.settings, stdout=file, stderr=file, start_new_session=True
            )
        try:
            deadline = time.monotonic() + 60
            while "Ray runtime started" not in log.read_text():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.2)
            yield process
        finally:
            kill(process)
            shutil.rmtree(temporary, ignore_errors=True)


def kill(process):
    """Kill a node: all that it started is in its session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def test_the_recipe_for_two_machines(tmp_path):
    """As in docs/cluster.md, and what is said if a part of it is missing."""
    first = Machine(tmp_path / "first")
    code = "import ray; ray.init('local', num_cpus=1, include_dashboard=False); ray.shutdown()"
    first.run([sys.executable, "-c", code], check=True)  # a local run leaves a token behind
    token = first.home / ".ray" / "auth_token"
    if not token.exists():
        pytest.skip("this Ray has no tokens")
    second = Machine(tmp_path / "second")
    port = free_port()
    address = f"127.0.0.1:{port}"
    with first.node("--head", f"--port={port}", "--include-dashboard=false"):
        study = ["--executor", "ray", "--address", address, "--store", tmp_path / "store"]
        second.settings["RAY_NUM_REDIS_GET_RETRIES"] = "2"  # of 20, each a second
        refused = second.run([*REPRODUCE, *study])
        assert refused.returncode == 2
        (line,) = refused.stderr.splitlines()
        assert "refuses: the cluster wants a token" in line
        assert "RAY_AUTH_MODE=token" in line
        del second.settings["RAY_NUM_REDIS_GET_RETRIES"]
        (second.home / ".ray").mkdir()
        shutil.copy(token, second.home / ".ray")
        second.settings["RAY_AUTH_MODE"] = "token"
        with second.node(f"--address={address}"):
            assert second.connect(address).stdout == "2 nodes, 2 CPUs\n"


def test_a_lost_head_ends_in_one_line(tmp_path):
    machine = Machine(tmp_path / "home", RAY_AUTH_MODE="disabled")
    store = tmp_path / "store"
    study = [*REPRODUCE, "--tables", "regression-2", "--preset", "standard", "--store", store]
    machine.run([*study, "--levels", "8", "--seeds", "0"], check=True)
    port = free_port()
    with machine.node("--head", f"--port={port}", "--include-dashboard=false") as head:
        address = ["--executor", "ray", "--address", f"127.0.0.1:{port}"]
        with subprocess.Popen(
            [*study, *address],
            env=machine.settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as driver:
            for line in driver.stdout:
                if line.startswith("regression: "):  # the data, just before training begins
                    break
            time.sleep(5)
            kill(head)
            begun = time.monotonic()
            said, complaint = driver.communicate(timeout=90)
    assert driver.returncode == 1
    assert time.monotonic() - begun < 50
    assert re.fullmatch(
        r"sudonet: the head of the Ray cluster .* 9 of 150 trials are in "
        rf"{re.escape(str(store))}\. Start the cluster again and run the same command\n",
        complaint,
    )
    assert len(said.splitlines()) <= 2  # how many trials were trained, and in what time
    with Store.read(store) as found:
        assert [row.failed for row in found.rows()] == [None] * 9
    assert not store.with_name("store.lock").exists()
