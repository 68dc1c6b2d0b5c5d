"""Backends for tests that lack some steps, programs to import, or every target."""

from __future__ import annotations

from attrs import evolve

from autotune.errors import UnsupportedTarget
from autotune.spaces import ScheduleLimits
from autotune.targets import Target
from autotune.testing.reference_backend import ReferenceBackend


class BackendWithGaps(ReferenceBackend):
    """The reference backend without padding and packing."""

    def limits(self, target: Target) -> ScheduleLimits:
        every = super().limits(target)
        return evolve(every, steps=every.steps - {"pad_extent", "pack"})


class BackendWithoutImports(ReferenceBackend):
    """The reference backend, which cannot import programs."""

    def imports(self, program: object) -> bool:
        return False


class NoBackend(ReferenceBackend):
    """Measures on no target."""

    def check_measuring(self, target: Target, threads: int = 1) -> None:
        raise UnsupportedTarget(f"no program runs on {target.name}")
