"""MetaSchedule beside us on a CUDA device: what it needs, its end, and its records."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tvm
from benchmark_scripts import benchmark_scripts
from process_facts import becomes_true


@pytest.fixture(scope="module")
def scripts() -> Iterator[Any]:
    names = ("cuda_metaschedule", "metaschedule_cuda", "cuda_rows")
    with benchmark_scripts(*names) as modules:
        yield SimpleNamespace(**dict(zip(names, modules, strict=True)))


def python(folder: Path, lines: str) -> str:
    """An interpreter that does this."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return str(path)


def ended(number: int) -> bool:
    """Whether a process is no more, or waits for its parent only."""
    try:
        text = Path(f"/proc/{number}/stat").read_text()
    except OSError:
        return True
    return text.rpartition(")")[2].split()[0] == "Z"


def test_records_are_read_as_far_as_they_were_written(scripts: Any, tmp_path: Path) -> None:
    from tvm import te
    from tvm.s_tir import Schedule, meta_schedule

    recorded = scripts.cuda_metaschedule.recorded_seconds
    path = tmp_path / scripts.cuda_metaschedule.RECORDS
    assert recorded(path) == []

    x = te.placeholder((8,), name="X")
    module = tvm.IRModule({"main": te.create_prim_func([x, te.compute((8,), lambda i: x[i])])})
    database = meta_schedule.database.JSONDatabase(work_dir=str(tmp_path))
    workload = database.commit_workload(module)
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90"})
    arguments = meta_schedule.arg_info.ArgInfo.from_prim_func(module["main"])
    trace = Schedule(module).trace
    # What failed to build or run has ten billion seconds.
    for seconds in ([3e-4, 2e-4], [1e10], None):
        record = meta_schedule.database.TuningRecord(trace, workload, seconds, target, arguments)
        database.commit_tuning_record(record)
    whole = path.read_text()
    assert recorded(path) == [2e-4, None, None]
    path.write_text(whole + whole.splitlines()[0][:-9])
    assert recorded(path) == [2e-4, None, None]


def test_it_is_ended_with_all_that_it_started(scripts: Any, tmp_path: Path) -> None:
    """Also where this process is interrupted; its database is that of the last call."""
    case, folder = scripts.cuda_rows.CASES[0], tmp_path / "folder"
    run = scripts.cuda_metaschedule.run_metaschedule
    told = tmp_path / "told"
    (folder / "earlier").mkdir(parents=True)
    slow = python(tmp_path, f"sleep 60 &\necho $! $$ > {told}.new\nmv {told}.new {told}\nsleep 60")
    seconds = 1.0
    while not told.exists():
        assert run(case, slow, seconds, folder) == {"latency": None, "trials": 0, "failed": 0}
        seconds *= 2
    assert all(map(ended, map(int, told.read_text().split())))
    assert list(folder.iterdir()) == []
    told.unlink()

    def interrupt(process: Any, timeout: float | None = None) -> Any:
        if timeout is not None:
            assert becomes_true(told.exists)
            raise KeyboardInterrupt
        return original(process)

    original = subprocess.Popen.communicate
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "communicate", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(case, slow, 60.0, folder)
    assert all(map(ended, map(int, told.read_text().split())))


def test_why_it_ended_is_told(scripts: Any, tmp_path: Path) -> None:
    case, failed = scripts.cuda_rows.CASES[0], scripts.cuda_metaschedule.StepFailed
    broken = python(tmp_path, "echo warning >&2\necho there is no xgboost >&2\nexit 1")
    with pytest.raises(failed, match=r"^there is no xgboost$"):
        scripts.cuda_metaschedule.run_metaschedule(case, broken, 300.0, tmp_path / "folder")


