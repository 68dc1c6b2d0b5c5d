"""Whole runs whose models fail, and what a run needs of a host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faulty_models import FAULT_VARIABLE, FAULTY_COST_MODEL, FAULTY_PRUNING_MODEL
from python_processes import start_python
from toy_parts import REFERENCE_BACKEND, TOY_SPACE, TOY_TREES

import autotune
from autotune.ir.workloads import gemm
from autotune.tuning.events import Event, RunStarted, TrialFinished, WarningRaised

SQUARE = gemm(m=16, n=16, k=16)

SetFault = Callable[..., None]


class Run:
    """A run, and what was heard of it."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.events: list[Event] = []
        defaults: dict[str, Any] = {
            "backend": REFERENCE_BACKEND,
            "trials": 24,
            "round_size": 8,
            "threads": 1,
            "database": folder / "records.db",
        }
        parts = {
            "search_space": TOY_SPACE,
            "cost_model": FAULTY_COST_MODEL,
            "pruning_model": FAULTY_PRUNING_MODEL,
            **settings.pop("parts", {}),
        }
        self.result = autotune.tune(
            SQUARE, parts=parts, listeners=[self.events.append], **{**defaults, **settings}
        )

    @property
    def measured(self) -> list[str]:
        """Digests of the candidates, in order."""
        return [
            event.candidate.digest for event in self.events if isinstance(event, TrialFinished)
        ]

    @property
    def warnings(self) -> list[str]:
        return [event.message for event in self.events if isinstance(event, WarningRaised)]


def test_a_run_goes_on_without_its_cost_model(tmp_path: Path, set_fault: SetFault) -> None:
    set_fault("segfault", "update", after=8)
    run = Run(tmp_path)
    assert run.result.trials == 24 and run.result.best is not None
    (warning,) = run.warnings
    assert "failed in update: killed by SIGSEGV; the run continues without it" in warning


def test_a_run_goes_on_without_its_pruning_model(tmp_path: Path, set_fault: SetFault) -> None:
    set_fault("nan", "score")
    run = Run(tmp_path)
    assert run.result.trials == 24 and run.result.best is not None
    (warning,) = run.warnings
    assert "failed in score: gave " in warning and "scores of " in warning


def test_a_fault_that_passes_changes_nothing(
    tmp_path: Path, set_fault: SetFault, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("without", "with"):
        (tmp_path / name).mkdir()
    expected = Run(tmp_path / "without").measured
    set_fault("segfault", "update", after=8, times=1)
    run = Run(tmp_path / "with")
    assert (tmp_path / "marks").read_bytes() == b"x"
    assert run.measured == expected and not run.warnings


@pytest.mark.slow
def test_a_run_without_its_cost_model_is_continued_without_it(
    tmp_path: Path, set_fault: SetFault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would not propose what it would have proposed without the stop."""
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    set_fault("exit", "update", after=8)
    whole = Run(tmp_path / "whole", trials=32)
    first = Run(tmp_path / "parts", trials=24)
    monkeypatch.delenv(FAULT_VARIABLE)
    rest = Run(tmp_path / "parts", trials=32)
    assert rest.result.run_id == first.result.run_id
    (started,) = [event for event in rest.events if isinstance(event, RunStarted)]
    assert first.measured[: started.resumed_trials] + rest.measured == whole.measured
    assert rest.warnings == first.warnings == whole.warnings != []


def test_a_run_answered_from_records_needs_no_models(tmp_path: Path, set_fault: SetFault) -> None:
    first = Run(tmp_path)
    set_fault("segfault", "make")
    again = Run(tmp_path)
    assert again.result.from_records and again.result.run_id == first.result.run_id


def test_the_host_imports_what_models_need_as_little_as_compilers(tmp_path: Path) -> None:
    code = (
        "import sys; from autotune.cli.app import run; "
        "status = run(sys.argv[1:]); print(status, file=sys.stderr); "
        "print('heavy:', *sorted({'lightgbm', 'scipy', 'sklearn', 'tvm', 'torch'} "
        "& set(sys.modules)))"
    )
    database = str(tmp_path / "records.db")
    command = ["-c", code, "tune", "gemm", "--shape", "m=16,n=16,k=16"]
    command += ["--trials", "16", "--round-size", "8", "--threads", "1", "--database", database]
    command += ["--backend", REFERENCE_BACKEND, "--space", TOY_SPACE, "--cost-model", TOY_TREES]
    command += ["--pruning-model", "none", "--quiet"]
    with start_python(*command) as process:
        output, errors = process.communicate()
    assert errors.split() == ["0"], errors
    assert output.splitlines()[-1] == "heavy:"
