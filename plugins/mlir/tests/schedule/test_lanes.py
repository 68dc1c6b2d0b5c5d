"""Reads that MLIR makes no vectors of are read element by element."""

from __future__ import annotations

import pytest
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.importing.reading import read_text
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.ir.expressions import Binary, Load, ScalarExpr, Unary, const, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.targets import Target
from autotune.testing.programs import check_candidate, sample_candidates

EXTENTS = st.sampled_from((1, 3, 7, 16, 33))


@pytest.mark.parametrize("is_computed", [False, True], ids=["an input", "a stage"])
def test_one_place_along_a_dimension(
    backend: MLIRBackend, target: Target, is_computed: bool
) -> None:
    i, j = var("i"), var("j")
    axes = (Axis("i", 7), Axis("j", 48))
    x = Tensor("x", (7, 3, 48), "float32")
    first = Unary("exp", Load("x", (i, const(1), j)))
    stages = [Stage(Tensor("y", (7, 48), "float32"), axes, first)]
    if is_computed:
        unit = (axes[0], Axis("z", 1), axes[1])
        read = Unary("neg", Load("a", (i, const(0), j)))
        stages = [
            Stage(Tensor("a", (7, 1, 48), "float32"), unit, first),
            Stage(Tensor("y", (7, 48), "float32"), axes, read),
        ]
    workload = Workload("place", (x,), tuple(stages), ("y",))
    candidates = sample_candidates(backend, workload, target)
    assert candidates
    for candidate in candidates:
        check_candidate(backend, candidate, target)


@settings(max_examples=8, deadline=None)
@given(rows=EXTENTS, columns=EXTENTS, parts=st.sampled_from((1, 2, 3)))
def test_reshapes(
    backend: MLIRBackend, target: Target, rows: int, columns: int, parts: int
) -> None:
    wide, flat = f"tensor<{rows}x{parts * columns}xf32>", f"tensor<{rows * parts * columns}xf32>"
    tall = f"tensor<{rows * parts}x{columns}xf32>"
    text = (
        f"func.func @f(%a: {wide}) -> {tall} {{\n"
        f"%0 = math.exp %a : {wide}\n"
        f"%1 = tensor.collapse_shape %0 [[0, 1]] : {wide} into {flat}\n"
        f"%2 = tensor.expand_shape %1 [[0, 1]] output_shape [{rows * parts}, {columns}] "
        f": {flat} into {tall}\n"
        f"%3 = arith.negf %2 : {tall}\nreturn %3 : {tall}\n}}\n"
    )
    workload, program = read_text(text, "program.mlir")
    candidates = sample_candidates(backend, workload, target)
    assert candidates
    for candidate in candidates:
        check_candidate(backend, candidate, target, program=program)


def test_parts_of_a_stage_that_are_read_through_others(
    backend: MLIRBackend, target: Target
) -> None:
    """As the gates of a recurrent cell are, which are columns of one product."""
    i, j, k = var("i"), var("j"), var("k")

    def gate(number: int) -> Load:
        return Load("sum", (i, j + 32 * number))

    def stage(name: str, body: ScalarExpr) -> Stage:
        return Stage(Tensor(name, (5, 32), "float32"), (Axis("i", 5), Axis("j", 32)), body)

    def read(name: str) -> Load:
        return Load(name, (i, j))

    inputs = (Tensor("x", (5, 16), "float32"), Tensor("w", (16, 96), "float32"))
    axes = (Axis("i", 5), Axis("j", 96), Axis("k", 16, "reduce"))
    factors = Binary("mul", Load("x", (i, k)), Load("w", (k, j)))
    products = [
        Stage(Tensor(name, (5, 96), "float32"), axes, factors, "add") for name in ("one", "other")
    ]
    stages = (
        *products,
        Stage(
            Tensor("sum", (5, 96), "float32"), axes[:2], Binary("add", read("one"), read("other"))
        ),
        stage("first", Unary("tanh", gate(0))),
        stage("second", Unary("exp", gate(1))),
        stage("third", Binary("mul", read("first"), read("second"))),
        stage("y", Binary("add", read("third"), gate(2))),
    )
    workload = Workload("cell", inputs, stages, ("y",))
    candidates = sample_candidates(backend, workload, target)
    assert candidates
    for candidate in candidates:
        check_candidate(backend, candidate, target)
