"""Passes over a scheduled program beyond the schedule primitives.

Without them a program is right, but slower; without ``compare_booleans`` some are not compiled,
nor some of bfloat16 without ``bfloat16_constants``, nor some convolutions without ``flat_reads``,
nor kernels with vectors of truth values without ``narrow_boolean_vectors``, and without
``round_to_bfloat16`` some NaNs become numbers. Without ``sync_rows``, kernels whose threads have
two dimensions lack barriers.
"""
