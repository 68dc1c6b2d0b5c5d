from __future__ import annotations

from pathlib import Path

from other_names import check_answers_from_records
from renamed_workloads import reordered, respelled
from toy_parts import REFERENCE_BACKEND

import autotune
from autotune.ir.workloads import dense, gemm


def test_records_answer_for_a_program_of_other_names(tmp_path: Path) -> None:
    workload = dense(m=4, n=16, k=8)
    other = respelled(workload, 7)
    parts = {"cost_model": "random"}
    check_answers_from_records(
        workload, other, other, tmp_path, backend=REFERENCE_BACKEND, parts=parts
    )


def test_two_tasks_of_one_run_share_what_is_measured(tmp_path: Path) -> None:
    workload = gemm(m=8, n=16, k=8)
    other = reordered(respelled(workload, 4), 4)
    tasks = [autotune.Task(workload, name="one"), autotune.Task(other, name="other")]
    results = autotune.tune_tasks(
        tasks,
        backend=REFERENCE_BACKEND,
        database=tmp_path / "records.db",
        trials=16,
        round_size=4,
        threads=1,
        parts={"cost_model": "random"},
    )
    bests = [result.require_best() for result in results]
    assert [best.candidate.sketch.workload for best in bests] == [workload, other]
    with autotune.open_database(tmp_path / "records.db") as database:
        measured = [record.candidate.digest for record in database.records()]
    assert len(set(measured)) == len(measured) > 0
