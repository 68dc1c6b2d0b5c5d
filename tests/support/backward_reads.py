"""Products whose operands are read backwards along an axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import evolve

from autotune.ir.expressions import Binary, Cast, IndexValue, IntExpr, Load, const, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload

__all__ = ["BACKWARDS", "CROSSED", "both_ways", "convolution", "matrix_product", "relative_scores"]

ROW, COLUMN, TERM = var("i"), var("j"), var("k")


def _product(
    shapes: Sequence[tuple[int, ...]],
    reads: Sequence[tuple[IntExpr, ...]],
    extents: Mapping[str, int],
    summed: Sequence[str],
    dtype: str = "float32",
) -> Workload:
    """``C``, the sums of products of ``A`` and ``B``."""
    names = ("A", "B")
    result = "int32" if dtype == "int8" else dtype
    loads = [Load(name, read) for name, read in zip(names, reads, strict=True)]
    factors = [load if result == dtype else Cast(result, load) for load in loads]
    axes = [
        Axis(name, extent, "reduce" if name in summed else "spatial")
        for name, extent in extents.items()
    ]
    shape = tuple(axis.extent for axis in axes if axis.kind == "spatial")
    stage = Stage(Tensor("C", shape, result), tuple(axes), Binary("mul", *factors), "add")
    inputs = (Tensor(name, shape, dtype) for name, shape in zip(names, shapes, strict=True))
    return Workload("backwards", tuple(inputs), (stage,), ("C",))


def matrix_product(size: int, backwards: str, dtype: str = "float32") -> Workload:
    """A product of square matrices, of which one runs backwards along an axis.

    Args:
        size: Rows, columns and terms.
        backwards: The matrix and the axis, such as ``"B k"``; of ``"Bt k"`` it is transposed.
        dtype: Type of the factors.
    """
    tensor, axis = backwards.split()
    turned = {axis: const(size - 1) - var(axis)}
    place = {name: turned.get(name, var(name)) if tensor[0] == "A" else var(name) for name in "ik"}
    other = {name: turned.get(name, var(name)) if tensor[0] == "B" else var(name) for name in "jk"}
    order = "jk" if tensor == "Bt" else "kj"
    reads = (place["i"], place["k"]), tuple(other[name] for name in order)
    extents = dict.fromkeys("ijk", size)
    return _product([(size, size)] * 2, reads, extents, "k", dtype)


def convolution(
    length: int, taps: int, channels: int, out: int, *, weights: bool = False
) -> Workload:
    """A convolution as mathematicians write it, in which the data or the weights run backwards.

    Args:
        length: Of the result.
        taps: Elements of a window.
        channels: Of the data.
        out: Of the result.
        weights: Whether the weights run backwards and the data forwards, as in the gradient.
    """
    data = ROW + TERM if weights else ROW - TERM + (taps - 1)
    weight = const(taps - 1) - TERM if weights else TERM
    channel = var("c")
    return _product(
        [(channels, length + taps - 1), (taps, channels, out)],
        [(channel, data), (weight, channel, COLUMN)],
        {"i": length, "j": out, "k": taps, "c": channels},
        "kc",
    )


def relative_scores(length: int, depth: int) -> Workload:
    """Scores of queries with embeddings of distances: distances fall along the keys."""
    return _product(
        [(length, depth), (2 * length - 1, depth)],
        [(ROW, TERM), (ROW - COLUMN + (length - 1), TERM)],
        {"i": length, "j": length, "k": depth},
        "k",
    )


def _with_mask(workload: Workload) -> Workload:
    """The workload with stages that read its result point by point, one through the other."""
    rows, columns = workload.stages[-1].output.shape
    axes = (Axis("i", rows), Axis("j", columns))
    shifted = Binary("add", Load("C", (ROW, COLUMN)), Load("bias", (ROW, COLUMN)))
    distance = Cast("float32", IndexValue(ROW - COLUMN))
    stages = (
        Stage(Tensor("S", (rows, columns), "float32"), axes, shifted),
        Stage(
            Tensor("D", (rows, columns), "float32"),
            axes,
            Binary("max", Load("S", (ROW, COLUMN)), distance),
        ),
    )
    inputs = (*workload.inputs, Tensor("bias", (rows, columns), "float32"))
    return evolve(workload, inputs=inputs, stages=(*workload.stages, *stages), outputs=("D",))


def _with_sums(workload: Workload) -> Workload:
    """The workload with the sums of the rows of its result, which is an output, too."""
    rows, columns = workload.stages[-1].output.shape
    axes = (Axis("i", rows), Axis("j", columns, "reduce"))
    sums = Stage(Tensor("S", (rows,), "float32"), axes, Load("C", (ROW, COLUMN)), "add")
    return evolve(workload, stages=(*workload.stages, sums), outputs=("C", "S"))


def both_ways(length: int, taps: int, out: int) -> Workload:
    """Sums of products that are read forwards and backwards along the same two axes."""
    return _product(
        [(length + taps - 1,), (length + taps - 1, out)],
        [(ROW - TERM + (taps - 1),), (ROW + TERM, COLUMN)],
        {"i": length, "j": out, "k": taps},
        "k",
    )


BACKWARDS: Mapping[str, Workload] = {
    **{name: matrix_product(33, name) for name in ("A i", "A k", "B j", "B k", "Bt j", "Bt k")},
    "int8": matrix_product(64, "B k", "int8"),
    "data": convolution(20, 3, 8, 17),
    "weights": convolution(20, 3, 8, 16, weights=True),
}
"""Products that can be read forwards, by what runs backwards."""

CROSSED: Mapping[str, Workload] = {
    "scores": relative_scores(24, 16),
    "uneven": relative_scores(33, 7),
    "mask": _with_mask(relative_scores(24, 16)),
    "sums": _with_sums(relative_scores(20, 8)),
    "both ways": both_ways(20, 9, 33),
}
"""Products with an index that grows along one axis and falls along another."""
