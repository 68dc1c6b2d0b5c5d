"""The task from which the network is expected to gain most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import frozen

from autotune.plugins.options import option, read_options
from autotune.search.schedulers.gradients import task_gradients
from autotune.search.schedulers.task_scheduler import (
    Objective,
    SchedulerContext,
    TaskScheduler,
    check_round,
    check_scheduler,
    objective_slopes,
)


@frozen
class GradientOptions:
    """Options of :class:`GradientTaskScheduler`; defaults are Ansor's.

    Attributes:
        alpha: Trust in the past improvement; the rest is trust in the optimistic guess.
        beta: How far from the flop/s of similar tasks a task may be expected to end.
        backward_window: Rounds over which the past improvement is taken.
    """

    alpha: float = option(0.2, low=0.0, high=1.0)
    beta: float = option(2.0, low=1.0)
    backward_window: int = option(3, low=1)


class GradientTaskScheduler(TaskScheduler):
    """Ansor's scheduler: the steepest of :func:`~autotune.search.schedulers.task_gradients`.

    Every task gets one round first, in order. Where gradients are equal a task with a weight
    comes first, then the one with fewest rounds. It draws no random numbers: the authors'
    occasional random task is left out, because ``forward`` brings every task of positive
    weight back sooner or later.

    Args:
        context: The tasks, and options; see :class:`GradientOptions`.

    Raises:
        InvalidValueError: an option is unknown or out of range, a task is malformed, or the
            objective is no finite number where every latency is a second.
        PluginError: the objective raised something.
    """

    name = "gradient"
    _options_class: type[GradientOptions] = GradientOptions

    def __init__(self, context: SchedulerContext) -> None:
        super().__init__(context)
        owner = f"task scheduler {self.name!r}"
        self.options = read_options(owner, self._options_class, context.options)
        self._objective: Objective | None = context.objective
        # A function that fails does so before anything is spent.
        objective_slopes(self.tasks, [1.0] * len(self.tasks), self._objective)
        self._histories: list[list[float | None]] = [[] for _ in self.tasks]
        self._sizes: list[list[int]] = [[] for _ in self.tasks]
        self._exhausted = [False] * len(self.tasks)

    def next_task(self, outstanding: Sequence[int] = ()) -> int | None:
        """The first task without a round, then the one with the steepest gradient."""
        open_tasks = [task for task, exhausted in enumerate(self._exhausted) if not exhausted]
        for task in open_tasks:
            if not self._histories[task] and task not in outstanding:
                return task
        # Nothing is known of a task before its first round has ended.
        known = [task for task in open_tasks if self._histories[task]]
        if not known:
            return open_tasks[0] if open_tasks else None
        # Exhausted tasks take part: what they reached says what similar ones can reach.
        by_task = task_gradients(
            self.tasks,
            [history or [None] for history in self._histories],
            [sizes or [1] for sizes in self._sizes],
            alpha=self.options.alpha,
            beta=self.options.beta,
            window=self.options.backward_window,
            objective=self._objective,
        )
        return min(
            known,
            key=lambda k: (by_task[k], self.tasks[k].weight == 0, len(self._histories[k])),
        )

    def tell(self, task: int, best_latency: float | None, trials: int) -> None:
        """Note a round; one without trials only says that the task is exhausted.

        Raises:
            InvalidValueError: there is no such task, or a number is negative.
        """
        check_round(self.tasks, task, best_latency, trials)
        if trials == 0:
            self._exhausted[task] = True
            return
        history = self._histories[task]
        known = [latency for latency in (best_latency, *history[-1:]) if latency is not None]
        history.append(min(known, default=None))
        self._sizes[task].append(trials)

    def state(self) -> dict[str, Any]:
        """A JSON object: latency after each round of each task, its trials, what is exhausted."""
        return {
            "scheduler": self.name,
            "histories": [list(history) for history in self._histories],
            "sizes": [list(sizes) for sizes in self._sizes],
            "exhausted": list(self._exhausted),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned.

        Raises:
            InvalidValueError: the state is of another scheduler or number of tasks.
        """
        check_scheduler(self.name, self.tasks, state)
        self._histories = [list(history) for history in state["histories"]]
        # In a state of an earlier version all rounds are of one size.
        all_alike = [[1] * len(history) for history in self._histories]
        self._sizes = [list(sizes) for sizes in state.get("sizes", all_alike)]
        self._exhausted = [bool(item) for item in state["exhausted"]]
