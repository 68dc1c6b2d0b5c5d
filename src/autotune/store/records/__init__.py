"""Outcomes, records and runs: data only."""

from __future__ import annotations

from autotune.store.records.baseline import Baseline, best_baseline, standing
from autotune.store.records.confirmation import Comparison, Confirmation
from autotune.store.records.contest import Contest
from autotune.store.records.outcome import WRITTEN_WHEN_SET, Outcome
from autotune.store.records.record import BASELINE_PLACES, MeasureKey, Record
from autotune.store.records.run import RUN_STATUSES, Run, run_identity
from autotune.store.records.warm_source import WARM_USES, WarmSource
from autotune.store.statuses import OUTCOME_STATUSES, RETRIABLE_STATUSES

__all__ = [
    "BASELINE_PLACES",
    "OUTCOME_STATUSES",
    "RETRIABLE_STATUSES",
    "RUN_STATUSES",
    "WARM_USES",
    "WRITTEN_WHEN_SET",
    "Baseline",
    "Comparison",
    "Confirmation",
    "Contest",
    "MeasureKey",
    "Outcome",
    "Record",
    "Run",
    "WarmSource",
    "best_baseline",
    "run_identity",
    "standing",
]
