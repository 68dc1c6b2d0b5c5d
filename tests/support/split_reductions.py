"""Reductions that read every element once: few results of many terms."""

from __future__ import annotations

from written import written

from autotune.ir.workloads import Workload, batch_matmul, conv2d, dense, gemm


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
    extents = {f"d{dim}": extent for dim, extent in enumerate(shape)}
    every = ", ".join(extents)
    kept = ", ".join(name for dim, name in enumerate(extents) if dim not in over)
    reduced = ", ".join(name for dim, name in enumerate(extents) if dim in over)
    body = f"{'X' if first is None else 'P'}[{every}]"
    squared = f"{body} * {body}" if combiner == "add" else body
    combine = {"add": "+", "mul": "*"}.get(combiner, combiner)
    stages = [f"C[{kept}; {reduced}]: {dtype} {combine}= {squared}"]
    if first is not None:
        stages.insert(0, f"P[{every}]: {dtype} = {first}(X[{every}])")
    if last is not None:
        stages.append(f"D[{kept}]: {dtype} = {last}(C[{kept or '()'}])")
    return written(f"X[{every}]: {dtype}", *stages, name="reduction", **extents)


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
