"""Machines of a Ray cluster on the loopback interface."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from engine_chaos import are_gone, measure_through
from ray_nodes import add_node, ray_cluster

from autotune import open_database
from autotune.ir.workloads import gemm
from autotune.measure.engines import ArtefactStore, MeasureEngine
from autotune.measure.engines.ray_engine import make_ray_engine
from autotune.plugins import Context
from autotune.testing.engine_suite import EngineHost, EngineSuite, engine_context

pytest.importorskip("ray")
# Ray's own, of its start-up.
pytestmark = pytest.mark.filterwarnings("ignore")

FAULTS = ("worker", "actor", "node", "stopped", "driver")
DRIVER = """
import sys
from pathlib import Path
from autotune.ir.workloads import gemm
from autotune.measure.engines import ArtefactStore
from autotune.measure.engines.ray_engine import make_ray_engine
from autotune.testing.engine_suite import EngineHost, engine_context

context = engine_context(options={"address": sys.argv[1]})
engine = make_ray_engine(context)
host = EngineHost(engine, ArtefactStore(Path(sys.argv[2])), context, gemm(m=8, n=8, k=8))
engine.start(host.store)
host.timer()
print(*(pid for those in engine.pids.values() for pid in those), flush=True)
while True:
    engine.poll(1.0)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with ray_cluster(1) as found:
        yield found


@pytest.mark.slow
def test_tuning_through_a_cluster(cluster: Any, tmp_path: Path) -> None:
    database = tmp_path / "ray.db"
    command = [sys.executable, "-m", "autotune", "tune", "gemm", "--shape", "m=64,n=64,k=64"]
    command += ["--backend", "autotune.testing.reference_backend:ReferenceBackend"]
    command += ["--threads", "1", "--trials", "8", "--round-size", "8", "--seed", "0"]
    command += ["--runner", "ray", "--ray-address", cluster.address]
    command += ["--database", str(database), "--json", "-", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trials"] == 8
    with open_database(str(database), read_only=True) as opened:
        records = list(opened.records())
    assert len(records) >= 8
    assert all("+machine-" in record.key.protocol for record in records)
    assert {record.outcome.status for record in records} == {"ok"}


@pytest.mark.long
class TestRayEngine(EngineSuite):
    address: ClassVar[str]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def with_cluster(cls, cluster: Any) -> None:
        cls.address = cluster.address

    @pytest.fixture(scope="class")
    @classmethod
    def host(
        cls, with_cluster: None, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[EngineHost]:
        context = engine_context(options={"address": cls.address})
        store = ArtefactStore(tmp_path_factory.mktemp("artefacts"))
        with cls.make_engine(context) as engine:
            program = '{"build_seconds": 0.05}'
            host = EngineHost(engine, store, context, gemm(m=8, n=8, k=8), program)
            engine.start(store)
            host.wait(lambda: len(engine.machines()) == 2)
            host.tell()
            yield host

    @classmethod
    def make_engine(cls, context: Context) -> MeasureEngine:
        return make_ray_engine(context)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_lost_and_nothing_doubled(seed: int, tmp_path: Path) -> None:
    rng, fault = np.random.default_rng(seed), FAULTS[seed % len(FAULTS)]
    with ray_cluster(3) as cluster:
        if fault == "driver":
            kill_a_driver(cluster.address, tmp_path)
        context = engine_context(options={"address": cluster.address, "silence": 8.0})
        pids: set[int] = set()
        with make_ray_engine(context) as engine:
            host = EngineHost(engine, ArtefactStore(tmp_path), context, gemm(m=8, n=8, k=8))
            engine.start(host.store)
            host.wait(lambda: len(engine.machines()) == 6)
            host.tell()
            pids.update(*engine.pids.values())
            stopped: list[int] = []

            def inflict() -> None:
                those = list(engine.pids.values())
                supervisor, *workers = those[rng.integers(len(those))]
                if fault == "worker":
                    os.kill(int(rng.choice(workers)), signal.SIGKILL)
                elif fault == "actor":
                    os.kill(supervisor, signal.SIGKILL)
                elif fault == "stopped":
                    os.kill(supervisor, signal.SIGSTOP)
                    stopped.append(supervisor)
                elif fault == "node":
                    nodes = list(cluster.worker_nodes)
                    nodes[rng.integers(len(nodes))].kill_raylet()
                    add_node(cluster)

            measure_through(host, 6, int(rng.integers(6)), inflict)
            pids.update(*engine.pids.values())
        for pid in stopped:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                continue
        assert are_gone(pids)


def kill_a_driver(address: str, folder: Path) -> None:
    """What a killed driver has started ends with it."""
    arguments = [sys.executable, "-c", DRIVER, address, str(folder)]
    driver = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    try:
        assert driver.stdout is not None
        pids = {int(word) for word in driver.stdout.readline().split()}
        assert pids
    finally:
        driver.kill()
        driver.wait()
        if driver.stdout is not None:
            driver.stdout.close()
    time.sleep(0.1)
    assert are_gone(pids)
