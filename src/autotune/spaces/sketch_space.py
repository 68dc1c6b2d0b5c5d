"""The built-in search space: sketches by rules, exact sampling on their feasible sets."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence

from attrs import evolve

from autotune.errors import InvalidValueError
from autotune.ir.converter import to_json
from autotune.ir.workloads import Workload
from autotune.plugins.options import check_known
from autotune.plugins.parts import create_part
from autotune.sketches import Sketch
from autotune.sketches.limits import ScheduleLimits
from autotune.spaces.feasible import FeasibleSet, build_feasible_set
from autotune.spaces.feasible_space import FeasibleSpace
from autotune.spaces.problems import require_solutions
from autotune.spaces.rules import (
    AttentionTilesRule,
    ElementwiseRule,
    EpilogueRule,
    InlineRule,
    MultiLevelTilingRule,
    RowFusionRule,
    ScanRule,
    SketchRule,
    SplitReductionRule,
    TensorTilingRule,
    generate_sketches,
)
from autotune.spaces.rules.tensor_tiling import lacking_instructions
from autotune.spaces.search_space import SpaceContext
from autotune.targets import Target

__all__ = ["loosen"]


def loosen(sketch: Sketch) -> tuple[Sketch, FeasibleSet, tuple[str, ...]]:
    """The sketch without the soft constraints that leave it no configuration.

    Sketches list their soft constraints the most important first; the last one goes first.

    Returns:
        The sketch, its feasible set, and the sources of the constraints that were dropped. The
        set is empty where the hard constraints alone have no solution.

    Raises:
        InvalidValueError: see :func:`~autotune.spaces.feasible_feasible_set`.
    """
    feasible = build_feasible_set(sketch)
    dropped: list[str] = []
    for constraint in reversed(sketch.constraints):
        if feasible.count:
            break
        if not constraint.hard:
            kept = tuple(it for it in sketch.constraints if it is not constraint)
            sketch = evolve(sketch, constraints=kept)
            feasible = build_feasible_set(sketch)
            dropped.append(constraint.source)
    return sketch, feasible, tuple(dropped)


BUILT_IN_RULES: tuple[SketchRule, ...] = (
    InlineRule(),
    ScanRule(),
    RowFusionRule(),
    EpilogueRule(),
    AttentionTilesRule(),
    TensorTilingRule(),
    SplitReductionRule(),
    MultiLevelTilingRule(),
    ElementwiseRule(),
)
"""The built-in rules in the order in which they are asked: one for each structure."""


class EmptySpace(InvalidValueError):
    """No sketch has a feasible configuration.

    Attributes:
        sketches: What the rules made, without those that the backend cannot replay.
    """

    def __init__(self, message: str, sketches: Sequence[Sketch]) -> None:
        super().__init__(message)
        self.sketches = tuple(sketches)

    def __reduce__(self) -> tuple[type[EmptySpace], tuple[str, tuple[Sketch, ...]]]:
        return EmptySpace, (str(self), self.sketches)


class SketchSpace(FeasibleSpace):
    """Sketches made by rules for one workload on one target.

    The version of a space is its class's number, after those of its bases, and a digest of its
    sketches. A subclass that changes what is proposed has a ``name`` and a ``version`` of its own,
    or records and runs of one are taken for those of the other.

    Raises:
        UnsupportedWorkload: no rule applies to a stage, or the backend can replay no sketch.
        EmptySpace: no sketch has a feasible configuration.
    """

    name = "sketch"
    version = "12"

    def __init__(
        self,
        workload: Workload,
        target: Target,
        limits: ScheduleLimits,
        rules: Sequence[SketchRule] = (),
    ) -> None:
        """``rules`` are asked before the built-in ones."""
        bases = [it for it in reversed(type(self).__mro__) if issubclass(it, SketchSpace)]
        numbers = "+".join(it.version for it in bases if "version" in vars(it))
        generated = generate_sketches(workload, target, limits, (*rules, *BUILT_IN_RULES))
        feasible_sets: dict[Sketch, FeasibleSet] = {}
        self.left_out = left_out = dict(generated.left_out)
        loosened: dict[str, tuple[str, ...]] = {}
        for made in generated.sketches:
            sketch, feasible, dropped = loosen(made)
            if not feasible.count:
                left_out[sketch.name] = "has no feasible configuration"
                continue
            feasible_sets[sketch] = feasible
            if dropped:
                loosened[sketch.name] = dropped
        if not feasible_sets:
            reasons = [f"sketch {name!r} {why}" for name, why in left_out.items()]
            raise EmptySpace("; ".join(reasons), generated.sketches)
        self.version = f"{numbers}.{_digest(feasible_sets)}"
        self.loosened = loosened
        self.notes = lacking_instructions(workload, target, limits)
        super().__init__(feasible_sets)


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


def _digest(sketches: Iterable[Sketch]) -> str:
    """12 hexadecimal digits over all that sketches say, equal in every process."""
    content = [[it.spelling, to_json(it.params), to_json(it.constraints)] for it in sketches]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
