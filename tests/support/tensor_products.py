"""Products of matrices whose factors lie otherwise than those of a plain product."""

from __future__ import annotations

from autotune.ir.expressions import Binary, Cast, Load, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload

__all__ = ["rows_product", "turned_gemm"]


def rows_product(dtype: str, m: int, n: int, k: int) -> Workload:
    """``C[i, j] = sum(A[i, k] * B[j, k])`` with sums of float32, of bytes of int32."""
    axes = (Axis("i", m), Axis("j", n), Axis("k", k, "reduce"))
    total = "int32" if dtype == "int8" else "float32"
    left, right = Load("A", (var("i"), var("k"))), Load("B", (var("j"), var("k")))
    body = Binary("mul", Cast(total, left), Cast(total, right))
    inputs = (Tensor("A", (m, k), dtype), Tensor("B", (n, k), dtype))
    stage = Stage(Tensor("C", (m, n), total), axes, body, "add")
    return Workload("rows", inputs, (stage,), ("C",))


def turned_gemm(dtype: str) -> Workload:
    """A product whose left factor lies [k, m], written after the right one."""
    axes = (Axis("i", 64), Axis("j", 32), Axis("k", 64, "reduce"))
    total = "int32" if dtype == "int8" else "float32"
    left, right = Load("A", (var("k"), var("i"))), Load("B", (var("j"), var("k")))
    body = Binary("mul", Cast(total, right), Cast(total, left))
    inputs = (Tensor("A", (64, 64), dtype), Tensor("B", (32, 64), dtype))
    stage = Stage(Tensor("C", (64, 32), total), axes, body, "add")
    return Workload("turned", inputs, (stage,), ("C",))
