"""Loops over vectors that do not divide an axis."""

from __future__ import annotations

import pytest
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.schedule import schedule
from mlir_schedules import candidates, scheduled

from autotune.backends import InvalidSchedule
from autotune.ir.expressions import const
from autotune.ir.workloads import Workload, elementwise, softmax
from autotune.sketches import Candidate, Inline, Parallel, Sketch, Tile, TileCeil, Vectorize
from autotune.sketches.variants import names_used
from autotune.targets import Target
from autotune.testing.programs import check_candidate

ROWS = elementwise(m=6, n=37)


def by_hand(*steps: object) -> Candidate:
    return Candidate(Sketch("by-hand", ROWS, (), (), steps), ())  # type: ignore[arg-type]


@pytest.mark.parametrize("workload", [ROWS, softmax(m=4, n=131)], ids=lambda it: it.name)
def test_covered_axes_are_vectors_to_their_end(
    workload: Workload, backend: MLIRBackend, target: Target
) -> None:
    covered = [
        it
        for it in candidates(workload, target.with_cores(1), 1)
        if "cover" in names_used(it.sketch)
    ]
    assert covered
    for candidate in covered:
        check_candidate(backend, candidate, target)
        assert "vector<1x1xf32>" not in str(scheduled(candidate))


@pytest.mark.parametrize("factors", [(3, 16), (2, 3, 8), (1, 40), (5, 8), (37, 1)])
def test_any_factors_that_cover_the_axis(
    factors: tuple[int, ...], backend: MLIRBackend, target: Target
) -> None:
    stage = ROWS.stages[-1]
    axis = stage.axes[-1].name
    last = f"{axis}.{len(factors) - 1}"
    tile = TileCeil(stage.name, axis, tuple(map(const, factors)))
    for steps in ([tile], [tile, Vectorize(stage.name, last)]):
        check_candidate(backend, by_hand(*steps), target)


def test_factors_that_do_not_reach_the_end() -> None:
    stage = ROWS.stages[-1]
    axis = stage.axes[-1].name
    with pytest.raises(InvalidSchedule, match=r"factors \(2, 16\) do not make 37"):
        schedule(by_hand(TileCeil(stage.name, axis, (const(2), const(16)))), ROWS)
    with pytest.raises(InvalidSchedule, match=r"factors \(3, 16\) do not make 37"):
        schedule(by_hand(Tile(stage.name, axis, (const(3), const(16)))), ROWS)


def test_incomplete_vectors_in_a_parallel_loop(backend: MLIRBackend, target: Target) -> None:
    """Their last lanes are masked, for the iteration cannot leave the loop."""
    stage = ROWS.stages[-1]
    axis = stage.axes[-1].name
    candidate = by_hand(
        TileCeil(stage.name, axis, (const(3), const(16))),
        Parallel(stage.name, (f"{stage.axes[0].name}.0", f"{axis}.0")),
        Vectorize(stage.name, f"{axis}.1"),
    )
    check_candidate(backend, candidate, target, threads=2)
    assert "vector<1x16xf32>" in str(scheduled(candidate))


def test_stages_are_not_inlined_where_lanes_are_masked() -> None:
    *_, before, last = ROWS.stages
    axis = last.axes[-1].name
    candidate = by_hand(
        Inline(before.name),
        TileCeil(last.name, axis, (const(2), const(3), const(8))),
        Vectorize(last.name, f"{axis}.2"),
    )
    with pytest.raises(InvalidSchedule, match=r"\.2' has incomplete vectors in several places"):
        schedule(candidate, ROWS)
