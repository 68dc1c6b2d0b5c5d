"""Programs of a backend, run and compared with the reference: what most tests of a backend do."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import DTypeLike

from autotune.backends import ALIGNMENT, Backend, BoundCall, BuildRequest, Executable, bind_copies
from autotune.backends.backend import Array
from autotune.ir.workloads import Workload, draw_example, reference_outputs
from autotune.measure.validation import expectations, mismatch
from autotune.sketches import Candidate
from autotune.spaces import SketchSpace
from autotune.targets import Target
from autotune.testing.nest_interpreter import run_candidate

__all__ = [
    "check_call",
    "check_candidate",
    "check_executable",
    "check_nest",
    "check_program",
    "guarded_calls",
    "guarded_empty",
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
    _check_outputs(call.outputs(), workload, inputs, tolerance, about)


def check_nest(
    candidate: Candidate,
    inputs: Mapping[str, Array] | None = None,
    *,
    tolerance: float | None = None,
) -> None:
    """Check that a candidate's loop nest computes what the reference does, without a backend.

    Args:
        candidate: The candidate.
        inputs: Arrays by name; random ones by default.
        tolerance: As for `check_executable`.

    Raises:
        AssertionError: it computes something else.
    """
    workload = candidate.sketch.workload
    if inputs is None:
        inputs, _ = draw_example(workload, np.random.default_rng(0))
    outputs = list(run_candidate(candidate, inputs).values())
    about = f"{candidate.sketch.name} {candidate.config}"
    _check_outputs(outputs, workload, inputs, tolerance, about)


def _check_outputs(
    outputs: Sequence[Array],
    workload: Workload,
    inputs: Mapping[str, Array],
    tolerance: float | None,
    about: str,
) -> None:
    with np.errstate(all="ignore"):
        expected = list(reference_outputs(workload, inputs).values())
    if tolerance is None:
        wrong = mismatch(expectations(workload, expected), outputs)
        assert wrong is None, f"{about}: {wrong}"
        return
    for found, wanted in zip(outputs, expected, strict=True):
        assert found.dtype == wanted.dtype, about
        limit = tolerance if wanted.dtype.kind == "f" else 0
        np.testing.assert_allclose(found, wanted, rtol=limit, atol=limit, err_msg=about)


# On either side: what strays by a row or a tile does not step over it.
_GUARD = 1 << 20
_NO_ACCESS = 0


def guarded_empty(shape: Sequence[int], dtype: DTypeLike, *, at_end: bool) -> Array:
    """An aligned array of zeros; reads and writes beside it end in SIGSEGV.

    Args:
        shape: Its extents; it is in row-major order.
        dtype: Type of its elements.
        at_end: Whether what must not be touched begins where the array ends, but for what is
            missing to a multiple of the alignment; else it ends where the array begins. On the
            other side it is less than a page away.

    Raises:
        OSError: the system does not protect memory.
    """
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    length = _up(max(size, 1), mmap.PAGESIZE)
    memory = np.frombuffer(mmap.mmap(-1, _GUARD + length + _GUARD), np.uint8)
    for begin in (0, _GUARD + length):
        _protect(memory[begin : begin + _GUARD])
    first = _GUARD + (length - _up(size, ALIGNMENT) if at_end else 0)
    return memory[first : first + size].view(kind).reshape(tuple(shape))


def guarded_calls(
    executable: Executable, workload: Workload, inputs: Sequence[Array]
) -> Iterator[BoundCall]:
    """A program, bound to copies of ``inputs`` and to outputs, all of them guarded.

    First at their ends, then at their beginnings.

    Args:
        executable: The program.
        workload: Says what the outputs are.
        inputs: In the workload's order.
    """
    outputs = [workload.tensors[name] for name in workload.outputs]
    for at_end in (True, False):
        given = [guarded_empty(array.shape, array.dtype, at_end=at_end) for array in inputs]
        for copy, array in zip(given, inputs, strict=True):
            np.copyto(copy, array)
        results = [guarded_empty(it.shape, it.element.dtype, at_end=at_end) for it in outputs]
        yield executable.bind(given, results)


def _protect(memory: Array) -> None:
    """Make these pages inaccessible."""
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if protect(memory.ctypes.data, memory.nbytes, _NO_ACCESS) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
