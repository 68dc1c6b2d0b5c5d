"""Networks on a CUDA device: what is called, saved in one file, and opened again.

The file is a zip archive of JSON and plain arrays. Running it needs the driver, and no compiler.
Its kernels are machine code: as with a shared library, open files that you trust.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.backends import CudaProgram, dlpack
from autotune.errors import AutotuneError, InvalidValueError, UnsupportedTarget, one_line
from autotune.ir.element_types import element_type
from autotune.runtime.arrays import NetworkTensor, as_numpy, handed_back, stored_array
from autotune.runtime.calling import DeviceCalls, DeviceCheck
from autotune.runtime.interface import CompiledNetwork
from autotune.runtime.loaded import Caller, DeviceProgram, LoadedPlan, device_steps
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
from autotune.targets import CudaError, Target, load_driver, matching_device

__all__ = ["CudaNetwork", "open_cuda_network"]


_PROFILED = 9
_BFLOAT16 = "bfloat16"
_REMARK = (
    "it runs on {target} with the driver alone: autotune.runtime.network.open_cuda_network(PATH)"
)


class CudaNetwork(CompiledNetwork):
    """A network on a CUDA device, which is opened by the first call.

    Inputs are tensors on the device that have DLPack (of torch, cupy, jax), or arrays of the host,
    which are copied. Outputs are new tensors of the first input's package, and on the device if
    that is. What others have begun on an input is waited for. Weights and intermediate values stay
    on the device.

    Given tensors of torch on the device alone, a call is to torch like an operator of its own: it
    is begun on torch's current stream, and the host does not wait for it. What goes wrong on the
    device is then the error of whatever waits next. Else the network has ended when a call
    returns. An index that is out of range is an error of the call, or where the host does not wait
    of the next one; nothing is read out of range meanwhile.

    Args:
        plan: What is computed.
        target: The device that it is for.
        checks: Conditions on the last outputs of the plan, which callers are not given.

    Raises:
        UnsupportedWorkload: a step cannot be made on a device; names it.
    """

    def __init__(
        self, plan: Plan[DeviceProgram], target: Target, checks: Sequence[DeviceCheck] = ()
    ) -> None:
        device_steps(plan)
        self._calls = DeviceCalls(
            plan, target, "network", "input ", is_graph=True, checks=tuple(checks)
        )

    @property
    def plan(self) -> Plan[DeviceProgram]:
        """The plan that calls carry out."""
        return self._calls.plan

    @property
    def checks(self) -> tuple[DeviceCheck, ...]:
        """Conditions on the last outputs of the plan, which callers are not given."""
        return self._calls.checks

    @property
    def outputs(self) -> tuple[NetworkTensor, ...]:
        """Outputs that a call returns."""
        return self._calls.outputs

    @property
    def lacks(self) -> str:
        """Reason for which it cannot be called: no driver, or no such device; "" where it can."""
        try:
            matching_device(self._calls.target, load_driver())
        except UnsupportedTarget as error:
            return str(error)
        return ""

    @property
    def device_index(self) -> int:
        """Number of the device that it runs on.

        Raises:
            UnsupportedTarget: there is no such device here.
        """
        return matching_device(self._calls.target, load_driver()).index

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Run once.

        Raises:
            InvalidValueError: an input is missing, of another shape or type, or on another device;
                or it holds what leads to a division by zero or an index out of range.
            UnsupportedTarget: there is no such device here.
            DeviceFailed: the network failed on the device.
        """
        like = inputs[0] if inputs else None
        return tuple(
            handed_back(value, tensor.dtype, like) if isinstance(value, np.ndarray) else value
            for tensor, value in zip(self.outputs, self._calls(self._plain(inputs)), strict=True)
        )

    def save(self, path: Path | str) -> tuple[str, ...]:
        """Write machine code and weights as one file, which needs no compiler to run.

        There need not be a device here.

        Raises:
            InvalidValueError: the file cannot be written.
        """
        write_file(self.plan, self._calls.target, self.checks, Path(path))
        return (_REMARK.format(target=self._calls.target.name),)

    def time_calls(self, inputs: Sequence[Any], repeats: int) -> tuple[float, ...]:
        """Seconds that the device takes for each of ``repeats`` calls, after one not counted.

        Inputs are in place: what it takes to copy them and the outputs is no part of it.
        """
        loaded = self._calls.on_device()
        with loaded.device.current():
            self._place(loaded, inputs)
            return tuple(loaded.timed() for _ in range(repeats))

    def profile(self, inputs: Sequence[Any]) -> dict[str, float]:
        """Seconds of all calls of each task in one inference, by name of the task.

        The calls of a task are launched as a graph of their own; of several times the median
        counts. Their operands are what the last inference left, in a warm cache where they fit.
        """
        loaded = self._calls.on_device()
        with loaded.device.current() as driver:
            self._place(loaded, inputs)
            found = {}
            for task in self.plan.task_names:
                graph = loaded.capture(loaded.steps_of(task))
                try:
                    loaded.timed(graph)
                    found[task] = median(loaded.timed(graph) for _ in range(_PROFILED))
                finally:
                    with suppress(CudaError):
                        driver.destroy_graph(graph)
            return found

    def _place(self, loaded: LoadedPlan, inputs: Sequence[Any]) -> None:
        caller = Caller(loaded.device, loaded.device.stream)
        loaded.place(self._calls.read(caller, self._plain(inputs)))

    def _plain(self, inputs: Sequence[Any]) -> list[Any]:
        """Read the arrays of a caller, bfloat16 on the host as the bits that a device is given."""
        found = list(inputs)
        for number, tensor in enumerate(self.plan.inputs[: len(found)]):
            where = dlpack.device_of(found[number]) if tensor.dtype == _BFLOAT16 else None
            if tensor.dtype == _BFLOAT16 and (where is None or where[0] == dlpack.CPU):
                found[number] = stored_array(as_numpy(found[number]), _BFLOAT16)
        return found


def open_cuda_network(path: Path | str) -> CudaNetwork:
    """A network that :meth:`CudaNetwork.save` wrote; the device is opened by the first call.

    Raises:
        InvalidValueError: the file cannot be read, is something else, or of another version.
    """
    return CudaNetwork(*read_file(Path(path)))


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
