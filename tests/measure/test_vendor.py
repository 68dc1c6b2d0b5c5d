from __future__ import annotations

import itertools

import numpy as np
import pytest
from written import written

from autotune.ir.workloads import (
    Workload,
    batch_matmul,
    conv2d,
    dense,
    elementwise,
    gemm,
    softmax,
)
from autotune.measure import MeasureProtocol
from autotune.measure.vendor import (
    MatrixProduct,
    matrix_product,
    measure_here,
    vendor_latency,
)

EXTENTS = {"b": 3, "i": 5, "j": 7, "k": 11}


def product(left: str, right: str, output: str = "ij", reduce: str = "k") -> Workload:
    """A sum of products with one-letter axes, such as ``product("ik", "kj")``."""
    a, b, c, k = (", ".join(axes) for axes in (left, right, output, reduce))
    text = f"C[{c}; {k}] += A[{a}] * B[{b}]"
    return written(f"A[{a}], B[{b}]", text, name="product", **EXTENTS)


@pytest.mark.parametrize(
    ("left", "right"), list(itertools.product(["ik", "ki", "kj", "jk"], repeat=2))
)
def test_every_storage_order(left: str, right: str) -> None:
    workload = product(left, right)
    found = matrix_product(workload)
    if ("i" in left) == ("i" in right):
        assert found is None
        return
    rows_first = "i" in left
    row_axes, column_axes = (left, right) if rows_first else (right, left)
    names = ("A", "B") if rows_first else ("B", "A")
    assert found == MatrixProduct(*names, row_axes == "ki", column_axes == "jk")
    assert measure_here(workload, MeasureProtocol(), 0).status == "ok"


def test_batches() -> None:
    workload = product("bik", "bjk", "bij")
    assert matrix_product(workload) == MatrixProduct("A", "B", False, True)
    assert measure_here(workload, MeasureProtocol(), 0).status == "ok"
    assert matrix_product(product("ibk", "bjk", "bij")) is None
    assert matrix_product(product("ik", "bjk", "bij")) is None


@pytest.mark.parametrize(
    "workload",
    [
        conv2d(h=4, w=4, ci=4, co=4),
        softmax(m=4, n=4),
        elementwise(m=4, n=4),
        dense(m=4, n=4, k=4),
        gemm(m=4, n=4, k=4, dtype="int8"),
        product("ik", "ki", "i"),
        product("ik", "j", "ij"),
    ],
    ids=lambda workload: str(workload.name),
)
def test_anything_else_is_not_the_vendors(workload: Workload) -> None:
    assert matrix_product(workload) is None
    assert vendor_latency(workload, 1, MeasureProtocol()) is None


@pytest.mark.parametrize("workload", [gemm(m=64, n=64, k=64), batch_matmul(b=2, m=8, n=8, k=8)])
def test_times_in_a_process_of_its_own(workload: Workload) -> None:
    outcome = vendor_latency(workload, 1, MeasureProtocol())
    assert outcome is not None
    assert outcome.message == ""
    assert outcome.latency is not None
    assert 1e-8 < outcome.latency < 1e-2
    assert np.median(outcome.samples) == pytest.approx(outcome.latency)
