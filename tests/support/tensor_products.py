"""Products of matrices whose factors both lie along the reduction."""

from __future__ import annotations

from written import written

from autotune.ir.workloads import Workload

__all__ = ["rows_product"]


def rows_product(dtype: str, m: int, n: int, k: int) -> Workload:
    """``C[i, j] = sum(A[i, k] * B[j, k])`` with sums of float32, of bytes of int32."""
    total = "int32" if dtype == "int8" else "float32"
    product = f"C[i, j; k]: {total} += {total}(A[i, k]) * {total}(B[j, k])"
    return written(f"A[i, k]: {dtype}, B[j, k]: {dtype}", product, name="rows", i=m, j=n, k=k)
