"""A backend for tests that knows how long its untuned programs take at least."""

from __future__ import annotations

from autotune.ir.workloads import Workload
from autotune.testing.reference_backend import ReferenceBackend

SLOW_UNTUNED = "slow_untuned:SlowUntuned"
LEAST_SECONDS = 0.5


class SlowUntuned(ReferenceBackend):
    """The reference backend, which says that no untuned program is fast."""

    def least_untuned(self, workload: Workload) -> float:
        return LEAST_SECONDS
