"""A plan on a CUDA device: its kernels and memory, launched one by one or as one graph."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress

import numpy as np
from attrs import define, field, frozen

from autotune.backends import CudaProgram
from autotune.errors import UnsupportedWorkload
from autotune.runtime.device import Device, DeviceArray, DeviceFailed
from autotune.runtime.given import Given, is_readable
from autotune.runtime.kernels import LoadedKernels, Parameters
from autotune.runtime.plan import Call, Copy, HostCall, Leaf, Place, Plan, rounded, unrolled
from autotune.targets import CudaError

__all__ = [
    "ALIGNMENT",
    "DeviceProgram",
    "LoadedPlan",
    "device_steps",
    "scratch_addresses",
    "scratch_bytes",
]

ALIGNMENT = 256
"""Of every address on the device: as of what the driver allocates."""

_MOST_STEPS = 100_000


@frozen
class DeviceProgram:
    """A program of a plan.

    Attributes:
        program: Its kernels.
        arguments: What they call the tensors that a call gives, in order.
    """

    program: CudaProgram
    arguments: tuple[str, ...]


def device_steps(plan: Plan[DeviceProgram]) -> tuple[Call | Copy, ...]:
    """Steps that are put on the stream of a device, in order.

    Raises:
        UnsupportedWorkload: a step runs on the host, or there are too many.
    """
    found: list[Call | Copy] = []
    for step in unrolled(plan.steps):
        if not isinstance(step, Call | Copy):
            raise UnsupportedWorkload(f"{_named(step)} runs on the host, and not on a device")
        found.append(step)
        if len(found) > _MOST_STEPS:
            raise UnsupportedWorkload(
                f"the loops of the network make more than {_MOST_STEPS:,} calls of programs, "
                "which is more than one graph of a device is made of"
            )
    return tuple(found)


def _named(step: Leaf) -> str:
    if isinstance(step, HostCall):
        return f"operator {step.operator.kind!r} of {step.label!r}"
    return f"a step ({type(step).__name__}) of the network"


def scratch_bytes(plan: Plan[DeviceProgram]) -> int:
    """Bytes of the intermediate arrays of any one program together."""
    return max(
        (
            sum(rounded(it.bytes, ALIGNMENT) for it in each.program.intermediates)
            for each in plan.programs.values()
        ),
        default=0,
    )


def scratch_addresses(program: CudaProgram, base: int) -> dict[str, int]:
    """Addresses of a program's intermediate arrays in memory that begins at ``base``, by name."""
    found = {}
    for buffer in program.intermediates:
        found[buffer.name] = base
        base += rounded(buffer.bytes, ALIGNMENT)
    return found


Steps = Sequence[Call | Copy]
Memory = Mapping[tuple[str, int], int]
"""Addresses by kind and number of a place."""


@define(eq=False)
class _Resources:
    """Resources that are freed once nothing of the plan is on its way any more.

    Attributes:
        device: The device.
        done: An event: when the last call has ended.
        memory: Arrays by kind and number of their places, ``scratch`` among them.
        kernels: Loaded programs by their keys in the plan.
        graph: All steps; 0 before the first call that needs it.
    """

    device: Device
    done: int
    memory: dict[tuple[str, int], DeviceArray] = field(factory=dict)
    kernels: dict[str, LoadedKernels] = field(factory=dict)
    graph: int = 0

    def free(self) -> None:
        """Free them."""
        # After a lost context there is nothing to free.
        with suppress(DeviceFailed), self.device.current() as driver:
            driver.await_event(self.done)
            driver.destroy_event(self.done)
            if self.graph:
                driver.destroy_graph(self.graph)
            for each in self.kernels.values():
                each.unload()
            self.memory.clear()


