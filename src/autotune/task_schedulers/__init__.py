"""Interface and built-ins."""

from __future__ import annotations

from autotune.task_schedulers.task_scheduler import TaskInfo, TaskScheduler

__all__ = ["TaskInfo", "TaskScheduler"]
