"""Passes over a scheduled program beyond the schedule primitives, one per module.

Without them a program is right, but slower; without ``compare_booleans`` some are not compiled,
nor some of bfloat16 without ``bfloat16_constants``, nor some convolutions without ``flat_reads``,
nor kernels with vectors of truth values without ``narrow_boolean_vectors``, and without
``round_to_bfloat16`` some NaNs become numbers. Without ``sync_rows``, kernels whose threads have
two dimensions lack barriers.
"""

from __future__ import annotations

from autotune_tvm.passes.async_copies import async_copies, copies_ahead
from autotune_tvm.passes.bfloat16_constants import bfloat16_constants
from autotune_tvm.passes.bound_loops import BOUND, bound_loops, note_bounds, written_bound
from autotune_tvm.passes.combine_lanes import LANES, combine_lanes, note_lanes
from autotune_tvm.passes.compare_booleans import compare_booleans, compares_booleans
from autotune_tvm.passes.expand_functions import expand_functions
from autotune_tvm.passes.flat_reads import flat_reads
from autotune_tvm.passes.hoist_accumulators import hoist_accumulators
from autotune_tvm.passes.hoist_corrections import hoist_corrections
from autotune_tvm.passes.hoist_tile_config import hoist_tile_config
from autotune_tvm.passes.multiply_by_reciprocal import multiply_by_reciprocal
from autotune_tvm.passes.narrow_boolean_vectors import narrow_boolean_vectors
from autotune_tvm.passes.narrow_indices import narrow_indices, narrow_mixed_indices
from autotune_tvm.passes.peel_tails import peel_tails
from autotune_tvm.passes.pipeline_fetches import AHEAD, ROUNDED, STAGES, pipeline_fetches
from autotune_tvm.passes.pipeline_rows import HOST, LATE, pipeline_rows
from autotune_tvm.passes.prefetch_rows import PREFETCH, ROWS, prefetch_rows
from autotune_tvm.passes.request_tiles import request_tiles
from autotune_tvm.passes.round_to_bfloat16 import round_to_bfloat16
from autotune_tvm.passes.stream_stores import STREAM, note_streams, stream_stores
from autotune_tvm.passes.sync_rows import has_rows_of_threads, sync_rows
from autotune_tvm.passes.transpose_tiles import transpose_tiles
from autotune_tvm.passes.uniform_conditions import uniform_conditions
from autotune_tvm.passes.vectorize_full_groups import vectorize_full_groups

__all__ = [
    "AHEAD",
    "BOUND",
    "HOST",
    "LANES",
    "LATE",
    "PASSES",
    "PREFETCH",
    "ROUNDED",
    "ROWS",
    "STAGES",
    "STREAM",
    "async_copies",
    "bfloat16_constants",
    "bound_loops",
    "combine_lanes",
    "compare_booleans",
    "compares_booleans",
    "copies_ahead",
    "expand_functions",
    "has_rows_of_threads",
    "hoist_corrections",
    "multiply_by_reciprocal",
    "narrow_boolean_vectors",
    "narrow_indices",
    "narrow_mixed_indices",
    "note_streams",
    "pipeline_fetches",
    "request_tiles",
    "round_to_bfloat16",
    "stream_stores",
    "sync_rows",
    "transpose_tiles",
    "written_bound",
]

PASSES = (
    vectorize_full_groups,
    peel_tails,
    uniform_conditions,
    hoist_tile_config,
    hoist_accumulators,
    pipeline_rows,
    prefetch_rows,
    note_lanes,
    flat_reads,
    note_bounds,
)
"""From module to module, in this order; none looks into what the last one has noted."""
