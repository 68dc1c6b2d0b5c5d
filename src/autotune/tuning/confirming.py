"""Confirming the winners of a session: all at its end, and one before where much depends on it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from attrs import frozen

from autotune.measure import TimeIsOver
from autotune.process.stopwatch import Stopwatch
from autotune.tuning.open_tasks import OpenTasks
from autotune.tuning.task import TaskSession
from autotune.tuning.time_limit import TimeLimit

__all__ = ["Winners"]


@frozen(eq=False)
class Winners:
    """The winners of a session's tasks.

    Attributes:
        tasks: The tasks.
        limit: Time of the session.
        watch: Tells it.
        open: Tasks whose measurers are open.
    """

    tasks: Sequence[TaskSession]
    limit: TimeLimit
    watch: Stopwatch
    open: OpenTasks

    def unconfirmed(self) -> list[TaskSession]:
        """Tasks whose winner is to be confirmed, those first on which most time is spent."""
        waiting = [task for task in self.tasks if task.is_to_be_confirmed]
        return sorted(waiting, key=lambda it: -it.spec.weight * (it.log.best_latency or 0.0))

    def confirm_one_early(self) -> bool:
        """Confirm the first one where that tells what time to keep for many; whether it did.

        Nothing may be in flight. What is confirmed is confirmed again if it has further trials.
        """
        waiting = self.unconfirmed()
        is_unknown = self.limit.is_confirmation_unknown(len(waiting))
        if is_unknown:
            self._confirm(waiting[0])
        return is_unknown

    def confirm(self) -> list[str]:
        """Confirm them as long as there is time; returns the names of tasks that are left."""
        waiting = self.unconfirmed()
        with suppress(TimeIsOver):
            for task in waiting:
                if self.limit.is_over:
                    break
                self._confirm(task)
        return [task.spec.name for task in waiting if task.is_to_be_confirmed]

    def _confirm(self, task: TaskSession) -> None:
        self.open.use(task)
        began = self.watch.session
        task.confirm()
        self.limit.note_confirmation(len(task.log), self.watch.session - began)
