"""Machines of a Ray cluster on the loopback interface."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from engine_chaos import are_gone
from ray_nodes import ray_cluster

from autotune import open_database
from autotune.ir.workloads import gemm
from autotune.measure.engines import ArtefactStore, MeasureEngine, RunnerContext
from autotune.measure.engines.ray_engine import RayCluster, make_ray_engine
from autotune.measure.engines.supervised import SupervisedEngine
from autotune.process.errors import WorkerStartFailed
from autotune.targets import detect_cpu
from autotune.testing.engine_suite import EngineHost, EngineSuite, engine_context
from autotune.testing.reference_backend import SCRIPTED_NATIVE

# Ray's own, of its start-up.
pytestmark = [pytest.mark.needs("ray"), pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with ray_cluster(1) as found:
        yield found


@pytest.mark.slow
def test_tuning_through_a_cluster(cluster: Any, tmp_path: Path) -> None:
    database = tmp_path / "ray.db"
    command = [sys.executable, "-m", "autotune", "tune", "gemm", "--shape", "m=64,n=64,k=64"]
    command += ["--backend", "native"]
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
        context = engine_context(
            SCRIPTED_NATIVE, target=detect_cpu(), options={"address": cls.address}
        )
        store = ArtefactStore(tmp_path_factory.mktemp("artefacts"))
        with cls.make_engine(context) as engine:
            program = '{"build_seconds": 0.05}'
            host = EngineHost(engine, store, context, gemm(m=8, n=8, k=8), program)
            engine.start(store)
            host.wait(lambda: len(engine.machines()) == 2)
            host.tell()
            yield host

    @classmethod
    def make_engine(cls, context: RunnerContext) -> MeasureEngine:
        return make_ray_engine(context)


@pytest.mark.long
def test_contents_travel_in_pieces(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.measure.engines.ray_engine._PIECE_BYTES", 100)
    context = engine_context("native", target=detect_cpu(), options={"address": cluster.address})
    with make_ray_engine(context) as engine:
        host = EngineHost(engine, ArtefactStore(tmp_path), context, gemm(m=8, n=8, k=8))
        engine.start(host.store)
        host.tell()
        artefact, machine = host.built(), host.timer()
        assert max(len(it.read_bytes()) for it in tmp_path.iterdir()) > 100
        with host.leased(machine):
            assert host.reply(host.run(artefact, machine)).kind == "done"


@pytest.mark.long
def test_the_end_of_the_driver_of_ray_is_one_line_and_leaves_nothing(
    cluster: Any, tmp_path: Path
) -> None:
    joined = RayCluster(cluster.address)
    context = engine_context()
    with SupervisedEngine(context, joined) as engine:
        host = EngineHost(engine, ArtefactStore(tmp_path), context, gemm(m=8, n=8, k=8))
        engine.start(host.store)
        host.timer()
        pids = {pid for those in engine.pids.values() for pid in those}
        assert joined.pid is not None
        os.kill(joined.pid, signal.SIGKILL)
        with pytest.raises(WorkerStartFailed, match=r"is gone, .* SIGKILL.*continues the run"):
            host.wait(lambda: False)
        assert are_gone(pids)


@pytest.mark.long
def test_two_runs_do_not_time_on_one_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.measure.engines.supervised._SLOW_START_SECONDS", 3.0)
    with ray_cluster(1, cpus=2) as nodes:
        context = engine_context(options={"address": nodes.address})
        store = ArtefactStore(tmp_path)
        with make_ray_engine(context) as first, make_ray_engine(context) as second:
            first.start(store)
            EngineHost(first, store, context, gemm(m=8, n=8, k=8)).timer()
            second.start(store)
            host = EngineHost(second, store, context, gemm(m=8, n=8, k=8))
            said: list[str] = []
            host.wait(lambda: said.extend(second.take_warnings()) or any(map(waits, said)))
            assert not any("time" in it.roles for it in second.machines())
            first.close()
            assert host.timer().fingerprint is not None


def waits(warning: str) -> bool:
    """Tell whether a machine that times is said to wait for its node."""
    return "has not started for 3 s" in warning and "(builds)" not in warning
