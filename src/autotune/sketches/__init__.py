"""Sketches: schedule steps over a workload, with named integer parameters and constraints."""

from __future__ import annotations

from autotune.sketches.candidate import Candidate, CandidateBatch
from autotune.sketches.constraints import AtLeast, AtMost, Constraint, OneOf, ProductEquals
from autotune.sketches.params import Categorical, Factor, Ordinal, Param
from autotune.sketches.rewrites import lane_axis, partial_name, split_reduction
from autotune.sketches.sketch import Sketch
from autotune.sketches.steps import (
    STEP_TYPES,
    Accumulate,
    FuseConsumer,
    FuseProducer,
    Inline,
    Order,
    Pack,
    PadExtent,
    Parallel,
    SplitReduction,
    Step,
    Tile,
    Unroll,
    Vectorize,
    step_from_json,
    step_to_json,
)

__all__ = [
    "STEP_TYPES",
    "Accumulate",
    "AtLeast",
    "AtMost",
    "Candidate",
    "CandidateBatch",
    "Categorical",
    "Constraint",
    "Factor",
    "FuseConsumer",
    "FuseProducer",
    "Inline",
    "OneOf",
    "Order",
    "Ordinal",
    "Pack",
    "PadExtent",
    "Parallel",
    "Param",
    "ProductEquals",
    "Sketch",
    "SplitReduction",
    "Step",
    "Tile",
    "Unroll",
    "Vectorize",
    "lane_axis",
    "partial_name",
    "split_reduction",
    "step_from_json",
    "step_to_json",
]
