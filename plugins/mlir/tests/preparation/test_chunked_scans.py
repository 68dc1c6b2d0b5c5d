"""Scans in parts, which the program has before it is scheduled."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import pytest
from attrs import evolve
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.emit import payload
from autotune_mlir.schedule import schedule
from autotune_mlir.scripted import program_of
from autotune_mlir.transform_library import NamedSchedule, check_applied
from hypothesis import given, settings
from hypothesis import strategies as st
from mlir_schedules import candidates, scheduled
from scanned import ACCUMULATED, scan, scanned_between

from autotune.backends import InvalidSchedule
from autotune.ir.expressions import (
    Binary,
    Cast,
    IndexValue,
    Load,
    ScalarExpr,
    const,
    var,
)
from autotune.ir.workloads import Axis, Stage, Tensor, Workload, cumsum
from autotune.sketches import (
    Candidate,
    ChunkScan,
    Order,
    Pack,
    Parallel,
    Sketch,
    Step,
    Tile,
    Vectorize,
)
from autotune.targets import Target
from autotune.testing.programs import check_candidate

ROW, AT = var("i"), var("j")
READS: dict[str, tuple[tuple[int, int], ScalarExpr]] = {
    "a part": ((3, 1030), Load("X", (ROW, AT + 3))),
    "every second": ((3, 2048), Load("X", (ROW, AT * 2))),
    "backwards": ((3, 1024), Load("X", (ROW, const(1023) - AT))),
    "a diagonal": (
        (1024, 1024),
        Binary("add", Load("X", (AT, AT)), Load("X", (ROW, AT))),
    ),
    "with places": (
        (3, 1024),
        Binary("mul", Load("X", (ROW, AT)), Cast("float32", IndexValue(AT))),
    ),
}


def in_parts(workload: Workload, target: Target, each: int) -> Iterator[Candidate]:
    """Candidates that scan in parts."""
    for candidate in candidates(workload, target.with_cores(2), each):
        if any(isinstance(step, ChunkScan) for step in candidate.sketch.core_steps):
            yield candidate


def reading(name: str) -> Workload:
    """Running maxima of whatever is read."""
    shape, body = READS[name]
    axes = (Axis("i", 3), Axis("j", 1024, "scan"))
    stage = Stage(Tensor("Y", (3, 1024), "float32"), axes, body, "max")
    return Workload("read", (Tensor("X", shape, "float32"),), (stage,), ("Y",))


def scanned_twice() -> Workload:
    """Running sums of running maxima, both of which are results."""
    first, second = scan((2, 512), 1, "max"), scan((2, 512), 1)
    (again,) = second.stages
    output = Tensor("Z", (2, 512), "float32")
    again = evolve(again, output=output, body=Load("Y", (var("a0"), var("a1"))))
    return evolve(first, stages=(*first.stages, again), outputs=("Y", "Z"))


@pytest.mark.parametrize(
    "workload",
    [
        cumsum(m=2, n=1024),
        cumsum(m=3, n=1024, exclusive=1),
        cumsum(m=1, n=4096, dtype="float64"),
        scan((4096,), 0, "mul"),
        scanned_between((2, 2, 768), 2),
        scanned_twice(),
        *map(reading, READS),
    ],
    ids=lambda it: f"{it.name}-{it.digest}",
)
def test_every_sketch_computes_it(
    workload: Workload, backend: MLIRBackend, target: Target
) -> None:
    found = list(in_parts(workload, target, 2))
    assert found
    for number, candidate in enumerate(found):
        check_candidate(backend, candidate, target, threads=1 + number % 2)


@settings(max_examples=5)
@given(
    # Of as many as eight, two cores have enough without parts.
    rows=st.lists(st.sampled_from([1, 2, 3]), max_size=2).filter(lambda rows: math.prod(rows) < 8),
    length=st.sampled_from([512, 768, 771, 1280]),
    combiner=st.sampled_from(sorted(ACCUMULATED)),
    dtype=st.sampled_from(["float32", "float64", "int32"]),
)
def test_any_extents_are_computed(
    backend: MLIRBackend,
    target: Target,
    rows: list[int],
    length: int,
    combiner: str,
    dtype: str,
) -> None:
    workload = scan((*rows, length), len(rows), combiner, dtype)
    found = list(in_parts(workload, target, 1))
    assert found
    for candidate in found:
        check_candidate(backend, candidate, target, threads=2)


def test_parts_lie_where_the_result_does(target: Target) -> None:
    """Two loops on all cores; what each part adds to stays in registers; nothing is copied."""
    found = in_parts(cumsum(m=1, n=4096), target, 40)
    candidate = next(it for it in found if it.config["Y.chunks.1"] == 4)
    text = str(scheduled(candidate))
    assert text.count("scf.forall (") == 2
    assert not re.findall(r"tensor\.empty\(\) : tensor<[\dx]*256xf32>", text)
    (carried,) = (it for it in text.splitlines() if ":5 = scf.for" in it)
    assert carried.count("vector<f32>") == 4
    assert "gather" not in text


def columns_in_parts(*more: Step, parts: int = 4) -> Candidate:
    """Columns, of which no rule scans parts."""
    workload = cumsum(m=64, n=16, axis=0)
    steps: tuple[Step, ...] = (
        ChunkScan("Y", 4),
        Tile("Y", "i", (const(parts), const(64 // parts))),
        Order("Y", ("i.0", "i.1", "j.0")),
        Parallel("Y", ("i.0",)),
        Vectorize("Y", "j.0"),
    )
    return Candidate(Sketch("parts", workload, (), (), (*steps, *more)), ())


def test_columns_in_parts(backend: MLIRBackend, target: Target) -> None:
    check_candidate(backend, columns_in_parts(), target, threads=2)


def test_parts_have_to_be_a_loop() -> None:
    candidate = columns_in_parts(parts=8)
    with pytest.raises(InvalidSchedule, match="4 parts are to be a loop"):
        schedule(candidate, candidate.sketch.workload)
    untiled = evolve(candidate.sketch, steps=candidate.sketch.steps[:1])
    with pytest.raises(InvalidSchedule, match="4 parts are to be a loop"):
        schedule(Candidate(untiled, ()), untiled.workload)


def test_other_steps_of_a_scan_in_parts_are_refused() -> None:
    candidate = columns_in_parts(Pack("Y", "X", "i.0", None, None, 1))
    with pytest.raises(InvalidSchedule, match=r"cannot replay Pack\(.*\) of a scan in parts"):
        schedule(candidate, candidate.sketch.workload)


def test_schedules_of_parts_are_exported(target: Target) -> None:
    """With the program that has them, to which MLIR's own passes apply them."""
    workload = cumsum(m=1, n=512)
    for candidate in in_parts(workload, target, 1):
        text, program = schedule(candidate, workload), program_of(workload, None, candidate)
        assert program != payload(workload)
        check_applied(NamedSchedule("scan", text, program, ""))
