"""A network for a CUDA device in one file: its code, its weights, and the order of its calls.

The file is a zip archive of JSON and plain arrays. Running it needs the driver, and no compiler.
Its kernels are machine code: as with a shared library, open files that you trust.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.backends import CudaProgram
from autotune.errors import AutotuneError, InvalidValueError, one_line
from autotune.ir.element_types import element_type
from autotune.runtime.arrays import NetworkTensor
from autotune.runtime.calling import DeviceCheck
from autotune.runtime.loaded import ALIGNMENT, DeviceProgram, device_steps
from autotune.runtime.plan import (
    Call,
    Constant,
    Copy,
    Place,
    Plan,
    Repeat,
    Requirement,
    Step,
    place_values,
    places_of,
)
from autotune.targets import Target

__all__ = ["CUDA_FILE_VERSION", "NamedCall", "plan_of_calls", "read_file", "write_file"]

CUDA_FILE_VERSION = 2
"""Grows when the form changes; files of all versions before are read."""

_READ_VERSIONS = (1, CUDA_FILE_VERSION)

_SCHEMA = "autotune.cuda_network"
_PLAN, _CONSTANTS = "network.json", "constants"
# A zip file holds dates; equal networks have equal files.
_EPOCH = (1980, 1, 1, 0, 0, 0)

Array = NDArray[Any]
ReadConstant = Callable[[str, int], NDArray[Any]]


def read_file(path: Path) -> tuple[Plan[DeviceProgram], Target, list[DeviceCheck]]:
    """Read what :func:`write_file` wrote.

    Raises:
        InvalidValueError: the file cannot be read, is something else, or of another version.
    """
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
    return plan, target, checks


def write_file(
    plan: Plan[DeviceProgram], target: Target, checks: Sequence[DeviceCheck], path: Path
) -> None:
    """Write a network whose steps a device makes.

    Raises:
        InvalidValueError: the file cannot be written.
    """
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
    assert isinstance(step, Copy)  # device_steps() has looked
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
    held: dict[str, Sequence[Constant | NetworkTensor]] = {
        "constant": plan.constants,
        "input": plan.inputs,
        "output": plan.outputs,
    }
    return held[place.kind][place.number].bytes


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


@frozen
class NamedCall:
    """A call of a program on values by their names, in the order of its arguments."""

    program: str
    values: tuple[str, ...]


def plan_of_calls(
    programs: Mapping[str, DeviceProgram],
    calls: Sequence[NamedCall],
    sizes: Mapping[str, int],
    constants: Mapping[str, Array],
    inputs: Sequence[tuple[NetworkTensor, str]],
    outputs: Sequence[tuple[NetworkTensor, str]],
) -> Plan[DeviceProgram]:
    """A plan of calls on values that have names.

    A value that is another one in another shape has that one's name.

    Args:
        programs: By name of the task.
        calls: In order; a value is written before it is read.
        sizes: Bytes of every value that is no constant, by name.
        constants: Values that are the same in every call, by name.
        inputs: The network's inputs, and the names of their values.
        outputs: Its outputs, and the names of theirs.

    Raises:
        InvalidValueError: a call or an output is of a value that there is not, or an input or an
            output is of another size than its value.
    """
    given = {value: number for number, (_, value) in enumerate(inputs)}
    held = {**sizes, **{name: it.nbytes for name, it in constants.items()}}
    results = [value for _, value in outputs]
    for name in (*(it for call in calls for it in call.values), *results, *given):
        if name not in held:
            raise InvalidValueError(f"a network uses the value {name!r}, which nothing is")
    bytes_of = {}
    for tensor, value in (*inputs, *outputs):
        bytes_of[value] = tensor.bytes
        if bytes_of[value] > held[value]:
            raise InvalidValueError(f"tensor {tensor.name!r} is larger than its value")
    places = {name: Place("constant", number) for number, name in enumerate(constants)}
    places |= {name: Place("input", number) for name, number in given.items()}
    for number, name in enumerate(results):
        places.setdefault(name, Place("output", number))
    lives = _lives(calls, places)
    own = {name: sizes[name] for name in lives}
    offsets, arena = place_values(own, lives, ALIGNMENT)
    places |= {name: Place("arena", 0, offset) for name, offset in offsets.items()}
    copies = [
        Copy(places[name], Place("output", number), bytes_of[name])
        for number, name in enumerate(results)
        if places[name] != Place("output", number)
    ]
    steps = [Call(call.program, tuple(places[it] for it in call.values)) for call in calls]
    return Plan(
        programs,
        {name: name for name in programs},
        (*steps, *copies),
        tuple(Constant(array, array.nbytes) for array in constants.values()),
        (),
        arena,
        tuple(tensor for tensor, _ in inputs),
        tuple(tensor for tensor, _ in outputs),
    )


def _lives(calls: Sequence[NamedCall], placed: Mapping[str, Place]) -> dict[str, tuple[int, int]]:
    """First and last call that each value is needed in which has no place yet."""
    found: dict[str, tuple[int, int]] = {}
    for number, call in enumerate(calls):
        for name in call.values:
            if name not in placed:
                found[name] = found.get(name, (number, number))[0], number
    return found
