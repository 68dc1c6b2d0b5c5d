"""Reductions in partial results, for lanes and for cores, as MLIR runs them."""

from __future__ import annotations

import re

import pytest
from attrs import evolve
from autotune_mlir import bindings
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.bindings import DISTRIBUTIONS
from autotune_mlir.emit import payload
from autotune_mlir.schedule import schedule
from hypothesis import given, settings
from hypothesis import strategies as st
from mlir_schedules import candidates, scheduled
from split_reductions import SPLIT_REDUCTIONS, norm, reduction, weighted_sums
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
    const,
    var,
)
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.sketches import (
    Candidate,
    ChunkReduction,
    FuseProducer,
    Inline,
    Order,
    Pack,
    Parallel,
    Sketch,
    SplitReduction,
    Step,
    Vectorize,
)
from autotune.sketches.variants import names_used
from autotune.targets import Target
from autotune.testing.programs import check_candidate


@pytest.mark.parametrize("workload", thinned(SPLIT_REDUCTIONS, 5))
def test_every_sketch_computes_it(
    workload: Workload, backend: MLIRBackend, target: Target
) -> None:
    for number, candidate in enumerate(candidates(workload, target, 1)):
        check_candidate(backend, candidate, target, threads=1 + number % 2)


@settings(max_examples=5)
@given(
    extents=st.tuples(*[st.sampled_from([1, 2, 7, 16, 31, 48])] * 3),
    over=st.sampled_from([(0,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)]),
    first=st.sampled_from([None, "exp"]),
    last=st.sampled_from([None, "sqrt"]),
)
def test_any_extents_are_computed(
    backend: MLIRBackend,
    target: Target,
    extents: tuple[int, int, int],
    over: tuple[int, ...],
    first: str | None,
    last: str | None,
) -> None:
    workload = reduction(extents, over, first=first, last=last)
    for candidate in candidates(workload, target, 1, draws=60):
        check_candidate(backend, candidate, target)


@pytest.mark.parametrize("batch", [1, 2])
def test_chunks_are_offered_of_one_result_and_of_several(target: Target, batch: int) -> None:
    offered = {it.sketch.name for it in candidates(norm(batch, 64, 256), target.with_cores(2), 1)}
    assert {"split-reduction-chunks", "split-reduction-small-chunks-wide"} <= offered


@pytest.mark.parametrize("first", [None, "exp"])
def test_chunks_of_several_results_are_shared_by_all_cores_in_one_loop(
    target: Target, first: str | None
) -> None:
    """What is inlined is computed in it; nothing is copied for chunks to be a dimension."""
    workload = reduction((3, 4096), (1,), first=first)
    (candidate,) = (
        it
        for it in candidates(workload, target.with_cores(2), 1)
        if it.sketch.name == "split-reduction-chunks"
    )
    (step,) = (it for it in candidate.sketch.core_steps if isinstance(it, ChunkReduction))
    text = str(scheduled(candidate))
    assert re.findall(r"scf.forall .* in \((.*?)\)", text) == [f"{step.chunks}, 3"]
    outside, inside = text.split("scf.forall", 1)
    assert "vector.transfer_read" in inside and "vector.transfer_read" not in outside
    assert outside.count("tensor.expand_shape") == 1 and "linalg.generic" not in outside


def test_results_of_lanes_stay_in_registers_across_all_reduced_axes(target: Target) -> None:
    """Both loops carry the vectors that are added to; the lanes are combined once, behind them."""
    (candidate,) = (
        it
        for it in candidates(reduction((24, 64), (0, 1)), target.with_cores(1), 1)
        if it.sketch.name == "split-reduction"
    )
    text = str(scheduled(candidate))
    carried = [line for line in text.splitlines() if "scf.for" in line]
    assert carried and all("-> (vector<" in line for line in carried)
    assert text.count("vector.multi_reduction") + text.count("vector.reduction") == 1


@pytest.mark.parametrize(
    "workload",
    [
        reduction((4, 997), (1,), first="exp", last="sqrt"),
        reduction((3, 131), (1,), combiner="min", dtype="int32"),
        reduction((3, 5, 131), (0, 2)),
        reduction((2, 1009), (1,), combiner="mul", dtype="float64"),
    ],
    ids=str,
)
def test_a_last_round_of_fewer_elements_than_lanes(
    workload: Workload, backend: MLIRBackend, target: Target
) -> None:
    """It is computed behind the loop over whole vectors, which has no condition."""
    uneven = [
        it
        for it in candidates(workload, target.with_cores(1), 1)
        if "split_reduction.uneven" in names_used(it.sketch)
    ]
    assert uneven
    for candidate in uneven:
        check_candidate(backend, candidate, target)
        assert "mask" not in str(scheduled(candidate))


