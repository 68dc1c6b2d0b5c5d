"""Copies that read along another axis than they write along."""

from __future__ import annotations

from autotune.ir.expressions import Load, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload

__all__ = ["transpose"]


def transpose(rows: int, columns: int) -> Workload:
    """``Y[i, j] = X[j, i]``, with ``X`` of [rows, columns]."""
    axes = (Axis("i", columns), Axis("j", rows))
    stage = Stage(Tensor("Y", (columns, rows), "float32"), axes, Load("X", (var("j"), var("i"))))
    return Workload("transpose", (Tensor("X", (rows, columns), "float32"),), (stage,), ("Y",))
