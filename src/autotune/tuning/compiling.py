"""From a record to a function that can be called."""

from __future__ import annotations

import os

from autotune.backends import Backend, CudaExecutable
from autotune.plugins.parts import recorded_part
from autotune.runtime.function import DeviceFunction, TunedFunction
from autotune.store.records import Record
from autotune.targets import Target
from autotune.tuning.foreign_programs import build_request, check_build

__all__ = ["compile_record"]


def compile_record(
    record: Record, program: str | None = None, backend: str | None = None
) -> TunedFunction:
    """Compile a record's candidate in this process; for a CUDA device a :class:`DeviceFunction`.

    A program that the record itself holds was perhaps written by somebody else: it is compiled in
    another process first, which may die of it, and here only if that went well.

    Args:
        record: A record, such as the best of a result or of a database query.
        program: The imported program that the schedule is replayed on, for a record that does not
            have it itself.
        backend: The record's backend, where no plugin registers it: an import string is followed
            only if it is given here, since a record is data.

    Raises:
        UnknownNameError: no plugin registers the backend that the record names.
        InvalidValueError: the record is of another backend than ``backend``.
        UnsupportedTarget: it was made for a CPU with what this one lacks, such as wider vectors.
        InvalidSchedule: the backend refuses the candidate.
        BuildFailed: the compiler rejects it.
        InvalidValueError: the compiler dies of the record's program, or does not end.
    """
    compiler: Backend = recorded_part("backend", record.key.backend, backend)
    target = Target.from_json(record.target)
    if target.kind == "cpu":
        # An instruction that this one does not know would end the process of the caller.
        compiler.check_measuring(target, record.key.threads)
    # A compiler's runtime reads its thread count when it is first imported; what the user has
    # set is left alone.
    for name, value in compiler.worker_environment(record.key.threads).items():
        os.environ.setdefault(name, value)
    workload = record.candidate.sketch.workload
    if program is None and record.program is not None:
        check_build(record, backend)
        program = record.program
    request = build_request(record, program)
    executable = compiler.build(request)
    if isinstance(executable, CudaExecutable):
        return DeviceFunction(workload, executable, request.target)
    return TunedFunction(workload, executable)
