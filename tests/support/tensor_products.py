"""Products of matrices whose factors lie otherwise than those of a plain product."""

from __future__ import annotations

from written import written

from autotune.ir.workloads import Workload


def rows_product(dtype: str, m: int, n: int, k: int) -> Workload:
    """``C[i, j] = sum(A[i, k] * B[j, k])`` with sums of float32, of bytes of int32."""
    total = "int32" if dtype == "int8" else "float32"
    product = f"C[i, j; k]: {total} += {total}(A[i, k]) * {total}(B[j, k])"
    return written(f"A[i, k]: {dtype}, B[j, k]: {dtype}", product, name="rows", i=m, j=n, k=k)


def turned_gemm(dtype: str) -> Workload:
    """A product whose left factor lies [k, m], written after the right one."""
    total = "int32" if dtype == "int8" else "float32"
    product = f"C[i, j; k]: {total} += {total}(B[j, k]) * {total}(A[k, i])"
    tensors = f"A[k, i]: {dtype}, B[j, k]: {dtype}"
    return written(tensors, product, name="turned", i=64, j=32, k=64)
