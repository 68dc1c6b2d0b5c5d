"""Factory of the search space ``sketch``."""

from __future__ import annotations

from autotune.plugins.options import check_known
from autotune.plugins.parts import create_part
from autotune.spaces import EmptySpace, SketchSpace
from autotune.spaces.problems import require_solutions
from autotune.spaces.search_space import SpaceContext

__all__ = ["make_sketch_space"]


def make_sketch_space(context: SpaceContext) -> SketchSpace:
    """A :class:`~autotune.spaces.SketchSpace` that asks the rules first that it is named with.

    Its option ``rules`` holds their names; ``sketch+one+another`` spells them.

    Raises:
        UnsupportedWorkload: no rule applies to a stage, or the backend can replay no sketch.
        ContradictoryConstraints: no sketch has a feasible configuration; names a smallest set of
            constraints of the first sketch that contradict each other.
        PluginError: a rule fails while it is made.
    """
    check_known("search space 'sketch'", context.options, ["rules"])
    rules = [
        create_part("sketch_rule", name, context) for name in context.options.get("rules", ())
    ]
    try:
        return SketchSpace(context.workload, context.target, context.limits, rules)
    except EmptySpace as error:
        for sketch in error.sketches:
            require_solutions(sketch)
        raise
