"""Building, running and timing through TVM."""

from __future__ import annotations

import os
import sys
import threading

import pytest
from attrs import evolve
from autotune_tvm import backend as backend_module
from autotune_tvm import compiler, plugin, runtime
from autotune_tvm.backend import TVMBackend
from autotune_tvm.compiler import brief, tvm_target
from autotune_tvm.emit import module_for
from thread_programs import COUNT_THREADS, with_program
from tvm_programs import machine_code, samples

import autotune
from autotune.backends import BuildFailed, BuildRequest
from autotune.errors import UnsupportedTarget
from autotune.ir.workloads import gemm
from autotune.plugins.spec import API_VERSION
from autotune.sketches.steps import STEP_TYPES
from autotune.targets import Target, preset
from autotune.testing.programs import (
    check_program,
    request_for,
    sample_candidates,
)

SMALL = gemm(m=48, n=64, k=32)


def request_of(target: Target, threads: int = 1) -> BuildRequest:
    """A request for the program without a schedule."""
    return BuildRequest(SMALL, None, None, target, threads)


def test_registered_lazily() -> None:
    (spec,) = (spec for spec in plugin.autotune_parts() if spec.kind == "backend")
    assert spec.problem() is None
    assert plugin.AUTOTUNE_API_VERSION == API_VERSION
    assert spec.resolve() is TVMBackend


def test_versions(backend: TVMBackend) -> None:
    assert backend.compiler_version() == "apache-tvm 0.27.0.post1 (ffi 0.1.14.post0)"


def test_limits_name_every_step(backend: TVMBackend, target: Target) -> None:
    limits = backend.limits(target)
    on_gpu = backend.limits(preset("a100"))
    assert limits.steps | on_gpu.steps == frozenset(STEP_TYPES)
    on_cpus = {
        *("bound_loop", "chunk_scan", "parallel", "interleave", "prepack", "prefetch"),
        *("software_pipeline", "stream", "tensorize"),
    }
    assert limits.steps - on_gpu.steps == on_cpus
    gained = {
        *("bind", "bulk_copy", "core_matrices", "fetch", "im2col", "pipeline_fetches"),
        *("shared_layout", "warp_tensorize"),
    }
    assert on_gpu.steps - limits.steps == gained
    assert limits.source == on_gpu.source == "backend tvm"
    assert limits.stack_bytes >= 4096
    assert on_gpu.stack_bytes == 255 * 4
    assert limits.unrolled_statements >= 64


REFUSED = (
    (Target(kind="cuda", name="gpu"), "'gpu' has processor 'x86-64'.*such as 'sm_80'"),
    (preset("v100"), "sm_75 and later.*'v100' is sm_70"),
    (
        Target(kind="cpu", name="arm", processor="neoverse-n1", features=("neon",)),
        "x86-64 only.*neoverse-n1",
    ),
)


@pytest.mark.parametrize(("refused", "why"), REFUSED, ids=lambda value: getattr(value, "name", ""))
def test_other_targets_are_refused(backend: TVMBackend, refused: Target, why: str) -> None:
    for act in (backend.check_target, backend.check_measuring, backend.limits):
        with pytest.raises(UnsupportedTarget, match=why):
            act(refused)
    with pytest.raises(UnsupportedTarget, match=why):
        backend.build(request_of(refused))


def test_programs_are_not_run_where_instructions_are_missing(
    backend: TVMBackend, target: Target
) -> None:
    more = evolve(target, name="more", features=(*target.features, "avx99"))
    backend.check_target(more)
    backend.check_measuring(target)
    with pytest.raises(UnsupportedTarget, match="'tvm' .*lacks avx99 of target 'more'"):
        backend.check_measuring(more)
    with pytest.raises(UnsupportedTarget, match="lacks avx99 of target 'more'"):
        autotune.tune(SMALL, target=more, threads=1, backend="tvm", trials=1)


def test_the_plainest_cpu_is_accepted(backend: TVMBackend) -> None:
    backend.check_target(Target(kind="cpu", name="plain", processor="x86-64"))


