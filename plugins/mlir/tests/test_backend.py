"""Building, running and timing through MLIR."""

from __future__ import annotations

import pytest
from autotune_mlir import openmp
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.bindings import DISTRIBUTIONS
from thread_programs import COUNT_THREADS, in_fresh_process, seconds_spun, with_program

from autotune.backends import BuildRequest
from autotune.errors import UnsupportedTarget
from autotune.ir.workloads import gemm
from autotune.targets import Target, preset
from autotune.testing.programs import (
    check_executable,
    request_for,
    sample_candidates,
)

BACKEND = "autotune_mlir.backend:MLIRBackend"
SMALL = gemm(m=48, n=64, k=32)

needs_openmp = pytest.mark.needs("openmp")
needs_two_cpus = pytest.mark.needs("2 CPUs")


def request_of(target: Target) -> BuildRequest:
    """A request for the program without a schedule, on one thread."""
    return BuildRequest(SMALL, None, None, target, 1)


@pytest.mark.slow
def test_tuning_imports_no_other_compiler() -> None:
    """Neither in the process that tunes, nor MLIR itself there."""
    printed = in_fresh_process(
        f"""
        import sys, autotune
        from autotune.ir.workloads import gemm
        result = autotune.tune(gemm(m=16, n=16, k=16), backend="mlir", trials=2, threads=1)
        heavy = {{*{sorted(DISTRIBUTIONS)!r}, "tvm", "tvm_ffi", "torch"}}
        print(result.best is not None, sorted(heavy & set(sys.modules)))
        """
    )
    assert printed == "True []"


REFUSED = (
    (preset("a100"), "compiles for CPUs; target 'a100' is of kind 'cuda'"),
    (
        Target(kind="cpu", name="arm", processor="neoverse-n1", features=("neon",)),
        "x86-64 only.*neoverse-n1",
    ),
)


@pytest.mark.parametrize(("refused", "why"), REFUSED, ids=lambda value: getattr(value, "name", ""))
def test_other_targets_are_refused(backend: MLIRBackend, refused: Target, why: str) -> None:
    for act in (backend.check_target, backend.check_measuring, backend.limits):
        with pytest.raises(UnsupportedTarget, match=why):
            act(refused)
    with pytest.raises(UnsupportedTarget, match=why):
        backend.build(request_of(refused))


def test_a_lesser_target_is_compiled_for(backend: MLIRBackend, target: Target) -> None:
    less = Target(kind="cpu", name="less", processor="x86-64", features=("sse2",))
    lowered = backend.lower(request_of(less))
    assert lowered.digest != backend.lower(request_of(target)).digest
    check_executable(backend.compile(lowered), SMALL)


def test_show(backend: MLIRBackend, target: Target) -> None:
    untuned = backend.show(request_of(target))
    assert 'autotune.stage = "C"' in untuned
    assert "scf.for" not in untuned
    candidate = sample_candidates(backend, SMALL, target)[0]
    shown = backend.show(request_for(candidate, target))
    assert "scf.for" in shown
    assert "vector<" in shown
    assert "transform." not in shown


@needs_openmp
@needs_two_cpus
def test_a_program_uses_the_threads_that_it_was_built_for() -> None:
    """Whatever the environment says."""
    for threads, found in (("1", "alone"), ("2", "others")):
        other = {"1": "2", "2": "1"}[threads]
        printed = with_program(COUNT_THREADS, BACKEND, int(threads), OMP_NUM_THREADS=other)
        assert printed == found


@pytest.mark.slow
@needs_openmp
@needs_two_cpus
def test_nothing_runs_after_parking() -> None:
    def spun(act: str, block_time: str) -> float:
        return seconds_spun(act, BACKEND, KMP_BLOCKTIME=block_time, OMP_NUM_THREADS="2")

    assert spun("go on", "5000") > 0.0
    assert spun("park", "20") == 0.0


@needs_openmp
def test_settings_of_a_worker_are_understood(backend: MLIRBackend) -> None:
    text = f"""
        import ctypes, os
        os.dup2(1, 2)
        print(ctypes.CDLL({openmp.library()!r}).omp_get_max_threads())
    """
    environment = backend.worker_environment(2)
    printed = in_fresh_process(text, **environment, KMP_SETTINGS="1")
    effective = printed.partition("Effective settings")[2]
    assert f"KMP_BLOCKTIME={environment['KMP_BLOCKTIME']}" in effective
    assert "OMP_NUM_THREADS='2'" in effective
    assert "OMP_DYNAMIC=false" in effective
    assert "KMP_WARNINGS=false" in effective
