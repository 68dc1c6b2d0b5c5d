"""A program over rows, and the loops of printed LLVM IR."""

from __future__ import annotations

import re
from collections.abc import Iterator

from autotune.ir.expressions import Binary, Constant, Load, Unary, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload


def rows_over_roots(rows: int, columns: int) -> Workload:
    """Rows of a matrix, each over the root of the sum of its squares."""
    i, j, k = Axis("i", rows), Axis("j", columns), Axis("k", columns, "reduce")
    element = Load("X", (var("i"), var("k")))
    root = Unary("rsqrt", Binary("add", Load("S", (var("i"),)), Constant(1e-5, "float32")))
    scaled = Binary("mul", Load("X", (var("i"), var("j"))), root)
    stages = (
        Stage(Tensor("S", (rows,), "float32"), (i, k), Binary("mul", element, element), "add"),
        Stage(Tensor("Y", (rows, columns), "float32"), (i, j), scaled),
    )
    return Workload("roots", (Tensor("X", (rows, columns), "float32"),), stages, ("Y",))


def innermost_loops(text: str) -> Iterator[list[str]]:
    """The lines of each loop that holds no other."""
    lines: list[str] = []
    label = ""
    for line in text.splitlines():
        if found := re.match(r"(loop\d+):", line):
            label, lines = found[1], []
        lines.append(line)
        if label and re.search(rf"br i1 .*label %{label}\b", line):
            yield lines
            label = ""
