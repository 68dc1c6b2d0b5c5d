"""The Python entry points, with real workers and the reference backend."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from python_processes import run_python
from toy_parts import REFERENCE_BACKEND, TOY_DRAFT, TOY_SPACE, toy_space, tune_toy

import autotune
from autotune.errors import (
    AutotuneError,
    InvalidValueError,
    NoValidCandidate,
    PluginError,
    UnknownNameError,
    UnsupportedTarget,
    UnsupportedWorkload,
)
from autotune.ir.workloads import gemm
from autotune.spaces import SearchSpace, SpaceContext
from autotune.targets import preset
from autotune.testing.reference_backend import SCRIPT_VARIABLE, ReferenceProgram
from autotune.tuning.api import run_tasks
from autotune.tuning.events import Event, TrialFinished
from autotune.tuning.options import TuneOptions

SQUARE = gemm(m=8, n=8, k=8)
SQUARE_NAME = "gemm m=8 n=8 k=8 float32"


def tune(program: object, folder: Path, **settings: Any) -> autotune.Result:
    """Tune with parts that need no compiler."""
    return tune_toy(folder / "records.db", program, **settings)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, autotune.Result]:
    """A run to be looked at, and the folder of its database."""
    folder = tmp_path_factory.mktemp("tuned")
    return folder, tune(SQUARE, folder)


def test_tune_build_and_run(tuned: tuple[Path, autotune.Result]) -> None:
    _, result = tuned
    assert result.best is not None and result.best.latency is not None
    assert result.speedup is not None and result.speedup > 1
    assert result.trials == len(result.history) == 8
    function = result.build()
    rng = np.random.default_rng(0)
    a, b = (rng.random((8, 8), dtype=np.float32) for _ in range(2))
    output = function(a, b)
    assert isinstance(output, np.ndarray)
    np.testing.assert_allclose(output, a @ b, rtol=1e-5)
    np.testing.assert_array_equal(function(a, B=b), output)
    assert "A: float32[8, 8]" in repr(function)


def test_a_record_of_a_file_is_compiled_by_installed_backends_only(
    tuned: tuple[Path, autotune.Result],
) -> None:
    record = tuned[1].require_best()
    with pytest.raises(UnknownNameError, match="installed plugins only"):
        autotune.compile_record(record)
    assert autotune.compile_record(record, backend=REFERENCE_BACKEND) is not None
    with pytest.raises(InvalidValueError, match="not of 'other'"):
        autotune.compile_record(record, backend="other")


def test_wrong_arrays_are_named(tuned: tuple[Path, autotune.Result]) -> None:
    function = tuned[1].build()
    a = np.zeros((8, 8), np.float32)
    for arrays, named, message in [
        ((a,), {}, r"lacks B; the inputs are A: float32\[8, 8\], B"),
        ((a, a, a), {}, "takes 2 arrays"),
        ((a, a), {"C": a}, "'C' is not an input"),
        ((a, a), {"A": a}, "'A' is given twice"),
        ((a, a[:4]), {}, r"'B' must be float32 of shape \[8, 8\], got float32 of shape \[4, 8\]"),
        ((a.astype(np.float64), a), {}, "'A' must be float32 .*, got float64"),
    ]:
        with pytest.raises(InvalidValueError, match=message):
            function(*arrays, **named)


def test_the_same_call_is_answered_from_records(
    tmp_path: Path, tuned: tuple[Path, autotune.Result]
) -> None:
    folder, first = tuned
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    again = tune(SQUARE, tmp_path)
    assert again.from_records and not first.from_records
    assert again.to_json()["best"] == first.to_json()["best"]
    assert again.build() is not None
    assert not tune(SQUARE, tmp_path, fresh=True).from_records


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"trials": 0}, InvalidValueError, "trials must be a whole number of at least 1, not 0"),
        ({"trials": True}, InvalidValueError, "trials must be"),
        ({"trials": 2.5}, InvalidValueError, "trials must be"),
        ({"time": -1.0}, InvalidValueError, "time must be a positive number of seconds"),
        ({"time": float("nan")}, InvalidValueError, "time must be a positive"),
        ({"session_time": 0.0}, InvalidValueError, "session_time must be a positive"),
        ({"seed": -1}, InvalidValueError, "seed must be"),
        ({"round_size": 0}, InvalidValueError, "round_size must be"),
        ({"threads": 0}, InvalidValueError, "threads must be"),
        ({"threads": 100_000}, InvalidValueError, "threads must be at most"),
        (
            {"target": preset("haswell").with_cores(100_000), "threads": None},
            InvalidValueError,
            "has 100000 cores, and this process may use",
        ),
        ({"target": "haswel"}, UnknownNameError, "Did you mean 'haswell'"),
        ({"backend": "tvn"}, UnknownNameError, "unknown backend 'tvn'"),
        ({"parts": {"search_space": "sketsh"}}, UnknownNameError, "Did you mean 'sketch'"),
        ({"parts": {"strategy": "evolutionry"}}, UnknownNameError, "Did you mean 'evolutionary'"),
        (
            {"parts": {"strategy": 3}},
            InvalidValueError,
            "strategy must be a name, or",
        ),
        ({"parts": {"strategy": "no_module:Thing"}}, PluginError, "cannot be imported"),
        (
            {"parts": {"strategy": "autotune.search.strategies:RandomStrateg"}},
            PluginError,
            "has no attribute 'RandomStrateg'. Did you mean 'RandomStrategy'",
        ),
        ({"parts": {"strategy": ("random", {"x": 1})}}, AutotuneError, "x"),
        ({"parts": {"strategi": "random"}}, UnknownNameError, "Did you mean 'strategy'"),
        ({"parts": {"cost_model": "gbtd"}}, UnknownNameError, "Did you mean 'gbdt'"),
        ({"parts": {"pruning_model": "rooflin"}}, UnknownNameError, "Did you mean 'roofline'"),
        ({"parts": {"pruning_model": {"target": "t4"}}}, InvalidValueError, "is that of the run"),
        (
            {"parts": {"pruning_model": ("none", {"gpu_spec": "t4"})}},
            InvalidValueError,
            "no pruning model to take the options",
        ),
        (
            {"parts": {"search_space": "builtins:repr"}},
            PluginError,
            "made a str, not a SearchSpace",
        ),
    ],
)
def test_wrong_arguments_start_and_write_nothing(
    settings: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        tune(SQUARE, tmp_path, **settings)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"gpu_spek": "t4"}, InvalidValueError, "Did you mean 'gpu_spec'"),
        ({"gpu_spec": "t4"}, UnsupportedTarget, "specs of GPUs only"),
    ],
)
def test_options_that_a_pruning_model_refuses(
    options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        tune(SQUARE, tmp_path, parts={"pruning_model": options})


@pytest.mark.slow
def test_options_of_the_pruning_model_reach_it_and_make_another_run(tmp_path: Path) -> None:
    def run(prefers: str) -> tuple[str, float]:
        events: list[Event] = []
        result = tune(
            SQUARE,
            tmp_path,
            parts={
                "pruning_model": (TOY_DRAFT, {"prefers": prefers}),
                "strategy": {"epsilon": 0.0},
            },
            warm_start=False,
            listeners=[events.append],
        )
        told = [event for event in events if isinstance(event, TrialFinished)]
        return result.run_id, np.mean([np.sum(event.candidate.values) for event in told])

    small, large = run("small"), run("large")
    assert small[0] != large[0]
    assert small[1] < 10 < 20 < large[1]


def test_what_cannot_be_tuned_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="cannot tune a str: give an autotune.Workload"):
        tune("gemm", tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_program_of_the_backend_is_imported(tmp_path: Path) -> None:
    script = json.dumps({"faults": [{"fault": "invalid", "every": 2}]})
    result = tune(ReferenceProgram(SQUARE, script), tmp_path, trials=16)
    assert result.program == script
    assert result.outcomes["invalid"] > 0 and result.outcomes["ok"] > 0
    assert result.build() is not None


def test_no_valid_candidate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = [{"fault": "build_error", "every": 1}]
    monkeypatch.setenv(SCRIPT_VARIABLE, json.dumps({"faults": faults}))
    result = tune(SQUARE, tmp_path)
    assert result.best is None and result.to_json()["best"] is None
    with pytest.raises(NoValidCandidate, match="8 build_error.*scripted: the compiler rejects"):
        result.build()


def test_several_tasks(tmp_path: Path) -> None:
    tasks = [SQUARE, autotune.Task(gemm(m=4, n=4, k=4), weight=3.0, name="small"), SQUARE]
    results = autotune.tune_tasks(
        tasks,
        backend=REFERENCE_BACKEND,
        parts={"search_space": TOY_SPACE, "cost_model": "random"},
        trials=48,
        threads=1,
        database=tmp_path / "records.db",
    )
    names = [result.task for result in results]
    assert names == ["gemm m=8 n=8 k=8 float32", "small", "gemm m=8 n=8 k=8 float32 #2"]
    assert sum(result.trials for result in results) == 48
    with pytest.raises(InvalidValueError, match="weight must be positive"):
        autotune.tune_tasks([autotune.Task(SQUARE, weight=-1.0)])
    with pytest.raises(InvalidValueError, match="no task"):
        autotune.tune_tasks([])


def large_only(context: SpaceContext) -> SearchSpace:
    """A space that cannot take small products."""
    if context.workload.parameters["m"] < 8:
        raise UnsupportedWorkload("too small for this space")
    return toy_space(context)


@pytest.mark.slow
def test_a_task_that_is_refused_is_named_or_left_out(tmp_path: Path) -> None:
    small = gemm(m=4, n=4, k=4)
    parts = {"search_space": f"{__name__}:large_only", "cost_model": "random"}
    options = TuneOptions(
        backend=REFERENCE_BACKEND, parts=parts, threads=1, database=str(tmp_path / "records.db")
    )
    tasks = [SQUARE, autotune.Task(small, name="small"), object(), SQUARE]
    with pytest.raises(UnsupportedWorkload, match=r"^task 'small' \(2 of 4\): too small for this"):
        run_tasks(tasks, options)
    with pytest.raises(InvalidValueError, match=r"^task \(1 of 2\): cannot tune a object"):
        run_tasks([object(), SQUARE], options)
    with pytest.raises(UnsupportedWorkload, match=r"^too small for this space$"):
        run_tasks([small], options)
    assert not (tmp_path / "records.db").exists()

    refused: dict[int, AutotuneError] = {}
    results = run_tasks(tasks, evolve(options, trials=32), refused=refused)
    assert [result.task for result in results] == [SQUARE_NAME, f"{SQUARE_NAME} #2"]
    assert sorted(refused) == [1, 2] and str(refused[1]) == "too small for this space"
    # The others are the run that they are without those: the same seeds, the same identity.
    again = run_tasks([SQUARE, SQUARE], evolve(options, trials=32), refused={})
    assert all(result.from_records for result in again)

    refused.clear()
    assert run_tasks([small, object()], options, refused=refused) == []
    assert sorted(refused) == [0, 1]


def test_the_public_names_exist_and_import_nothing_heavy() -> None:
    for name in autotune.__all__:
        assert getattr(autotune, name) is not None
    assert set(autotune.__all__) <= set(dir(autotune))
    with pytest.raises(AttributeError, match="no attribute 'tun'"):
        autotune.tun  # noqa: B018
    code = "import sys, autotune; print(*(m for m in sys.modules if m.split('.')[0] in sys.argv))"
    heavy = ["numpy", "tvm", "torch", "lightgbm", "sqlite3"]
    assert run_python("-c", code, *heavy).split() == []
