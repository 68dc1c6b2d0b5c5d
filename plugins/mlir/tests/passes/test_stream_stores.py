"""Outputs that are written past the caches."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.passes.stream_stores import STREAM

from autotune.ir.expressions import Load, Unary, const, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload, elementwise, softmax
from autotune.sketches import Candidate, Parallel, Sketch, Step, Stream, Tile, Vectorize
from autotune.spaces import SketchSpace
from autotune.targets import Target
from autotune.targets.target import Cache
from autotune.testing.programs import check_candidate, request_for

FENCE = "llvm.x86.sse.sfence"


def lowered(backend: MLIRBackend, candidate: Candidate, target: Target, threads: int) -> str:
    return str(backend.lower(request_for(candidate, target, threads, None)).program.module)


def by_hand(workload: Workload, *steps: Step) -> Candidate:
    return Candidate(Sketch("by-hand", workload, (), (), steps), ())


def of_rows(workload: Workload, lanes: int, stage: str = "Y", *, choice: int = 1) -> list[Step]:
    columns = workload.stage(stage).output.shape[-1]
    return [
        Tile(stage, "j", (const(columns // lanes), const(lanes))),
        Parallel(stage, ("i.0",)),
        Vectorize(stage, "j.1"),
        Stream(stage, const(choice)),
    ]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "workload", [elementwise(m=32, n=256), softmax(m=32, n=256)], ids=lambda it: it.name
)
def test_the_same_is_computed_past_the_caches(
    workload: Workload, threads: int, backend: MLIRBackend, target: Target
) -> None:
    small = evolve(target, caches=(Cache(1, 1 << 15, False),)).with_cores(threads)
    space = SketchSpace(workload, small, backend.limits(small))
    chosen = [
        candidate
        for candidate in space.sample(40, np.random.default_rng(0))
        if candidate.config.get("Y.stream") and candidate.config["Y.j.1"] > 1
    ]
    assert len(chosen) > 1
    for candidate in chosen[:2]:
        check_candidate(backend, candidate, small, threads=threads)


def test_each_thread_ends_with_a_fence(backend: MLIRBackend, target: Target) -> None:
    workload = elementwise(m=8, n=64)
    candidate = by_hand(workload, *of_rows(workload, 16))
    alone = lowered(backend, candidate, target, 1)
    assert alone.count("nontemporal") == alone.count(FENCE) == 1
    assert "alignment = 64 : i64, nontemporal" in alone
    assert alone.index("nontemporal") < alone.index(FENCE)
    together = lowered(backend, candidate, target, 2)
    assert together.index(FENCE) < together.index("omp.terminator")
    for text in (alone, together):
        assert STREAM not in text
    usual = by_hand(workload, *of_rows(workload, 16, choice=0))
    assert "nontemporal" not in lowered(backend, usual, target, 1)


@pytest.mark.parametrize(("columns", "lanes"), [(64, 2), (66, 33), (63, 21)])
def test_vectors_that_are_not_aligned_are_stored_as_usual(
    columns: int, lanes: int, backend: MLIRBackend, target: Target
) -> None:
    workload = elementwise(m=8, n=columns)
    candidate = by_hand(workload, *of_rows(workload, lanes))
    check_candidate(backend, candidate, target)
    text = lowered(backend, candidate, target, 1)
    assert "nontemporal" not in text
    assert FENCE not in text


def test_only_the_outputs_that_are_asked_for(backend: MLIRBackend, target: Target) -> None:
    axes = (Axis("i", 8), Axis("j", 64))
    read = Load("X", (var("i"), var("j")))
    stages = tuple(
        Stage(Tensor(name, (8, 64), "float32"), axes, Unary(op, read))
        for name, op in (("A", "exp"), ("B", "neg"), ("C", "abs"))
    )
    workload = Workload("three", (Tensor("X", (8, 64), "float32"),), stages, ("A", "B", "C"))
    steps = [
        step
        for name, choice in (("A", 1), ("B", 0), ("C", 1))
        for step in of_rows(workload, 16, name, choice=choice)
    ]
    candidate = by_hand(workload, *steps)
    check_candidate(backend, candidate, target)
    assert lowered(backend, candidate, target, 1).count("nontemporal") == 2
