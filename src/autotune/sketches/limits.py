"""Limits of what a backend makes programs of: which steps, and how large."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

from autotune.sketches.sketch import Sketch
from autotune.sketches.steps import STEP_CLASSES, STEP_TYPES, step_name

__all__ = ["ScheduleLimits", "names_used"]


@frozen
class ScheduleLimits:
    """Limits that become hard constraints of every sketch.

    Attributes:
        steps: Names of the core's steps that the backend has (keys of ``STEP_TYPES``).
        stack_bytes: Largest accumulate tile, in bytes.
        unrolled_statements: Most copies of a statement that complete unrolling may make.
        source: Where the limits come from; named by the constraints.
        backend: The name under which intrinsics, and opaque steps of plugins, list the backend;
            empty where it makes no use of any.
        runs_nests: Whether it prints or runs the symbolic nest, so that it has whatever step of a
            plugin has an effect on that. One that reads steps instead has the core's alone.
    """

    steps: frozenset[str]
    stack_bytes: int
    unrolled_statements: int
    source: str
    backend: str = ""
    runs_nests: bool = False

    def missing(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of the steps with these names that the backend lacks, sorted."""
        return tuple(sorted({name for name in names if not self._has(name)}))

    def _has(self, step: str) -> bool:
        if step in STEP_TYPES or step not in STEP_CLASSES:
            return step in self.steps
        found = STEP_CLASSES[step]
        return self.backend in found.backends if found.opaque else self.runs_nests


def names_used(sketch: Sketch) -> frozenset[str]:
    """Names of all steps of a sketch."""
    return frozenset(map(step_name, sketch.core_steps))
