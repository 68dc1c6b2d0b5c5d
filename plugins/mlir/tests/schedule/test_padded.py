"""Products that run over more rows than their result has."""

from __future__ import annotations

import numpy as np
import pytest
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.emit import payload
from autotune_mlir.schedule import schedule
from autotune_mlir.schedule.planning import plan_of
from autotune_mlir.schedule.script import MAIN
from mlir_lowered import COMPUTED, lowered_nest

from autotune.backends import InvalidSchedule
from autotune.ir.expressions import Binary, Load, const, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload, batch_matmul, dense, gemm
from autotune.sketches import Candidate, PadExtent, Sketch, Tile
from autotune.spaces.sketch_space import SketchSpace
from autotune.targets import Target
from autotune.testing.programs import check_candidate


def add_on_rows(m: int, n: int, k: int) -> Workload:
    """A product to which numbers of rows and another matrix are added."""
    axes = (Axis("i", m), Axis("j", n))
    i, j, inner = var("i"), var("j"), var("k")
    product = Binary("mul", Load("A", (i, inner)), Load("B", (inner, j)))
    added = Binary("add", Load("C", (i, j)), Load("r", (i,)))
    return Workload(
        "add_on_rows",
        (
            Tensor("A", (m, k), "float32"),
            Tensor("B", (k, n), "float32"),
            Tensor("r", (m,), "float32"),
            Tensor("R", (m, n), "float32"),
        ),
        (
            Stage(Tensor("C", (m, n), "float32"), (*axes, Axis("k", k, "reduce")), product, "add"),
            Stage(Tensor("D", (m, n), "float32"), axes, Binary("add", added, Load("R", (i, j)))),
        ),
        ("D",),
    )


ROWS = gemm(m=27, n=64, k=16)


def product(target: Target, name: str, rows: tuple[int, int, int]) -> Candidate:
    """A product of 27 rows that are iterated to 28."""
    space = SketchSpace(ROWS, target, MLIRBackend().limits(target))
    sketch = next(sketch for sketch in space.sketches() if sketch.name == name)
    lanes = next(param for param in sketch.params if param.name == "C.j.3").values
    assert lanes is not None
    values = {"C.i.extent": 28, "C.j.extent": 64, "C.j.0": 1, "C.j.1": 64 // lanes[0], "C.j.2": 1}
    values |= {f"C.i.{level}": factor for level, factor in enumerate(rows)}
    values |= {"C.j.3": lanes[0], "C.k.0": 8, "C.k.1": 2}
    return Candidate(sketch, tuple(values[param.name] for param in sketch.params))


@pytest.mark.parametrize("rows", [(1, 14, 2), (2, 7, 2), (14, 1, 2), (1, 1, 28), (2, 2, 7)])
@pytest.mark.parametrize("name", ["plain-outer", "packed-root-rows", "packed-panel-outer"])
def test_rows_beyond_the_end(
    name: str, rows: tuple[int, int, int], backend: MLIRBackend, target: Target
) -> None:
    check_candidate(backend, product(target, name, rows), target)


@pytest.mark.parametrize(
    "workload",
    [
        gemm(m=9, n=16, k=16, dtype="int8"),
        gemm(m=16, n=51, k=32),
        gemm(m=13, n=7, k=31),
        batch_matmul(b=2, m=15, n=32, k=16),
        batch_matmul(b=2, m=15, n=37, k=16),
        dense(m=25, n=32, k=16, bias=0, relu=0),
        dense(m=256, n=7, k=16, bias=0, relu=0),
    ],
    ids=lambda workload: workload.name,
)
def test_padded_candidates_compute_it(
    workload: Workload, backend: MLIRBackend, target: Target
) -> None:
    space = SketchSpace(workload, target, backend.limits(target))
    stage = workload.stages[-1]
    padded = [
        candidate
        for candidate in space.sample(300, np.random.default_rng(0))
        if any(
            candidate.config.get(f"{stage.name}.{axis.name}.extent", 0) > axis.extent
            for axis in stage.axes
        )
    ]
    assert len(padded) > 4
    for number, candidate in enumerate(padded[:4]):
        check_candidate(backend, candidate, target, threads=1 + number % 2)


@pytest.mark.parametrize(
    "workload",
    [
        dense(m=27, n=64, k=16),
        dense(m=31, n=51, k=16, relu=0),
        dense(m=25, n=7, k=16),
        add_on_rows(m=13, n=33, k=16),
    ],
    ids=lambda workload: workload.name,
)
def test_what_follows_a_padded_result_is_computed_inside_its_loops(
    workload: Workload, backend: MLIRBackend, target: Target
) -> None:
    """Its tiles end where the result does, and so do those of all that it reads besides."""
    space = SketchSpace(workload, target, backend.limits(target))
    followed = [
        candidate
        for candidate in space.sample(100, np.random.default_rng(0))
        if any(own.padded and own.consumer for own in plan_of(candidate, workload).stages.values())
    ]
    assert len(followed) > 3
    for number, candidate in enumerate(followed[:4]):
        check_candidate(backend, candidate, target, threads=1 + number % 2)


def test_nothing_is_as_large_as_the_padded_result(target: Target) -> None:
    """Tiles and the copies of operands are all there is, and a tile is copied where it belongs."""
    candidate = product(target, "plain-outer", (2, 7, 2))
    lowered = lowered_nest(payload(ROWS), schedule(candidate, ROWS), MAIN)
    shapes = sorted(buffer.shape for buffer in lowered.buffers)
    assert shapes == [(COMPUTED, 16), (2, candidate.config["C.j.3"])]
    assert [copy.iterations for copy in lowered.copies] == [(COMPUTED, shapes[1][1])]


def test_every_tile_reaches_into_the_result(target: Target) -> None:
    space = SketchSpace(ROWS, target, MLIRBackend().limits(target))
    drawn = [
        candidate.config
        for candidate in space.sample(400, np.random.default_rng(0))
        if candidate.config.get("C.i.extent", 27) > 27
    ]
    assert drawn
    assert all(config["C.i.extent"] - config["C.i.2"] < 27 for config in drawn)


def test_an_operand_that_is_not_packed() -> None:
    workload = gemm(m=7, n=16, k=4)
    steps = (PadExtent("C", "i", const(8)), Tile("C", "i", (const(4), const(2))))
    candidate = Candidate(Sketch("bare", workload, (), (), steps), ())
    with pytest.raises(InvalidSchedule, match="padding C needs A to be packed"):
        schedule(candidate, workload)


def test_an_extent_below_the_own() -> None:
    workload = gemm(m=7, n=16, k=4)
    steps = (PadExtent("C", "i", const(6)),)
    with pytest.raises(InvalidSchedule, match="extent 6 is less than 7"):
        schedule(Candidate(Sketch("short", workload, (), (), steps), ()), workload)
