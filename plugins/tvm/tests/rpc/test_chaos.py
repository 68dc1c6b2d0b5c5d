"""Faults at random moments around TVM's own servers: nothing is lost, and nothing doubled."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from autotune_tvm.rpc.engine import RPCEngine
from engine_chaos import are_gone, measure_through
from process_facts import descendants
from rpc_servers import RPCFleet
from tuner_processes import finish, start, stop, wait_for_records

from autotune.ir.workloads import gemm
from autotune.measure import MeasureProtocol
from autotune.measure.engines import ArtefactStore
from autotune.store.sqlite import open_database
from autotune.targets import detect_cpu
from autotune.testing.engine_suite import EngineHost, engine_context

pytestmark = pytest.mark.long

PROTOCOL = MeasureProtocol(deadlines={"verify": 5.0, "run": 5.0}, max_samples=5)
# What is said of each. Where it hits what was at nothing, it has no effect that could be named.
FAULTS = {
    "server": "",
    "holder": "",
    "stopped": "",
    "tracker": r"no RPC tracker at 127\.0\.0\.1:\d+: .*; what has a server goes on",
}
TRIALS = 10


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_lost_and_nothing_doubled(seed: int, tmp_path: Path) -> None:
    rng, fault = np.random.default_rng(seed), list(FAULTS)[seed % len(FAULTS)]
    with RPCFleet(tmp_path, servers=3) as fleet:
        given = fleet.options(session_timeout=12.0)
        context = engine_context("native", target=detect_cpu(), options=given, protocol=PROTOCOL)
        artefacts = tmp_path / "artefacts"
        artefacts.mkdir()
        with RPCEngine(context) as engine:
            host = EngineHost(engine, ArtefactStore(artefacts), context, gemm(m=8, n=8, k=8))
            engine.start(host.store)
            host.wait(lambda: len(engine.machines()) == 4)
            host.tell()
            servers = {it.pid for it in fleet.servers}
            others = servers | {fleet.tracker_pid}
            pids = descendants({os.getpid()}) - others - descendants(others)

            warnings: list[str] = []

            def act() -> None:
                inflict(fault, rng, fleet, engine)
                end = time.monotonic() + 300.0
                while not any(re.search(FAULTS[fault], line) for line in [*warnings, ""]):
                    assert time.monotonic() < end, warnings
                    engine.poll(0.2)
                    warnings.extend(engine.take_warnings())
                if fault == "tracker":
                    # What had a session has gone on; later ones need it.
                    fleet.start_tracker()

            warnings += measure_through(host, 3, int(rng.integers(3)), act)
            assert all(len(line.splitlines()) == 1 for line in warnings)
        assert are_gone(pids)


def inflict(fault: str, rng: np.random.Generator, fleet: RPCFleet, engine: RPCEngine) -> None:
    """Have something go wrong now."""
    server = fleet.servers[rng.integers(len(fleet.servers))]
    if fault == "server":
        fleet.kill(server)
        fleet.start_server()
    elif fault == "holder":
        holders = [those for name, those in engine.pids.items() if name.startswith(fleet.key)]
        os.kill(int(rng.choice([pid for _, pid in holders])), signal.SIGKILL)
    elif fault == "stopped":
        fleet.signal(server, signal.SIGSTOP)
    else:
        fleet.kill_tracker()


@pytest.mark.promise(
    "a run on TVM's RPC servers is killed, and the tracker too",
    "all that it has started ends, and the same command continues it",
)
@pytest.mark.parametrize("victims", ["driver", "driver and tracker"])
@pytest.mark.parametrize("seed", range(2))
def test_a_driver_that_is_killed_leaves_nothing_and_goes_on(
    seed: int, victims: str, tmp_path: Path
) -> None:
    rng, database = np.random.default_rng(seed), tmp_path / "records.db"
    with RPCFleet(tmp_path, servers=2) as fleet:
        command = (
            *("-m", "autotune", "tune", "gemm", "--shape", "m=64,n=64,k=64", "--threads", "1"),
            *("--backend", "native", "--trials", str(TRIALS), "--round-size", "5", "--quiet"),
            *("--runner", "rpc", "--rpc-tracker", str(fleet.tracker), "--rpc-key", fleet.key),
            *("--session-timeout", "12", "--database", "records.db"),
        )
        process = start(tmp_path, *command)
        wait_for_records(database, int(rng.integers(1, 6)), process)
        started = descendants({process.pid})
        stop(process, signal.SIGKILL)
        assert are_gone(started)
        if victims != "driver":
            fleet.kill_tracker()
            fleet.start_tracker()
        # A server ends the session of a client that is gone at once, or when its time is over.
        fleet.await_free(1)
        finish(start(tmp_path, *command))
        check_whole(database)


def check_whole(database: Path) -> None:
    """Every trial is there once; a run on machines of another speed is another one."""
    with open_database(database, read_only=True) as opened:
        runs, records = opened.runs(), list(opened.records())
    names = {(it.run_id, it.candidate.digest): it.outcome.status for it in records}
    assert len(names) == len({(it.run_id, it.trial) for it in records}) == len(records)
    last = max(runs, key=lambda run: run.created)
    assert last.status == "finished" and last.trials == TRIALS
    for run in runs:
        assert run.checkpoint is not None
        logs = run.checkpoint["progress"]["logs"]
        assert run is not last or sum(map(len, logs)) == TRIALS
        # Latencies of an earlier process are scaled to what its best candidate takes now.
        assert all(names[entry[5], entry[0]] == entry[1] for log in logs for entry in log)
