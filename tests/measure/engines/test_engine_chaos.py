"""Faults at random moments, in a cluster of threads: nothing is lost, and nothing doubled."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve
from engine_chaos import are_gone, measure_through
from thread_cluster import ThreadCluster, ThreadHandle

from autotune.ir.workloads import gemm
from autotune.measure.engines import ArtefactStore
from autotune.measure.engines.supervised import Node, SupervisedEngine
from autotune.measure.workers import EnginePool
from autotune.testing.engine_suite import EngineHost, engine_context

# What is said of each. A worker's end is an outcome, or of no effect where it was at nothing.
FAULTS = {
    "worker": "",
    "actor": "machine '.*' is lost: the actor died",
    "node": "machine '.*' is lost: its node has left the cluster",
    "silent": "machine '.*' is lost: it said nothing for 2 s",
    "double": r"dropped (an answer|\d+ answers) that came late or twice",
    "late": "machine '.*' is lost: it said nothing for 2 s",
    "fingerprint": "machine 'stranger' times nothing in this run, whose machines differ: protocol",
}


def inflict(
    fault: str, cluster: ThreadCluster, host: EngineHost, rng: np.random.Generator
) -> None:
    """Have something go wrong now."""
    alive = [it for it in cluster.handles if not it.is_over]
    victim = alive[rng.integers(len(alive))]
    if fault == "worker":
        pids = [pid for _, *those in host.engine.pids.values() for pid in those]  # type: ignore[attr-defined]
        os.kill(int(rng.choice(pids)), signal.SIGKILL)
    elif fault == "actor":
        victim.die()
    elif fault == "node":
        cluster.present.append(Node("joined", 1))
        cluster.present.remove(victim.node)
    elif fault == "silent":
        victim.freeze()
    elif fault == "double":
        cluster.fault = lambda data: [data, data]
    elif fault == "late":
        victim.freeze()
        threading.Thread(target=thaw_when_given_up, args=(victim,), daemon=True).start()
    else:
        cluster.supervisor_of = lambda setup: evolve(setup, protocol="another")
        cluster.present.append(Node("stranger", 1))


def thaw_when_given_up(victim: ThreadHandle) -> None:
    """Have all that it has to say arrive when nobody waits for it any more."""
    while not victim.is_over:
        time.sleep(0.05)
    victim.frozen.clear()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_lost_and_nothing_doubled(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    fault = list(FAULTS)[seed % len(FAULTS)]
    cluster = ThreadCluster(("one", "two", "three"))
    context = engine_context()
    pids: set[int] = set()
    with SupervisedEngine(context, cluster, silence=2.0) as engine:
        host = EngineHost(engine, ArtefactStore(tmp_path), context, gemm(m=8, n=8, k=8))
        engine.start(host.store)
        host.wait(lambda: len(engine.machines()) == 6)
        host.tell()
        pids.update(*(those[1:] for those in engine.pids.values()))
        act: Callable[[], None] = lambda: inflict(fault, cluster, host, rng)  # noqa: E731
        pool = EnginePool(engine, host.store, context.protocol.deadlines)
        pool.poll(0.0)
        warnings = measure_through(host, 6, int(rng.integers(6)), act)

        def is_named() -> bool:
            pool.poll(0.0)
            warnings.extend(pool.take_warnings())
            assert all(len(line.splitlines()) == 1 for line in warnings)
            return any(re.search(FAULTS[fault], line) for line in [*warnings, ""])

        host.wait(is_named)
        pids.update(*(those[1:] for those in engine.pids.values()))
    assert are_gone(pids)
