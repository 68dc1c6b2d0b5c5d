"""Outcomes, records and runs: data only."""

from __future__ import annotations

from autotune.records.confirmation import Comparison, Confirmation
from autotune.records.contest import Contest
from autotune.records.outcome import OUTCOME_STATUSES, Outcome
from autotune.records.record import MeasureKey, Record
from autotune.records.run import RUN_STATUSES, Run, run_identity

__all__ = [
    "OUTCOME_STATUSES",
    "RUN_STATUSES",
    "Comparison",
    "Confirmation",
    "Contest",
    "MeasureKey",
    "Outcome",
    "Record",
    "Run",
    "run_identity",
]
