"""Networks for a CUDA device: a graph whose conditions are checked there, and its programs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count

import numpy as np
from attrs import evolve

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
from autotune.networks.graph import (
    Graph,
    HostOperator,
    Loop,
    Node,
    Requirement,
    Scalar,
    Value,
    binary,
    cast,
    constant,
    elementwise,
    maximum,
    minimum,
    reduce,
    reshape,
    rewritten,
    where,
)
from autotune.networks.graph.graph import results_of
from autotune.networks.plan.planning import plan_graph
from autotune.plugins.guarded_parts import create_held_part
from autotune.plugins.installing import install_distributions
from autotune.plugins.manager import manager
from autotune.runtime.calling import DeviceCheck
from autotune.runtime.loaded import ALIGNMENT, DeviceProgram
from autotune.runtime.network import CudaNetwork
from autotune.sketches import baseline_candidate
from autotune.store.records import Record
from autotune.targets import Target

__all__ = [
    "build_programs",
    "checked_on_device",
    "compile_device_network",
    "device_backend",
    "device_backends",
]


def checked_on_device(graph: Graph) -> tuple[Graph, tuple[DeviceCheck, ...]]:
    """The graph without conditions on what nodes read, and outputs that tell if they held.

    A device cannot stop in between: what is allowed is read in the place of what is not, and
    further outputs, behind those of the graph, are the smallest and the largest that there were.

    Raises:
        UnsupportedWorkload: there is a condition, or an operator of the host, which names it;
            in a loop for conditions.
    """
    found: list[tuple[Value, Requirement, str]] = []

    def change(node: Node, operands: tuple[Value, ...]) -> tuple[Value, ...] | None:
        if isinstance(node.operation, HostOperator) and node.operation.kind != "reshape":
            raise UnsupportedWorkload(
                f"operator {node.operation.kind!r} of {node.label!r} has no program for a CUDA "
                "device: it runs on the host"
            )
        if not node.requirements:
            return None
        given = list(operands)
        for requirement in node.requirements:
            value = operands[requirement.operand]
            if value.constant is None:
                given[requirement.operand] = _allowed(value, requirement)
                found.extend((*it, node.label) for it in _seen(value, requirement))
        return results_of(evolve(node, operands=tuple(given), requirements=()))

    for node in _bodies(graph):
        if node.requirements:
            raise UnsupportedWorkload(
                f"{node.label!r} reads at indices that a loop computes, and a CUDA device does "
                "not check them"
            )
    made = rewritten(graph, change)
    names = (name for name in map("check{}".format, count()) if name not in graph.outputs)
    seen = dict(zip(names, (value for value, _, _ in found), strict=False))
    checks = tuple(
        DeviceCheck(number, requirement, label)
        for number, (_, requirement, label) in enumerate(found, len(graph.outputs))
    )
    return Graph(made.inputs, {**made.outputs, **seen}), checks


def _allowed(value: Value, requirement: Requirement) -> Value:
    """A value with what is allowed in the place of what is not."""
    bounds = [
        None if bound is None else constant(np.array(bound), value.dtype)
        for bound in (requirement.low, requirement.high)
    ]

    def nearest(it: Scalar, *given: Scalar) -> Scalar:
        left = iter(given)
        if requirement.nonzero:
            it = where(it.equals(0), 1, it)
        for bound, nearer in zip(bounds, (maximum, minimum), strict=True):
            it = it if bound is None else nearer(it, next(left))
        return it

    return elementwise(nearest, value, *(it for it in bounds if it is not None), name="clamp")


def _seen(value: Value, requirement: Requirement) -> Iterator[tuple[Value, Requirement]]:
    """A few numbers each, and the condition that they meet if all elements of a value do."""
    if requirement.nonzero:
        rows = reshape(cast(binary("ne", value, 0), "int32"), (-1, 1))
        yield reduce("min", rows, [0], False), Requirement(0, nonzero=True)
    for kind, bound in (("min", requirement.low), ("max", requirement.high)):
        if bound is not None:
            rows = reshape(value, (-1, len(bound) if isinstance(bound, tuple) else 1))
            known = evolve(requirement, operand=0, nonzero=False)
            yield reduce(kind, rows, [0], False), known


def _bodies(graph: Graph, inside: bool = False) -> Iterator[Node]:
    """The nodes of loops."""
    for node in graph.nodes:
        if inside:
            yield node
        if isinstance(node.operation, Loop):
            yield from _bodies(node.operation.body, True)


def compile_device_network(
    graph: Graph,
    checks: tuple[DeviceCheck, ...],
    names: Mapping[str, str],
    chosen: Mapping[str, Record | None],
    target: Target,
) -> CudaNetwork:
    """Compile a graph for a CUDA device; there need not be one here.

    Args:
        graph: After :func:`checked_on_device` and the passes.
        checks: As of :func:`checked_on_device`.
        names: Of the task of each of its workloads, by the workload's digest.
        chosen: Records of the tasks by name, as of :func:`build_programs`.
        target: The device.

    Raises:
        BuildFailed: a compiler rejected a program; names the task.
        InvalidSchedule: a record cannot be replayed; names the task.
        UnsupportedTarget: no backend for such devices is installed.
        UnsupportedWorkload: a step has no program for the device; names it.
    """
    workloads = {it.spelling: it for it in graph.workloads}
    tasks = {spelling: names[it.digest] for spelling, it in workloads.items()}
    first = device_backend(target.kind)
    backends = (first, *device_backends(target.kind)[1:])
    compiled = build_programs(workloads, tasks, chosen, backends, target)
    programs = {
        spelling: DeviceProgram(
            program,
            (*(it.name for it in workloads[spelling].inputs), *workloads[spelling].outputs),
        )
        for spelling, program in compiled.items()
    }
    return CudaNetwork(plan_graph(graph, programs, tasks, {}, ALIGNMENT), target, checks)


def device_backends(kind: str) -> tuple[Backend, ...]:
    """The installed backends whose programs run on devices of a kind.

    Those with a schedule for tasks without records come before others, then by name.
    """
    made = (create_held_part("backend", name) for name in manager().names("backend"))
    found: list[Backend] = [backend for backend in made if kind in backend.device_kinds]
    return tuple(sorted(found, key=lambda backend: not backend.default_schedule))


def device_backend(kind: str) -> Backend:
    """The first of :func:`device_backends`, which has the tasks without records.

    Raises:
        UnsupportedTarget: none is installed.
    """
    if found := device_backends(kind):
        return found[0]
    raise UnsupportedTarget(
        f"no backend that is installed makes programs for devices of kind {kind!r}; run "
        + install_distributions("autotune-tvm")
    )


def build_programs(
    workloads: Mapping[str, Workload],
    tasks: Mapping[str, str],
    chosen: Mapping[str, Record | None],
    backends: Sequence[Backend],
    target: Target,
) -> dict[str, CudaProgram]:
    """Compile the workloads of a network; there need not be a device here.

    Programs are scheduled one after the other, and several are compiled at a time.

    Args:
        workloads: By a key of each.
        tasks: Names of their tasks, by the same keys; several may have one.
        chosen: Records by name of the task, each of which its own backend compiles; where there
            is none, the default schedule of the first backend.
        backends: What compiles, as of :func:`device_backends`.
        target: The device.

    Raises:
        BuildFailed: a compiler rejected a program; names the task.
        InvalidSchedule: a record cannot be replayed; names the task.
        UnsupportedWorkload: the backend has no form for a workload; names the task.
    """
    own = {backend.name: backend for backend in backends}
    compilers: dict[str, Backend] = {}
    lowered: dict[str, LoweredProgram] = {}
    for key, workload in workloads.items():
        record = chosen.get(tasks[key])
        backend = backends[0] if record is None else own.get(record.key.backend, backends[0])
        with _naming(tasks[key]):
            backend.check_workload(workload)
            lowered[key] = _lowered(backend, workload, record, target)
            compilers[key] = backend

    def compiled(key: str) -> CudaProgram:
        backend = compilers[key]
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
