"""Checks that every task scheduler makes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from autotune.errors import InvalidValueError
from autotune.search.schedulers.task_scheduler import TaskInfo


def check_tasks(tasks: Sequence[TaskInfo]) -> None:
    """Refuse weights and operation counts that are negative or not finite.

    Raises:
        InvalidValueError: names the task by its position.
    """
    for index, task in enumerate(tasks):
        for name, value in (("weight", task.weight), ("flop", task.flop)):
            if not math.isfinite(value) or value < 0:
                raise InvalidValueError(f"{name} of task {index} must be at least 0, not {value}")


def check_round(tasks: Sequence[TaskInfo], task: int, latency: float | None, trials: int) -> None:
    """Refuse what no round of one of ``tasks`` can have ended with.

    Raises:
        InvalidValueError: there is no such task, or latency or trials are negative.
    """
    if not 0 <= task < len(tasks):
        raise InvalidValueError(
            f"there is no task {task}: they are numbered 0 to {len(tasks) - 1}"
        )
    if latency is not None and (not math.isfinite(latency) or latency < 0):
        raise InvalidValueError(f"latency of task {task} must be at least 0, not {latency}")
    if trials < 0:
        raise InvalidValueError(f"a round of task {task} cannot have {trials} trials")


def check_scheduler(name: str, tasks: Sequence[TaskInfo], state: dict[str, Any]) -> None:
    """Refuse the state of another scheduler or of another number of tasks.

    Raises:
        InvalidValueError: it is not a state of this scheduler.
    """
    if state.get("scheduler") != name:
        raise InvalidValueError(
            f"the state is of task scheduler {state.get('scheduler')!r}, this one is {name!r}"
        )
    if len(state["exhausted"]) != len(tasks):
        raise InvalidValueError(
            f"the state is of {len(state['exhausted'])} tasks, this scheduler has {len(tasks)}"
        )
