"""Timing while nothing else of ours, nor another process that times, uses the same processors."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from autotune.measure.pinning import confined
from autotune.measure.task_client import TaskClient
from autotune.measure.trial import Trial
from autotune.measure.workers import MeasureWorkers

__all__ = ["undisturbed"]

# How often to ask whether another process has ended its turn.
_TURN_SECONDS = 0.02


@contextmanager
def undisturbed(
    client: TaskClient,
    workers: MeasureWorkers,
    trials: Sequence[Trial],
    later: Sequence[Trial] = (),
) -> Iterator[None]:
    """Time is taken inside: whatever would share CPUs with it waits.

    Other processes that time on these CPUs are waited for, and wait.

    Args:
        client: The task.
        workers: Those of the task.
        trials: What is timed.
        later: What may be timed next: the workers that hold it begin nothing that would have
            to be waited for then.
    """
    pool = workers.pool
    try:
        while not workers.timing_lock.acquire():
            client.dispatcher.pump(0.0)
            time.sleep(_TURN_SECONDS)
        leader = client.timing.leader
        timed = {it.place[0] for it in (*trials, leader) if it is not None and it.place}
        soon = {trial.place[0] for trial in later if trial.place is not None}
        pool.reserve(timed if workers.overlaps else range(workers.count), soon)
        client.dispatcher.settle_down()
        builders = [pid for index, pid in pool.pids().items() if index not in timed]
        with confined(builders if workers.overlaps else [], workers.free_cpus):
            yield
    finally:
        pool.reserve(())
        workers.timing_lock.release()
