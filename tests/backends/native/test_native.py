"""The built-in backend: special numbers, threads, files and refusals."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve
from tile_machine import has_tiles
from written import written

from autotune.backends import (
    BuildFailed,
    BuildRequest,
    InvalidSchedule,
    NativeCallFailed,
    bind_copies,
)
from autotune.backends.backend import Array, Executable
from autotune.backends.native import NativeBackend
from autotune.errors import UnsupportedTarget
from autotune.ir.workloads import Workload, gemm, random_inputs, reference_outputs
from autotune.sketches import Tensorize, baseline_candidate
from autotune.sketches.intrinsics.tile_registers import REFUSED
from autotune.targets import Target, detect_cpu, preset
from autotune.testing.programs import (
    check_executable,
    request_for,
    run_executable,
    sample_candidates,
)

BACKEND = NativeBackend()
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 3e38], np.float32)
PRODUCT = gemm(m=32, n=48, k=16)


def request_of(workload: Workload, target: Target | None = None) -> BuildRequest:
    """A request for the program without a schedule, on one thread."""
    return BuildRequest(workload, None, None, target or detect_cpu(), 1)


def tuned(threads: int) -> Executable:
    """A product with a parallel loop."""
    target = detect_cpu()
    candidate = next(
        it
        for it in sample_candidates(BACKEND, PRODUCT, target, each=2)
        if "parallel" in str(it.sketch.core_steps).lower()
    )
    return BACKEND.build(request_for(candidate, target, threads))


def right(inputs: dict[str, Array]) -> Array:
    return next(iter(reference_outputs(PRODUCT, inputs).values()))


@pytest.mark.parametrize("op", ["max", "min"])
def test_nan_and_infinities_are_those_of_the_reference(op: str) -> None:
    """Also as the first or the last of what is reduced, and beside a bound."""
    texts = f"R[i:8; k:8] {op}= X[i, k]", f"C[i:8, k:8] = {op}(X[i, k], 0.5)"
    workload = written("X[8, 8]", *texts, outputs="R C")
    inputs = {"X": np.stack([np.roll(SPECIAL, shift) for shift in range(8)])}
    with np.errstate(all="ignore"):
        wanted = reference_outputs(workload, inputs)
    target = detect_cpu()
    requests = [request_of(workload)]
    requests += [request_for(it, target) for it in sample_candidates(BACKEND, workload, target)]
    for request in requests:
        found = run_executable(BACKEND.build(request), workload, inputs)
        for output, expected in zip(found, wanted.values(), strict=True):
            np.testing.assert_array_equal(output, expected)


def test_small_numbers_are_not_flushed_to_zero() -> None:
    workload = gemm(m=2, n=8, k=1)
    inputs = {
        tensor.name: np.full(tensor.shape, value, np.float32)
        for tensor, value in zip(workload.inputs, (1e-30, 1e-12), strict=True)
    }
    (found,) = run_executable(BACKEND.build(request_of(workload)), workload, inputs)
    assert found.all()


def test_a_call_in_a_forked_child_is_right() -> None:
    """The threads of the pool are not in the child, which computes by itself."""
    inputs = random_inputs(PRODUCT, np.random.default_rng(0))
    call = bind_copies(tuned(2), PRODUCT, list(inputs.values()))
    call.run()
    child = os.fork()
    if child == 0:
        call.poison()
        call.run()
        same = np.allclose(call.outputs()[0], right(inputs), rtol=1e-4, atol=1e-4)
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_threads_of_the_caller_share_a_pool() -> None:
    executable, inputs = tuned(2), random_inputs(PRODUCT, np.random.default_rng(0))
    calls = [bind_copies(executable, PRODUCT, list(inputs.values())) for _ in range(4)]

    def run(number: int) -> None:
        for _ in range(20):
            calls[number].run()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for call in calls:
        np.testing.assert_allclose(call.outputs()[0], right(inputs), rtol=1e-4, atol=1e-4)


def test_a_program_is_loaded_from_its_file(tmp_path: Path) -> None:
    target = detect_cpu()
    constant = PRODUCT.with_constants(PRODUCT.inputs[-1].name)
    for number, candidate in enumerate(sample_candidates(BACKEND, constant, target)):
        request, path = request_for(candidate, target), tmp_path / str(number)
        executable = BACKEND.build(request)
        executable.export(path)
        loaded = BACKEND.load_program(request, path)
        assert loaded.digest == executable.digest
        check_executable(loaded, constant, tolerance=1e-4)


@pytest.mark.parametrize("damage", ["empty", "text", "cut", "head", "missing"])
def test_other_files_are_no_programs(tmp_path: Path, damage: str) -> None:
    path, request = tmp_path / "program", request_of(PRODUCT)
    BACKEND.build(request).export(path)
    whole = path.read_bytes()
    first, second, rest = whole.split(b"\n", 2)
    parts = {
        "empty": b"",
        "text": b"no program\n",
        "cut": whole[: len(whole) // 3],
        "head": b"\n".join([first, second[:-1], rest]),
    }
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(parts[damage])
    with pytest.raises(BuildFailed) as caught:
        BACKEND.load_program(request, path)
    assert len(str(caught.value)) < 500


OTHERS = (
    (preset("a100"), "compiles for CPUs; target 'a100' is of kind 'cuda'"),
    (
        Target(kind="cpu", name="arm", processor="neoverse-n1", features=("neon",)),
        "x86-64 only.*neoverse-n1",
    ),
)


@pytest.mark.parametrize(("refused", "why"), OTHERS, ids=lambda value: getattr(value, "name", ""))
def test_other_targets_are_refused(refused: Target, why: str) -> None:
    for act in (BACKEND.check_target, BACKEND.check_measuring, BACKEND.limits):
        with pytest.raises(UnsupportedTarget, match=why):
            act(refused)
    with pytest.raises(UnsupportedTarget, match=why):
        BACKEND.build(request_of(PRODUCT, refused))


def test_what_this_machine_lacks_is_not_run_on_it() -> None:
    here = detect_cpu()
    more = evolve(here, name="more", features=(*here.features, "avx99"))
    with pytest.raises(UnsupportedTarget, match="this machine, which lacks avx99 of .*'more'"):
        BACKEND.check_measuring(more)


def test_a_lesser_target_is_compiled_for() -> None:
    less = Target(kind="cpu", name="less", processor="x86-64", features=("sse2",))
    lowered = BACKEND.lower(request_of(PRODUCT, less))
    assert lowered.digest != BACKEND.lower(request_of(PRODUCT)).digest
    check_executable(BACKEND.compile(lowered), PRODUCT, tolerance=1e-4)


def test_there_is_no_default_schedule() -> None:
    candidate = baseline_candidate(PRODUCT, "some schedule")
    with pytest.raises(InvalidSchedule, match="no default schedule"):
        BACKEND.lower(request_for(candidate, detect_cpu()))


def test_tile_registers_are_asked_for() -> None:
    """Linux kills a process that uses them and has not asked."""
    target, workload = preset("sapphirerapids-1core"), gemm(m=32, n=32, k=64, dtype="u8s8s32")
    executable = BACKEND.build(
        request_for(sample_candidates(BACKEND, workload, target)[0], target)
    )
    if has_tiles():
        check_executable(executable, workload)
    else:
        inputs = random_inputs(workload, np.random.default_rng(0))
        with pytest.raises(NativeCallFailed, match=re.escape(REFUSED)):
            bind_copies(executable, workload, list(inputs.values()))


def test_instructions_that_a_processor_lacks_are_refused() -> None:
    """LLVM would end the process."""
    workload = gemm(m=16, n=64, k=64, dtype="u8s8s32")
    candidates = sample_candidates(BACKEND, workload, preset("sapphirerapids-2core"))
    chosen = [it for it in candidates if any(isinstance(s, Tensorize) for s in it.sketch.steps)]
    assert chosen
    for candidate in chosen:
        with pytest.raises(InvalidSchedule, match=r"needs .*, which 'haswell-2core' lacks"):
            BACKEND.lower(request_for(candidate, preset("haswell-2core")))
