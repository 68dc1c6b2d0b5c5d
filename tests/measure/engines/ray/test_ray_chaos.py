"""Faults at random moments in a Ray cluster: nothing is lost or doubled, and each is named."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_chaos import are_gone, measure_through
from process_facts import descendants
from ray_chaos import FaultyRayCluster
from ray_nodes import add_node, ray_cluster
from tuner_processes import TUNE_FOR_REAL, Stored, finish, start, stop, wait_for_records

from autotune.ir.workloads import gemm
from autotune.measure.engines import ArtefactStore
from autotune.measure.engines.supervised import SupervisedEngine
from autotune.measure.workers import EnginePool
from autotune.targets import detect_cpu
from autotune.testing.engine_suite import EngineHost, engine_context
from autotune.testing.reference_backend import SCRIPTED_NATIVE

# Ray's own, of its start-up.
pytestmark = [pytest.mark.needs("ray"), pytest.mark.filterwarnings("ignore"), pytest.mark.long]

# What is said of each. A worker's end is an outcome, or of no effect where it was at nothing.
FAULTS = {
    "worker": "",
    "actor": "machine '.*' is lost: ",
    "node": "machine '.*' is lost: ",
    "stopped": "machine '.*' is lost: it said nothing for 8 s",
    "double": r"dropped (an answer|\d+ answers) that came late or twice",
    "late": "machine '.*' is lost: it said nothing for 8 s",
    "fingerprint": "machine '.*' times nothing in this run, whose machines differ: protocol ",
}
RUNS = 30
TRIALS = 24


@pytest.mark.promise(
    "a worker, an actor or a node of a Ray cluster is killed or stopped, or answers twice or late",
    "each job is done once, nothing is counted twice, and one line says what happened",
)
@pytest.mark.parametrize("seed", range(RUNS - 8))
def test_nothing_is_lost_and_nothing_doubled(seed: int, tmp_path: Path) -> None:
    rng, fault = np.random.default_rng(seed), list(FAULTS)[seed % len(FAULTS)]
    with ray_cluster(3) as nodes:
        context = engine_context(SCRIPTED_NATIVE, target=detect_cpu())
        cluster = FaultyRayCluster(nodes.address)
        pids: set[int] = set()
        stopped: list[int] = []
        with SupervisedEngine(context, cluster, silence=8.0) as engine:
            host = EngineHost(engine, ArtefactStore(tmp_path), context, gemm(m=8, n=8, k=8))
            engine.start(host.store)
            host.wait(lambda: len(engine.machines()) == 6)
            host.tell()
            pool = EnginePool(engine, host.store, context.protocol.deadlines)
            pool.poll(0.0)

            def note() -> None:
                pids.update(*engine.pids.values())
                pids.add(cluster.pid or 0)

            def act() -> None:
                note()
                stopped.extend(inflict(fault, rng, engine, cluster, nodes))

            warnings = measure_through(host, 6, int(rng.integers(6)), act)
            if fault == "fingerprint":
                host.wait(lambda: len(engine.machines()) == 8)
            pool.poll(0.0)
            host.wait(lambda: named(FAULTS[fault], warnings, pool))
            note()
        for pid in stopped:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                continue
        assert are_gone(pids)


def named(what: str, warnings: list[str], pool: EnginePool) -> bool:
    """Tell whether one line says so by now, and no warning is longer than a line."""
    warnings += pool.take_warnings()
    assert all(len(line.splitlines()) == 1 for line in warnings)
    return any(re.search(what, line) for line in [*warnings, ""])


def inflict(
    fault: str,
    rng: np.random.Generator,
    engine: SupervisedEngine,
    cluster: FaultyRayCluster,
    nodes: Any,
) -> list[int]:
    """Have something go wrong now; the processes that were stopped."""
    names = sorted(engine.pids)
    name = names[rng.integers(len(names))]
    supervisor, *workers = engine.pids[name]
    if fault == "worker":
        os.kill(int(rng.choice(workers)), signal.SIGKILL)
    elif fault == "actor":
        os.kill(supervisor, signal.SIGKILL)
    elif fault == "stopped":
        os.kill(supervisor, signal.SIGSTOP)
        return [supervisor]
    elif fault == "node":
        workers_of = list(nodes.worker_nodes)
        workers_of[rng.integers(len(workers_of))].kill_raylet()
        add_node(nodes)
    elif fault == "double":
        cluster.doubles = True
    elif fault == "late":
        cluster.held.add(name.removesuffix(" (builds)"))
    else:
        cluster.strangers = True
        add_node(nodes)
    return []


def command(address: str) -> tuple[str, ...]:
    """A run that is continued when it is given again."""
    runner = ("--runner", "ray", "--ray-address", address)
    return (*TUNE_FOR_REAL, "--quiet", "--trials", str(TRIALS), *runner)


def check_whole(database: Path) -> None:
    """Every trial of the run is there, once."""
    stored = Stored.read(database)
    (run,) = stored.runs
    assert run.status == "finished" and run.trials == TRIALS
    assert sum(map(len, stored.logs(run))) == TRIALS


@pytest.mark.promise(
    "a run on the machines of a Ray cluster is killed",
    "all that it has started there ends, and the same command continues it",
)
@pytest.mark.parametrize("seed", range(5))
def test_a_driver_that_is_killed_leaves_nothing_and_goes_on(seed: int, tmp_path: Path) -> None:
    rng, database = np.random.default_rng(seed), tmp_path / "records.db"
    with ray_cluster(3) as nodes:
        process = start(tmp_path, *command(nodes.address))
        wait_for_records(database, int(rng.integers(1, 16)), process)
        raylets = {it.process.pid for node in nodes.worker_nodes for it in raylets_of(node)}
        started = descendants({process.pid}) | workers_of(raylets)
        assert len(started) > 6
        stop(process, signal.SIGKILL)
        assert are_gone(started)
        finish(start(tmp_path, *command(nodes.address)))
        check_whole(database)


@pytest.mark.promise(
    "the head of a Ray cluster is killed",
    "one error ends the run, what was measured is kept, and the same command continues it",
)
@pytest.mark.parametrize("seed", range(3))
def test_a_head_that_is_killed_ends_the_run_in_one_line(seed: int, tmp_path: Path) -> None:
    rng, database = np.random.default_rng(seed), tmp_path / "records.db"
    with ray_cluster(2) as nodes:
        process = start(tmp_path, *command(nodes.address))
        wait_for_records(database, int(rng.integers(1, 16)), process)
        started = descendants({process.pid})
        kill_all_of(nodes.head_node)
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 2, errors
        lines = [line for line in errors.splitlines() if line.startswith("autotune: error")]
        assert len(lines) == 1 and "the same command continues the run" in lines[0], errors
        assert "Traceback" not in errors and are_gone(started)
        kept = len(Stored.read(database).records)
        assert kept > 0
    with ray_cluster(2) as nodes:
        finish(start(tmp_path, *command(nodes.address)))
        check_whole(database)
        assert len(Stored.read(database).records) >= kept


def test_nodes_that_join_and_leave_during_a_run_cost_no_trial(tmp_path: Path) -> None:
    database = tmp_path / "records.db"
    with ray_cluster(3) as nodes:
        process = start(tmp_path, *command(nodes.address), build_seconds=0.5)
        wait_for_records(database, 4, process)
        add_node(nodes)
        first, second, *_ = list(nodes.worker_nodes)
        nodes.remove_node(first)
        wait_for_records(database, 12, process)
        second.kill_raylet()
        add_node(nodes)
        errors = finish(process)
        check_whole(database)
    assert "is lost: " in errors
    assert "Traceback" not in errors


def raylets_of(node: Any) -> list[Any]:
    """The processes of a node that start workers."""
    found: list[Any] = node.all_processes["raylet"]
    return found


def workers_of(raylets: set[int]) -> set[int]:
    """Processes of autotune that nodes have started."""
    found = set()
    for pid in descendants(raylets):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        found |= {pid} if b"fork_server.py" in line else set()
    return found


def kill_all_of(node: Any) -> None:
    """End all processes of a node, as the loss of its machine would."""
    for group in node.all_processes.values():
        for it in group:
            try:
                os.kill(it.process.pid, signal.SIGKILL)
                it.process.wait(10)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
    time.sleep(0.1)
