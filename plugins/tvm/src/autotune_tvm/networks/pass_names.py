"""What the passes are called, in order; their code imports TVM."""

from __future__ import annotations

__all__ = ["PASS_NAMES"]

PASS_NAMES = (
    "canonicalize",
    "half_factors",
    "fold_batch_norms",
    "fold_constants",
    "fold_scales",
    "split_transposed",
    "constant_operands",
    "fuse_attention",
    "layouts",
    "winograd",
    "merge_views",
    "sink_views",
    "boolean_operators",
    "legalize",
    "fuse",
    "views",
    "merge_equal",
)