ROW, AT, TERM = var("i"), var("j"), var("k")
LAST = const(23) - TERM
P_OF_X = Unary("exp", Load("X", (ROW, AT)))
SHORT = Binary("lt", IndexValue(AT), Constant(20, "int32"))
# What is read, in which shape; what P reads of it, in which shape; what is summed of that.
READS: dict[str, tuple[tuple[int, int], ScalarExpr, tuple[int, int], ScalarExpr]] = {
    "plain": ((3, 24), P_OF_X, (3, 24), Load("P", (ROW, TERM))),
    "twice": (
        (3, 24),
        P_OF_X,
        (3, 24),
        Binary("mul", Load("P", (ROW, TERM)), Load("P", (ROW, LAST))),
    ),
    "a part": ((3, 26), P_OF_X, (3, 26), Load("P", (ROW, TERM + 1))),
    "at every second place": ((3, 48), P_OF_X, (3, 48), Load("P", (ROW, TERM * 2))),
    "in a window": ((3, 26), P_OF_X, (3, 26), Load("P", (ROW, ROW + TERM))),
    "a diagonal": ((24, 24), P_OF_X, (24, 24), Load("P", (TERM, TERM))),
    "of strides": (
        (3, 50),
        Unary("exp", Load("X", (ROW, AT * 2 + 1))),
        (3, 24),
        Load("P", (ROW, TERM)),
    ),
    "of columns": ((24, 3), Unary("exp", Load("X", (AT, ROW))), (3, 24), Load("P", (ROW, TERM))),
    "of places": (
        (3, 24),
        Binary("add", Load("X", (ROW, AT)), Cast("float32", IndexValue(AT * 3 + ROW))),
        (3, 24),
        Load("P", (ROW, TERM)),
    ),
    "of margins": (
        (3, 20),
        Select(SHORT, Load("X", (ROW, AT)), Constant(0.0, "float32")),
        (3, 24),
        Load("P", (ROW, TERM)),
    ),
}


@pytest.mark.parametrize(("inlined", "shared"), [(True, False), (True, True), (False, False)])
@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("read", READS)
def test_chunks_of_whatever_is_read(
    backend: MLIRBackend, target: Target, read: str, lanes: int, inlined: bool, shared: bool
) -> None:
    """With what is inlined computed in the loop over chunks, or before it where it cannot be.

    It cannot where others read it, too.
    """
    shape, before, between, body = READS[read]
    axes = tuple(Axis(name, extent) for name, extent in zip("ij", between, strict=True))
    summed = (Axis("i", 3), Axis("k", 24, "reduce"))
    workload = Workload(
        "read",
        (Tensor("X", shape, "float32"),),
        (
            Stage(Tensor("P", between, "float32"), axes, before),
            Stage(Tensor("C", (3,), "float32"), summed, body, "add"),
        ),
        ("C",),
    )
    if shared:
        other = Stage(Tensor("D", (3,), "float32"), summed[:1], Load("P", (ROW, const(1))))
        workload = evolve(workload, stages=(*workload.stages, other), outputs=("C", "D"))
    partial, split = "C_partial", lanes > 1
    steps: list[Step] = [
        ChunkReduction("C", "k", 4),
        *([SplitReduction(partial, "k", lanes)] if split else []),
        *([Inline("P")] if inlined else []),
        Order(partial, ("k_chunk.0", "i.0", "k_lane.0" if split else "k.0")),
        Parallel(partial, ("k_chunk.0", "i.0")),
    ]
    if split:
        steps += [
            FuseProducer(f"{partial}_partial", partial, "i.0", 1),
            Vectorize(f"{partial}_partial", "k_lane.0"),
        ]
    candidate = Candidate(Sketch("chunks", workload, (), (), tuple(steps)), ())
    if read == "twice" and split and not bindings.chosen().keeps_partial_indices:
        with pytest.raises(InvalidSchedule, match="'C_partial' computes with an index along 'k'"):
            check_candidate(backend, candidate, target, threads=2)
        return
    check_candidate(backend, candidate, target, threads=2)


def test_indices_that_lanes_would_get_wrong(
    backend: MLIRBackend, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With LLVM 22 a sum that is weighted by places has no lanes, and a schedule none to offer."""
    workload, split = weighted_sums(3, 96), "split_reduction.indexed"
    monkeypatch.setattr(bindings, "chosen", lambda: DISTRIBUTIONS["torch_mlir"])
    of_newer = [it for it in candidates(workload, target, 1) if split in names_used(it.sketch)]
    assert of_newer
    monkeypatch.setattr(bindings, "chosen", lambda: DISTRIBUTIONS["mlir"])
    for candidate in of_newer:
        with pytest.raises(InvalidSchedule, match="computes with an index along 'k'.*before 23"):
            schedule(candidate, workload)
    for candidate in candidates(workload, target, 1):
        assert split not in names_used(candidate.sketch)
        check_candidate(backend, candidate, target)


@pytest.mark.parametrize("workload", [reduction((2, 3000), (1,)), reduction((600, 40), (0,))])
def test_a_function_of_someone_else_is_reduced_in_chunks(
    workload: Workload, backend: MLIRBackend, target: Target
) -> None:
    program = payload(workload)
    chunked = [
        it
        for it in candidates(workload, target.with_cores(2), 1)
        if "chunk_reduction.results" in names_used(it.sketch)
    ]
    assert chunked
    for candidate in chunked:
        check_candidate(backend, candidate, target, threads=2, program=program)


def test_what_is_read_in_chunks_is_not_packed() -> None:
    workload = reduction((4, 64), (1,))
    steps: tuple[Step, ...] = (
        ChunkReduction("C", "d1", 4),
        Pack("C_partial", "X", "d0.0", None, None, 1),
    )
    candidate = Candidate(Sketch("chunks", workload, (), (), steps), ())
    with pytest.raises(InvalidSchedule, match="'C_partial' does not read 'X' itself"):
        schedule(candidate, workload)
