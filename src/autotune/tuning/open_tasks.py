"""Which tasks of a run keep their measurers open: processes and arrays are not free."""

from __future__ import annotations

from autotune.tuning.task import TaskSession

__all__ = ["OpenTasks"]

MOST_POOLS = 2
"""Measurers with processes of their own that are kept at once; the others are closed."""
MOST_KEPT_BYTES = 1 << 30
"""Inputs and outputs of tasks whose measurers are kept."""


class OpenTasks:
    """The tasks whose measurers are open, the one that was used last at the end."""

    def __init__(self) -> None:
        self._tasks: list[TaskSession] = []

    def use(self, task: TaskSession, needed: int = 1) -> None:
        """Have a task's measurer at hand, and not too many others.

        Args:
            task: The task.
            needed: How many are needed at once, this one included.
        """
        if task in self._tasks:
            self._tasks.remove(task)
        self._tasks.append(task)
        while len(self._tasks) > needed and self._are_too_many():
            self._tasks.pop(0).close()
        task.start()

    def clear(self) -> None:
        """Forget all of them, after they were closed."""
        self._tasks.clear()

    def _are_too_many(self) -> bool:
        owners = sum(not task.shares_workers for task in self._tasks)
        kept = sum(task.spec.workload.io_bytes for task in self._tasks)
        return owners > MOST_POOLS or kept > MOST_KEPT_BYTES
