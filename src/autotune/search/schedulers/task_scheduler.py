"""The interface of a task scheduler, which chooses the task of the next round; its checks."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from attrs import frozen

from autotune.errors import InvalidValueError
from autotune.ir.workloads import Stage, Workload
from autotune.plugins import Context
from autotune.plugins.calling import Calling

__all__ = ["Objective", "objective_name", "objective_slopes"]


@frozen
class TaskInfo:
    """A task as a scheduler sees it before the first measurement.

    Attributes:
        weight: How often the task occurs in the network.
        flop: Arithmetic operations of one execution.
        group: Tasks with equal groups are expected to reach similar flop/s.
        contest: Tasks with equal contests are one program on several backends, of which only the
            fastest counts; "" for a task that competes with none.
        program: What a person calls the program.
        structure: Tasks with equal structures differ in shape only, so that a schedule of one may
            do for another; "" for a task that is like none.
    """

    weight: float
    flop: float
    group: str = ""
    contest: str = ""
    program: str = ""
    structure: str = ""


Objective: TypeAlias = "Callable[[Mapping[str, float]], float]"
"""Function to minimise, from the latency of each program in seconds, by the program's name."""


@frozen(eq=False)
class SchedulerContext(Context):
    """The context of a task scheduler.

    Attributes:
        tasks: The tasks.
        objective: What is minimised; None for the weighted sum of latencies.
        seed: Of the scheduler's randomness.
    """

    tasks: Sequence[TaskInfo]
    objective: Objective | None = None
    seed: int = 0


class TaskScheduler(ABC):
    """Chooses tasks for rounds. Constructed as ``TaskScheduler(context)``.

    Raises:
        InvalidValueError: a task's weight or flop is negative, or not finite.
    """

    name: str

    def __init__(self, context: SchedulerContext) -> None:
        self.tasks: tuple[TaskInfo, ...] = tuple(context.tasks)
        check_tasks(self.tasks)

    @abstractmethod
    def next_task(self, outstanding: Sequence[int] = ()) -> int | None:
        """Index of the task to serve next; None when every task is exhausted.

        Args:
            outstanding: Tasks of the rounds in flight, the latest last.
        """

    def source(self, task: int) -> int | None:
        """The task whose best candidates a task begins with; None for none, which is usual.

        It is asked when a task is about to have its first round.
        """
        return None

    def round_size(self, task: int, usual: int) -> int:
        """Number of candidates in a round of a task, of ``usual`` ones; at least 1."""
        return usual

    @abstractmethod
    def tell(self, task: int, best_latency: float | None, trials: int) -> None:
        """A round of ``task`` ended: best latency so far in seconds (None: none yet), and the
        number of trials the round consumed (0 means that the task is exhausted)."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """A JSON object for :meth:`load_state`."""

    @abstractmethod
    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned."""


_LOG_BASE = 1.618
"""Factor in flop below which tasks are of one group, as in Ansor's task scheduler."""


def similarity_group(workload: Workload) -> str:
    """A text that is equal for workloads of the same structure and about the same flop.

    The structure is, of every stage, the numbers of its axes, its combiner and its element type.
    Names are left out: frontends make them up. Empty for a workload without arithmetic.

    Source: the similarity tag of Ansor's task scheduler (TVM's ``derive_similarity_tag``).
    """
    if not workload.flop:
        return ""
    magnitude = int(math.log(workload.flop + 1, _LOG_BASE))
    return f"{' + '.join(map(_structure, workload.stages))}, flop class {magnitude}"


def _structure(stage: Stage) -> str:
    axes = f"{len(stage.spatial_axes)}x{len(stage.reduce_axes)}"
    return f"{axes} {stage.combiner or 'map'} {stage.output.dtype}"


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


_STEP = 1e-3
"""Share of a latency by which it is changed to find the slope."""


def objective_name(objective: Objective) -> str:
    """Identity of a function: its module and its name."""
    module = getattr(objective, "__module__", type(objective).__module__)
    name = getattr(objective, "__qualname__", type(objective).__qualname__)
    return f"{module}:{name}"


def objective_slopes(
    tasks: Sequence[TaskInfo], latencies: Sequence[float], objective: Objective | None
) -> list[float]:
    """Slopes of the objective in the latency of each task.

    Args:
        tasks: The tasks.
        latencies: Theirs in seconds. Of several backends that compete for a program, the lowest
            one is the program's.
        objective: The objective; None for the weighted sum, whose slopes are the weights.

    Raises:
        InvalidValueError: the objective is no finite number.
        PluginError: the function raised something.
    """
    if objective is None:
        return [task.weight for task in tasks]
    now = _value(objective, tasks, latencies)
    slopes = []
    for index, latency in enumerate(latencies):
        changed = list(latencies)
        changed[index] = latency * (1.0 - _STEP)
        gained = now - _value(objective, tasks, changed)
        slopes.append(gained / (latency * _STEP) if latency > 0 else 0.0)
    return slopes


def _value(objective: Objective, tasks: Sequence[TaskInfo], latencies: Sequence[float]) -> float:
    programs: dict[str, float] = {}
    for task, latency in zip(tasks, latencies, strict=True):
        programs[task.program] = min(latency, programs.get(task.program, math.inf))
    name = objective_name(objective)
    with Calling(f"objective {name}", "for the latencies of the tasks"):
        value = objective(programs)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InvalidValueError(
            f"objective {name} returned {value!r} for the latencies {programs}; it returns a "
            "finite number, which is minimised"
        )
    return float(value)
