"""Products of matrices whose factors both lie along the reduction."""

from __future__ import annotations

from autotune.ir.expressions import Binary, Cast, Load, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload

__all__ = ["rows_product"]


def rows_product(dtype: str, m: int, n: int, k: int) -> Workload:
    """``C[i, j] = sum(A[i, k] * B[j, k])`` with sums of float32, of bytes of int32."""
    axes = (Axis("i", m), Axis("j", n), Axis("k", k, "reduce"))
    total = "int32" if dtype == "int8" else "float32"
    left, right = Load("A", (var("i"), var("k"))), Load("B", (var("j"), var("k")))
    body = Binary("mul", Cast(total, left), Cast(total, right))
    inputs = (Tensor("A", (m, k), dtype), Tensor("B", (n, k), dtype))
    stage = Stage(Tensor("C", (m, n), total), axes, body, "add")
    return Workload("rows", inputs, (stage,), ("C",))
