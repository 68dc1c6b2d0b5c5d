"""Scans, as MLIR runs them: in order along their axis, with what they continue in registers."""

from __future__ import annotations

import pytest
from attrs import evolve
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.emit import payload
from autotune_mlir.schedule import schedule
from autotune_mlir.transform_library import NamedSchedule, check_applied
from hypothesis import given, settings
from hypothesis import strategies as st
from mlir_schedules import candidates, scheduled
from scanned import ACCUMULATED, SCANS, scan, scanned_between

from autotune.backends import BuildRequest
from autotune.ir.expressions import Binary
from autotune.ir.workloads import Workload, cumsum
from autotune.sketches.variants import names_used
from autotune.targets import Target
from autotune.testing.programs import check_candidate, check_program

SQUARES = scan((8, 40), 1)
SQUARE = Binary("mul", SQUARES.stages[0].body, SQUARES.stages[0].body)
WORKLOADS = (
    *SCANS,
    scanned_between((8, 4, 32), 1),
    cumsum(m=8, n=40, exclusive=1),
    scan((77,), 0),
    scan((1, 1), 1),
    evolve(SQUARES, stages=(evolve(SQUARES.stages[0], body=SQUARE),)),
)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda it: f"{it.name}-{it.digest}")
def test_every_sketch_computes_it(
    workload: Workload, backend: MLIRBackend, target: Target
) -> None:
    check_program(backend, BuildRequest(workload, None, None, target, 1))
    found = list(candidates(workload, target.with_cores(2), 3))
    assert all("order.scan" in names_used(candidate.sketch) for candidate in found)
    for number, candidate in enumerate(found):
        check_candidate(backend, candidate, target, threads=1 + number % 2)


@settings(max_examples=5)
@given(
    shape=st.lists(st.sampled_from([1, 2, 7, 16, 33]), min_size=1, max_size=3).map(tuple),
    along=st.integers(0, 2),
    combiner=st.sampled_from(sorted(ACCUMULATED)),
    dtype=st.sampled_from(["float32", "float64", "int32", "int8"]),
)
def test_any_extents_are_computed(
    backend: MLIRBackend,
    target: Target,
    shape: tuple[int, ...],
    along: int,
    combiner: str,
    dtype: str,
) -> None:
    workload = scan(shape, along % len(shape), combiner, dtype)
    for candidate in candidates(workload, target, 1, draws=20):
        check_candidate(backend, candidate, target)


@pytest.mark.parametrize(
    ("workload", "unrolled", "kind"),
    [(cumsum(m=16, n=64), "Y.i.1", "f32"), (cumsum(m=9, n=64, axis=0), "Y.j.1", "16xf32")],
    ids=["rows", "columns"],
)
def test_what_is_continued_is_carried_in_registers(
    target: Target, workload: Workload, unrolled: str, kind: str
) -> None:
    """Of each row that is continued in turns, or of one vector of columns."""
    lanes = {"Y.i.1": 4, "Y.j.1": 1}[unrolled]
    found = [
        it
        for it in candidates(workload, target.with_cores(1), 40)
        if it.config[unrolled] == lanes and it.config.get("Y.j.2", 16) == 16
    ]
    assert found
    text = str(scheduled(found[0]))
    (loop,) = (
        line for line in text.splitlines() if "scf.for" in line and f"vector<{kind}>" in line
    )
    assert loop.count(f"vector<{kind}>") == lanes


def test_scans_are_exported(target: Target) -> None:
    """As schedules that MLIR's own passes apply."""
    workload = cumsum(m=8, n=37, axis=0)
    for candidate in candidates(workload, target, 1):
        text = schedule(candidate, workload)
        check_applied(NamedSchedule("scan", text, payload(workload), ""))
