"""Networks that run on a CUDA device: one CUDA graph of all kernels, over memory that stays."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

from attrs import define

from autotune.errors import InvalidValueError, UnsupportedTarget
from autotune.measure.devices.kernels import LoadedKernels, Parameters
from autotune.measure.devices.shared import (
    DEFAULT_STREAM,
    DeviceArray,
    DeviceFailed,
    Given,
    SharedDevice,
    converted,
    numpy_type,
    read_given,
    shared_device,
)
from autotune.networks.arrays import converter_to
from autotune.networks.cuda_plan import DeviceCallPlan, DevicePlan, calls_by_task, place_values
from autotune.networks.frontend import CompiledNetwork
from autotune.targets import CudaError, Target, load_driver, matching_device

__all__ = ["CudaNetwork"]

_PROFILED = 9

Save = Callable[[Path], tuple[str, ...]]


class CudaNetwork(CompiledNetwork):
    """A network on a CUDA device, which is opened by the first call.

    Inputs are tensors on the device that have DLPack (of torch, cupy, jax), or arrays of the host,
    which are copied. Outputs are new tensors of the first input's package, and on the device if
    that is. What others have begun on an input is waited for, and the network has ended when a
    call returns. Weights and intermediate values stay on the device.

    Args:
        plan: What is computed.
        target: The device that it is for.
        save: Writes what runs elsewhere.
    """

    def __init__(self, plan: DevicePlan, target: Target, save: Save) -> None:
        self.plan = plan
        self._target = target
        self._save = save
        self._loaded: _Loaded | None = None

    @property
    def lacks(self) -> str:
        """Why it cannot be called here: no driver, or no such device; "" where it can."""
        try:
            matching_device(self._target, load_driver())
        except UnsupportedTarget as error:
            return str(error)
        return ""

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Run once.

        Raises:
            InvalidValueError: an input is missing, of another shape or type, or on another device.
            UnsupportedTarget: there is no such device here.
            DeviceFailed: the network failed on the device.
        """
        loaded = self._on_device()
        with loaded.device.current():
            given = self._read(loaded.device, inputs)
            loaded.fill(given)
            loaded.run()
            found = loaded.outputs()
        like = inputs[0] if inputs else None
        if given and given[0].view is not None:
            return tuple(converted(array, like) for array in found)
        convert = converter_to(like)
        return tuple(convert(array.numpy()) for array in found)

    def save(self, path: Path | str) -> tuple[str, ...]:
        """Write machine code and weights as one file, which needs no compiler to run.

        There need not be a device here.

        Raises:
            InvalidValueError: the file cannot be written.
        """
        return self._save(Path(path))

    def time_calls(self, inputs: Sequence[Any], repeats: int) -> tuple[float, ...]:
        """Seconds that the device takes for each of ``repeats`` calls, after one not counted.

        Inputs are in place: what it takes to copy them and the outputs is no part of it.
        """
        loaded = self._on_device()
        with loaded.device.current():
            loaded.fill(self._read(loaded.device, inputs))
            loaded.run()
            return tuple(loaded.timed(loaded.graph) for _ in range(repeats))

    def profile(self, inputs: Sequence[Any]) -> dict[str, float]:
        """Seconds of all calls of each task in one inference, by name of the task.

        The calls of a task are launched as a graph of their own; of several times the median
        counts. Their operands are what the last inference left, in a warm cache where they fit.
        """
        loaded = self._on_device()
        with loaded.device.current() as driver:
            loaded.fill(self._read(loaded.device, inputs))
            loaded.run()
            found = {}
            for task, calls in calls_by_task(self.plan):
                graph = loaded.capture(calls)
                try:
                    loaded.timed(graph)
                    found[task] = median(loaded.timed(graph) for _ in range(_PROFILED))
                finally:
                    with suppress(CudaError):
                        driver.destroy_graph(graph)
            return found

    def _read(self, device: SharedDevice, inputs: Sequence[Any]) -> list[Given]:
        wanted = self.plan.inputs
        if len(inputs) != len(wanted):
            names = ", ".join(repr(tensor.name) for tensor in wanted)
            raise InvalidValueError(f"{len(inputs)} inputs; the network takes {names}")
        return [
            read_given(device, f"input {it.name}", it.shape, it.dtype, value)
            for it, value in zip(wanted, inputs, strict=True)
        ]

    def _on_device(self) -> _Loaded:
        if self._loaded is None:
            device = shared_device(self._target)
            with device.current():
                # Another thread may have been first.
                if self._loaded is None:
                    self._loaded = _Loaded.load(device, self.plan)
        return self._loaded


