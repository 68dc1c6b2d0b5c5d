"""A network for a CUDA device in one file: its code, its weights, and the order of its calls.

The file is a zip archive of JSON and plain arrays. Running it needs the driver, and no compiler.
Its kernels are machine code: as with a shared library, open files that you trust.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.backends import CudaProgram
from autotune.errors import AutotuneError, InvalidValueError, one_line
from autotune.ir.element_types import element_type
from autotune.runtime.arrays import NetworkTensor
from autotune.runtime.calling import DeviceCheck
from autotune.runtime.loaded import DeviceProgram, device_steps
from autotune.runtime.plan import (
    Call,
    Constant,
    Copy,
    Place,
    Plan,
    Repeat,
    Requirement,
    Step,
    places_of,
)
from autotune.targets import Target

__all__ = ["CUDA_FILE_VERSION", "read_file", "write_file"]

CUDA_FILE_VERSION = 2
"""Grows when the form changes. No release has written files of the first version."""

_SCHEMA = "autotune.cuda_network"
_PLAN, _CONSTANTS = "network.json", "constants"
# A zip file holds dates; equal networks have equal files.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def read_file(path: Path) -> tuple[Plan[DeviceProgram], Target, list[DeviceCheck]]:
    """Read what :func:`write_file` wrote.

    Raises:
        InvalidValueError: the file cannot be read, is something else, or of another version.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            data = json.loads(archive.read(_PLAN))
            if (data["schema"], data["version"]) != (_SCHEMA, CUDA_FILE_VERSION):
                raise InvalidValueError(
                    f"it is {data['schema']!r} of version {data['version']!r}, and not "
                    f"{_SCHEMA!r} of version {CUDA_FILE_VERSION}"
                )
            target = Target.from_json(data["target"])
            plan = _plan(data, archive)
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


def _plan(data: Mapping[str, Any], archive: zipfile.ZipFile) -> Plan[DeviceProgram]:
    programs = {
        str(number): DeviceProgram(
            CudaProgram.from_json(it["program"]), tuple(map(str, it["arguments"]))
        )
        for number, it in enumerate(data["programs"])
    }
    arrays = [
        _constant(archive, number, _whole(size, 0))
        for number, size in enumerate(data["constants"])
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


def _tensor(data: Mapping[str, Any]) -> NetworkTensor:
    shape = tuple(_whole(extent, 0) for extent in data["shape"])
    tensor = NetworkTensor(str(data["name"]), shape, str(data["dtype"]))
    element_type(tensor.dtype)
    return tensor


def _constant(archive: zipfile.ZipFile, number: int, size: int) -> NDArray[Any]:
    content = archive.read(f"{_CONSTANTS}/{number}")
    if len(content) != size:
        raise ValueError(f"constant '{number}' has {len(content)} bytes, and not {size}")
    return np.frombuffer(content, np.uint8)


def _whole(value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**48:
        raise ValueError(f"{value!r} is no size")
    return value
