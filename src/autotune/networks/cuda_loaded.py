"""A network on a CUDA device: its kernels, one graph of all calls, and memory that stays."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress

import numpy as np
from attrs import define, field, frozen

from autotune.measure.devices.kernels import LoadedKernels, Parameters
from autotune.measure.devices.shared import DeviceArray, DeviceFailed, Given, SharedDevice
from autotune.networks.cuda_plan import (
    ALIGNMENT,
    DeviceProgram,
    device_steps,
    scratch_addresses,
    scratch_bytes,
)
from autotune.networks.frontend import NetworkTensor
from autotune.networks.plan.placing import rounded
from autotune.networks.plan.plan import Call, Copy, Operand, Place, Plan
from autotune.targets import CudaError

__all__ = ["LoadedNetwork"]

Steps = Sequence[Call | Copy]
Memory = Mapping[tuple[str, int], int]
"""Addresses by kind and number of a place."""


@define(eq=False)
class _Resources:
    """Resources that are freed once nothing of the network is on its way any more.

    Attributes:
        device: The device.
        memory: Arrays; they are kept for that long.
        kernels: Loaded programs by their keys in the plan.
        graph: All steps.
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


@frozen(eq=False)
class _Layout:
    """Layout of what is computed.

    Attributes:
        plan: The network.
        steps: What it does, in order.
        addresses: Of all that it uses; of inputs those of their copies.
        scratch: Of the intermediate arrays of programs.
    """

    plan: Plan[DeviceProgram]
    steps: Steps
    addresses: Memory
    scratch: int


