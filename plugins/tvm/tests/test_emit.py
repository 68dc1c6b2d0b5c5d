"""Workloads become TIR functions that compute what the reference computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from autotune_tvm.backend import TVMBackend
from autotune_tvm.emit import module_for
from made_workloads import SMALL_WORKLOADS
from written import written

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import (
    Binary,
    Constant,
    IndexValue,
    Load,
    Select,
    const,
    var,
)
from autotune.ir.workloads import Workload, conv2d, gemm
from autotune.testing.expression_suite import ExpressionSuite, load, one_stage


class TestTVMExpressions(ExpressionSuite):
    @pytest.fixture
    def backend(self, backend: TVMBackend) -> TVMBackend:
        return backend


@pytest.mark.parametrize("workload", SMALL_WORKLOADS.values(), ids=SMALL_WORKLOADS.keys())
def test_builders(workload: Workload, check: Callable[..., Any]) -> None:
    check(workload)


def test_select_becomes_a_conditional_only_where_a_load_leaves_its_tensor() -> None:
    inside = Binary("ge", IndexValue(var("i")), IndexValue(const(1)))
    zero = Constant(0.0, "float32")
    safe = one_stage(Select(inside, load("X"), zero))
    unsafe = one_stage(Select(inside, Load("X", (var("i") - 1, var("j"))), zero))
    assert "T.Select" in module_for(safe).script()
    assert "T.if_then_else" in module_for(unsafe).script()


def test_indices_that_are_clamped_stay_inside(check: Callable[..., Any]) -> None:
    """TVM drops clamps that a condition implies: all elements of a vector were read beyond."""
    joined = "Y[i:5, j:16] = B[max(i - 3, 0), j] if i >= 3 else A[min(i, 2), j]"
    workload = written("A[3, 16], B[2, 16]", joined)
    assert "T.Select" not in module_for(workload).script()
    check(workload)


def test_names_and_order_of_parameters() -> None:
    script = module_for(conv2d(h=9, w=7, ci=3, co=5, pad=1, bias=1)).script()
    assert "def main(X: " in script
    assert script.index("W: T.Buffer") < script.index("bias: T.Buffer")
    for name in ("P", "Y", "Z"):
        assert f'T.sblock("{name}")' in script
    assert "for n, ho, wo, co, kh, kw, ci in" in script


def test_a_stage_that_nothing_needs_is_refused() -> None:
    workload = written("X[5]", "Y[i:5] = X[i]", "Z[i:5] = X[i]", name="dead", outputs="Y")
    with pytest.raises(UnsupportedWorkload, match="'Z' of workload 'dead' is neither read nor"):
        module_for(workload)


def test_indices_have_as_many_bits_as_their_values_need(check: Callable[..., None]) -> None:
    place = "(i * 3_000_000_000) % 7_000_000_000"
    workload = written("", f"Y[i:9]: int64 = int64({place})")
    assert "T.int64(3000000000)" in module_for(workload).script()
    assert "int64" not in module_for(gemm(m=3, n=4, k=5)).script()
    check(workload)
