"""Names of the columns, in the published order (Ansor, OSDI'20; Pruner, ASPLOS'25)."""

from __future__ import annotations

__all__ = [
    "ARITHMETIC",
    "BUFFERS",
    "BUFFER_COLUMNS",
    "CURVE_SAMPLES",
    "DATAFLOW_COLUMNS",
    "FEATURE_COLUMNS",
]

_CLASSES = ("multiply_add", "add", "multiply", "divide", "compare", "function", "other_function")
ARITHMETIC = (
    *(f"float_{name}" for name in _CLASSES),
    *(f"integer_{name}" for name in _CLASSES),
    "logic",
    "select",
)
_POSITIONS = (
    "none",
    "inner_spatial",
    "middle_spatial",
    "outer_spatial",
    "inner_reduce",
    "middle_reduce",
    "outer_reduce",
    "mixed",
)
# Buffers of a statement that have columns, and samples of the curve of arithmetic intensity.
BUFFERS = 5
CURVE_SAMPLES = 10
BUFFER_COLUMNS = (
    "read",
    "write",
    "read_write",
    "bytes",
    "unique_bytes",
    "lines",
    "unique_lines",
    "reuse_loop",
    "reuse_serial",
    "reuse_none",
    "reuse_iterations",
    "reuse_bytes",
    "reuse_count",
    "bytes_per_reuse",
    "unique_bytes_per_reuse",
    "lines_per_reuse",
    "unique_lines_per_reuse",
    "stride",
)
FEATURE_COLUMNS = (
    *ARITHMETIC,
    *(
        f"{kind}_{name}"
        for kind in ("vectorized", "unrolled", "parallel")
        for name in ("count", "product", "length", *_POSITIONS)
    ),
    "is_gpu",
    *(f"{kind}_{dim}" for kind in ("block", "thread") for dim in "xyz"),
    "vthread",
    *(f"buffer{at}_{name}" for at in range(BUFFERS) for name in BUFFER_COLUMNS),
    *(f"intensity{at}" for at in range(CURVE_SAMPLES)),
    "allocated_bytes",
    "allocated_product",
    "allocated_outer",
    "allocated_inner",
    "executions",
    "loops",
    "unroll_limit",
)
DATAFLOW_COLUMNS = (
    "float_operations",
    "in_global",
    "in_shared",
    "in_local",
    *BUFFER_COLUMNS,
    "allocated_bytes",
)
