"""Objective of a user over the tasks together, as the schedulers' slopes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.errors import InvalidValueError
from autotune.plugins.calling import Calling
from autotune.search.schedulers.task_scheduler import Objective, TaskInfo

__all__ = ["Objective", "objective_name", "objective_slopes"]

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
