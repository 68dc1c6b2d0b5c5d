"""Task schedulers: the interface and the built-ins."""

from __future__ import annotations

from autotune.task_schedulers.gradient import GradientOptions, GradientTaskScheduler
from autotune.task_schedulers.gradients import task_gradients
from autotune.task_schedulers.round_robin import RoundRobin
from autotune.task_schedulers.task_scheduler import TaskInfo, TaskScheduler

__all__ = [
    "GradientOptions",
    "GradientTaskScheduler",
    "RoundRobin",
    "TaskInfo",
    "TaskScheduler",
    "task_gradients",
]
