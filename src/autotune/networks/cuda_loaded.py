"""A network on a CUDA device: its kernels, one graph of all calls, and memory that stays."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from math import prod

from attrs import define, field

from autotune.measure.devices.kernels import LoadedKernels, Parameters
from autotune.measure.devices.shared import (
    DeviceArray,
    DeviceFailed,
    Given,
    SharedDevice,
    numpy_type,
)
from autotune.networks.cuda_plan import (
    DeviceCallPlan,
    DevicePlan,
    calls_by_task,
    place_device_values,
)
from autotune.targets import CudaError

__all__ = ["LoadedNetwork"]


@define(eq=False)
class _Resources:
    """What is freed once nothing of the network is on its way any more.

    Attributes:
        device: The device.
        memory: Arrays; they are kept for that long.
        kernels: Loaded programs by task.
        graph: All calls.
        done: An event: when the last call has ended.
    """

    device: SharedDevice
    memory: list[DeviceArray]
    done: int
    kernels: dict[str, LoadedKernels] = field(factory=dict)
    graph: int = 0

    def free(self) -> None:
        """Free them."""
        # After a lost context there is nothing to free.
        with suppress(DeviceFailed), self.device.current() as driver:
            driver.await_event(self.done)
            driver.destroy_event(self.done)
            driver.destroy_graph(self.graph)
            for each in self.kernels.values():
                each.unload()


@define(eq=False)
class LoadedNetwork:
    """A network on a device. Its calls follow one another, whatever streams they are begun on.

    Kernels read an input where it lies, if it has been there in the call before, as weights are
    that a caller gives in each call; such an address is part of the graph. One that moves is
    copied from then on. Nothing is concluded from an address about what is there.

    Attributes:
        device: The device.
        plan: What is computed.
        pointers: Addresses of the values by name, of inputs those of their copies.
        scratch: Address of the intermediate arrays of programs.
        fixed: Addresses of the inputs that are read where they lie, by name of the value.
    """

    device: SharedDevice
    plan: DevicePlan
    pointers: dict[str, int]
    scratch: int
    fixed: dict[str, int] = field(factory=dict, init=False)
    _resources: _Resources
    _last: dict[str, int] = field(factory=dict, init=False)
    _moving: set[str] = field(factory=set, init=False)

    @staticmethod
    def load(device: SharedDevice, plan: DevicePlan) -> LoadedNetwork:
        """Load programs and constants.

        Raises:
            CudaError: the device refuses the machine code, or has too little memory.
        """
        driver = device.driver
        offsets, size = place_device_values(plan)
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
            resources = _Resources(device, memory, driver.create_event(timed=False))
            undo.callback(driver.destroy_event, resources.done)
            for task, calls in calls_by_task(plan):
                program = plan.programs[task]
                own = {it.name for it in program.intermediates}
                known = {*own, *calls[0].arguments}
                resources.kernels[task] = LoadedKernels.load(driver, program, known)
                undo.callback(resources.kernels[task].unload)
            made = LoadedNetwork(device, plan, pointers, scratch.pointer, resources)
            # What is loaded when it is first launched cannot be loaded while a graph is made.
            made._launch(plan.calls, device.stream, pointers)
            device.synchronize()
            resources.graph = made.capture(plan.calls)
            undo.pop_all()
        device.users.add(made)
        weakref.finalize(made, resources.free).atexit = False
        return made

    def call(self, given: Sequence[Given], outputs: Sequence[int], stream: int) -> None:
        """Run once, when a stream has come here and calls before have ended; waits for nothing.

        Args:
            given: The inputs.
            outputs: Where to write the outputs.
            stream: The stream.
        """
        with self._after_others(stream):
            self._place(given, stream)
            self.device.driver.launch_graph(self._resources.graph, stream)
            self._copy_outputs(given, outputs, stream)

    def record(self, given: Sequence[Given], outputs: Sequence[int], stream: int) -> None:
        """Become part of a graph that somebody records on a stream; as :meth:`call` otherwise.

        Kernels read inputs where they lie. The graph may be launched as long as this network
        lives, and while no call of the network is on its way.
        """
        pointers = dict(self.pointers)
        for one, value in zip(given, self.plan.input_values, strict=True):
            if pointer := self._usable_pointer(one, value):
                pointers[value] = pointer
            else:
                one.copy_to(self.device.driver, pointers[value], stream)
        self._launch(self.plan.calls, stream, pointers)
        self._copy_outputs(given, outputs, stream)

    def place(self, given: Sequence[Given]) -> None:
        """Put inputs in place for :meth:`run` and :meth:`timed`."""
        with self._after_others(self.device.stream):
            self._place(given, self.device.stream)

    def run(self) -> None:
        """Run once on the inputs that are in place, and wait."""
        self.device.driver.launch_graph(self._resources.graph, self.device.stream)
        self.device.synchronize()

    def timed(self, graph: int = 0) -> float:
        """Seconds that the device takes for a graph, by default that of all calls.

        One launch goes before, so that the device is at work when the time begins.
        """
        driver, stream = self.device.driver, self.device.stream
        begin, end = self.device.events
        graph = graph or self._resources.graph
        driver.launch_graph(graph, stream)
        driver.record(begin, stream)
        driver.launch_graph(graph, stream)
        driver.record(end, stream)
        return driver.seconds_between(begin, end)

    def capture(self, calls: Sequence[DeviceCallPlan]) -> int:
        """A graph of calls, one after the other."""
        driver, stream = self.device.driver, self.device.recorder
        driver.begin_capture(stream)
        try:
            self._launch(calls, stream, {**self.pointers, **self.fixed})
        except BaseException:
            # The stream would go on recording.
            with suppress(CudaError):
                driver.destroy_graph(driver.end_capture(stream))
            raise
        return driver.end_capture(stream)

    @contextmanager
    def _after_others(self, stream: int) -> Iterator[None]:
        """What is begun inside comes after calls before, and before those that follow."""
        driver, done = self.device.driver, self._resources.done
        driver.wait(stream, done)
        try:
            yield
        finally:
            # Also where something is refused half way: what was begun goes on.
            with suppress(CudaError):
                driver.record(done, stream)

    def _place(self, given: Sequence[Given], stream: int) -> None:
        """Copy the inputs that are not read where they lie.

        An input whose address changes is copied for good, so that the graph is made anew at most
        twice for each.
        """
        fixed = dict(self.fixed)
        for one, value in zip(given, self.plan.input_values, strict=True):
            pointer = self._usable_pointer(one, value)
            if value in fixed and fixed[value] != pointer:
                del fixed[value]
                self._moving.add(value)
            elif pointer and value not in self._moving and self._last.get(value) == pointer:
                fixed[value] = pointer
            self._last[value] = pointer
        if fixed != self.fixed:
            self._read_in_place(fixed)
        for one, value in zip(given, self.plan.input_values, strict=True):
            if value not in self.fixed:
                one.copy_to(self.device.driver, self.pointers[value], stream)

    def _usable_pointer(self, given: Given, value: str) -> int:
        """Where kernels can read an input; 0 for nowhere but in a copy."""
        size = prod(given.shape) * numpy_type(given.dtype).itemsize
        if given.view is None or not given.is_usable or size != self.plan.sizes.get(value):
            return 0
        return given.view.pointer

    def _read_in_place(self, fixed: dict[str, int]) -> None:
        """Make the graph that reads these inputs where they lie."""
        before, self.fixed = self.fixed, fixed
        try:
            graph = self.capture(self.plan.calls)
        except BaseException:
            self.fixed = before
            raise
        graph, self._resources.graph = self._resources.graph, graph
        # The last call may still be on its way.
        self.device.driver.await_event(self._resources.done)
        self.device.driver.destroy_graph(graph)

    def _copy_outputs(self, given: Sequence[Given], outputs: Sequence[int], stream: int) -> None:
        pointers = dict(self.pointers)
        # An output may be an input that is handed through.
        for one, value in zip(given, self.plan.input_values, strict=True):
            if one.view is not None:
                pointers[value] = one.view.pointer
        named = zip(self.plan.outputs, self.plan.output_values, outputs, strict=True)
        for tensor, value, pointer in named:
            size = prod(tensor.shape) * numpy_type(tensor.dtype).itemsize
            if size:
                self.device.driver.begin_copy(pointer, pointers[value], size, stream)

    def _launch(
        self, calls: Sequence[DeviceCallPlan], stream: int, pointers: Mapping[str, int]
    ) -> None:
        """Launch calls, one after the other."""
        for call in calls:
            parameters = self._parameters(call, pointers)
            self._resources.kernels[call.task].launch(parameters, stream)

    def _parameters(self, call: DeviceCallPlan, pointers: Mapping[str, int]) -> Parameters:
        given = {name: pointers[value] for name, value in call.arguments.items()}
        scratch = self.plan.scratch(call.task, self.scratch)
        return self._resources.kernels[call.task].parameters({**scratch, **given})