@define(eq=False)
class LoadedNetwork:
    """A network on a device. Its calls follow one another, whatever streams they are begun on.

    Kernels read an input where it lies, if it has been there in the call before, as weights are
    that a caller gives in each call; such an address is part of the graph. One that moves is
    copied from then on. Nothing is concluded from an address about what is there.

    Attributes:
        device: The device.
        fixed: Addresses of the inputs that are read where they lie, by their number.
    """

    device: SharedDevice
    _layout: _Layout
    _resources: _Resources
    fixed: dict[int, int] = field(factory=dict, init=False)
    _last: dict[int, int] = field(factory=dict, init=False)
    _moving: set[int] = field(factory=set, init=False)

    @staticmethod
    def load(device: SharedDevice, plan: Plan[DeviceProgram]) -> LoadedNetwork:
        """Load programs and constants.

        Raises:
            CudaError: the device refuses the machine code, or has too little memory.
            UnsupportedWorkload: a step cannot be made on a device.
        """
        driver, steps = device.driver, device_steps(plan)
        memory = _memory_of(device, plan)
        addresses = {key: array.pointer for key, array in memory.items()}
        scratch = device.empty((max(1, scratch_bytes(plan)),), "uint8")
        layout = _Layout(plan, steps, addresses, scratch.pointer)
        with ExitStack() as undo:
            event = driver.create_event(timed=False)
            resources = _Resources(device, [*memory.values(), scratch], event)
            undo.callback(driver.destroy_event, resources.done)
            for key in dict.fromkeys(it.program for it in steps if isinstance(it, Call)):
                each = plan.programs[key]
                known = {*(it.name for it in each.program.intermediates), *each.arguments}
                resources.kernels[key] = LoadedKernels.load(driver, each.program, known)
                undo.callback(resources.kernels[key].unload)
            made = LoadedNetwork(device, layout, resources)
            # What is loaded when it is first launched cannot be loaded while a graph is made.
            made._launch(steps, device.stream, addresses)
            device.synchronize()
            resources.graph = made.capture(steps)
            undo.pop_all()
        device.users.add(made)
        weakref.finalize(made, resources.free).atexit = False
        return made

    @property
    def plan(self) -> Plan[DeviceProgram]:
        """Plan of what is computed."""
        return self._layout.plan

    def output(self, number: int) -> int:
        """Address of an output of the last call."""
        return self._layout.addresses["output", number]

    def steps_of(self, task: str) -> Steps:
        """The calls of a task."""
        names = self.plan.tasks
        return [
            it for it in self._layout.steps if isinstance(it, Call) and names[it.program] == task
        ]

    def await_last(self) -> None:
        """Wait until the last call has ended."""
        self.device.driver.await_event(self._resources.done)

    def call(self, given: Sequence[Given], outputs: Sequence[int], stream: int) -> None:
        """Run once, when a stream has come here and calls before have ended; waits for nothing.

        Args:
            given: The inputs.
            outputs: Where to write the outputs; those of the plan behind them stay here.
            stream: The stream.
        """
        with self._after_others(stream):
            self._place(given, stream)
            self.device.driver.launch_graph(self._resources.graph, stream)
            self._copy_outputs(outputs, stream)

    def record(self, given: Sequence[Given], outputs: Sequence[int], stream: int) -> None:
        """Become part of a graph that somebody records on a stream; as :meth:`call` otherwise.

        Kernels read inputs where they lie. The graph may be launched as long as this network
        lives, and while no call of the network is on its way.
        """
        addresses = dict(self._layout.addresses)
        for number, one in enumerate(given):
            if pointer := _usable_pointer(one):
                addresses["input", number] = pointer
            else:
                one.copy_to(self.device.driver, addresses["input", number], stream)
        self._launch(self._layout.steps, stream, addresses)
        self._copy_outputs(outputs, stream)

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

    def capture(self, steps: Steps) -> int:
        """A graph of steps, one after the other."""
        driver, stream = self.device.driver, self.device.recorder
        driver.begin_capture(stream)
        try:
            fixed = {("input", number): pointer for number, pointer in self.fixed.items()}
            self._launch(steps, stream, {**self._layout.addresses, **fixed})
        except BaseException:
            # The stream would go on recording.
            with suppress(CudaError):
                driver.destroy_graph(driver.end_capture(stream))
            raise
        return driver.end_capture(stream)

    @contextmanager
    def _after_others(self, stream: int) -> Iterator[None]:
        """Order the work begun inside after earlier calls, and before those that follow."""
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
        for number, one in enumerate(given):
            pointer = _usable_pointer(one)
            if number in fixed and fixed[number] != pointer:
                del fixed[number]
                self._moving.add(number)
            elif pointer and number not in self._moving and self._last.get(number) == pointer:
                fixed[number] = pointer
            self._last[number] = pointer
        if fixed != self.fixed:
            self._read_in_place(fixed)
        for number, one in enumerate(given):
            if number not in self.fixed:
                copy = self._layout.addresses["input", number]
                one.copy_to(self.device.driver, copy, stream)

    def _read_in_place(self, fixed: dict[int, int]) -> None:
        """Make the graph that reads these inputs where they lie."""
        before, self.fixed = self.fixed, fixed
        try:
            graph = self.capture(self._layout.steps)
        except BaseException:
            self.fixed = before
            raise
        graph, self._resources.graph = self._resources.graph, graph
        # The last call may still be on its way.
        self.await_last()
        self.device.driver.destroy_graph(graph)

    def _copy_outputs(self, outputs: Sequence[int], stream: int) -> None:
        for number, pointer in enumerate(outputs):
            size = _bytes_of(self.plan.outputs[number])
            if size:
                self.device.driver.begin_copy(pointer, self.output(number), size, stream)

    def _launch(self, steps: Steps, stream: int, addresses: Memory) -> None:
        """Make steps, one after the other."""
        for step in steps:
            if isinstance(step, Call):
                kernels = self._resources.kernels[step.program]
                kernels.launch(self._parameters(step, addresses), stream)
            elif step.bytes:
                target, source = (_address(it, addresses) for it in (step.target, step.source))
                self.device.driver.begin_copy(target, source, step.bytes, stream)

    def _parameters(self, call: Call, addresses: Memory) -> Parameters:
        program = self.plan.programs[call.program]
        places = zip(program.arguments, call.arguments, strict=True)
        given = {name: _address(place, addresses) for name, place in places}
        scratch = scratch_addresses(program.program, self._layout.scratch)
        return self._resources.kernels[call.program].parameters({**scratch, **given})


def _memory_of(
    device: SharedDevice, plan: Plan[DeviceProgram]
) -> dict[tuple[str, int], DeviceArray]:
    """Memory for what a plan uses, with its constants in place.

    All of it ends at a multiple of the alignment: where rows of threads share a product, those
    without an element of it write behind its end.
    """
    driver = device.driver

    def memory(size: int) -> DeviceArray:
        return device.empty((rounded(size, ALIGNMENT),), "uint8")

    found = {("arena", 0): memory(plan.arena_bytes)}
    for kind, tensors in (("input", plan.inputs), ("output", plan.outputs)):
        for number, tensor in enumerate(tensors):
            found[kind, number] = memory(_bytes_of(tensor))
    for array in found.values():
        # Values that no kernel writes are read by none that matters, and are no NaN.
        driver.fill(array.pointer, 0, array.bytes)
    for number, constant in enumerate(plan.constants):
        weight = found["constant", number] = memory(constant.bytes)
        if constant.array is not None and constant.bytes:
            driver.upload(weight.pointer, np.ascontiguousarray(constant.array))
    return found


def _bytes_of(tensor: NetworkTensor) -> int:
    return Operand(Place("arena"), tensor.shape, tensor.dtype).bytes


def _address(place: Place, addresses: Memory) -> int:
    return addresses[place.kind, place.number] + place.offset


def _usable_pointer(given: Given) -> int:
    """Address by which kernels can read an input; 0 if they need a copy."""
    return given.view.pointer if given.view is not None and given.is_usable else 0
