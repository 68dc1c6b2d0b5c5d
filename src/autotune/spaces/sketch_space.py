"""The built-in search space: sketches by rules, exact sampling on their feasible sets."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.errors import InvalidValueError
from autotune.ir.workloads import Workload
from autotune.sketches import BoundLoop, Sketch, Tensorize, names_used
from autotune.sketches.intrinsics import PAIR_PRODUCTS
from autotune.sketches.limits import ScheduleLimits
from autotune.spaces.feasible import FeasibleSet
from autotune.spaces.feasible_space import FeasibleSpace
from autotune.spaces.loosening import loosen
from autotune.spaces.rules import (
    AttentionTilesRule,
    ElementwiseRule,
    EpilogueRule,
    GpuElementwiseRule,
    GpuRowFusionRule,
    GpuScanRule,
    GpuTilingRule,
    InlineRule,
    MultiLevelTilingRule,
    RowFusionRule,
    ScanRule,
    SketchRule,
    SplitReductionRule,
    TensorTilingRule,
    generate_sketches,
)
from autotune.spaces.rules.attention_tiles import ATTENTION_LABEL
from autotune.spaces.rules.gpu_split_reduction import SPLIT_BULK_LABEL, SPLIT_WARPGROUP_LABEL
from autotune.spaces.rules.gpu_tensor_tiling import (
    BULK_LABEL,
    TENSOR_LABEL,
    WARPGROUP_LABEL,
)
from autotune.spaces.rules.scan import CHUNKED_LABEL
from autotune.spaces.rules.tensor_tiling import lacking_instructions
from autotune.targets import Target

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
"""The built-in rules for CPUs in the order in which they are asked."""

GPU_RULES: tuple[SketchRule, ...] = (
    InlineRule(),
    GpuScanRule(),
    GpuRowFusionRule(),
    EpilogueRule(),
    GpuTilingRule(),
    GpuElementwiseRule(),
)
"""The built-in rules for GPUs in the order in which they are asked."""


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

    The version of a space says its own and those of its bases, then what its sketches have that
    not all have. A subclass that changes what is proposed has a ``name`` and a ``version`` of its
    own, or records and runs of one are taken for those of the other.

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
        """``rules`` are asked before the built-in ones; their names become part of the version."""
        bases = [it for it in reversed(type(self).__mro__) if issubclass(it, SketchSpace)]
        versions = [it.version for it in bases if "version" in vars(it)]
        self.version = "+".join([*versions, *(rule.name for rule in rules)])
        built_in = GPU_RULES if target.kind == "cuda" else BUILT_IN_RULES
        generated = generate_sketches(workload, target, limits, (*rules, *built_in))
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
        self.loosened = loosened
        self.notes = lacking_instructions(workload, target, limits)
        if loosened:
            self.version += "+loosened"
        labels = {label for sketch in feasible_sets for label in sketch.name.split("+")}
        # Spaces without them are what they were before there were any.
        if TENSOR_LABEL in labels:
            self.version += "+tensor"
        if WARPGROUP_LABEL in labels:
            self.version += "+warpgroup"
        if SPLIT_WARPGROUP_LABEL in labels:
            self.version += "+split-warpgroup"
        if labels & {BULK_LABEL, SPLIT_BULK_LABEL}:
            self.version += "+bulk"
        if ATTENTION_LABEL in labels:
            self.version += "+attention"
        if CHUNKED_LABEL in labels:
            self.version += "+chunked"
        steps = [step for sketch in feasible_sets for step in sketch.steps]
        calls = {step.intrinsic for step in steps if isinstance(step, Tensorize)}
        if any(name in PAIR_PRODUCTS for name in calls):
            self.version += "+pairs"
        bounds = {step.is_causal for step in steps if isinstance(step, BoundLoop)}
        self.version += "+causal" * (True in bounds) + "+windows" * (False in bounds)
        if any("pack.divided" in names_used(sketch) for sketch in feasible_sets):
            self.version += "+divided"
        super().__init__(feasible_sets)
