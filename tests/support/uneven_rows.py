"""Rows that vectors do not divide."""

from __future__ import annotations

from made_workloads import root_mean_square
from split_reductions import reduction

from autotune.ir.workloads import elementwise, softmax

__all__ = ["UNEVEN_ROWS"]

UNEVEN_ROWS = (
    softmax(m=12, n=197),
    softmax(m=3, n=31, dtype="float64"),
    root_mean_square(6, 67),
    reduction((31, 37), (0, 1)),
    reduction((9, 101), (1,), "max"),
    reduction((5, 77), (1,), "min", "int32"),
    reduction((40, 53), (1,), first="exp", last="sqrt"),
    elementwise(m=64, n=37),
)
