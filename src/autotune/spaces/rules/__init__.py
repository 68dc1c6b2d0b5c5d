"""Sketch rules: how the stages of a workload become sketches for a target."""

from __future__ import annotations

from autotune.spaces.rules.attention_tiles import AttentionTilesRule
from autotune.spaces.rules.draft import SketchDraft
from autotune.spaces.rules.elementwise import ElementwiseRule
from autotune.spaces.rules.inline import EpilogueRule, InlineRule
from autotune.spaces.rules.multi_level_tiling import MultiLevelTilingRule
from autotune.spaces.rules.row_fusion import RowFusionRule
from autotune.spaces.rules.rule import SketchRule, generate_sketches, replayable_sketches
from autotune.spaces.rules.scan import ScanRule
from autotune.spaces.rules.split_reduction import SplitReductionRule
from autotune.spaces.rules.tensor_tiling import TensorTilingRule, intrinsic_sketch

__all__ = [
    "AttentionTilesRule",
    "ElementwiseRule",
    "EpilogueRule",
    "InlineRule",
    "MultiLevelTilingRule",
    "RowFusionRule",
    "ScanRule",
    "SketchDraft",
    "SketchRule",
    "SplitReductionRule",
    "TensorTilingRule",
    "generate_sketches",
    "intrinsic_sketch",
    "replayable_sketches",
]
