"""Limits of what a backend can replay: which steps, and how large."""

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
        steps: Names of the steps that the backend can replay (keys of ``STEP_TYPES``).
        stack_bytes: Largest accumulate tile, in bytes.
        unrolled_statements: Most copies of a statement that complete unrolling may make.
        source: Where the limits come from; named by the constraints.
        without: Uses of these steps that the backend cannot replay (keys of ``STEP_VARIANTS``).
        backend: The name under which intrinsics, and steps of plugins, list the backend; empty
            where it makes no use of any.
        runs_nests: Whether it runs the symbolic nest itself, so that it replays whatever step has
            an effect on that.
        empty_tiles: Whether a padded axis may have tiles that are wholly beyond its own extent.
        straddling_tiles: Whether tiles of an axis, at whose quotient or remainder a packed operand
            is read, may be neither multiples nor divisors of the divisor.

    Raises:
        UnknownNameError: ``without`` names a variant that does not exist.
    """

    steps: frozenset[str]
    stack_bytes: int
    unrolled_statements: int
    source: str
    without: frozenset[str] = field(default=frozenset(), validator=_check_variants)
    backend: str = ""
    empty_tiles: bool = True
    straddling_tiles: bool = True
    runs_nests: bool = False

    def missing(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of ``names``, of steps and of variants, that the backend cannot replay, sorted."""
        lacking = set()
        for name in names:
            step = name.partition(".")[0]
            if step in STEP_CLASSES and step not in STEP_TYPES:
                if not self.runs_nests and self.backend not in STEP_CLASSES[step].backends:
                    lacking.add(step)
            elif step not in self.steps:
                lacking.add(step)
            elif name in self.without:
                lacking.add(name)
        return tuple(sorted(lacking))
