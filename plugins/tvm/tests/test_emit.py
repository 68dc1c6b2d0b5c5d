"""Workloads become TIR functions that compute what the reference computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from autotune_tvm.emit import module_for
from made_workloads import SMALL_WORKLOADS

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    IndexValue,
    Load,
    ScalarExpr,
    Select,
    Unary,
    const,
    maximum,
    minimum,
    var,
)
from autotune.ir.expressions.scalar import ARITHMETIC, COMPARISONS, LOGIC, UNARY
from autotune.ir.workloads import (
    Axis,
    Stage,
    Tensor,
    Workload,
    conv2d,
)


@pytest.mark.parametrize("workload", SMALL_WORKLOADS.values(), ids=SMALL_WORKLOADS.keys())
def test_builders(workload: Workload, check: Callable[..., Any]) -> None:
    check(workload)


def one_stage(body: ScalarExpr, dtype: str = "float32", *, positive: bool = False) -> Workload:
    """``Y[i, j] = body`` over inputs ``X`` and ``Z`` of shape [5, 7]."""
    axes = (Axis("i", 5), Axis("j", 7))
    return Workload(
        "one-stage",
        (Tensor("X", (5, 7), "float32"), Tensor("Z", (5, 7), "float32")),
        (Stage(Tensor("Y", (5, 7), dtype), axes, body),),
        ("Y",),
        {"positive": positive},
    )


def load(name: str) -> Load:
    return Load(name, (var("i"), var("j")))


@pytest.mark.parametrize("op", UNARY)
def test_unary(op: str, check: Callable[..., Any]) -> None:
    if op == "not":
        condition = Binary("lt", load("X"), load("Z"))
        check(one_stage(Unary("not", condition), "bool"))
    else:
        check(one_stage(Unary(op, load("X")), positive=op in ("log", "sqrt", "rsqrt")))


@pytest.mark.parametrize("op", ARITHMETIC)
def test_arithmetic(op: str, check: Callable[..., Any]) -> None:
    check(one_stage(Binary(op, load("X"), load("Z")), positive=op in ("pow", "div")))


@pytest.mark.parametrize("op", COMPARISONS)
def test_comparisons(op: str, check: Callable[..., Any]) -> None:
    check(one_stage(Binary(op, load("X"), load("Z")), "bool"))


@pytest.mark.parametrize("op", LOGIC)
def test_logic(op: str, check: Callable[..., Any]) -> None:
    left = Binary("lt", load("X"), Constant(0.0, "float32"))
    right = Binary("gt", load("Z"), Constant(0.0, "float32"))
    check(one_stage(Binary(op, left, right), "bool"))


def test_integer_division_truncates(check: Callable[..., Any]) -> None:
    tensors = (Tensor("X", (9,), "int32"),)
    body = Binary("div", Load("X", (var("i"),)), Constant(3, "int32"))
    stage = Stage(Tensor("Y", (9,), "int32"), (Axis("i", 9),), body)
    check(Workload("division", tensors, (stage,), ("Y",)))


def test_index_values_and_casts(check: Callable[..., Any]) -> None:
    index = (var("i") * 3 + var("j")) % 4 + maximum(var("i"), const(2)) // 2
    index = index + minimum(var("j"), var("i"))
    body = Binary("mul", load("X"), Cast("float32", IndexValue(index)))
    check(one_stage(body))
    check(one_stage(Cast("int32", Binary("mul", load("X"), Constant(9.0, "float32"))), "int32"))


def test_select_becomes_a_conditional_only_where_a_load_leaves_its_tensor() -> None:
    inside = Binary("ge", IndexValue(var("i")), IndexValue(const(1)))
    zero = Constant(0.0, "float32")
    safe = one_stage(Select(inside, load("X"), zero))
    unsafe = one_stage(Select(inside, Load("X", (var("i") - 1, var("j"))), zero))
    assert "T.Select" in module_for(safe).script()
    assert "T.if_then_else" in module_for(unsafe).script()


@pytest.mark.parametrize("shift", [0, 1])
def test_select(shift: int, check: Callable[..., Any]) -> None:
    inside = Binary("ge", IndexValue(var("i")), IndexValue(const(1)))
    data = Load("X", (var("i") - shift, var("j")))
    check(one_stage(Select(inside, data, load("Z"))))


@pytest.mark.parametrize("combiner", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_combiners(combiner: str, dtype: str, check: Callable[..., Any]) -> None:
    axes = (Axis("i", 5), Axis("k", 3, "reduce"))
    body = Load("X", (var("i"), var("k")))
    stage = Stage(Tensor("Y", (5,), dtype), axes, body, combiner)
    check(Workload("reduce", (Tensor("X", (5, 3), dtype),), (stage,), ("Y",)))


def test_reduction_to_a_single_number(check: Callable[..., Any]) -> None:
    axes = (Axis("i", 5, "reduce"), Axis("k", 3, "reduce"))
    stage = Stage(Tensor("Y", (), "float32"), axes, Load("X", (var("i"), var("k"))), "add")
    check(Workload("sum", (Tensor("X", (5, 3), "float32"),), (stage,), ("Y",)))


def test_several_outputs_and_an_unused_input(check: Callable[..., Any]) -> None:
    axes = (Axis("i", 5),)
    x = Load("X", (var("i"),))
    stages = (
        Stage(Tensor("Y", (5,), "float32"), axes, Unary("neg", x)),
        Stage(Tensor("Z", (5,), "float32"), axes, Binary("mul", Load("Y", (var("i"),)), x)),
    )
    inputs = (Tensor("U", (3,), "float32"), Tensor("X", (5,), "float32"))
    check(Workload("two", inputs, stages, ("Z", "Y")))


def test_names_and_order_of_parameters() -> None:
    script = module_for(conv2d(h=9, w=7, ci=3, co=5, pad=1, bias=1)).script()
    assert "def main(X: " in script
    assert script.index("W: T.Buffer") < script.index("bias: T.Buffer")
    for name in ("P", "Y", "Z"):
        assert f'T.sblock("{name}")' in script
    assert "for n, ho, wo, co, kh, kw, ci in" in script


def test_a_stage_that_nothing_needs_is_refused() -> None:
    axes = (Axis("i", 5),)
    stages = tuple(
        Stage(Tensor(name, (5,), "float32"), axes, Load("X", (var("i"),))) for name in "YZ"
    )
    workload = Workload("dead", (Tensor("X", (5,), "float32"),), stages, ("Y",))
    with pytest.raises(UnsupportedWorkload, match="'Z' of workload 'dead' is neither read nor"):
        module_for(workload)
