"""Small workloads of networks that read at quotients, at remainders, and where data says."""

from __future__ import annotations

from divided_reductions import (
    adaptive_pooling,
    fractional_convolution,
    grouped_convolution,
    multiplied_channels,
    shared_factor,
)

from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    Gather,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    Unary,
    const,
    var,
)
from autotune.ir.workloads import Axis, Stage, Tensor, Workload

__all__ = ["INDEXED_WORKLOADS", "chosen_elements", "embedding_bag", "gathered_product"]

i, j, k, c = (var(name) for name in "ijkc")
ZERO = Constant(0.0, "float32")
SMALL = Constant(-1e9, "float32")


def pointwise(
    name: str, shape: tuple[int, ...], body: ScalarExpr, dtype: str = "float32"
) -> Stage:
    """A stage over the axes i, j, k, ..., as many as it needs."""
    axes = tuple(map(Axis, "ijkl", shape))
    return Stage(Tensor(name, shape, dtype), axes, body)


def matrix(name: str, *shape: int, dtype: str = "float32") -> Tensor:
    return Tensor(name, shape, dtype)


def even(index: IntExpr) -> Binary:
    return Binary("eq", IndexValue(index % 2), IndexValue(const(0)))


def merged_heads() -> Workload:
    """[4, 12, 16], a function of it, in rows of 64."""
    heads = pointwise("A", (4, 12, 16), Unary("exp", Load("X", (i, j, k))))
    rows = pointwise("Y", (12, 64), Unary("neg", Load("A", (j // 16, i, j % 16))))
    return Workload("merge heads", (matrix("X", 4, 12, 16),), (heads, rows), ("Y",))


def repeated_heads() -> Workload:
    body = Binary("mul", Load("X", (i // 2, j)), Load("Z", (i % 3, j)))
    inputs = (matrix("X", 3, 32), matrix("Z", 3, 32))
    return Workload("repeat", inputs, (pointwise("Y", (6, 32), body),), ("Y",))


def shuffled_pixels() -> Workload:
    read = Load("X", ((i % 2) * 2 + j % 2, i // 2, j // 2))
    stage = pointwise("Y", (10, 32), read)
    return Workload("shuffle", (matrix("X", 4, 5, 16),), (stage,), ("Y",))


def transposed_convolution() -> Workload:
    """Of stride 2: dilated and padded data, summed over windows of 3 and 4 channels."""
    between = Load("X", (i, j // 2, k // 2))
    dilated = pointwise("D", (4, 7, 15), Select(Binary("and", even(j), even(k)), between, ZERO))
    inside = [
        Binary(op, IndexValue(axis), IndexValue(const(bound)))
        for axis, extent in ((j, 7), (k, 15))
        for op, bound in (("ge", 1), ("lt", extent + 1))
    ]
    condition: ScalarExpr = inside[0]
    for each in inside[1:]:
        condition = Binary("and", condition, each)
    padded = pointwise("P", (4, 9, 17), Select(condition, Load("D", (i, j - 1, k - 1)), ZERO))
    window = (Axis("k", 4, "reduce"), Axis("a", 3, "reduce"), Axis("b", 3, "reduce"))
    axes = (*map(Axis, "cij", (8, 7, 15)), *window)
    a, b = var("a"), var("b")
    body = Binary("mul", Load("P", (k, i + a, j + b)), Load("W", (k, c, a, b)))
    summed = Stage(matrix("Y", 8, 7, 15), axes, body, "add")
    inputs = (matrix("X", 4, 4, 8), matrix("W", 4, 8, 3, 3))
    return Workload("transposed", inputs, (dilated, padded, summed), ("Y",))


def embedding(index: str = "int64") -> Workload:
    read = Gather("T", (Load("I", (i,)), IndexValue(j)))
    inputs = (matrix("T", 50, 32), matrix("I", 7, dtype=index))
    stage = pointwise("Y", (7, 32), Binary("add", read, Load("T", (i, j))))
    return Workload("embedding", inputs, (stage,), ("Y",))


def computed_table() -> Workload:
    """A table whose elements are read where data says, computed as the indices are."""
    table = pointwise("U", (50, 32), Unary("neg", Load("T", (i, j))))
    wrapped = Select(
        Binary("lt", Load("I", (i,)), Constant(5, "int32")),
        Binary("add", Load("I", (i,)), Constant(3, "int32")),
        Load("I", (i,)),
    )
    indices = pointwise("K", (7,), wrapped, "int32")
    read = Gather("U", (Load("K", (i,)), IndexValue(j)))
    rows = pointwise("Y", (7, 32), Unary("exp", read))
    inputs = (matrix("T", 50, 32), matrix("I", 7, dtype="int32"))
    return Workload("computed table", inputs, (table, indices, rows), ("Y",))


def every_element() -> Workload:
    """Neighbours in a vector read anywhere."""
    stage = pointwise("Y", (7, 64), Gather("T", (Load("I", (i, j)),)))
    inputs = (matrix("T", 50), matrix("I", 7, 64, dtype="int32"))
    return Workload("every element", inputs, (stage,), ("Y",))


def one_row() -> Workload:
    stage = pointwise("Y", (32,), Gather("T", (Load("S", ()), IndexValue(i))))
    inputs = (matrix("T", 50, 32), matrix("S", dtype="int64"))
    return Workload("row", inputs, (stage,), ("Y",))


def nearest() -> Workload:
    """Rows at positions that are computed from an axis as a float."""
    at = Binary("mul", Cast("float32", IndexValue(i)), Constant(0.5, "float32"))
    read = Gather("X", (Cast("int32", Unary("floor", at)), IndexValue(j)))
    return Workload("nearest", (matrix("X", 6, 32),), (pointwise("Y", (12, 32), read),), ("Y",))


def single_numbers() -> Workload:
    first = pointwise("U", (), Unary("exp", Load("X", ())))
    second = pointwise("Y", (), Binary("add", Load("U", ()), Load("U", ())))
    return Workload("number", (matrix("X"),), (first, second), ("Y",))


def masked_softmax() -> Workload:
    """As an attention has it: rows without any true value are zero."""
    rows, columns = 6, 32

    def reduced(name: str, read: ScalarExpr, combiner: str, dtype: str = "float32") -> Stage:
        axes = (Axis("i", rows), Axis("j", columns, "reduce"))
        return Stage(Tensor(name, (rows,), dtype), axes, read, combiner)

    masked = Select(Load("M", (i, j)), Load("X", (i, j)), SMALL)
    shifted = Binary("sub", Load("A", (i, j)), Load("H", (i,)))
    ratio = Binary("div", Load("E", (i, j)), Load("S", (i,)))
    alive = Binary("ne", Load("A", (i, j)), SMALL)
    stages = (
        pointwise("A", (rows, columns), masked),
        reduced("H", Load("A", (i, j)), "max"),
        pointwise("E", (rows, columns), Unary("exp", shifted)),
        reduced("S", Load("E", (i, j)), "add"),
        pointwise("L", (rows, columns), alive, "bool"),
        pointwise("N", (rows, columns), Unary("not", Load("L", (i, j))), "bool"),
        pointwise("Y", (rows, columns), Select(Load("N", (i, j)), ZERO, ratio)),
    )
    inputs = (matrix("X", rows, columns), matrix("M", rows, columns, dtype="bool"))
    return Workload("masked softmax", inputs, stages, ("Y",))


def masks() -> Workload:
    left, right = Load("M", (i, j)), Load("N", (i, j))
    both = pointwise("B", (6, 32), Binary("and", left, Unary("not", right)), "bool")
    either = Binary("or", Load("B", (i, j)), Binary("ne", left, right))
    stage = pointwise("Y", (6, 32), either, "bool")
    inputs = (matrix("M", 6, 32, dtype="bool"), matrix("N", 6, 32, dtype="bool"))
    return Workload("masks", inputs, (both, stage), ("Y",))


def embedding_bag(bags: int = 7, most: int = 5, width: int = 32) -> Workload:
    """Weighted sums of rows of a table."""
    axes = (Axis("i", bags), Axis("j", width), Axis("k", most, "reduce"))
    row = Gather("T", (Load("I", (i, k)), IndexValue(j)))
    body = Binary("mul", row, Load("W", (i, k)))
    stage = Stage(matrix("Y", bags, width), axes, body, "add")
    inputs = (matrix("T", 50, width), matrix("I", bags, most, dtype="int64"))
    return Workload("embedding bag", (*inputs, matrix("W", bags, most)), (stage,), ("Y",))


def gathered_product(rows: int = 6, columns: int = 23, depth: int = 16) -> Workload:
    """Rows of a table times the transpose of a matrix."""
    axes = (Axis("i", rows), Axis("j", columns), Axis("k", depth, "reduce"))
    row = Gather("T", (Load("I", (i,)), IndexValue(k)))
    body = Binary("mul", row, Load("W", (j, k)))
    stage = Stage(matrix("Y", rows, columns), axes, body, "add")
    inputs = (matrix("T", 50, depth), matrix("I", rows, dtype="int32"))
    return Workload("gathered product", (*inputs, matrix("W", columns, depth)), (stage,), ("Y",))


def chosen_elements(rows: int = 5, columns: int = 21) -> Workload:
    """Elements of a table where data says, of places that are chosen; 0 elsewhere."""
    element = Gather("T", (IndexValue(i), Load("I", (i, j))))
    body = Select(Binary("lt", ZERO, Load("X", (i, j))), element, ZERO)
    stage = pointwise("Y", (rows, columns), body)
    inputs = (matrix("T", rows, 50), matrix("I", rows, columns, dtype="int64"))
    return Workload("chosen elements", (*inputs, matrix("X", rows, columns)), (stage,), ("Y",))


INDEXED_WORKLOADS = (
    merged_heads(),
    repeated_heads(),
    shuffled_pixels(),
    transposed_convolution(),
    embedding(),
    embedding("int32"),
    computed_table(),
    every_element(),
    one_row(),
    nearest(),
    single_numbers(),
    masked_softmax(),
    masks(),
    grouped_convolution(),
    multiplied_channels(),
    fractional_convolution(),
    adaptive_pooling(),
    shared_factor(),
    embedding_bag(),
    gathered_product(),
)
