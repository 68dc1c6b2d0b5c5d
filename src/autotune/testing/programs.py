"""Programs of a backend, run and compared with the reference: what most tests of a backend do."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from autotune.backends import Backend, BoundCall, BuildRequest, Executable, bind_copies
from autotune.backends.backend import Array
from autotune.ir.workloads import Workload, draw_example, reference_outputs
from autotune.measure.validation import expectations, mismatch
from autotune.sketches import Candidate
from autotune.spaces import SketchSpace
from autotune.targets import Target
from autotune.testing.guarded_arrays import guarded_calls

__all__ = [
    "check_call",
    "check_candidate",
    "check_executable",
    "check_program",
    "request_for",
    "run_executable",
    "sample_candidates",
]


def sample_candidates(
    backend: Backend, workload: Workload, target: Target, each: int = 1, seed: int = 0
) -> list[Candidate]:
    """Random candidates of what the backend can replay.

    Args:
        backend: Its limits bound the space.
        workload: What they compute.
        target: What they run on.
        each: How many there are for each sketch, on average.
        seed: Seed of the draws.
    """
    space = SketchSpace(workload, target, backend.limits(target))
    return list(space.sample(each * len(space.sketches()), np.random.default_rng(seed)))


def request_for(
    candidate: Candidate, target: Target, threads: int = 1, program: str | None = None
) -> BuildRequest:
    """A request for a candidate, of its own workload or of an imported program."""
    return BuildRequest(candidate.sketch.workload, program, candidate, target, threads)


def check_candidate(
    backend: Backend,
    candidate: Candidate,
    target: Target,
    inputs: Mapping[str, Array] | None = None,
    *,
    threads: int = 1,
    program: str | None = None,
) -> None:
    """Build a candidate and check it as `check_executable` does.

    Raises:
        AssertionError: it computes something else.
    """
    check_program(backend, request_for(candidate, target, threads, program), inputs)


def check_program(
    backend: Backend,
    request: BuildRequest,
    inputs: Mapping[str, Array] | None = None,
    *,
    tolerance: float | None = None,
) -> None:
    """Build a program and check it as `check_executable` does.

    Raises:
        AssertionError: it computes something else.
    """
    candidate = request.candidate
    about = "" if candidate is None else f"{candidate.sketch.name} {candidate.config}"
    executable = backend.build(request)
    check_executable(executable, request.workload, inputs, tolerance=tolerance, about=about)


def run_executable(
    executable: Executable, workload: Workload, inputs: Mapping[str, Array]
) -> list[Array]:
    """Run a program on ``inputs``, with its outputs poisoned before."""
    call = bind_copies(executable, workload, [inputs[tensor.name] for tensor in workload.inputs])
    call.poison()
    call.run()
    return call.outputs()


def check_executable(
    executable: Executable,
    workload: Workload,
    inputs: Mapping[str, Array] | None = None,
    *,
    tolerance: float | None = None,
    about: str = "",
) -> None:
    """Check that a program computes what the reference does.

    A program that reads or writes beside its arrays ends this process by SIGSEGV.

    Args:
        executable: The program.
        workload: What it should compute.
        inputs: Arrays by name; random ones by default.
        tolerance: Largest absolute and relative error of floats; by default the bound by which
            measured candidates are validated.
        about: What the program is, for the message.

    Raises:
        AssertionError: it computes something else.
    """
    if inputs is None:
        inputs, _ = draw_example(workload, np.random.default_rng(0))
    given = [inputs[tensor.name] for tensor in workload.inputs]
    for call in guarded_calls(executable, workload, given):
        call.poison()
        call.run()
        check_call(call, workload, inputs, tolerance=tolerance, about=about)


def check_call(
    call: BoundCall,
    workload: Workload,
    inputs: Mapping[str, Array],
    *,
    tolerance: float | None = None,
    about: str = "",
) -> None:
    """Check the outputs of a program that has run on ``inputs``; see `check_executable`.

    Raises:
        AssertionError: they are others than those of the reference.
    """
    with np.errstate(all="ignore"):
        expected = list(reference_outputs(workload, inputs).values())
    outputs = call.outputs()
    if tolerance is None:
        wrong = mismatch(expectations(workload, expected), outputs)
        assert wrong is None, f"{about}: {wrong}"
        return
    for found, wanted in zip(outputs, expected, strict=True):
        assert found.dtype == wanted.dtype, about
        limit = tolerance if wanted.dtype.kind == "f" else 0
        np.testing.assert_allclose(found, wanted, rtol=limit, atol=limit, err_msg=about)
