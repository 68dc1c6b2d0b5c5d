"""Workers that several tasks share: what one task does, the others do not notice."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from process_facts import becomes_true
from thinning import thinned

from autotune.ir.workloads import gemm
from autotune.measure import (
    Collecting,
    LocalMeasurer,
    MeasureProtocol,
    SharedWorkers,
    TimeIsOver,
    WorkerStartFailed,
)
from autotune.measure.jobs import Job, Place, Reply
from autotune.measure.pool import WorkerPool
from autotune.measure.workers import WorkerSetup
from autotune.process.private_folder import make_private_folder
from autotune.sketches import Candidate, Ordinal, Sketch
from autotune.store.records import Outcome
from autotune.targets import Target
from autotune.testing.reference_backend import REFERENCE_BACKEND, virtual_latency

TARGET = Target("cpu", "test", cores=2)


@pytest.fixture
def shared() -> Iterator[SharedWorkers]:
    workers = SharedWorkers()
    yield workers
    workers.close()


def task(
    shared: SharedWorkers, size: int, *faults: dict[str, Any], count: int = 2
) -> tuple[LocalMeasurer, list[Candidate]]:
    """A measurer of a product of ``size``, with six candidates."""
    workload = gemm(m=size, n=size, k=size)
    program = json.dumps({"faults": list(faults)})
    measurer = LocalMeasurer(
        REFERENCE_BACKEND, TARGET, 2, workload, program, workers=count, shared=shared, seed=size
    )
    sketch = Sketch("toy", workload, (Ordinal("tile", tuple(range(1, 7))),), (), ())
    return measurer, [Candidate(sketch, (value,)) for value in range(1, 7)]


def are_right(outcomes: list[Outcome], candidates: list[Candidate]) -> bool:
    """Tell whether each has run, was found right, and has the latency of its own workload."""
    expected = [virtual_latency(it.sketch.workload, it) for it in candidates]
    found = [outcome.latency for outcome in outcomes]
    return all(it.ok for it in outcomes) and found == pytest.approx(expected)


def test_tasks_share_processes_and_nothing_else(shared: SharedWorkers) -> None:
    (small, ours), (large, theirs) = task(shared, 8), task(shared, 16)
    assert are_right(small.measure(ours[:3]), ours[:3])
    pids = small.worker_pids
    # Built while the other is timed, run in between, compared with a leader that is still held.
    large.submit(theirs)
    small.submit(ours[3:])
    assert are_right(large.collect(Collecting()), theirs)
    assert are_right(small.collect(Collecting()), ours[3:])
    assert are_right(large.rematch([theirs[0], None])[:1], theirs[:1])
    assert small.measure_baselines([None])[0].ok
    assert small.worker_pids == large.worker_pids == pids and small.shares_workers
    small.close()
    assert are_right(large.measure(theirs[:2]), theirs[:2])
    assert large.worker_pids == pids, "workers go on without a task that is over"
    shared.close()
    assert large.worker_pids == []
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


@pytest.mark.parametrize("fault", thinned(["kill", "crash"], 2))
def test_a_worker_that_one_task_ends_is_replaced_for_all(
    shared: SharedWorkers, fault: str
) -> None:
    small, ours = task(shared, 8)
    faults = [{"fault": fault, "phase": "run", "where": {"tile": tile}} for tile in (1, 4)]
    large, theirs = task(shared, 16, *faults)
    assert are_right(small.measure(ours[:3]), ours[:3])
    pids = small.worker_pids
    small.submit(ours[3:])
    outcomes = large.measure(theirs)
    assert [it.status for it in outcomes] == ["crash", "ok", "ok", "crash", "ok", "ok"]
    assert large.worker_pids != pids
    # What the others had built in a worker that is gone, their best one too, is built again.
    assert are_right(small.collect(Collecting()), ours[3:])


def test_replies_that_come_while_a_worker_is_replaced_are_given(shared: SharedWorkers) -> None:
    small, ours = task(shared, 8)
    assert are_right(small.measure(ours[:1]), ours[:1])
    dispatcher = small._started().dispatcher
    pool = dispatcher.pool
    replies: list[Reply] = []

    def post(place: Place | None) -> None:
        message = {"op": "forget", "numbers": []}
        dispatcher.post(message, {"load": 60.0}, replies.append, place)
        dispatcher.pump(0.0)

    post(None)
    while not replies:
        dispatcher.pump()
    post(replies[0].place)
    (other,) = (pid for index, pid in pool.pids().items() if index != replies[0].place[0])
    os.kill(other, signal.SIGKILL)
    while other in pool.pids().values():
        pool.wait_ready()
    dispatcher.drain()
    assert [reply.kind for reply in replies] == ["done", "done"]


def test_what_is_cancelled_for_one_task_is_built_again_for_others(shared: SharedWorkers) -> None:
    (small, ours), (large, theirs) = task(shared, 8), task(shared, 16)

    def interrupt(index: int, outcome: Outcome) -> None:
        raise KeyboardInterrupt

    large.submit(theirs)
    with pytest.raises(KeyboardInterrupt):
        small.measure(ours, interrupt)
    assert are_right(large.collect(Collecting()), theirs)
    assert are_right(small.measure(ours), ours)


def test_what_is_known_when_the_time_is_over_is_told(shared: SharedWorkers) -> None:
    (small, ours), (large, theirs) = task(shared, 8), task(shared, 16)
    told: dict[int, Outcome] = {}

    def on_outcome(position: int, outcome: Outcome) -> None:
        told[position] = outcome
        shared.is_late = lambda: True

    large.submit(theirs)
    small.submit(ours)
    with pytest.raises(TimeIsOver):
        small.collect(Collecting(on_outcome))
    assert 0 in told and are_right([told[0]], ours[:1])
    for wait in (lambda: large.collect(Collecting()), lambda: large.rematch(theirs[:2])):
        with pytest.raises(TimeIsOver):
            wait()
    shared.is_late = lambda: False
    assert are_right(small.measure(ours), ours)
    assert are_right(large.measure(theirs), theirs)


def test_inputs_that_one_candidate_overwrites_are_fresh_for_the_other_task(
    shared: SharedWorkers,
) -> None:
    small, ours = task(shared, 8)
    spoiling, theirs = task(shared, 8, {"fault": "wrong", "every": 1})
    assert {it.status for it in spoiling.measure(theirs)} == {"wrong_result"}
    assert are_right(small.measure(ours), ours)


def test_who_needs_other_workers_gets_others(shared: SharedWorkers) -> None:
    setup = WorkerSetup(REFERENCE_BACKEND, TARGET, 2)
    cold = WorkerSetup(REFERENCE_BACKEND, TARGET, 2, MeasureProtocol(cold=True))
    one_thread = WorkerSetup(REFERENCE_BACKEND, TARGET, 1)
    assert shared.get(setup) is shared.get(WorkerSetup(REFERENCE_BACKEND, TARGET, 2))
    assert len({id(shared.get(it)) for it in (setup, cold, one_thread)}) == 3
    with pytest.raises(WorkerStartFailed, match="have not been started"):
        shared.get(cold).admit()


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    folder = make_private_folder()
    made = WorkerPool(
        REFERENCE_BACKEND,
        1,
        {},
        workers=1,
        deadlines={"start": 60.0, "task": 60.0},
        memory_bytes=1 << 32,
        folder=folder,
        clock=time.monotonic,
    )
    made.start()
    made.wait_ready()
    yield made
    made.close()
    folder.remove()


def test_the_job_of_a_worker_that_ended_is_answered_where_others_are_waited_for(
    pool: WorkerPool,
) -> None:
    """The worker ends between two looks, the second of which waits for workers to be ready."""
    (worker,) = pool.pids().values()
    os.kill(worker, signal.SIGSTOP)
    pool.add([Job({"op": "none"}, {"build": 600.0}, number=1)])
    assert pool.poll(0.0) == []
    os.kill(worker, signal.SIGKILL)
    assert becomes_true(lambda: not os.path.exists(f"/proc/{worker}"))
    pool.wait_ready()
    replies: list[Reply] = []
    assert becomes_true(lambda: replies.extend(pool.poll(0.05)) or replies)
    assert [(reply.number, reply.kind) for reply in replies] == [(1, "lost")]
    assert worker not in pool.pids().values()
