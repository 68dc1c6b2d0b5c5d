"""Errors of isolated processes; the fault of a candidate is an outcome, not an error."""

from __future__ import annotations

from autotune.errors import AutotuneError


class TimeIsOver(AutotuneError):
    """Error of a wait that takes longer than the caller has; jobs are given up."""


class WorkerStartFailed(AutotuneError):
    """No worker process can be brought up, or it cannot be given what it works on."""
