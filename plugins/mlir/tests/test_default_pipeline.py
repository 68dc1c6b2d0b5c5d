"""MLIR's default pipeline: what users have without tuning."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.compiler import DEFAULT_SCHEDULE

import autotune
from autotune.ir.workloads import Workload, conv2d, elementwise, gemm, softmax
from autotune.sketches import UNTUNED, baseline_candidate
from autotune.store.database import RecordFilter
from autotune.store.records import Baseline, Outcome, Record
from autotune.store.sqlite import open_database
from autotune.targets import Target
from autotune.testing.programs import check_program, request_for
from autotune.testing.sample_records import sample_record

WORKLOADS = [
    gemm(m=12, n=20, k=8),
    softmax(m=9, n=17),
    elementwise(m=6, n=40),
    conv2d(h=6, w=6, ci=3, co=4, pad=1),
]


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.needs("openmp"))])
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_it_is_right(
    backend: MLIRBackend, target: Target, workload: Workload, threads: int
) -> None:
    candidate = baseline_candidate(workload, DEFAULT_SCHEDULE)
    request = request_for(candidate, target, threads)
    check_program(backend, request)
    parallel = "omp.parallel" in str(backend.lower(request).program.module)
    assert parallel == (threads > 1)


def test_it_fuses_elementwise_operations(backend: MLIRBackend, target: Target) -> None:
    request = request_for(baseline_candidate(elementwise(m=6, n=40), DEFAULT_SCHEDULE), target)
    untuned = evolve(request, candidate=None)
    assert backend.show(untuned).count("linalg.generic") == 3
    assert backend.show(request).count("linalg.generic") == 1
    assert backend.lower(request).digest != backend.lower(untuned).digest


def test_where_it_changes_nothing_it_is_the_untuned_program(
    backend: MLIRBackend, target: Target
) -> None:
    request = request_for(baseline_candidate(gemm(m=8, n=8, k=8), DEFAULT_SCHEDULE), target)
    untuned = evolve(request, candidate=None)
    assert backend.lower(request).digest == backend.lower(untuned).digest


@pytest.mark.slow
def test_tuning_compares_with_it(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    result = autotune.tune(
        elementwise(m=64, n=256), backend="mlir", trials=4, threads=1, database=path
    )
    assert {it.name: it.outcome.status for it in result.baselines} == {
        UNTUNED: "ok",
        DEFAULT_SCHEDULE: "ok",
    }
    with open_database(path) as database:
        assert database.best(RecordFilter()) == result.best


@pytest.mark.parametrize("name", [UNTUNED, DEFAULT_SCHEDULE])
def test_baselines_are_exported(
    backend: MLIRBackend, target: Target, tmp_path: Path, name: str
) -> None:
    like = sample_record(workload=gemm(m=8, n=8, k=8), target=target.to_json())
    outcome = Outcome("ok", 1e-3, (1e-3,))
    digest = like.candidate.sketch.workload.digest
    key = evolve(like.key, backend="mlir", threads=1)
    record: Record = Baseline("run", digest, key, outcome, 1.0, name).record(evolve(like, key=key))
    report = backend.export_records([record], "transform-library", tmp_path / "library.mlir")
    refused = [(record.name, f"it is {name}, which is no script but passes of mlir-opt")]
    assert list(report.refused) == (refused if name == DEFAULT_SCHEDULE else [])
