"""A network for a CUDA device, from a graph or in one file: code, weights, order of its calls.

The file is a zip archive of JSON and plain arrays. Running it needs the driver, and no compiler.
Its kernels are machine code: as with a shared library, open files that you trust.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from autotune.backends import (
    Backend,
    BuildFailed,
    BuildRequest,
    CudaExecutable,
    CudaProgram,
    InvalidSchedule,
    LoweredProgram,
)
from autotune.errors import (
    AutotuneError,
    InvalidValueError,
    UnsupportedTarget,
    UnsupportedWorkload,
    one_line,
)
from autotune.ir.element_types import element_type
from autotune.ir.workloads import Workload
from autotune.networks.cuda_network import (
    ALIGNMENT,
    CudaNetwork,
    DeviceCheck,
    DeviceProgram,
    NamedCall,
    device_steps,
    plan_of_calls,
)
from autotune.networks.frontend import NetworkTensor
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
from autotune.networks.plan.plan import (
    Call,
    Constant,
    Copy,
    Operand,
    Place,
    Plan,
    Repeat,
    Step,
    places_of,
)
from autotune.networks.plan.planning import plan_graph
from autotune.plugins.guarded_parts import create_held_part
from autotune.plugins.installing import install_distributions
from autotune.plugins.manager import manager
from autotune.sketches import baseline_candidate
from autotune.store.records import Record
from autotune.targets import Target

__all__ = [
    "CUDA_FILE_VERSION",
    "checked_on_device",
    "compile_device_network",
    "cuda_network",
    "device_backend",
    "open_cuda_network",
]

CUDA_FILE_VERSION = 2
"""Grows when the form changes; files of all versions before are read."""

_READ_VERSIONS = (1, CUDA_FILE_VERSION)

_SCHEMA = "autotune.cuda_network"
_PLAN, _CONSTANTS = "network.json", "constants"
# A zip file holds dates; equal networks have equal files.
_EPOCH = (1980, 1, 1, 0, 0, 0)
_REMARK = (
    "it runs on {target} with the driver alone: "
    "autotune.networks.cuda_file.open_cuda_network(PATH)"
)


ReadConstant = Callable[[str, int], NDArray[Any]]


def cuda_network(
    plan: Plan[DeviceProgram], target: Target, checks: Sequence[DeviceCheck] = ()
) -> CudaNetwork:
    """A network that can be called, and saved as :func:`open_cuda_network` reads it.

    Args:
        plan: What is computed.
        target: The device that it is for.
        checks: Conditions on the last outputs of the plan, which callers are not given.

    Raises:
        UnsupportedWorkload: a step cannot be made on a device; names it.
    """
    device_steps(plan)
    return CudaNetwork(plan, target, partial(_write, plan, target, tuple(checks)), checks)


def open_cuda_network(path: Path | str) -> CudaNetwork:
    """A network that :meth:`CudaNetwork.save` wrote; the device is opened by the first call.

    Raises:
        InvalidValueError: the file cannot be read, is something else, or of another version.
    """
    path = Path(path)
    try:
        with zipfile.ZipFile(path) as archive:
            data = json.loads(archive.read(_PLAN))
            if data["schema"] != _SCHEMA or data["version"] not in _READ_VERSIONS:
                raise InvalidValueError(
                    f"it is {data['schema']!r} of version {data['version']!r}, and not "
                    f"{_SCHEMA!r} of version {' or '.join(map(str, _READ_VERSIONS))}"
                )
            target = Target.from_json(data["target"])
            read = _named_plan if data["version"] == 1 else _plan
            plan = read(data, partial(_constant, archive))
            checks = [_check(it, len(plan.outputs)) for it in data.get("checks", ())]
    except (AutotuneError, KeyError, OSError, TypeError, ValueError, zipfile.BadZipFile) as error:
        why = one_line(str(error) or type(error).__name__)
        raise InvalidValueError(
            f"{str(path)!r} is no network for a CUDA device that can be read: {why}"
        ) from error
    if target.kind != "cuda":
        raise InvalidValueError(f"{str(path)!r} is for a target of kind {target.kind!r}")
    return cuda_network(plan, target, checks)


def _write(
    plan: Plan[DeviceProgram], target: Target, checks: Sequence[DeviceCheck], path: Path
) -> tuple[str, ...]:
    """Write a network; returns what it needs where it runs."""
    numbers = {key: number for number, key in enumerate(plan.programs)}
    data = {
        "schema": _SCHEMA,
        "version": CUDA_FILE_VERSION,
        "target": target.to_json(),
        "programs": [
            {"task": plan.tasks[key], "arguments": it.arguments, "program": it.program.to_json()}
            for key, it in plan.programs.items()
        ],
        "steps": [_step_data(step, numbers) for step in plan.steps],
        "constants": [it.bytes for it in plan.constants],
        "arena_bytes": plan.arena_bytes,
        "inputs": [_tensor_data(it) for it in plan.inputs],
        "outputs": [_tensor_data(it) for it in plan.outputs],
        "checks": [_check_data(it) for it in checks],
    }
    try:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(zipfile.ZipInfo(_PLAN, _EPOCH), json.dumps(data))
            for number, constant in enumerate(plan.constants):
                entry = zipfile.ZipInfo(f"{_CONSTANTS}/{number}", _EPOCH)
                archive.writestr(entry, np.ascontiguousarray(constant.array).tobytes())
    except OSError as error:
        raise InvalidValueError(f"{str(path)!r} cannot be written: {error}") from error
    return (_REMARK.format(target=target.name),)


def _tensor_data(tensor: NetworkTensor) -> dict[str, Any]:
    return {"name": tensor.name, "shape": list(tensor.shape), "dtype": tensor.dtype}


def _place_data(place: Place) -> list[Any]:
    return [place.kind, place.number, place.offset, *place.strides]


def _step_data(step: Step, programs: Mapping[str, int]) -> dict[str, Any]:
    if isinstance(step, Repeat):
        return {"trips": step.trips, "steps": [_step_data(it, programs) for it in step.steps]}
    if isinstance(step, Call):
        arguments = [_place_data(it) for it in step.arguments]
        return {"program": programs[step.program], "arguments": arguments}
    assert isinstance(step, Copy)  # cuda_network() has looked
    places = _place_data(step.source), _place_data(step.target)
    return {"source": places[0], "target": places[1], "bytes": step.bytes}


def _check_data(check: DeviceCheck) -> dict[str, Any]:
    known = check.requirement
    bounds = {"low": known.low, "high": known.high, "nonzero": known.nonzero}
    return {"output": check.output, "label": check.label, **bounds}


def _plan(data: Mapping[str, Any], constant: ReadConstant) -> Plan[DeviceProgram]:
    programs = {
        str(number): DeviceProgram(
            CudaProgram.from_json(it["program"]), tuple(map(str, it["arguments"]))
        )
        for number, it in enumerate(data["programs"])
    }
    arrays = [
        constant(str(number), _whole(size, 0)) for number, size in enumerate(data["constants"])
    ]
    plan = Plan(
        programs,
        {str(number): str(it["task"]) for number, it in enumerate(data["programs"])},
        tuple(map(_step, data["steps"])),
        tuple(Constant(array, array.nbytes) for array in arrays),
        (),
        _whole(data["arena_bytes"], 0),
        tuple(map(_tensor, data["inputs"])),
        tuple(map(_tensor, data["outputs"])),
    )
    for step in device_steps(plan):
        if isinstance(step, Call):
            count, wanted = len(step.arguments), len(programs[step.program].arguments)
            if count != wanted:
                raise ValueError(f"a call gives {count} arrays to a program of {wanted}")
        for place in places_of(step):
            end = place.offset + (step.bytes if isinstance(step, Copy) else 0)
            if not 0 <= place.offset <= end <= _size_of(plan, place):
                raise ValueError(f"{place} is outside of what it is in")
    return plan


def _size_of(plan: Plan[DeviceProgram], place: Place) -> int:
    """Bytes of what a place is in."""
    if place.kind == "arena":
        return plan.arena_bytes
    if place.kind == "constant":
        return plan.constants[place.number].bytes
    tensor = (plan.inputs if place.kind == "input" else plan.outputs)[place.number]
    return Operand(place, tensor.shape, tensor.dtype).bytes


def _step(data: Mapping[str, Any]) -> Step:
    if "trips" in data:
        return Repeat(_whole(data["trips"], 1), tuple(map(_step, data["steps"])))
    if "program" in data:
        return Call(str(_whole(data["program"], 0)), tuple(map(_place, data["arguments"])))
    return Copy(_place(data["source"]), _place(data["target"]), _whole(data["bytes"], 0))


def _place(data: Sequence[Any]) -> Place:
    kind, *numbers = data
    if kind not in ("input", "output", "constant", "arena"):
        raise ValueError(f"{kind!r} is no kind of memory")
    number, offset = (_whole(it, 0) for it in numbers[:2])
    return Place(kind, number, offset, tuple(_whole(it, -(2**48)) for it in numbers[2:]))


def _check(data: Mapping[str, Any], outputs: int) -> DeviceCheck:
    def bound(value: Any) -> int | tuple[int, ...] | None:
        if value is None or isinstance(value, int):
            return value
        return tuple(int(it) for it in value)

    known = Requirement(0, bound(data["low"]), bound(data["high"]), bool(data["nonzero"]))
    output = _whole(data["output"], 0)
    if output >= outputs:
        raise ValueError(f"output {output} of {outputs} is checked")
    return DeviceCheck(output, known, str(data["label"]))


def _named_plan(data: Mapping[str, Any], constant: ReadConstant) -> Plan[DeviceProgram]:
    """Plan of a file of the first version: calls on values by their names."""
    calls = [
        (str(it["task"]), {str(key): str(value) for key, value in it["arguments"].items()})
        for it in data["calls"]
    ]
    arguments = {task: tuple(given) for task, given in reversed(calls)}
    programs = {
        str(name): DeviceProgram(CudaProgram.from_json(it), arguments.get(str(name), ()))
        for name, it in data["programs"].items()
    }
    return plan_of_calls(
        programs,
        [NamedCall(task, tuple(given[it] for it in arguments[task])) for task, given in calls],
        {str(name): _whole(size, 1) for name, size in data["sizes"].items()},
        {str(name): constant(name, _whole(size, 0)) for name, size in data["constants"].items()},
        *([(_tensor(it), str(it["value"])) for it in data[key]] for key in ("inputs", "outputs")),
    )


def _tensor(data: Mapping[str, Any]) -> NetworkTensor:
    shape = tuple(_whole(extent, 0) for extent in data["shape"])
    tensor = NetworkTensor(str(data["name"]), shape, str(data["dtype"]))
    element_type(tensor.dtype)
    return tensor


def _constant(archive: zipfile.ZipFile, name: str, size: int) -> NDArray[Any]:
    content = archive.read(f"{_CONSTANTS}/{name}")
    if len(content) != size:
        raise ValueError(f"constant {name!r} has {len(content)} bytes, and not {size}")
    return np.frombuffer(content, np.uint8)


def _whole(value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**48:
        raise ValueError(f"{value!r} is no size")
    return value


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
        chosen: Records of the tasks by name; the backend's default schedule where there is none.
        target: The device.

    Raises:
        BuildFailed: a compiler rejected a program; names the task.
        InvalidSchedule: a record cannot be replayed; names the task.
        UnsupportedTarget: no backend for such devices is installed.
        UnsupportedWorkload: a step has no program for the device; names it.
    """
    workloads = {it.spelling: it for it in graph.workloads}
    tasks = {spelling: names[it.digest] for spelling, it in workloads.items()}
    compiled = build_programs(workloads, tasks, chosen, device_backend(target.kind), target)
    programs = {
        spelling: DeviceProgram(
            program,
            (*(it.name for it in workloads[spelling].inputs), *workloads[spelling].outputs),
        )
        for spelling, program in compiled.items()
    }
    return cuda_network(plan_graph(graph, programs, tasks, {}, ALIGNMENT), target, checks)


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
