"""Sketches: schedule steps over a workload, with named integer parameters and constraints."""

from __future__ import annotations

from autotune.sketches.baselines import (
    UNTUNED,
    DefaultSchedule,
    baseline_candidate,
    is_baseline,
    is_default,
)
from autotune.sketches.candidates import Candidate, CandidateBatch
from autotune.sketches.constraints import AtLeast, AtMost, Constraint, OneOf, ProductEquals
from autotune.sketches.open_step import STEP_CLASSES, OpenStep
from autotune.sketches.params import Categorical, Factor, Ordinal, Param
from autotune.sketches.per_sketch import per_sketch
from autotune.sketches.prepacking import is_prepackable, prepacked_operands
from autotune.sketches.rewrites import (
    added_axis,
    chunk_axis,
    is_uneven,
    lane_axis,
    partial_name,
    split_reduction,
)
from autotune.sketches.sketch import Sketch
from autotune.sketches.steps import (
    BIND_ROLES,
    STEP_TYPES,
    Accumulate,
    Bind,
    ChunkReduction,
    CooperativeFetch,
    FuseConsumer,
    FuseProducer,
    Inline,
    Interleave,
    Order,
    Pack,
    PadExtent,
    Parallel,
    Prepack,
    SplitReduction,
    Step,
    Tensorize,
    Tile,
    TileCeil,
    Unroll,
    UnrollLimit,
    Vectorize,
)
from autotune.sketches.variants import STEP_VARIANTS, names_used, step_names

__all__ = [
    "BIND_ROLES",
    "STEP_CLASSES",
    "STEP_TYPES",
    "STEP_VARIANTS",
    "UNTUNED",
    "Accumulate",
    "AtLeast",
    "AtMost",
    "Bind",
    "Candidate",
    "CandidateBatch",
    "Categorical",
    "ChunkReduction",
    "Constraint",
    "DefaultSchedule",
    "TileCeil",
    "Factor",
    "CooperativeFetch",
    "FuseConsumer",
    "FuseProducer",
    "Inline",
    "Interleave",
    "OneOf",
    "OpenStep",
    "Order",
    "Ordinal",
    "Pack",
    "PadExtent",
    "Parallel",
    "Param",
    "Prepack",
    "ProductEquals",
    "Sketch",
    "SplitReduction",
    "Step",
    "Tensorize",
    "Tile",
    "Unroll",
    "UnrollLimit",
    "Vectorize",
    "added_axis",
    "baseline_candidate",
    "chunk_axis",
    "is_baseline",
    "is_default",
    "is_prepackable",
    "is_uneven",
    "lane_axis",
    "names_used",
    "partial_name",
    "per_sketch",
    "prepacked_operands",
    "split_reduction",
    "step_names",
]
