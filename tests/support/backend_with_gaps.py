"""A backend for tests that lacks some steps and some uses of steps."""

from __future__ import annotations

from attrs import evolve

from autotune.errors import UnsupportedTarget
from autotune.spaces import ScheduleLimits
from autotune.targets import Target
from autotune.testing.reference_backend import ReferenceBackend


class BackendWithGaps(ReferenceBackend):
    """The reference backend without padding and without packing of whole operands."""

    def limits(self, target: Target) -> ScheduleLimits:
        every = super().limits(target)
        steps = every.steps - {"pad_extent"}
        return evolve(every, steps=steps, without=frozenset({"pack.whole"}))


class BackendWithoutImports(ReferenceBackend):
    """The reference backend, which cannot import programs."""

    def imports(self, program: object) -> bool:
        return False


class NoBackend(ReferenceBackend):
    """Measures on no target."""

    def check_measuring(self, target: Target, threads: int = 1) -> None:
        raise UnsupportedTarget(f"no program runs on {target.name}")
