"""Finding the OpenMP runtime, and what is said when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from autotune_mlir import host, openmp
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.openmp import INSTALL, VARIABLE, OpenMPMissing

import autotune
from autotune.errors import InvalidValueError, UnsupportedTarget
from autotune.ir.workloads import gemm
from autotune.targets import Target, detect_cpu


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No runtime is installed."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(openmp, "_search", lambda: None)


def test_the_environment_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_without_a_runtime_the_doctor_says_so(nowhere: None) -> None:
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
