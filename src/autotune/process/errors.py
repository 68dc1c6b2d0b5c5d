"""Errors of isolated processes; what a candidate does wrong is an outcome and not an error."""

from __future__ import annotations

from autotune.errors import AutotuneError


class WorkerStartFailed(AutotuneError):
    """No worker process can be brought up, or it cannot be given what it works on."""
