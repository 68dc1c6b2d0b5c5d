"""Pointwise stages, and stages that share rows, as MLIR runs them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import islice

import pytest
from attrs import evolve
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.emit import payload
from autotune_mlir.schedule import schedule
from mlir_lowered import lowered_nest
from mlir_schedules import candidates, scheduled
from thinning import thinned

from autotune.backends import InvalidSchedule
from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    IndexValue,
    Load,
    ScalarExpr,
    Select,
    Unary,
    var,
)
from autotune.ir.workloads import Axis, Stage, Tensor, Workload, elementwise, softmax
from autotune.sketches import Candidate, FuseProducer, Step, Tile, Vectorize
from autotune.targets import Target
from autotune.testing.programs import check_candidate

ROWS, COLUMNS = 12, 64


def load(tensor: str, *axes: str) -> Load:
    return Load(tensor, tuple(var(axis) for axis in axes))


def matrix(name: str, dtype: str = "float32", columns: int = COLUMNS) -> Tensor:
    return Tensor(name, (ROWS, columns), dtype)


def pointwise(
    name: str, body: ScalarExpr, dtype: str = "float32", columns: int = COLUMNS
) -> Stage:
    axes = (Axis("i", ROWS), Axis("j", columns))
    return Stage(matrix(name, dtype, columns), axes, body)


def per_row(name: str, body: ScalarExpr, dtype: str = "float32") -> Stage:
    return Stage(Tensor(name, (ROWS,), dtype), (Axis("i", ROWS),), body)


def row_reduction(
    name: str,
    body: ScalarExpr,
    combiner: str = "add",
    dtype: str = "float32",
    columns: int = COLUMNS,
) -> Stage:
    axes = (Axis("i", ROWS), Axis("k", columns, "reduce"))
    return Stage(Tensor(name, (ROWS,), dtype), axes, body, combiner)


def made(name: str, inputs: Sequence[Tensor], *stages: Stage, outputs: str = "") -> Workload:
    return Workload(name, tuple(inputs), stages, tuple(outputs.split()) or (stages[-1].name,))


def binary(op: str, left: ScalarExpr, right: ScalarExpr) -> Binary:
    return Binary(op, left, right)


def number(value: float, dtype: str = "float32") -> Constant:
    return Constant(value, dtype)


X, XJ, XK = matrix("X"), load("X", "i", "j"), load("X", "i", "k")


def layer_norm() -> Workload:
    """Mean and deviation of each row, both through stages of one number per row."""
    centred = binary("sub", XK, load("Mean", "i"))
    return made(
        "layer_norm",
        [X, Tensor("Scale", (COLUMNS,), "float32")],
        row_reduction("Sum", XK),
        per_row("Mean", binary("mul", load("Sum", "i"), number(1 / COLUMNS))),
        row_reduction("Square", binary("mul", centred, centred)),
        per_row(
            "Deviation",
            Unary(
                "sqrt",
                binary(
                    "add", binary("mul", load("Square", "i"), number(1 / COLUMNS)), number(1e-5)
                ),
            ),
        ),
        pointwise(
            "Y",
            binary(
                "mul",
                binary("div", binary("sub", XJ, load("Mean", "i")), load("Deviation", "i")),
                load("Scale", "j"),
            ),
        ),
    )


def normalised(combiner: str, dtype: str) -> Workload:
    """Every element beside what a row is reduced to."""
    return made(
        f"normalised_{combiner}_{dtype}",
        [matrix("X", dtype)],
        row_reduction("R", XK, combiner, dtype),
        pointwise("Y", binary("sub", XJ, load("R", "i")), dtype),
    )


def two_reduced() -> Workload:
    """A row that is a matrix: reduced over both of its axes."""
    shape = (ROWS, 4, COLUMNS)
    cube = Tensor("X", shape, "float32")
    inner = load("X", "i", "c", "k")
    return made(
        "two_reduced",
        [cube],
        Stage(
            Tensor("S", (ROWS,), "float32"),
            (Axis("i", ROWS), Axis("c", 4, "reduce"), Axis("k", COLUMNS, "reduce")),
            binary("mul", inner, inner),
            "add",
        ),
        Stage(
            Tensor("Y", shape, "float32"),
            (Axis("i", ROWS), Axis("c", 4), Axis("j", COLUMNS)),
            binary("div", load("X", "i", "c", "j"), load("S", "i")),
        ),
    )


def rows_of_two_axes() -> Workload:
    """Softmax of the last axis of three."""
    shape = (3, 4, COLUMNS)
    cube = Tensor("X", shape, "float32")
    outer, columns = (Axis("a", 3), Axis("b", 4)), Axis("j", COLUMNS)
    reduced = (*outer, Axis("k", COLUMNS, "reduce"))
    rows = Tensor("M", (3, 4), "float32")
    shifted = binary("sub", load("X", "a", "b", "j"), load("M", "a", "b"))
    quotient = binary("div", load("E", "a", "b", "j"), load("S", "a", "b"))
    return made(
        "rows_of_two_axes",
        [cube],
        Stage(rows, reduced, load("X", "a", "b", "k"), "max"),
        Stage(Tensor("E", shape, "float32"), (*outer, columns), Unary("exp", shifted)),
        Stage(Tensor("S", (3, 4), "float32"), reduced, load("E", "a", "b", "k"), "add"),
        Stage(Tensor("Y", shape, "float32"), (*outer, columns), quotient),
    )


def branches() -> Workload:
    """Two outputs over a stage that is too dear to be computed twice, and one that is not."""
    return made(
        "branches",
        [X, matrix("Z")],
        pointwise("T", binary("add", binary("mul", XJ, load("Z", "i", "j")), XJ)),
        pointwise("E", Unary("exp", load("T", "i", "j"))),
        pointwise("P", binary("add", load("E", "i", "j"), load("T", "i", "j"))),
        pointwise("Q", binary("mul", load("E", "i", "j"), number(0.5))),
        outputs="P Q",
    )


def shifted_reads() -> Workload:
    """A stage that is read at two places by the one that it is inlined into."""
    here, there = Load("T", (var("i"), var("j"))), Load("T", (var("i"), var("j") + 2))
    return made(
        "shifted_reads",
        [X],
        pointwise("T", binary("mul", XJ, XJ)),
        pointwise("Y", binary("sub", here, there), columns=COLUMNS - 2),
    )


def mixed_types() -> Workload:
    """Integers, comparisons and floating-point numbers in one chain."""
    whole = load("N", "i", "j")
    return made(
        "mixed_types",
        [matrix("N", "int32"), X],
        pointwise("T", binary("mul", whole, whole), "int32"),
        pointwise(
            "Y",
            Select(
                binary("gt", load("T", "i", "j"), Constant(5, "int32")),
                binary("mul", Cast("float32", load("T", "i", "j")), XJ),
                XJ,
            ),
        ),
    )


def turned() -> Workload:
    """A transposition: vectors of the result are columns of what is read."""
    return made(
        "turned",
        [Tensor("X", (COLUMNS, ROWS), "float32")],
        pointwise("Y", Unary("neg", load("X", "j", "i"))),
    )


def chain_in_rows() -> Workload:
    """Pointwise stages before and behind a reduction, read by several of the others."""
    return made(
        "chain_in_rows",
        [X],
        pointwise("T", binary("mul", XJ, XJ)),
        pointwise("U", binary("add", load("T", "i", "j"), XJ)),
        row_reduction("S", load("U", "i", "k")),
        pointwise("V", binary("sub", load("U", "i", "j"), load("S", "i"))),
        pointwise("Y", binary("mul", load("V", "i", "j"), load("T", "i", "j"))),
    )


def two_reductions_of_one() -> Workload:
    """A dear stage that two reductions and the output read."""
    return made(
        "two_reductions_of_one",
        [X],
        pointwise("T", Unary("exp", XJ)),
        row_reduction("M", load("T", "i", "k"), "max"),
        row_reduction("S", binary("sub", load("T", "i", "k"), load("M", "i"))),
        pointwise("Y", binary("div", load("T", "i", "j"), load("S", "i"))),
    )


def masked_rows() -> Workload:
    """What is kept depends on the place."""
    kept = binary("le", IndexValue(var("j")), IndexValue(var("i") * 4))
    return made(
        "masked_rows",
        [X],
        pointwise("T", Select(kept, XJ, number(-1e9))),
        row_reduction("M", load("T", "i", "k"), "max"),
        pointwise("Y", binary("sub", load("T", "i", "j"), load("M", "i"))),
    )


def read_apart() -> Workload:
    """A stage of which a consumer reads every other column: it is computed as a whole."""
    i, j = var("i"), var("j")
    pairs = binary("add", Load("T", (i, j * 2)), Load("T", (i, j * 2 + 1)))
    return made(
        "read_apart",
        [X],
        pointwise("T", binary("mul", XJ, XJ)),
        pointwise("Y", pairs, columns=COLUMNS // 2),
    )


def stencil() -> Workload:
    """A stage that pads, inlined into one that reads it at two places."""
    i, j = var("i"), var("j")
    inside = [
        binary(op, IndexValue(axis), Constant(bound, "int64"))
        for axis, extent in ((i, ROWS), (j, COLUMNS))
        for op, bound in (("ge", 1), ("lt", extent + 1))
    ]
    condition: ScalarExpr = inside[0]
    for part in inside[1:]:
        condition = binary("and", condition, part)
    padded = Stage(
        Tensor("P", (ROWS + 2, COLUMNS + 2), "float32"),
        (Axis("i", ROWS + 2), Axis("j", COLUMNS + 2)),
        Select(condition, Load("X", (i - 1, j - 1)), number(0.0)),
    )
    both = binary("add", Load("P", (i, j)), Load("P", (i + 2, j + 2)))
    return made("stencil", [X], padded, pointwise("Y", both))


WORKLOADS = [
    elementwise(m=12, n=96),
    elementwise(m=7, n=31),
    elementwise(m=5, n=64, dtype="float64"),
    softmax(m=8, n=64),
    softmax(m=5, n=7),
    softmax(m=4, n=12),
    softmax(m=1, n=1),
    softmax(m=2, n=16, dtype="float64"),
    layer_norm(),
    normalised("min", "float32"),
    normalised("max", "int32"),
    normalised("add", "int8"),
    normalised("mul", "float64"),
    two_reduced(),
    rows_of_two_axes(),
    branches(),
    shifted_reads(),
    mixed_types(),
    turned(),
    chain_in_rows(),
    two_reductions_of_one(),
    masked_rows(),
    read_apart(),
    stencil(),
]


def one_of(workload: Workload, target: Target, name: str) -> Candidate:
    """A candidate of the sketch called so."""
    found = candidates(workload, target, 1)
    return next(candidate for candidate in found if candidate.sketch.name == name)


@pytest.mark.parametrize("workload", thinned(WORKLOADS, 3))
def test_every_sketch_computes_what_the_workload_says(
    workload: Workload, backend: MLIRBackend, target: Target
) -> None:
    for candidate in candidates(workload, target, 1):
        check_candidate(backend, candidate, target)


def test_partial_results_are_in_registers(backend: MLIRBackend, target: Target) -> None:
    program = str(scheduled(one_of(softmax(m=8, n=512), target, "row-fusion")))
    carried = re.findall(r"scf\.for .* iter_args\(.*\) -> \((.*)\) \{", program)
    lanes = target.lanes("float32")
    assert carried.count(f"vector<1x{lanes}xf32>") == 2  # maxima and sums
    assert "linalg.generic" not in program


@pytest.mark.parametrize(("name", "times"), [("row-fusion", 1), ("row-fusion-recompute", 2)])
def test_what_is_inlined_is_computed_for_every_use(
    name: str, times: int, backend: MLIRBackend, target: Target
) -> None:
    workload = softmax(m=8, n=512)
    chosen = one_of(workload, target, name)
    nest = lowered_nest(payload(workload), schedule(chosen, workload))
    exponentials = [it for it in nest.statements if it.name.partition(">")[0] == "E"]
    assert len(exponentials) == times
    # In vectors, and not for a row.
    assert all(math.prod(it.iterations) <= 64 for it in exponentials)


def test_a_parallel_loop_over_rows(backend: MLIRBackend, target: Target) -> None:
    program = str(scheduled(one_of(softmax(m=8, n=64), target, "row-fusion")))
    (loop,) = re.findall(r"scf\.forall .*", program)
    assert "8xi" not in loop


def changed(workload: Workload, target: Target, name: str, steps: Sequence[Step]) -> Candidate:
    """A candidate of a sketch with further steps."""
    chosen = one_of(workload, target, name)
    sketch = evolve(chosen.sketch, steps=(*chosen.sketch.steps, *steps))
    return Candidate(sketch, chosen.values)


def test_stages_are_inside_of_one_loop(target: Target) -> None:
    workload = softmax(m=8, n=64)
    candidate = changed(workload, target, "row-fusion", [FuseProducer("E", "Y", "i.0", 1)])
    with pytest.raises(InvalidSchedule, match=r"not of i\.0, i\.1"):
        schedule(candidate, workload)


def test_what_is_needed_elsewhere_stays_outside(target: Target) -> None:
    workload = branches()
    candidate = changed(workload, target, "plain", [FuseProducer("E", "P", "i.0", 1)])
    with pytest.raises(InvalidSchedule, match=r"'E' cannot be computed inside loops: .* by Q"):
        schedule(candidate, workload)


def test_lanes_of_what_moves_into_a_loop(backend: MLIRBackend, target: Target) -> None:
    workload = chain_in_rows()
    chosen = one_of(workload, target, "row-fusion")
    steps = tuple(
        FuseProducer("U", step.consumer, step.at, 16)
        if isinstance(step, FuseProducer) and step.stage == "U"
        else step
        for step in chosen.sketch.steps
        if not (isinstance(step, (Tile, Vectorize)) and step.stage == "U")
    )
    candidate = Candidate(evolve(chosen.sketch, steps=steps), chosen.values)
    check_candidate(backend, candidate, target)
    nest = lowered_nest(payload(workload), schedule(candidate, workload))
    (statement,) = [it for it in nest.statements if it.name == "U"]
    assert statement.iterations == (1, 16)


@pytest.mark.needs("openmp")
def test_on_two_threads(backend: MLIRBackend, target: Target) -> None:
    for workload in (softmax(m=8, n=64), elementwise(m=8, n=64), chain_in_rows()):
        for candidate in islice(candidates(workload, target, 1), 3):
            check_candidate(backend, candidate, target, threads=2)
