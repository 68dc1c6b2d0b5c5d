"""Workloads become MLIR programs that compute what the reference computes."""

from __future__ import annotations

import re
from typing import Any

import pytest
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.emit import iterator_axes, operand_names, payload
from indexed_workloads import INDEXED_WORKLOADS
from made_workloads import SMALL_WORKLOADS
from written import written

from autotune.backends import BuildRequest
from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    IndexValue,
    Load,
    Unary,
    var,
)
from autotune.ir.workloads import Axis, Stage, Tensor, Workload, conv2d, cumsum, gemm
from autotune.sketches import SplitReduction
from autotune.sketches.rewrites import split_reduction
from autotune.targets import Target, detect_cpu
from autotune.testing.expression_suite import ExpressionSuite, load, one_stage, stages
from autotune.testing.programs import check_program

i, j = var("i"), var("j")


class TestMLIRExpressions(ExpressionSuite):
    @pytest.fixture
    def backend(self, backend: MLIRBackend) -> MLIRBackend:
        return backend


def check(workload: Workload) -> None:
    """A workload without a schedule computes the reference."""
    check_program(MLIRBackend(), BuildRequest(workload, None, None, detect_cpu(), 1))


@pytest.mark.parametrize("workload", SMALL_WORKLOADS.values(), ids=SMALL_WORKLOADS.keys())
def test_builders(workload: Workload) -> None:
    check(workload)


def test_reads_outside_give_the_nearest_element() -> None:
    bodies = {
        name: Unary("neg", Load("X", indices))
        for name, indices in (("windows", (i + j, j)), ("clamped", (i - 1, j + 1)))
    }
    check(stages(bodies, shapes={"windows": (3, 4), "clamped": (6, 9)}))


def inside(name: str, low: int, high: int) -> str:
    return f"({name} >= {low} and {name} < {high})"


def padded(condition: str, shift: int = 2, value: float = 0.0) -> Workload:
    """``Y[i, j]`` of shape [9, 12] is ``X[i - shift, j - shift]`` where a condition holds."""
    body = f"X[i - {shift}, j - {shift}] if {condition} else {value}"
    return written("X[5, 7], Z[5, 7]", f"Y[i:9, j:12] = {body}")


PADDED = {
    "all": padded(f"{inside('i', 2, 7)} and {inside('j', 2, 9)}"),
    "a-part": padded(f"{inside('i', 3, 6)} and {inside('j', 4, 9)}"),
    "of-one": padded(f"{inside('i', 2, 7)} and {inside('j', 2, 9)}", value=1.5),
    "mirrored": padded(f"{inside('i', 0, 5)} and 7 > j and -1 - i <= int32(0)", 0),
}


@pytest.mark.parametrize("workload", PADDED.values(), ids=PADDED.keys())
def test_padding_is_one_operation(workload: Workload) -> None:
    text = payload(workload)
    assert "tensor.pad" in text and "linalg.generic" not in text
    assert text.count("tensor.extract_slice") == (workload is PADDED["a-part"])
    check(workload)


NOT_PADDED = {
    "either": padded(f"{inside('i', 2, 7)} or {inside('j', 2, 9)}"),
    "corner": padded("i + j < 7", 0),
    "outside": padded(f"{inside('i', 1, 7)} and {inside('j', 2, 9)}"),
    "data": padded("Z[i, j] < 0.0", 0),
    "computed": written("X[5, 7]", f"Y[i:5, j:7] = -X[i, j] if {inside('i', 1, 4)} else 0.0"),
    "another-type": written(
        "X[5, 7]",
        f"Y[i:5, j:7]: float64 = X[i, j] if {inside('i', 1, 4)} else float32(0.0)",
    ),
    "nowhere": padded(f"{inside('i', 7, 2)} and {inside('j', 2, 9)}"),
}


@pytest.mark.parametrize("workload", NOT_PADDED.values(), ids=NOT_PADDED.keys())
def test_other_conditions_are_not_padding(workload: Workload) -> None:
    text = payload(workload)
    assert "tensor.pad" not in text and text.count("linalg.generic") == 1
    check(workload)


def test_axes_stand_spatial_before_reduced() -> None:
    axes = (Axis("k", 3, "reduce"), Axis("i", 5))
    stage = Stage(Tensor("Y", (5,), "float32"), axes, Load("X", (var("k"), i)), "add")
    assert [axis.name for axis in iterator_axes(stage)] == ["i", "k"]
    check(Workload("columns", (Tensor("X", (3, 5), "float32"),), (stage,), ("Y",)))


@pytest.mark.parametrize("lanes", [1, 4])
def test_a_split_reduction(lanes: int) -> None:
    workload = split_reduction(gemm(m=5, n=3, k=12), SplitReduction("C", "k", lanes))
    assert payload(workload).count("autotune.init") == 2
    check(workload)


def test_names_of_operands_are_those_of_the_operations() -> None:
    pool = written("X[9]", "Y[i:4; k:3] max= X[i * 2 + k] + X[i % 3]")
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


def test_any_name_will_do() -> None:
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


def test_division_of_an_index_by_another_is_refused() -> None:
    with pytest.raises(UnsupportedWorkload, match="only positive constants"):
        payload(one_stage(Cast("float32", IndexValue(i // (j + 1)))))


def test_scans_iterate_their_axis_in_order_and_hand_on_what_they_continue() -> None:
    text = payload(cumsum(m=4, n=8))
    assert 'iterator_types = ["parallel", "reduction"]' in text
    assert "-> (tensor<4xf32>, tensor<4x8xf32>)" in text


def test_programs_do_not_depend_on_the_order_of_anything_but_the_workload() -> None:
    workload: Any = conv2d(h=9, w=7, ci=3, co=5, pad=1)
    assert payload(workload) == payload(Workload.from_json(workload.to_json()))


@pytest.mark.parametrize("workload", INDEXED_WORKLOADS, ids=lambda workload: workload.name)
def test_programs_without_a_schedule(
    workload: Workload, backend: MLIRBackend, target: Target
) -> None:
    check_program(backend, BuildRequest(workload, None, None, target, 1))
