"""A backend for tests that lacks some steps and some uses of steps."""

from __future__ import annotations

from attrs import evolve

from autotune.spaces import ScheduleLimits
from autotune.targets import Target
from autotune.testing.reference_backend import ReferenceBackend


class BackendWithGaps(ReferenceBackend):
    """The reference backend without padding and without packing of whole operands."""

    def limits(self, target: Target) -> ScheduleLimits:
        every = super().limits(target)
        steps = every.steps - {"pad_extent"}
        return evolve(every, steps=steps, without=frozenset({"pack.whole"}))
