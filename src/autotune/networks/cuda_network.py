"""Networks that run on a CUDA device: one CUDA graph of all kernels, over memory that stays."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from attrs import define, field, frozen

from autotune.backends import CudaProgram, dlpack
from autotune.errors import InvalidValueError, UnsupportedTarget, UnsupportedWorkload
from autotune.measure.devices.kernels import LoadedKernels, Parameters
from autotune.measure.devices.shared import (
    DeviceArray,
    DeviceFailed,
    Given,
    SharedDevice,
    converted,
    read_given,
    shared_device,
)
from autotune.measure.devices.torch_caller import TorchCaller
from autotune.networks.arrays import as_numpy, handed_back, stored_array
from autotune.networks.frontend import CompiledNetwork, NetworkTensor
from autotune.networks.graph import Requirement
from autotune.networks.plan.plan import (
    Array,
    Call,
    Constant,
    Copy,
    HostCall,
    Leaf,
    Operand,
    Place,
    Plan,
    unrolled,
)
from autotune.networks.plan.planning import place_values, rounded
from autotune.targets import CudaError, Target, load_driver, matching_device

__all__ = [
    "ALIGNMENT",
    "CudaNetwork",
    "DeviceCheck",
    "DeviceProgram",
    "NamedCall",
    "device_steps",
    "plan_of_calls",
    "scratch_addresses",
    "scratch_bytes",
]

_PROFILED = 9
_BFLOAT16 = "bfloat16"

Save = Callable[[Path], tuple[str, ...]]


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
        save: Writes what runs elsewhere.
        checks: Conditions on the last outputs of the plan, which callers are not given.
    """

    def __init__(
        self,
        plan: Plan[DeviceProgram],
        target: Target,
        save: Save,
        checks: Sequence[DeviceCheck] = (),
    ) -> None:
        self.plan = plan
        self.checks = tuple(checks)
        self._target = target
        self._save = save
        self._loaded: LoadedNetwork | None = None
        self._unchecked = False

    @property
    def outputs(self) -> tuple[NetworkTensor, ...]:
        """Outputs that a call returns."""
        return self.plan.outputs[: min((it.output for it in self.checks), default=None)]

    @property
    def lacks(self) -> str:
        """Why it cannot be called here: no driver, or no such device; "" where it can."""
        try:
            matching_device(self._target, load_driver())
        except UnsupportedTarget as error:
            return str(error)
        return ""

    @property
    def device_index(self) -> int:
        """Number of the device that it runs on.

        Raises:
            UnsupportedTarget: there is no such device here.
        """
        return matching_device(self._target, load_driver()).index

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Run once.

        Raises:
            InvalidValueError: an input is missing, of another shape or type, or on another device;
                or it holds what leads to a division by zero or an index out of range.
            UnsupportedTarget: there is no such device here.
            DeviceFailed: the network failed on the device.
        """
        device = shared_device(self._target) if self._loaded is None else self._loaded.device
        caller = TorchCaller.of(device, inputs)
        with device.current():
            is_of_torch = caller is not None and all(map(caller.has, inputs))
            is_recording = caller is not None and caller.is_recording
            if is_recording and (self._loaded is None or not is_of_torch):
                raise InvalidValueError(
                    "a network is recorded in a CUDA graph of torch when it has been called "
                    "before, and with tensors of the device only"
                )
            loaded = self._on_device()
            given = self._read(device, inputs, caller)
            if not is_recording:
                self._check_last(loaded)
            if caller is not None and is_of_torch:
                return self._begun(loaded, given, caller, is_recording)
            stream = device.stream if caller is None else caller.stream
            found = [device.empty(it.shape, it.dtype) for it in self.outputs]
            loaded.call(given, [array.pointer for array in found], stream)
            self._unchecked = bool(self.checks)
            device.driver.synchronize(stream)
            self._check_last(loaded)
        like = inputs[0] if inputs else None
        if given and given[0].view is not None:
            return tuple(converted(array, like) for array in found)
        return tuple(handed_back(array.numpy(), array.dtype, like) for array in found)

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
            loaded.place(self._read(loaded.device, inputs))
            loaded.run()
            return tuple(loaded.timed() for _ in range(repeats))

    def profile(self, inputs: Sequence[Any]) -> dict[str, float]:
        """Seconds of all calls of each task in one inference, by name of the task.

        The calls of a task are launched as a graph of their own; of several times the median
        counts. Their operands are what the last inference left, in a warm cache where they fit.
        """
        loaded = self._on_device()
        with loaded.device.current() as driver:
            loaded.place(self._read(loaded.device, inputs))
            loaded.run()
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

    def _read(
        self, device: SharedDevice, inputs: Sequence[Any], caller: TorchCaller | None = None
    ) -> list[Given]:
        """The inputs, on whose stream those are that others have begun anything on."""
        wanted = self.plan.inputs
        if len(inputs) != len(wanted):
            names = ", ".join(repr(tensor.name) for tensor in wanted)
            raise InvalidValueError(f"{len(inputs)} inputs; the network takes {names}")
        found = []
        for tensor, value in zip(wanted, inputs, strict=True):
            name = f"input {tensor.name}"
            if caller is not None and caller.has(value):
                found.append(caller.read(name, tensor.shape, tensor.dtype, value))
            else:
                stream = None if caller is None else caller.stream
                held = _plain(tensor, value)
                found.append(read_given(device, name, tensor.shape, tensor.dtype, held, stream))
        return found

    def _begun(
        self,
        loaded: LoadedNetwork,
        given: Sequence[Given],
        caller: TorchCaller,
        is_recording: bool,
    ) -> tuple[Any, ...]:
        """The outputs of a call as torch's tensors, written when its stream comes there."""
        found = [caller.empty(it.shape, it.dtype) for it in self.outputs]
        begin = loaded.record if is_recording else loaded.call
        begin(given, [int(tensor.data_ptr()) for tensor in found], caller.stream)
        self._unchecked = bool(self.checks) and not is_recording
        return tuple(found)

    def _check_last(self, loaded: LoadedNetwork) -> None:
        """Look at what the last call found, if nobody has yet."""
        if not self._unchecked:
            return
        self._unchecked = False
        loaded.await_last()
        for check in self.checks:
            tensor = self.plan.outputs[check.output]
            array = np.empty(tensor.shape, tensor.dtype)
            loaded.device.driver.download(array, loaded.output(check.output))
            check.requirement.check(array, check.label)

    def _on_device(self) -> LoadedNetwork:
        if self._loaded is None:
            device = shared_device(self._target)
            with device.current():
                # Another thread may have been first.
                if self._loaded is None:
                    self._loaded = LoadedNetwork.load(device, self.plan)
        return self._loaded


def _plain(tensor: NetworkTensor, value: Any) -> Any:
    """Convert what a caller gave; bfloat16 on the host to the bits that the device is given."""
    where = dlpack.device_of(value)
    if tensor.dtype != _BFLOAT16 or (where is not None and where[0] != dlpack.CPU):
        return value
    return stored_array(as_numpy(value), _BFLOAT16)


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


@frozen
class DeviceCheck:
    """A condition on the last outputs of a plan, which callers are not given.

    Attributes:
        output: Number of the output.
        requirement: What it must hold.
        label: What it is checked for, in messages.
    """

    output: int
    requirement: Requirement
    label: str


@frozen
class NamedCall:
    """A call of a program on values by their names, in the order of its arguments."""

    program: str
    values: tuple[str, ...]


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
        bytes_of[value] = Operand(Place("arena"), tensor.shape, tensor.dtype).bytes
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
