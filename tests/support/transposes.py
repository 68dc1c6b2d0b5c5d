"""Copies that read along another axis than they write along."""

from __future__ import annotations

from written import written

from autotune.ir.workloads import Workload


def transpose(rows: int, columns: int, dtype: str = "float32") -> Workload:
    """``Y[i, j] = X[j, i]``, with ``X`` of [rows, columns]."""
    texts = f"X[j, i]: {dtype}", f"Y[i, j]: {dtype} = X[j, i]"
    return written(*texts, name="transpose", i=columns, j=rows)


def transposed_pair(rows: int, columns: int) -> Workload:
    """Two matrices of [rows, columns] beside each other, then transposed."""
    return written(
        "X[j, n], Z[j, n]",
        "P[j, i] = X[j, i] if i < int32(n) else Z[j, i - n]",
        "Y[i, j] = P[j, i]",
        name="transposed_pair",
        i=2 * columns,
        j=rows,
        n=columns,
    )
