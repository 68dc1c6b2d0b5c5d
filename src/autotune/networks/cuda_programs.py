"""Machine code of a network's tasks for a CUDA device, made by the backend for such devices."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from autotune.backends import (
    Backend,
    BuildFailed,
    BuildRequest,
    CudaExecutable,
    CudaProgram,
    InvalidSchedule,
    LoweredProgram,
)
from autotune.errors import UnsupportedTarget, UnsupportedWorkload
from autotune.ir.workloads import Workload
from autotune.plugins.guarded_parts import create_held_part
from autotune.plugins.installing import install_distributions
from autotune.plugins.manager import manager
from autotune.sketches import baseline_candidate
from autotune.store.records import Record
from autotune.targets import Target

__all__ = ["build_programs", "device_backend"]


def device_backend(kind: str) -> Backend:
    """The backend whose programs run on devices of a kind.

    One with a schedule for tasks without records comes before others, then the first by name.

    Raises:
        UnsupportedTarget: none is installed.
    """
    made = (create_held_part("backend", name) for name in manager().names("backend"))
    found: list[Backend] = [backend for backend in made if kind in backend.device_kinds]
    if found:
        return min(found, key=lambda backend: not backend.default_schedule)
    raise UnsupportedTarget(
        f"no backend that is installed makes programs for devices of kind {kind!r}; run "
        + install_distributions("autotune-tvm")
    )


def build_programs(
    workloads: Mapping[str, Workload],
    tasks: Mapping[str, str],
    chosen: Mapping[str, Record | None],
    backend: Backend,
    target: Target,
) -> dict[str, CudaProgram]:
    """Compile the workloads of a network; there need not be a device here.

    Programs are scheduled one after the other, and several are compiled at a time.

    Args:
        workloads: By a key of each.
        tasks: Names of their tasks, by the same keys; several may have one.
        chosen: Records by name of the task; the backend's default schedule where there is none.
        backend: What compiles, as of :func:`device_backend`.
        target: The device.

    Raises:
        BuildFailed: a compiler rejected a program; names the task.
        InvalidSchedule: a record cannot be replayed; names the task.
        UnsupportedWorkload: the backend has no form for a workload; names the task.
    """
    lowered: dict[str, LoweredProgram] = {}
    for key, workload in workloads.items():
        with _naming(tasks[key]):
            backend.check_workload(workload)
            lowered[key] = _lowered(backend, workload, chosen.get(tasks[key]), target)

    def compiled(key: str) -> CudaProgram:
        with _naming(tasks[key]):
            made = backend.compile(lowered[key])
            if not isinstance(made, CudaExecutable):
                raise BuildFailed(f"backend {backend.name!r} made no program of CUDA kernels")
            return made.program

    # Compilers of CUDA source let other threads run.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return dict(zip(lowered, pool.map(compiled, lowered), strict=True))


def _lowered(
    backend: Backend, workload: Workload, record: Record | None, target: Target
) -> LoweredProgram:
    """A task with its record's schedule, else the default one, else as the backend has it."""
    if record is not None:
        candidate = record.on(workload, None).scheduled
        return backend.lower(BuildRequest(workload, None, candidate, target, 1))
    if backend.default_schedule:
        default = baseline_candidate(workload, backend.default_schedule)
        with suppress(BuildFailed, InvalidSchedule):
            return backend.lower(BuildRequest(workload, None, default, target, 1))
    return backend.lower(BuildRequest(workload, None, None, target, 1))


@contextmanager
def _naming(task: str) -> Iterator[None]:
    try:
        yield
    except (BuildFailed, InvalidSchedule, UnsupportedWorkload) as error:
        raise type(error)(f"task {task!r}: {error}") from error
