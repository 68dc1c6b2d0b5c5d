"""The sketch space with the rules that plugins add."""

from __future__ import annotations

from autotune.ir.workloads import Workload
from autotune.plugins.manager import manager
from autotune.plugins.parts import create_part
from autotune.spaces import EmptySpace, ScheduleLimits, SketchSpace
from autotune.spaces.problems import require_solutions
from autotune.targets import Target

__all__ = ["sketch_space_with_plugged_rules"]


def sketch_space_with_plugged_rules(
    workload: Workload, target: Target, limits: ScheduleLimits
) -> SketchSpace:
    """A :class:`~autotune.spaces.SketchSpace` that asks every registered sketch rule first.

    Raises:
        UnsupportedWorkload: no rule applies to a stage, or the backend can replay no sketch.
        ContradictoryConstraints: no sketch has a feasible configuration; names a smallest set of
            constraints of the first sketch that contradict each other.
        PluginError: a rule fails while it is made.
    """
    rules = [create_part("sketch_rule", name) for name in manager().names("sketch_rule")]
    try:
        return SketchSpace(workload, target, limits, rules)
    except EmptySpace as error:
        for sketch in error.sketches:
            require_solutions(sketch)
        raise
