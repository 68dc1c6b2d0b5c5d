"""Tasks of one structure: one is tuned first, and the others begin with what it has found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import frozen

from autotune.plugins.options import option
from autotune.search.schedulers.gradient import GradientOptions, GradientTaskScheduler
from autotune.search.schedulers.task_scheduler import SchedulerContext, TaskInfo


@frozen
class DiffusionOptions(GradientOptions):
    """Options of :class:`DiffusionScheduler`; others are those of ``gradient``.

    Attributes:
        alpha: Trust in the past improvement; the rest is trust in the optimistic guess.
        beta: How far from the flop/s of similar tasks a task may be expected to end.
        backward_window: Rounds over which the past improvement is taken.
        rounds: Rounds of a cluster's representative before the others, and not more than the
            cluster has tasks.
    """

    rounds: int = option(10, low=1)


class DiffusionScheduler(GradientTaskScheduler):
    """Clusters of equal structure: a representative first, then all by their gradients.

    The representative of a cluster is the task with the most weighted arithmetic. It gets its
    rounds before any other task of the cluster; these begin with its best candidates, moved to
    their shapes, and have rounds of half the size. After that, and for tasks that are alone, it
    is :class:`GradientTaskScheduler`.

    Source: Bayesian Code Diffusion (OSDI'25), whose populations are seeded likewise; its clusters
    are of operators or sketches, which here are of equal structure.

    Args:
        context: The tasks, and options; see :class:`DiffusionOptions`.

    Raises:
        InvalidValueError: as of :class:`GradientTaskScheduler`.
        PluginError: likewise.
    """

    name = "diffusion"
    options: DiffusionOptions
    _options_class = DiffusionOptions

    def __init__(self, context: SchedulerContext) -> None:
        super().__init__(context)
        self._clusters = _clusters(self.tasks)
        self._sources = {task: cluster[0] for cluster in self._clusters for task in cluster[1:]}
        self._rounds = [0] * len(self.tasks)

    def next_task(self, outstanding: Sequence[int] = ()) -> int | None:
        """A representative that lacks rounds, or as :class:`GradientTaskScheduler`."""
        for cluster in self._clusters:
            task, wanted = cluster[0], min(self.options.rounds, len(cluster))
            begun = self._rounds[task] + list(outstanding).count(task)
            if begun < wanted and not self._exhausted[task]:
                return task
        return super().next_task(outstanding)

    def source(self, task: int) -> int | None:
        """The representative of the task's cluster; None for itself, and for one alone."""
        return self._sources.get(task)

    def round_size(self, task: int, usual: int) -> int:
        """Half as many for a task that begins with another one's candidates."""
        return max(1, usual // 2) if task in self._sources else usual

    def tell(self, task: int, best_latency: float | None, trials: int) -> None:
        """Note a round; one without trials only says that the task is exhausted.

        Raises:
            InvalidValueError: there is no such task, or a number is negative.
        """
        super().tell(task, best_latency, trials)
        self._rounds[task] += trials > 0

    def state(self) -> dict[str, Any]:
        """A JSON object: the state of the gradients, and the rounds of each task."""
        return {**super().state(), "rounds": list(self._rounds)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned.

        Raises:
            InvalidValueError: the state is of another scheduler or number of tasks.
        """
        super().load_state(state)
        self._rounds = [int(count) for count in state["rounds"]]


def _clusters(tasks: Sequence[TaskInfo]) -> list[list[int]]:
    """Tasks of equal structure, of two or more, the representative of each first."""
    found: dict[str, list[int]] = {}
    for number, task in enumerate(tasks):
        if task.structure:
            found.setdefault(task.structure, []).append(number)
    several = [cluster for cluster in found.values() if len(cluster) > 1]
    return [sorted(it, key=lambda k: -tasks[k].weight * tasks[k].flop) for it in several]
