"""Finding the OpenMP runtime, and what is said when there is none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from autotune_mlir import bindings, host, openmp
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.bindings import bindings_version
from autotune_mlir.host import findings
from autotune_mlir.openmp import INSTALL, VARIABLE, OpenMPMissing

import autotune
from autotune.errors import InvalidValueError, UnsupportedTarget
from autotune.ir.workloads import gemm
from autotune.targets import Target, detect_cpu


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code generator is not tried, which takes a process."""
    monkeypatch.setattr(host, "_tried", lambda: ("code generator", "ok", "LLVM"))


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No runtime is installed."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(openmp, "_search", lambda: None)


def test_the_environment_comes_first(
    untried: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / "libomp.so"
    monkeypatch.setenv(VARIABLE, str(runtime))
    with pytest.raises(InvalidValueError, match=f"{VARIABLE}=.*no such file"):
        openmp.find()
    assert host.findings()[-1][1] == "error"
    runtime.touch()
    assert openmp.find() == openmp.library() == str(runtime)


def test_the_newest_of_debian_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for release in ("llvm-19", "llvm-9", "llvm-100"):
        folder = tmp_path / release / "lib"
        folder.mkdir(parents=True)
        (folder / "libomp.so.5").touch()
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(openmp, "_FOLDERS", ())
    monkeypatch.setattr(openmp, "_LLVM_FOLDERS", tmp_path)
    monkeypatch.setattr(openmp, "_from_distribution", list)
    found = openmp._search.__wrapped__()
    assert found == str(tmp_path / "llvm-100" / "lib" / "libomp.so.5")


def test_without_a_runtime_one_thread_works(
    nowhere: None, backend: MLIRBackend, target: Target
) -> None:
    assert openmp.find() is None
    backend.check_measuring(target)
    with pytest.raises(OpenMPMissing) as missing:
        openmp.library()
    with pytest.raises(UnsupportedTarget) as refused:
        backend.check_measuring(target, 2)
    for message in (str(missing.value), str(refused.value)):
        assert INSTALL in message
        assert VARIABLE in message
    assert "--threads 1" in str(refused.value)


def test_without_a_runtime_tuning_says_what_to_install(nowhere: None, target: Target) -> None:
    with pytest.raises(UnsupportedTarget, match="pip install intel-openmp"):
        autotune.tune(gemm(m=8, n=8, k=8), backend="mlir", threads=2, trials=1)


def test_without_a_runtime_the_doctor_says_so(untried: None, nowhere: None) -> None:
    assert host.findings()[-1] == ("OpenMP", "warning", openmp.ADVICE)


def test_targets_that_this_machine_is_not(backend: MLIRBackend) -> None:
    more = Target(kind="cpu", name="more", processor="future", features=("avx2", "avx99"))
    backend.check_target(more)
    backend.limits(more)
    with pytest.raises(UnsupportedTarget, match="lacks avx99 of target 'more'"):
        backend.check_measuring(more)
    less = Target(kind="cpu", name="less", processor="x86-64", features=("sse2",))
    backend.check_measuring(less)
    assert set(host.disabled_features(less)) == set(detect_cpu().features) - {"sse2"}
    assert host.disabled_features(detect_cpu()) == ()


STATUSES = ("ok", "warning", "error")


def test_this_installation(backend: MLIRBackend) -> None:
    found = backend.diagnose()
    assert [label for label, _, _ in found] == ["bindings", "code generator", "OpenMP"]
    assert all(status in STATUSES and message for _, status, message in found)
    assert not [finding for finding in found if finding[1] == "error"]
    assert found[0][1:] == ("ok", f"{bindings_version()}")
    assert found[1][2].startswith("LLVM ")


def test_another_version(untried: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bindings.metadata, "version", lambda name: "20991231")
    label, status, message = findings()[0]
    assert (label, status) == ("bindings", "warning")
    assert f"20991231 was not tested; pip install {bindings.chosen().install}" in message


def test_nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(bindings.VARIABLE, raising=False)
    monkeypatch.setattr(bindings.util, "find_spec", lambda name: None)
    (first, *others) = findings()
    assert first[:2] == ("bindings", "error")
    assert "pip install torch-mlir==" in first[2]
    assert [label for label, _, _ in others] == ["OpenMP"]


def test_a_crash_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_PROBE", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    label, status, message = findings()[1]
    assert (label, status) == ("code generator", "error") and "exit status -11" in message


def test_a_hang_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*args: object, **kwargs: object) -> None:
        raise subprocess.TimeoutExpired("python", 60)

    monkeypatch.setattr(host.subprocess, "run", hang)
    assert findings()[1][1] == "error"