@define(eq=False)
class _Loaded:
    """A network on a device.

    Attributes:
        device: The device.
        plan: What is computed.
        kernels: Loaded programs by task.
        pointers: Addresses of the values by name.
        memory: What keeps them.
        scratch: Address of the intermediate arrays of programs.
        graph: All calls.
    """

    device: SharedDevice
    plan: DevicePlan
    kernels: dict[str, LoadedKernels]
    pointers: dict[str, int]
    memory: list[DeviceArray]
    scratch: int
    graph: int = 0

    @staticmethod
    def load(device: SharedDevice, plan: DevicePlan) -> _Loaded:
        """Load programs and constants.

        Raises:
            CudaError: the device refuses the machine code, or has too little memory.
        """
        driver = device.driver
        offsets, size = place_values(plan)
        values, scratch = (
            device.empty((it,), "uint8") for it in (size, max(1, plan.scratch_bytes))
        )
        # Values that no kernel writes are read by none that matters, and are no NaN.
        driver.fill(values.pointer, 0, max(1, size))
        memory = [values, scratch]
        pointers = {name: values.pointer + offset for name, offset in offsets.items()}
        for name, array in plan.constants.items():
            weight = device.empty((array.nbytes,), "uint8")
            if array.nbytes:
                driver.upload(weight.pointer, array)
            pointers[name] = weight.pointer
            memory.append(weight)
        with ExitStack() as undo:
            kernels = {}
            for task, calls in calls_by_task(plan):
                program = plan.programs[task]
                own = {it.name for it in program.intermediates}
                known = {*own, *calls[0].arguments}
                kernels[task] = LoadedKernels.load(driver, program, known)
                undo.callback(kernels[task].unload)
            made = _Loaded(device, plan, kernels, pointers, memory, scratch.pointer)
            # What is loaded when it is first launched cannot be loaded while a graph is made.
            made.launch(plan.calls)
            device.synchronize()
            made.graph = made.capture(plan.calls)
            undo.pop_all()
        device.users.add(made)
        finalizer = weakref.finalize(made, _unload, device, list(kernels.values()), made.graph)
        finalizer.atexit = False
        return made

    def capture(self, calls: Sequence[DeviceCallPlan]) -> int:
        """A graph of calls, one after the other."""
        driver, stream = self.device.driver, self.device.stream
        driver.begin_capture(stream)
        try:
            self.launch(calls)
        except BaseException:
            # The stream would go on recording.
            with suppress(CudaError):
                driver.destroy_graph(driver.end_capture(stream))
            raise
        return driver.end_capture(stream)

    def launch(self, calls: Sequence[DeviceCallPlan]) -> None:
        """Launch calls, one after the other."""
        for call in calls:
            self.kernels[call.task].launch(self._parameters(call), self.device.stream)

    def _parameters(self, call: DeviceCallPlan) -> Parameters:
        given = {name: self.pointers[value] for name, value in call.arguments.items()}
        scratch = self.plan.scratch(call.task, self.scratch)
        return self.kernels[call.task].parameters({**scratch, **given})

    def fill(self, inputs: Sequence[Given]) -> None:
        """Put inputs in place."""
        for given, value in zip(inputs, self.plan.input_values, strict=True):
            given.copy_to(self.device.driver, self.pointers[value])

    def run(self) -> None:
        """Run once, and wait."""
        self.device.driver.launch_graph(self.graph, self.device.stream)
        self.device.synchronize()

    def timed(self, graph: int) -> float:
        """Seconds that the device takes for a graph."""
        driver, stream = self.device.driver, self.device.stream
        begin, end = self.device.events
        driver.record(begin, stream)
        driver.launch_graph(graph, stream)
        driver.record(end, stream)
        return driver.seconds_between(begin, end)

    def outputs(self) -> list[DeviceArray]:
        """Copies of the outputs."""
        found = []
        for tensor, value in zip(self.plan.outputs, self.plan.output_values, strict=True):
            array = self.device.empty(tensor.shape, tensor.dtype)
            size = prod(tensor.shape) * numpy_type(tensor.dtype).itemsize
            if size:
                self.device.driver.copy(array.pointer, self.pointers[value], size)
            found.append(array)
        self.device.driver.synchronize(DEFAULT_STREAM)
        return found


def _unload(device: SharedDevice, kernels: Sequence[LoadedKernels], graph: int) -> None:
    # After a lost context there is nothing to unload.
    with suppress(DeviceFailed), device.current() as driver:
        driver.destroy_graph(graph)
        for each in kernels:
            each.unload()
