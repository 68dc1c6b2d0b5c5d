"""Recording schedules of many tasks, as ordinary runs in an ordinary database."""

from __future__ import annotations

import time as clocks
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from attrs import evolve, frozen

from autotune.errors import UnsupportedWorkload
from autotune.models.training.task_list import ListedTask
from autotune.process.stopwatch import Clock
from autotune.tuning.api import run_tasks
from autotune.tuning.events import EventListener
from autotune.tuning.options import TuneOptions
from autotune.tuning.result import Result
from autotune.tuning.run_plan import TIME_OVER

__all__ = ["RecordedTask", "record_tasks"]

Watching = Callable[[ListedTask], AbstractContextManager[Sequence[EventListener]]]

DEFAULT_PROGRAMS = 300
DEFAULT_RANDOM_SHARE = 0.5


@frozen(eq=False)
class RecordedTask:
    """Progress of the recording of a task.

    Attributes:
        task: The task.
        result: Its run so far; None where the backend has no schedules for it.
        programs: How many candidates were asked for.
        failure: Why there is no result; "" where there is one.
    """

    task: ListedTask
    result: Result | None
    programs: int
    failure: str = ""

    @property
    def trials(self) -> int:
        """Candidates that have an outcome."""
        return 0 if self.result is None else self.result.trials

    @property
    def is_complete(self) -> bool:
        """True if nothing is left to record: all programs, or all that there are."""
        result = self.result
        return result is None or result.trials >= self.programs or result.reason != TIME_OVER

    def to_json(self) -> dict[str, Any]:
        """A JSON object; the latency is in seconds."""
        best = None if self.result is None else self.result.best
        return {
            "task": self.task.name,
            "programs": self.trials,
            "complete": self.is_complete,
            "outcomes": {} if self.result is None else dict(self.result.outcomes),
            "best": None if best is None else best.latency,
            "run": None if self.result is None else self.result.run_id,
            "failure": self.failure,
        }


def record_tasks(
    tasks: Iterable[ListedTask],
    options: TuneOptions,
    *,
    programs: int = DEFAULT_PROGRAMS,
    random_share: float = DEFAULT_RANDOM_SHARE,
    watching: Watching = lambda task: nullcontext(()),
    clock: Clock = clocks.monotonic,
) -> list[RecordedTask]:
    """Measure schedules of every task, one run each; nothing is measured twice.

    Half of the schedules are random and half are evolved, so that the data shows both what the
    space is like and what is found by a search. The same call continues what was interrupted, at
    any point, and continues with the remaining tasks.

    Args:
        tasks: What to record.
        options: How to tune; strategy and trials are those of the recording, and the time is that
            of all tasks.
        programs: Candidates of each task, failures included.
        random_share: Share of the candidates that is random.
        watching: Entered for each task while it is recorded; gives its listeners.
        clock: Monotonic seconds.

    Returns:
        One item for each task that was begun, in order.

    Raises:
        AutotuneError: as :func:`autotune.tune`; a task that the backend has no schedules for is
            no error, but an item with a failure.
    """
    began, limit = clock(), options.time
    strategy = ("evolutionary", {"epsilon": random_share})
    options = evolve(
        options,
        trials=programs,
        time=None,
        parts={**options.parts, "strategy": strategy},
        # What is recorded shows the space, not what was found in others.
        warm_start=False,
    )
    done: list[RecordedTask] = []
    for task in tasks:
        left = None if limit is None else limit - (clock() - began)
        if left is not None and left <= 0:
            break
        try:
            with watching(task) as listeners:
                own = evolve(options, session_time=left, listeners=tuple(listeners))
                (result,) = run_tasks([task.make()], own)
        except UnsupportedWorkload as error:
            done.append(RecordedTask(task, None, programs, str(error)))
        else:
            done.append(RecordedTask(task, result, programs))
    return done
