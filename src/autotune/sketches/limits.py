"""Limits of what a backend makes programs of: which steps, and how large."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attrs import Attribute, field, frozen

from autotune.errors import UnknownNameError
from autotune.sketches.open_step import STEP_CLASSES
from autotune.sketches.steps import STEP_TYPES
from autotune.sketches.variants import STEP_VARIANTS


def _check_variants(_limits: object, _field: Attribute[Any], names: frozenset[str]) -> None:
    for name in sorted(names):
        if name not in STEP_VARIANTS:
            raise UnknownNameError("variant of a step", name, STEP_VARIANTS)


@frozen
class ScheduleLimits:
    """Limits that become hard constraints of every sketch.

    Attributes:
        steps: Names of the core's steps that the backend has (keys of ``STEP_TYPES``).
        stack_bytes: Largest accumulate tile, in bytes.
        unrolled_statements: Most copies of a statement that complete unrolling may make.
        source: Where the limits come from; named by the constraints.
        without: Uses of these steps that the backend lacks (keys of ``STEP_VARIANTS``).
        backend: The name under which intrinsics, and opaque steps of plugins, list the backend;
            empty where it makes no use of any.
        runs_nests: Whether it prints or runs the symbolic nest, so that it has whatever step of a
            plugin has an effect on that. One that reads steps instead has the core's alone.

    Raises:
        UnknownNameError: ``without`` names a variant that does not exist.
    """

    steps: frozenset[str]
    stack_bytes: int
    unrolled_statements: int
    source: str
    without: frozenset[str] = field(default=frozenset(), validator=_check_variants)
    backend: str = ""
    runs_nests: bool = False

    def missing(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of ``names``, of steps and of variants, that the backend lacks, sorted."""
        lacking = set()
        for name in names:
            step = name.partition(".")[0]
            if not self._has(step):
                lacking.add(step)
            elif name in self.without:
                lacking.add(name)
        return tuple(sorted(lacking))

    def _has(self, step: str) -> bool:
        if step in STEP_TYPES or step not in STEP_CLASSES:
            return step in self.steps
        found = STEP_CLASSES[step]
        return self.backend in found.backends if found.opaque else self.runs_nests
