"""Copies that read along another axis than they write along."""

from __future__ import annotations

from autotune.ir.expressions import Binary, Constant, IndexValue, Load, Select, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload

__all__ = ["transpose", "transposed_pair"]


def transpose(rows: int, columns: int, dtype: str = "float32") -> Workload:
    """``Y[i, j] = X[j, i]``, with ``X`` of [rows, columns]."""
    axes = (Axis("i", columns), Axis("j", rows))
    stage = Stage(Tensor("Y", (columns, rows), dtype), axes, Load("X", (var("j"), var("i"))))
    return Workload("transpose", (Tensor("X", (rows, columns), dtype),), (stage,), ("Y",))


def transposed_pair(rows: int, columns: int) -> Workload:
    """Two matrices of [rows, columns] beside each other, then transposed."""
    shape = (rows, columns)
    j, i = var("j"), var("i")
    left = Binary("lt", IndexValue(i), Constant(columns, "int32"))
    either = Select(left, Load("X", (j, i)), Load("Z", (j, i - columns)))
    axes = (Axis("j", rows), Axis("i", 2 * columns))
    pair = Stage(Tensor("P", (rows, 2 * columns), "float32"), axes, either)
    turned = Stage(Tensor("Y", (2 * columns, rows), "float32"), axes[::-1], Load("P", (j, i)))
    inputs = tuple(Tensor(name, shape, "float32") for name in "XZ")
    return Workload("transposed_pair", inputs, (pair, turned), ("Y",))
