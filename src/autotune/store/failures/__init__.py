"""Constraints that records of failures suggest."""

from __future__ import annotations

from autotune.store.failures.mining import FailureGroup, mine_failures, phase_of
from autotune.store.failures.rules import Condition, Rule, separating_rules

__all__ = [
    "Condition",
    "FailureGroup",
    "Rule",
    "mine_failures",
    "phase_of",
    "separating_rules",
]
