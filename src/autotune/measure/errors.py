"""Errors of measuring; a bad candidate is an outcome and not an error."""

from __future__ import annotations

from autotune.errors import AutotuneError


class WorkerStartFailed(AutotuneError):
    """No worker process can be brought up, or the task cannot be given to it."""
