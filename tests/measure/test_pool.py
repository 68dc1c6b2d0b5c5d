"""Workers that end are answered for before they are replaced."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest
from process_facts import becomes_true

from autotune.measure.jobs import Job, Reply
from autotune.measure.pool import WorkerPool
from autotune.process.private_folder import make_private_folder
from autotune.testing.reference_backend import REFERENCE_BACKEND


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