def test_programs_for_gpus_are_built_but_not_run_without_one(
    backend: TVMBackend, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = preset("a100")
    monkeypatch.setenv("AUTOTUNE_LIBCUDA", "/nonexistent/libcuda.so.1")
    backend.check_target(gpu)
    assert "threadIdx.x" in backend.show(request_of(gpu))
    why = "there is no CUDA device here"
    with pytest.raises(UnsupportedTarget, match=why):
        backend.check_measuring(gpu)
    with pytest.raises(UnsupportedTarget, match=why):
        autotune.tune(SMALL, target=gpu, trials=1)
    with pytest.raises(UnsupportedTarget, match="is no CUDA GPU"):
        backend.cuda_source(request_of(target))


def test_processors_by_name_or_by_features() -> None:
    known = Target(kind="cpu", name="known", processor="haswell", features=("avx2",))
    assert tvm_target(known, 3) == {"kind": "llvm", "num-cores": 3, "mcpu": "haswell"}
    features = ("avx2", "fma", "made-up")
    unknown = Target(kind="cpu", name="unknown", processor="lake-lake", features=features)
    described = tvm_target(unknown, 1)
    assert described["mcpu"] == "x86-64"
    assert described["mattr"] == ["+avx2", "+fma"]
    # As of a processor with AMX where the hypervisor hides that.
    some = Target(kind="cpu", name="some", processor="haswell", features=("avx2", "avx512vnni"))
    assert tvm_target(some, 1)["mattr"] == ["+avx512vnni"]


@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
def test_instructions_that_the_name_of_a_processor_does_not_imply(dtype: str) -> None:
    features = preset("znver4-1core").features
    target = evolve(preset("x86-64-v4-1core"), features=features)
    found = samples(gemm(m=64, n=64, k=64, dtype=dtype), target)
    instruction = {"int8": "vpdpbusd", "bfloat16": "vdpbf16ps"}[dtype]
    assert any(instruction in machine_code(candidate, target) for candidate in found)


def test_an_unknown_processor_is_compiled_for_by_its_features(backend: TVMBackend) -> None:
    features = ("avx2", "fma", "sse4.2")
    target = Target(kind="cpu", name="unknown", processor="lake-lake", features=features)
    check_program(backend, request_of(target))


@pytest.mark.slow
def test_one_thread_is_really_one() -> None:
    """With one thread no other thread computes anything, with two one does."""

    def found(threads: int, asked: str | None) -> str:
        return with_program(
            COUNT_THREADS,
            "autotune_tvm.backend:TVMBackend",
            threads,
            TVM_NUM_THREADS=asked,
            TVM_THREAD_POOL_SPIN_COUNT="0",
        )

    # What the environment says is for programs that nobody told how many threads they have.
    assert found(1, "2") == "alone"
    if len(os.sched_getaffinity(0)) > 1:
        assert found(2, None) == "others"


def test_thread_counts_may_change_within_a_process(backend: TVMBackend, target: Target) -> None:
    import tvm

    threads_of = tvm.get_global_func("runtime.NumThreads")
    found = []

    def work() -> None:
        # A new calling thread has a pool of its own.
        for threads in (2, 1, 2):
            check_program(backend, request_of(target, threads))
            found.append(threads_of())

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    assert found == [2, 1, 2]


def test_too_small_a_pool_is_reported() -> None:
    found = []

    def work() -> None:
        runtime.use_threads(1)
        with pytest.warns(RuntimeWarning, match="set TVM_NUM_THREADS=64"):
            runtime.use_threads(64)
        found.append(True)

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    assert found == [True]


def test_worker_environment(backend: TVMBackend) -> None:
    environment = backend.worker_environment(3)
    assert environment["TVM_NUM_THREADS"] == "3"
    assert environment["TVM_BIND_THREADS"] == "0"
    assert all(isinstance(value, str) for value in environment.values())


def test_a_program_that_does_not_compile(
    backend: TVMBackend, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tvm

    broken = tvm.script.from_source(
        """
@I.ir_module
class Module:
    @T.prim_func
    def main(C: T.Buffer((4,), "float32")):
        C[0] = T.call_intrin("float32", "tirx.tvm_load_matrix_sync", 1)
"""
    )
    monkeypatch.setattr(backend_module, "scheduled_module", lambda request: broken)
    with pytest.raises(BuildFailed) as caught:
        backend.build(request_of(target))
    assert 10 < len(str(caught.value)) < 500


def test_messages_are_brief() -> None:
    error = RuntimeError(
        'Traceback (most recent call last):\n  File "x.cc", line 3\n  12: thing\n'
        "ScheduleError: An error occurred\nError message: The loop is wrong   here\n"
        "# from tvm.script import ir as I\n" + "noise " * 500
    )
    expected = (
        "RuntimeError: ScheduleError: An error occurred Error message: The loop is wrong here"
    )
    assert brief(error) == expected
    assert len(brief(RuntimeError("word " * 500))) < 500
    assert brief(ValueError("")) == "ValueError: no message"


def test_show(backend: TVMBackend, target: Target) -> None:
    untuned = backend.show(request_of(target))
    assert 'with T.sblock("C")' in untuned
    candidate = sample_candidates(backend, SMALL, target)[0]
    assert "T.Ramp(" in backend.show(request_for(candidate, target))


def test_without_tvm(monkeypatch: pytest.MonkeyPatch, target: Target) -> None:
    monkeypatch.setitem(sys.modules, "tvm", None)
    with pytest.raises(UnsupportedTarget, match="TVM cannot be imported"):
        runtime.load()
    monkeypatch.setattr(compiler.metadata, "version", _missing)
    assert "not installed" in compiler.compiler_version()


def _missing(name: str) -> str:
    raise compiler.metadata.PackageNotFoundError(name)


def test_only_what_others_call_checks_its_arguments_in_each_call(target: Target) -> None:
    """Bound arguments are checked when they are bound: the suite of all backends tries that."""
    lowered = compiler.lower_module(module_for(SMALL), target, 1)
    unchecked = compiler.without_checks(lowered)
    texts = [
        str(compiler.generate_code(module, target, 1, runs_here=False)[0].inspect_source("ll"))
        for module in (lowered, unchecked)
    ]
    assert ["Mismatched" in text for text in texts] == [True, False]
    assert len(texts[1]) < 0.7 * len(texts[0])
