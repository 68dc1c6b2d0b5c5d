"""Reductions in partial results, for lanes and for cores, as MLIR runs them."""

from __future__ import annotations

import pytest
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.schedule import schedule
from hypothesis import given, settings
from hypothesis import strategies as st
from mlir_schedules import candidates, scheduled
from split_reductions import SPLIT_REDUCTIONS, norm, reduction
from thinning import thinned

from autotune.backends import InvalidSchedule
from autotune.ir.workloads import Workload
from autotune.sketches import Candidate, ChunkReduction, Sketch
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


def test_chunks_of_one_result_are_offered_and_those_of_several_are_not(target: Target) -> None:
    two = target.with_cores(2)
    offered = {it.sketch.name for it in candidates(norm(1, 64, 256), two, 1)}
    assert {"split-reduction-chunks", "split-reduction-small-chunks-wide"} <= offered
    offered = {it.sketch.name for it in candidates(norm(2, 64, 256), two, 1)}
    assert offered == {"split-reduction", "split-reduction-wide"}


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


def test_chunks_of_several_results_are_refused() -> None:
    workload = reduction((4, 64), (1,))
    sketch = Sketch("chunks", workload, (), (), (ChunkReduction("C", "d1", 4),))
    with pytest.raises(InvalidSchedule, match="chunks of several results of 'C'"):
        schedule(Candidate(sketch, ()), workload)
