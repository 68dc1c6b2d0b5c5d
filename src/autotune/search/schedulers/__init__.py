"""Task schedulers: the interface and the built-ins."""

from __future__ import annotations

from autotune.search.schedulers.diffusion import DiffusionOptions, DiffusionScheduler
from autotune.search.schedulers.gradient import GradientOptions, GradientTaskScheduler
from autotune.search.schedulers.gradients import task_gradients
from autotune.search.schedulers.round_robin import RoundRobin
from autotune.search.schedulers.task_scheduler import (
    SchedulerContext,
    TaskInfo,
    TaskScheduler,
    check_round,
    check_scheduler,
    check_tasks,
    similarity_group,
)

__all__ = [
    "DiffusionOptions",
    "DiffusionScheduler",
    "GradientOptions",
    "GradientTaskScheduler",
    "RoundRobin",
    "SchedulerContext",
    "TaskInfo",
    "TaskScheduler",
    "check_round",
    "check_scheduler",
    "check_tasks",
    "similarity_group",
    "task_gradients",
]
