"""Reductions that read every element once: few results of many terms."""

from __future__ import annotations

from written import written

from autotune.ir.expressions import Binary, Load, Unary, var
from autotune.ir.workloads import (
    Axis,
    Stage,
    Tensor,
    Workload,
    batch_matmul,
    conv2d,
    dense,
    gemm,
)

__all__ = ["SPLIT_ACROSS_BLOCKS", "SPLIT_REDUCTIONS", "norm", "reduction", "weighted_sums"]


def reduction(
    shape: tuple[int, ...],
    over: tuple[int, ...],
    combiner: str = "add",
    dtype: str = "float32",
    first: str | None = None,
    last: str | None = None,
) -> Workload:
    """``X`` of this shape reduced over dimensions.

    Args:
        shape: Of the input.
        over: Dimensions that are reduced over.
        combiner: As of a stage.
        dtype: Of all tensors.
        first: A function of one argument that a stage of its own applies to the input before.
        last: One that a stage of its own applies to the result.
    """
    dims = tuple(
        Axis(f"d{dim}", extent, "reduce" if dim in over else "spatial")
        for dim, extent in enumerate(shape)
    )
    spatial = tuple(axis for axis in dims if axis.kind == "spatial")
    axes = (*spatial, *(axis for axis in dims if axis.kind == "reduce"))
    kept, stages, read = tuple(axis.extent for axis in spatial), [], "X"
    if first is not None:
        every = tuple(Axis(axis.name, axis.extent) for axis in dims)
        stages.append(Stage(Tensor("P", shape, dtype), every, Unary(first, _load("X", every))))
        read = "P"
    body = _load(read, dims)
    squared = Binary("mul", body, body) if combiner == "add" else body
    stages.append(Stage(Tensor("C", kept, dtype), axes, squared, combiner))
    if last is not None:
        stages.append(Stage(Tensor("D", kept, dtype), spatial, Unary(last, _load("C", spatial))))
    return Workload("reduction", (Tensor("X", shape, dtype),), tuple(stages), (stages[-1].name,))


def _load(tensor: str, axes: tuple[Axis, ...]) -> Load:
    return Load(tensor, tuple(var(axis.name) for axis in axes))


def weighted_sums(rows: int, columns: int, by: str = "k") -> Workload:
    """Sums of the rows of ``X``, each element times its column, ``k``, or its row, ``i``."""
    product = f"C[i; k] += X[i, k] * float32({by})"
    return written("X[i, k]", product, name="weighted sums", i=rows, k=columns)


def norm(batch: int, rows: int, columns: int) -> Workload:
    """The Frobenius norm of each of ``batch`` matrices."""
    return reduction((batch, rows, columns), (1, 2), last="sqrt")


SPLIT_REDUCTIONS = (
    norm(1, 64, 48),
    norm(3, 24, 64),
    reduction((4096,), (0,)),
    reduction((4, 3000), (1,)),
    reduction((4, 3000), (1,), combiner="max", dtype="int32"),
    reduction((200, 96), (1,), last="sqrt"),
    reduction((600, 40), (0,)),
    reduction((600, 40), (0,), combiner="min", dtype="int32"),
    reduction((2, 256, 16), (1,), last="sqrt"),
    reduction((24, 64), (0, 1), first="exp"),
    reduction((36, 128), (1,), dtype="float64"),
    reduction((36, 64), (1,), combiner="mul"),
    reduction((31, 37), (0, 1), combiner="max"),
    reduction((1024, 7), (0, 1)),
)
"""Along rows and columns, with every combiner, and with extents that nothing divides."""

SPLIT_ACROSS_BLOCKS = (
    gemm(m=8, n=64, k=512),
    gemm(m=1, n=96, k=2048),
    dense(m=5, n=40, k=1024),
    conv2d(h=5, w=4, ci=128, co=32, kh=2, pad=1, bias=1, relu=1),
    batch_matmul(b=2, m=6, n=48, k=512),
    reduction((600, 40), (0,), last="sqrt"),
)
"""Few results of many terms, which blocks of a GPU share."""
