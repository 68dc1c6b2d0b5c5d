"""Statuses of a measurement; imports nothing, so that the command line can list it at no cost."""

from __future__ import annotations

__all__ = ["OUTCOME_STATUSES", "RETRIABLE_STATUSES"]

OUTCOME_STATUSES = (
    "ok",
    "invalid",
    "build_error",
    "crash",
    "timeout",
    "wrong_result",
    "implausible",
)
RETRIABLE_STATUSES = ("crash", "timeout", "implausible")
"""Statuses for which the machine may have been at fault: a later run may try again."""