@define(eq=False)
class LoadedPlan:
    """A plan on a device. Its calls follow one another, whatever streams they are begun on.

    Inputs and outputs that kernels cannot read and write where the caller has them are copied to
    and from memory that stays here.

    In a graph, kernels read an input where it lies, if it has been there in the call before, as
    weights are that a caller gives in each call; such an address is part of the graph. One that
    moves is copied from then on. Nothing is concluded from an address about what is there.

    Attributes:
        device: The device.
        plan: What is computed.
        fixed: Addresses of the inputs that the graph reads where they lie, by their number.
    """

    device: Device
    plan: Plan[DeviceProgram]
    _steps: Steps
    _resources: _Resources
    fixed: dict[int, int] = field(factory=dict, init=False)
    _last: dict[int, int] = field(factory=dict, init=False)
    _moving: set[int] = field(factory=set, init=False)

    @staticmethod
    def load(device: Device, plan: Plan[DeviceProgram]) -> LoadedPlan:
        """Load programs and constants.

        Raises:
            CudaError: the device refuses the machine code, or has too little memory.
            UnsupportedWorkload: a step cannot be made on a device.
        """
        driver, steps = device.driver, device_steps(plan)
        with ExitStack() as undo:
            resources = _Resources(device, driver.create_event(timed=False))
            undo.callback(driver.destroy_event, resources.done)
            for key in dict.fromkeys(it.program for it in steps if isinstance(it, Call)):
                each = plan.programs[key]
                known = {*(it.name for it in each.program.intermediates), *each.arguments}
                resources.kernels[key] = LoadedKernels.load(driver, each.program, known)
                undo.callback(resources.kernels[key].unload)
            made = LoadedPlan(device, plan, steps, resources)
            made._own("scratch", 0, scratch_bytes(plan))
            made._own("arena", 0, plan.arena_bytes)
            for number, constant in enumerate(plan.constants):
                weight = made._own("constant", number, constant.bytes)
                if constant.array is not None and constant.bytes:
                    driver.upload(weight.pointer, np.ascontiguousarray(constant.array))
            undo.pop_all()
        device.users.add(made)
        weakref.finalize(made, resources.free).atexit = False
        return made

    def _own(self, kind: str, number: int, size: int) -> DeviceArray:
        """Memory for a place, on first use.

        It ends at a multiple of the alignment: where rows of threads share a product, those
        without an element of it write behind its end.
        """
        known = self._resources.memory
        if (kind, number) not in known:
            known[kind, number] = self.device.empty((rounded(size, ALIGNMENT),), "uint8")
        return known[kind, number]

    def input(self, number: int) -> int:
        """Address of the copy of an input."""
        return self._own("input", number, self.plan.inputs[number].bytes).pointer

    def output(self, number: int) -> int:
        """Address of an output of the last call that was not written elsewhere."""
        return self._own("output", number, self.plan.outputs[number].bytes).pointer

    def steps_of(self, task: str) -> Steps:
        """The calls of a task."""
        names = self.plan.tasks
        return [it for it in self._steps if isinstance(it, Call) and names[it.program] == task]

    def await_last(self) -> None:
        """Wait until the last call has ended."""
        self.device.driver.await_event(self._resources.done)

    def launch(
        self, given: Sequence[Given], outputs: Sequence[int], stream: int, *, is_recording: bool
    ) -> None:
        """Run once, when a stream has come here and calls before have ended; waits for nothing.

        Kernels read inputs and write outputs where they lie.

        Args:
            given: The inputs.
            outputs: Where to write the outputs; at 0, and those of the plan behind them, stay
                here.
            stream: The stream.
            is_recording: Whether somebody records a graph on the stream, in which nothing can wait
                for what is not in it. It may be launched as long as the plan is loaded, and while
                no other call is on its way.
        """
        addresses = self._addresses()
        with self._after_others(stream, is_recording):
            for number, one in enumerate(given):
                if is_readable(one.address):
                    addresses["input", number] = one.address
                else:
                    addresses["input", number] = self.input(number)
                    one.copy_to(self.device.driver, addresses["input", number], stream)
            copied = dict(enumerate(outputs))
            for number in range(len(self.plan.outputs)):
                if is_readable(copied.get(number, 0)):
                    addresses["output", number] = copied.pop(number)
                else:
                    addresses["output", number] = self.output(number)
            self._begin(self._steps, stream, addresses)
            self._copy_outputs(copied, stream)

    def launch_graph(self, given: Sequence[Given], outputs: Sequence[int], stream: int) -> None:
        """Launch as :meth:`launch`, all kernels at once; outputs are copied where they go."""
        self._prepare()
        with self._after_others(stream):
            self._place(given, stream)
            self.device.driver.launch_graph(self._resources.graph, stream)
            self._copy_outputs(dict(enumerate(outputs)), stream)

    def place(self, given: Sequence[Given]) -> None:
        """Put inputs in place for :meth:`timed`, and run once on them."""
        self._prepare()
        with self._after_others(self.device.stream):
            self._place(given, self.device.stream)
        self.device.driver.launch_graph(self._resources.graph, self.device.stream)
        self.device.synchronize()

    def timed(self, graph: int = 0) -> float:
        """Seconds that the device takes for a graph, by default that of all calls.

        One launch goes before, so that the device is at work when the time begins.
        """
        launch, graph = self.device.driver.launch_graph, graph or self._resources.graph
        launch(graph, self.device.stream)
        return self.device.seconds(lambda stream: launch(graph, stream))

    def capture(self, steps: Steps) -> int:
        """A graph of steps, one after the other."""
        fixed = {("input", number): pointer for number, pointer in self.fixed.items()}
        addresses = {**self._addresses(), **fixed}
        return self.device.graph_of(lambda stream: self._begin(steps, stream, addresses))

    def _prepare(self) -> None:
        """Make the graph of all steps."""
        if self._resources.graph:
            return
        for find, tensors in ((self.input, self.plan.inputs), (self.output, self.plan.outputs)):
            for number in range(len(tensors)):
                find(number)
        for (kind, _), array in self._resources.memory.items():
            if kind in ("arena", "input", "output"):
                # Values that no kernel writes are read by none that matters, and are no NaN.
                self.device.driver.fill(array.pointer, 0, array.bytes)
        # What is loaded when it is first launched cannot be loaded while a graph is made.
        self._begin(self._steps, self.device.stream, self._addresses())
        self.device.synchronize()
        self._resources.graph = self.capture(self._steps)

    def _addresses(self) -> dict[tuple[str, int], int]:
        return {key: array.pointer for key, array in self._resources.memory.items()}

    @contextmanager
    def _after_others(self, stream: int, is_recording: bool = False) -> Iterator[None]:
        """Order the work begun inside after earlier calls, and before those that follow."""
        if is_recording:
            yield
            return
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
            pointer = one.address if is_readable(one.address) else 0
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
                one.copy_to(self.device.driver, self.input(number), stream)

    def _read_in_place(self, fixed: dict[int, int]) -> None:
        """Make the graph that reads these inputs where they lie."""
        before, self.fixed = self.fixed, fixed
        try:
            graph = self.capture(self._steps)
        except BaseException:
            self.fixed = before
            raise
        graph, self._resources.graph = self._resources.graph, graph
        # The last call may still be on its way.
        self.await_last()
        self.device.driver.destroy_graph(graph)

    def _copy_outputs(self, pointers: Mapping[int, int], stream: int) -> None:
        for number, pointer in pointers.items():
            size = self.plan.outputs[number].bytes
            if pointer and size:
                self.device.driver.begin_copy(pointer, self.output(number), size, stream)

    def _begin(self, steps: Steps, stream: int, addresses: Memory) -> None:
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
        scratch = scratch_addresses(program.program, addresses["scratch", 0])
        return self._resources.kernels[call.program].parameters({**scratch, **given})


def _address(place: Place, addresses: Memory) -> int:
    return addresses[place.kind, place.number] + place.offset
