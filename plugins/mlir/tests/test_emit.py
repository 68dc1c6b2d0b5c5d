"""Workloads become MLIR programs that compute what the reference computes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.emit import iterator_axes, operand_names, payload
from made_workloads import SMALL_WORKLOADS

from autotune.backends import BuildRequest, bind_copies
from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    Unary,
    const,
    less,
    maximum,
    minimum,
    select,
    var,
)
from autotune.ir.expressions.scalar import ARITHMETIC, COMPARISONS, LOGIC, UNARY
from autotune.ir.workloads import (
    Axis,
    Stage,
    Tensor,
    Workload,
    conv2d,
    gemm,
    random_inputs,
    reference_outputs,
)
from autotune.sketches import SplitReduction
from autotune.sketches.rewrites import split_reduction
from autotune.targets import detect_cpu

Check = Callable[[Workload], None]


@pytest.fixture(scope="module")
def check() -> Check:
    """Builds a workload without a schedule, runs it, and compares it with numpy."""
    backend, target = MLIRBackend(), detect_cpu()

    def checked(workload: Workload) -> None:
        arrays = random_inputs(workload, np.random.default_rng(7))
        if workload.parameters.get("positive"):
            arrays = {
                name: np.abs(array) + array.dtype.type(0.25) for name, array in arrays.items()
            }
        request = BuildRequest(
            workload=workload, program=None, candidate=None, target=target, threads=1
        )
        inputs = [arrays[tensor.name] for tensor in workload.inputs]
        call = bind_copies(backend.build(request), workload, inputs)
        call.poison()
        call.run()
        with np.errstate(divide="ignore", invalid="ignore"):
            expected = reference_outputs(workload, arrays)
        for name, output in zip(workload.outputs, call.outputs(), strict=True):
            assert output.dtype == expected[name].dtype
            if output.dtype.kind == "f":
                tolerance = 2e-2 if output.dtype == np.float16 else 2e-5
                np.testing.assert_allclose(output, expected[name], tolerance, tolerance)
            else:
                np.testing.assert_array_equal(output, expected[name])

    return checked


@pytest.mark.parametrize("workload", SMALL_WORKLOADS.values(), ids=SMALL_WORKLOADS.keys())
def test_builders(workload: Workload, check: Check) -> None:
    check(workload)


def one_stage(
    body: ScalarExpr,
    dtype: str = "float32",
    *,
    inputs: str = "float32",
    positive: bool = False,
    shape: tuple[int, int] = (5, 7),
) -> Workload:
    """``Y[i, j] = body`` over inputs ``X`` and ``Z`` of shape [5, 7]."""
    axes = (Axis("i", shape[0]), Axis("j", shape[1]))
    return Workload(
        "one-stage",
        (Tensor("X", (5, 7), inputs), Tensor("Z", (5, 7), inputs)),
        (Stage(Tensor("Y", shape, dtype), axes, body),),
        ("Y",),
        {"positive": positive},
    )


def load(name: str) -> Load:
    return Load(name, (var("i"), var("j")))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("op", [op for op in UNARY if op != "not"])
def test_unary(op: str, dtype: str, check: Check) -> None:
    positive = op in ("log", "sqrt", "rsqrt")
    check(one_stage(Unary(op, load("X")), dtype, inputs=dtype, positive=positive))


@pytest.mark.parametrize("op", ["neg", "abs", "floor", "ceil"])
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_unary_of_integers(op: str, dtype: str, check: Check) -> None:
    check(one_stage(Unary(op, load("X")), dtype, inputs=dtype))


def test_functions_of_integers_are_floats(check: Check) -> None:
    check(one_stage(Unary("exp", load("X")), inputs="int32"))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("op", ARITHMETIC)
def test_arithmetic(op: str, dtype: str, check: Check) -> None:
    body = Binary(op, load("X"), load("Z"))
    check(one_stage(body, dtype, inputs=dtype, positive=op in ("pow", "div")))


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "max", "min"])
def test_arithmetic_of_integers(op: str, dtype: str, check: Check) -> None:
    check(one_stage(Binary(op, load("X"), load("Z")), dtype, inputs=dtype))


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
@pytest.mark.parametrize("op", COMPARISONS)
def test_comparisons(op: str, dtype: str, check: Check) -> None:
    check(one_stage(Binary(op, load("X"), load("Z")), "bool", inputs=dtype))


@pytest.mark.parametrize("op", LOGIC)
def test_logic(op: str, check: Check) -> None:
    left = Binary("lt", load("X"), Constant(0.0, "float32"))
    right = Binary("gt", load("Z"), Constant(0.0, "float32"))
    check(one_stage(Binary(op, left, right), "bool"))
    check(one_stage(Unary("not", Binary(op, load("X"), load("Z"))), "bool", inputs="bool"))


def test_integer_division_truncates(check: Check) -> None:
    body = Binary("div", load("X"), Constant(3, "int32"))
    check(one_stage(body, "int32", inputs="int32"))


def test_a_branch_that_is_not_taken_may_divide_by_zero(check: Check) -> None:
    zero = Constant(0, "int32")
    body = Select(
        Binary("eq", load("Z"), zero), zero, Binary("div", Constant(100, "int32"), load("Z"))
    )
    check(one_stage(body, "int32", inputs="int32"))


i, j = var("i"), var("j")
INDEX_VALUES = {
    "remainder": (i * 3 + j) % 4,
    "quotient": (i * 3 + j) // 4,
    "negative": (i - 3) // 2 * 5 + (i * 2 - j) % 3,
    "extrema": maximum(i, const(2)) // 2 + minimum(j, i),
    "less": less(i, j) * 7 + less(j, const(3)),
    "select": select(less(i, const(2)), j, i * 2),
}


@pytest.mark.parametrize("index", INDEX_VALUES.values(), ids=INDEX_VALUES.keys())
def test_index_values(index: IntExpr, check: Check) -> None:
    check(one_stage(Binary("mul", load("X"), Cast("float32", IndexValue(index)))))
    check(one_stage(IndexValue(index), "int32"))


@pytest.mark.parametrize("source", ["float32", "float64", "int8", "int64", "uint8", "bool"])
def test_casts(source: str, check: Check) -> None:
    axes = (Axis("i", 5), Axis("j", 7))
    stages = tuple(
        Stage(Tensor(f"Y{dtype}", (5, 7), dtype), axes, Cast(dtype, load("X")))
        for dtype in ("float16", "float32", "int8", "int32", "int64", "bool")
    )
    names = tuple(stage.name for stage in stages)
    check(Workload("casts", (Tensor("X", (5, 7), source),), stages, names))


def test_operands_of_several_types_meet(check: Check) -> None:
    index = IndexValue(i + j)
    check(one_stage(Binary("add", load("X"), index), "int32", inputs="int32"))
    check(one_stage(Binary("mul", index, Constant(0.5, "float32"))))
    check(one_stage(Binary("add", Binary("lt", load("X"), load("Z")), index), "int64"))
    check(one_stage(Binary("add", Cast("int8", index), Cast("uint8", index)), "int32"))


READS: dict[str, tuple[tuple[int, int], tuple[IntExpr, IntExpr]]] = {
    "part": ((3, 4), (i, j)),
    "shifted": ((3, 4), (i + 2, j + 1)),
    "reversed": ((5, 7), (4 - i, 6 - j)),
    "transposed": ((7, 5), (j, i)),
    "diagonal": ((5, 2), (i, i)),
    "row": ((3, 7), (const(2), j)),
    "element": ((3, 2), (const(4), const(6))),
    "strided": ((3, 3), (i * 2, j * 3)),
    "windows": ((3, 4), (i + j, j)),
    "remainder": ((5, 7), (i, (i + j) % 7)),
    "clamped": ((6, 9), (i - 1, j + 1)),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_reads(read: tuple[tuple[int, int], tuple[IntExpr, IntExpr]], check: Check) -> None:
    shape, indices = read
    check(one_stage(Unary("neg", Load("X", indices)), shape=shape))


def inside(name: str, low: int, high: int) -> ScalarExpr:
    """``low <= name < high``."""
    index = IndexValue(var(name))
    return Binary(
        "and",
        Binary("ge", index, IndexValue(const(low))),
        Binary("lt", index, IndexValue(const(high))),
    )


def padded(condition: ScalarExpr, shift: int, value: float = 0.0) -> Workload:
    """``Y[i, j]`` of shape [9, 12] is ``X[i - shift, j - shift]`` where a condition holds."""
    read = Load("X", (i - shift, j - shift))
    return one_stage(Select(condition, read, Constant(value, "float32")), shape=(9, 12))


PADDED = {
    "all": padded(Binary("and", inside("i", 2, 7), inside("j", 2, 9)), 2),
    "a-part": padded(Binary("and", inside("i", 3, 6), inside("j", 4, 9)), 2),
    "of-one": padded(Binary("and", inside("i", 2, 7), inside("j", 2, 9)), 2, 1.5),
    "mirrored": padded(
        Binary(
            "and",
            Binary("and", inside("i", 0, 5), Binary("gt", IndexValue(const(7)), IndexValue(j))),
            Binary("le", IndexValue(const(-1) - i), Constant(0, "int32")),
        ),
        0,
    ),
}


@pytest.mark.parametrize("workload", PADDED.values(), ids=PADDED.keys())
def test_padding_is_one_operation(workload: Workload, check: Check) -> None:
    text = payload(workload)
    assert "tensor.pad" in text and "linalg.generic" not in text
    assert text.count("tensor.extract_slice") == (workload is PADDED["a-part"])
    check(workload)


NOT_PADDED = {
    "either": padded(Binary("or", inside("i", 2, 7), inside("j", 2, 9)), 2),
    "corner": padded(Binary("lt", IndexValue(i + j), IndexValue(const(7))), 0),
    "outside": padded(Binary("and", inside("i", 1, 7), inside("j", 2, 9)), 2),
    "data": padded(Binary("lt", load("Z"), Constant(0.0, "float32")), 0),
    "computed": one_stage(
        Select(inside("i", 1, 4), Unary("neg", load("X")), Constant(0.0, "float32"))
    ),
    "another-type": one_stage(
        Select(inside("i", 1, 4), load("X"), Constant(0.0, "float32")), "float64"
    ),
    "nowhere": padded(Binary("and", inside("i", 7, 2), inside("j", 2, 9)), 2),
}


@pytest.mark.parametrize("workload", NOT_PADDED.values(), ids=NOT_PADDED.keys())
def test_other_conditions_are_not_padding(workload: Workload, check: Check) -> None:
    text = payload(workload)
    assert "tensor.pad" not in text and text.count("linalg.generic") == 1
    check(workload)


@pytest.mark.parametrize("combiner", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8", "bool"])
def test_combiners(combiner: str, dtype: str, check: Check) -> None:
    axes = (Axis("i", 5), Axis("k", 3, "reduce"))
    body = Load("X", (i, var("k")))
    stage = Stage(Tensor("Y", (5,), dtype), axes, body, combiner)
    check(Workload("reduce", (Tensor("X", (5, 3), dtype),), (stage,), ("Y",)))


def test_reduction_to_a_single_number(check: Check) -> None:
    axes = (Axis("i", 5, "reduce"), Axis("k", 3, "reduce"))
    stage = Stage(Tensor("Y", (), "float32"), axes, Load("X", (i, var("k"))), "add")
    check(Workload("sum", (Tensor("X", (5, 3), "float32"),), (stage,), ("Y",)))


def test_pooling_over_a_window_of_one_operand(check: Check) -> None:
    axes = (Axis("i", 4), Axis("k", 3, "reduce"), Axis("l", 2, "reduce"))
    body = Load("X", (i * 2 + var("k"), var("l") * 2 + 1))
    for combiner in ("add", "max"):
        stage = Stage(Tensor("Y", (4,), "float32"), axes, body, combiner)
        check(Workload("pool", (Tensor("X", (9, 5), "float32"),), (stage,), ("Y",)))


def test_axes_stand_spatial_before_reduced(check: Check) -> None:
    axes = (Axis("k", 3, "reduce"), Axis("i", 5))
    stage = Stage(Tensor("Y", (5,), "float32"), axes, Load("X", (var("k"), i)), "add")
    assert [axis.name for axis in iterator_axes(stage)] == ["i", "k"]
    check(Workload("columns", (Tensor("X", (3, 5), "float32"),), (stage,), ("Y",)))


@pytest.mark.parametrize("lanes", [1, 4])
def test_a_split_reduction(lanes: int, check: Check) -> None:
    workload = split_reduction(gemm(m=5, n=3, k=12), SplitReduction("C", "k", lanes))
    assert payload(workload).count("autotune.init") == 2
    check(workload)


def test_several_outputs_and_an_unused_input(check: Check) -> None:
    axes = (Axis("i", 5),)
    x = Load("X", (i,))
    stages = (
        Stage(Tensor("Y", (5,), "float32"), axes, Unary("neg", x)),
        Stage(Tensor("Z", (5,), "float32"), axes, Binary("mul", Load("Y", (i,)), x)),
    )
    inputs = (Tensor("U", (3,), "float32"), Tensor("X", (5,), "float32"))
    check(Workload("two", inputs, stages, ("Z", "Y")))


def test_a_scalar_without_axes(check: Check) -> None:
    stage = Stage(Tensor("Y", (), "float32"), (), Unary("exp", Load("X", ())))
    check(Workload("scalar", (Tensor("X", (), "float32"),), (stage,), ("Y",)))


def test_names_of_operands_are_those_of_the_operations() -> None:
    axes = (Axis("i", 4), Axis("k", 3, "reduce"))
    window = Binary("add", Load("X", (i * 2 + var("k"),)), Load("X", (i % 3,)))
    stage = Stage(Tensor("Y", (4,), "float32"), axes, window, "max")
    pool = Workload("pool", (Tensor("X", (9,), "float32"),), (stage,), ("Y",))
    assert operand_names(pool) == {"Y": ("X", "")}
    twice = Binary("mul", Load("X", (i, j)), Binary("add", Load("X", (j, i)), Load("X", (i, j))))
    assert operand_names(one_stage(twice, shape=(5, 5)))["Y"] == ("X", "X")
    assert operand_names(conv2d(h=9, w=7, ci=3, co=5, pad=1, bias=1)) == {
        "P": ("X",),
        "Y": ("P", "W"),
        "Z": ("Y", "bias"),
    }
    for workload in (pool, *SMALL_WORKLOADS.values()):
        counts = [
            len(re.search(r" ins\((.*?) :", line)[1].split(", "))  # type: ignore[index]
            for line in payload(workload).splitlines()
            if " = linalg.generic " in line
        ]
        names = [
            operands
            for stage, operands in operand_names(workload).items()
            if stage != "P"  # The one that is padded.
        ]
        assert counts == [len(operands) for operands in names]


def test_every_stage_and_every_initialisation_is_named() -> None:
    text = payload(conv2d(h=9, w=7, ci=3, co=5, pad=1, bias=1, relu=1))
    for stage in ("P", "Y", "Z", "R"):
        assert text.count(f'autotune.stage = "{stage}"') == 1
    assert text.count("autotune.init") == 1 and 'autotune.init = "Y"' in text


def test_any_name_will_do(check: Check) -> None:
    name = 'a "stage" \\ of é'
    stage = Stage(Tensor(name, (5,), "float32"), (Axis("%0", 5),), Load("%x: f32", (var("%0"),)))
    check(Workload("names", (Tensor("%x: f32", (5,), "float32"),), (stage,), (name,)))


@pytest.mark.parametrize("op", ["sub", "div"])
def test_what_bools_have_no_operation_for_is_refused(op: str) -> None:
    workload = one_stage(Binary(op, load("X"), load("Z")), "bool", inputs="bool")
    with pytest.raises(UnsupportedWorkload, match=f"stage 'Y' computes '{op}' of bool values"):
        payload(workload)


def test_powers_of_integers_are_refused() -> None:
    workload = one_stage(Binary("pow", load("X"), load("Z")), "int32", inputs="int32")
    with pytest.raises(UnsupportedWorkload, match="stage 'Y' computes 'pow' of int32 values"):
        payload(workload)


def test_a_constant_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UnsupportedWorkload, match=r"100000\.0 does not fit float16"):
        payload(one_stage(Constant(1e5, "float16"), "float16"))


def test_extreme_constants_keep_their_bits(check: Check) -> None:
    for value in (float("inf"), float("-inf"), 1e-45, 3.4028234663852886e38, 0.1):
        check(one_stage(Constant(value, "float32")))
    check(one_stage(Constant(-(2**63), "int64"), "int64"))
    check(one_stage(Constant(255, "uint8"), "uint8"))


def test_division_of_an_index_by_another_is_refused() -> None:
    with pytest.raises(UnsupportedWorkload, match="only positive constants"):
        payload(one_stage(Cast("float32", IndexValue(i // (j + 1)))))


def test_programs_do_not_depend_on_the_order_of_anything_but_the_workload() -> None:
    workload: Any = conv2d(h=9, w=7, ci=3, co=5, pad=1)
    assert payload(workload) == payload(Workload.from_json(workload.to_json()))
