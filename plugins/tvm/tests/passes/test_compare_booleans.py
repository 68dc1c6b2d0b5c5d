"""Comparisons of truth values become comparisons of numbers."""

from __future__ import annotations

from functools import partial
from typing import Any

from autotune_tvm.importer import import_module
from autotune_tvm.passes import compare_booleans, compares_booleans
from tvm import te, tirx


def compared(kind: Any, left: Any, right: Any, i: Any, j: Any) -> Any:
    return kind(left[i, j], right[i, j])


def test_only_comparisons_of_truth_values_change() -> None:
    shape = (5, 6)
    left, right = (te.placeholder(shape, "bool", name) for name in "AB")
    number = te.placeholder(shape, "float32", "X")
    other = te.compute(shape, lambda i, j: tirx.Not(number[i, j] > 0.0), "Z")
    for kind, sign in ((tirx.EQ, "=="), (tirx.NE, "!="), (tirx.LT, "<")):
        same = te.compute(shape, partial(compared, kind, left, right), "Y")
        workload, module = import_module(te.create_prim_func([left, right, number, same, other]))
        assert compares_booleans(workload)
        text = compare_booleans(module).script()
        line = 'Y[v_i, v_j] = T.Cast("int32", A[v_i, v_j]) {} T.Cast("int32", B[v_i, v_j])'
        assert line.format(sign) in text
        assert "Z[v_i, v_j] = X[v_i, v_j] <= T.float32(0.0)" in text


def test_other_programs_stay_as_they_are() -> None:
    number = te.placeholder((4,), "float32", "X")
    positive = te.compute((4,), lambda i: number[i] > 0.0, "Y")
    workload, module = import_module(te.create_prim_func([number, positive]))
    assert not compares_booleans(workload)
    assert compare_booleans(module).same_as(module)
