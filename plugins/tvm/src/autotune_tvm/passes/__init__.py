"""Passes over a scheduled program beyond the schedule primitives.

Without them a program is right, but slower; without ``compare_booleans`` some are not compiled,
nor some of bfloat16 without ``bfloat16_constants``, nor some convolutions without ``flat_reads``,
nor kernels with vectors of truth values without ``narrow_boolean_vectors``, and without
``round_to_bfloat16`` some NaNs become numbers. Without ``sync_rows``, kernels whose threads have
two dimensions lack barriers.
"""

from __future__ import annotations

from autotune_tvm.passes.async_copies import async_copies
from autotune_tvm.passes.bfloat16 import bfloat16_constants, round_to_bfloat16
from autotune_tvm.passes.booleans import (
    compare_booleans,
    compares_booleans,
    narrow_boolean_vectors,
)
from autotune_tvm.passes.expand_functions import expand_functions
from autotune_tvm.passes.pipeline_fetches import AHEAD, ROUNDED, STAGES, pipeline_fetches
from autotune_tvm.passes.request_tiles import request_tiles
from autotune_tvm.passes.sync_rows import sync_rows
from autotune_tvm.passes.vectors import flat_reads, uniform_conditions

__all__ = [
    "AHEAD",
    "PASSES",
    "ROUNDED",
    "STAGES",
    "async_copies",
    "bfloat16_constants",
    "compare_booleans",
    "compares_booleans",
    "expand_functions",
    "narrow_boolean_vectors",
    "pipeline_fetches",
    "request_tiles",
    "round_to_bfloat16",
    "sync_rows",
]

PASSES = (uniform_conditions, flat_reads)
"""From module to module, in this order."""
