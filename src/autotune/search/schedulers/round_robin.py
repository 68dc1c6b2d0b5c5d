"""Every task in turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotune.errors import InvalidValueError
from autotune.plugins.options import NoOptions, read_options
from autotune.search.schedulers.task_scheduler import (
    SchedulerContext,
    TaskScheduler,
    check_round,
    check_scheduler,
)


class RoundRobin(TaskScheduler):
    """Serves the tasks in turn, whatever their weights, until each is exhausted.

    Args:
        context: The tasks.

    Raises:
        InvalidValueError: an option or an objective is given, or a task is malformed.
    """

    name = "round-robin"

    def __init__(self, context: SchedulerContext) -> None:
        super().__init__(context)
        read_options(f"task scheduler {self.name!r}", NoOptions, context.options)
        if context.objective is not None:
            raise InvalidValueError(
                f"task scheduler {self.name!r} serves tasks in turn, whatever the objective: "
                "leave out the objective, or choose the scheduler 'gradient'"
            )
        self._next = 0
        self._exhausted = [False] * len(self.tasks)

    def next_task(self, outstanding: Sequence[int] = ()) -> int | None:
        """The first task from the current one on, in a circle, that is not exhausted."""
        count = len(self.tasks)
        first = outstanding[-1] + 1 if outstanding else self._next
        circle = ((first + step) % count for step in range(count))
        return next((task for task in circle if not self._exhausted[task]), None)

    def tell(self, task: int, best_latency: float | None, trials: int) -> None:
        """Continue with the task after this one.

        Raises:
            InvalidValueError: there is no such task, or a number is negative.
        """
        check_round(self.tasks, task, best_latency, trials)
        self._exhausted[task] |= trials == 0
        self._next = (task + 1) % len(self.tasks)

    def state(self) -> dict[str, Any]:
        """A JSON object: the task to look at next, and which are exhausted."""
        return {"scheduler": self.name, "next": self._next, "exhausted": list(self._exhausted)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned.

        Raises:
            InvalidValueError: the state is of another scheduler or number of tasks.
        """
        check_scheduler(self.name, self.tasks, state)
        self._next = int(state["next"])
        self._exhausted = [bool(item) for item in state["exhausted"]]