def test_the_least_latency_of_what_ran_counts(scripts: Any, tmp_path: Path) -> None:
    case, folder = scripts.cuda_rows.CASES[0], tmp_path / "folder"
    lines = ["[0, [[], [3e-4, 2e-4], {}, []]]", "[0, [[], [1e10], {}, []]]"]
    path = folder / scripts.cuda_metaschedule.RECORDS
    said = " ".join(f"'{line}'" for line in lines)
    fast = python(tmp_path, f"printf '%s\\n' {said} > {path}\nexit 1")
    found = scripts.cuda_metaschedule.run_metaschedule(case, fast, 300.0, folder)
    assert found == {"latency": 2e-4, "trials": 2, "failed": 1}
    failing = python(tmp_path, f"printf '%s\\n' '{lines[1]}' > {path}")
    with pytest.raises(scripts.cuda_metaschedule.StepFailed, match="; 1 failed$"):
        scripts.cuda_metaschedule.run_metaschedule(case, failing, 300.0, folder)


@pytest.fixture
def bare(scripts: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module on a machine that has g++ and a runtime of CUDA on the loader's path."""
    module = scripts.metaschedule_cuda
    monkeypatch.delenv(module.COMPILER_VARIABLE, raising=False)
    monkeypatch.setattr(module, "_has_bindings", lambda: False)
    monkeypatch.setattr(module.shutil, "which", {"g++": "/usr/bin/g++"}.get)
    monkeypatch.setattr(module.ctypes, "CDLL", lambda *_: None)
    return module


def test_the_compiler_that_there_is_is_used(bare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="pip install cuda-bindings, or put nvcc on the PATH"):
        bare.prepare()
    monkeypatch.setattr(bare.shutil, "which", lambda name: f"/usr/bin/{name}")
    bare.prepare()
    assert os.environ.pop(bare.COMPILER_VARIABLE) == "nvcc"
    monkeypatch.setattr(bare, "_has_bindings", lambda: True)
    bare.prepare()
    assert os.environ[bare.COMPILER_VARIABLE] == "nvrtc"
    # What somebody asks for stays.
    monkeypatch.setenv(bare.COMPILER_VARIABLE, "nvcc")
    bare.prepare()
    assert os.environ[bare.COMPILER_VARIABLE] == "nvcc"


def test_a_linker_is_needed(bare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bare, "_has_bindings", lambda: True)
    monkeypatch.setattr(bare.shutil, "which", lambda _: None)
    with pytest.raises(SystemExit, match=r"g\+\+"):
        bare.prepare()


def test_a_runtime_in_a_wheel_is_for_workers_too(
    bare: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bare, "_has_bindings", lambda: True)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/before")
    library = tmp_path / bare.CUDART

    def load(path: str, mode: int) -> None:
        assert mode == ctypes.RTLD_GLOBAL
        if path != str(library):
            raise OSError(f"{path}: there is none")

    monkeypatch.setattr(bare.ctypes, "CDLL", load)
    with pytest.raises(SystemExit, match="pip install nvidia-cuda-runtime"):
        bare.prepare()

    files = [bare.metadata.PackagePath(f"nvidia/lib/{it}") for it in (bare.CUDART, "libx.so")]
    for file in files:
        file.dist = SimpleNamespace(locate_file=lambda path: tmp_path / path.name)
    monkeypatch.setattr(bare.metadata, "files", lambda _: files)
    bare.prepare()
    assert os.environ["LD_LIBRARY_PATH"] == f"{tmp_path}:/before"


def test_a_device_that_tvm_does_not_find_is_told(scripts: Any) -> None:
    none = SimpleNamespace(cuda=lambda _: SimpleNamespace(exist=False))
    with pytest.raises(SystemExit, match="finds no device"):
        scripts.metaschedule_cuda.check_device(none)
    scripts.metaschedule_cuda.check_device(
        SimpleNamespace(cuda=lambda _: SimpleNamespace(exist=True))
    )


def test_the_interpreter_is_asked_for_the_row(scripts: Any, tmp_path: Path) -> None:
    case = next(it for it in scripts.cuda_rows.CASES if it.workload == "layer_norm")
    told = tmp_path / "told"
    asked = python(tmp_path, f'echo "$@" > {told}')
    with pytest.raises(scripts.cuda_metaschedule.StepFailed):
        scripts.cuda_metaschedule.run_metaschedule(case, asked, 20.0, tmp_path / "folder")
    words = told.read_text().split()
    assert words[1] == "layer_norm" and "m=4096,n=1024" in words and "--dtype" not in words
    assert words[words.index("--target") + 1] == "cuda"
    assert words[words.index("--folder") + 1] == str(tmp_path / "folder")
