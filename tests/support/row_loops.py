"""A program over rows, and the loops of printed LLVM IR."""

from __future__ import annotations

import re
from collections.abc import Iterator

from written import written

from autotune.ir.workloads import Workload


def rows_over_roots(rows: int, columns: int) -> Workload:
    """Rows of a matrix, each over the root of the sum of its squares."""
    return written(
        "X[i, j]",
        "S[i; k] += X[i, k] * X[i, k]",
        "Y[i, j] = X[i, j] * rsqrt(S[i] + 1e-5)",
        name="roots",
        i=rows,
        j=columns,
        k=columns,
    )


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
