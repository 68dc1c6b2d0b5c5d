"""A plan on a CUDA device: its kernels and memory, and the callers whose tensors it takes.

Kernels are launched one by one or as one graph.

Torch as the caller has its own stream and memory. What is begun on torch's current stream is to
torch like an operator of its own: it comes after what torch has begun there, what torch begins
there next comes after it, and memory of tensors that go away meanwhile is given to nothing that
comes before. The host waits for none of it.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from ctypes import c_uint64
from math import prod
from typing import Any

import numpy as np
from attrs import define, field, frozen
from numpy.typing import NDArray

from autotune.backends import CudaProgram, TensorMap, dlpack, host_array
from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.runtime.device import Device, DeviceArray, DeviceFailed, stored_type
from autotune.runtime.plan import Call, Copy, HostCall, Leaf, Place, Plan, rounded, unrolled
from autotune.targets import CudaDriver, CudaError

__all__ = [
    "ALIGNMENT",
    "Caller",
    "DeviceProgram",
    "Given",
    "LoadedKernels",
    "LoadedPlan",
    "Parameters",
    "converted",
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


Parameters = Sequence[Sequence[Any]]
"""Arguments of the launches of a program, in order."""


@frozen(eq=False)
class LoadedKernels:
    """Kernels in the current context.

    Attributes:
        driver: The driver.
        program: What they are of.
        module: The machine code, loaded.
        functions: The kernels by name.
    """

    driver: CudaDriver
    program: CudaProgram
    module: int
    functions: Mapping[str, int]

    @staticmethod
    def load(driver: CudaDriver, program: CudaProgram, known: Collection[str]) -> LoadedKernels:
        """Load the kernels of a program.

        Args:
            driver: The driver; a context is current.
            program: The program.
            known: Names of the arrays that it will be given, intermediates included.

        Raises:
            CudaError: the device refuses the machine code.
            InvalidValueError: a launch takes an array of another name.
        """
        for launch in program.launches:
            for name in (*launch.arguments, *(it.buffer for it in launch.maps)):
                if name not in known:
                    raise InvalidValueError(
                        f"kernel {launch.kernel!r} takes {name!r}; known: {sorted(known)}"
                    )
        module = driver.load_module(program.cubin)
        try:
            functions = {}
            for launch in program.launches:
                functions[launch.kernel] = function = driver.function(module, launch.kernel)
                driver.allow_shared_memory(function, launch.shared_bytes)
        except Exception:
            driver.unload_module(module)
            raise
        return LoadedKernels(driver, program, module, functions)

    def parameters(self, pointers: Mapping[str, int]) -> Parameters:
        """Parameters of the launches for arrays at these addresses, by name.

        Raises:
            CudaError: an array does not begin where the copy engine reads it.
        """
        return [
            [
                *(c_uint64(pointers[name]) for name in launch.arguments),
                *(self._described(known, pointers[known.buffer]) for known in launch.maps),
            ]
            for launch in self.program.launches
        ]

    def _described(self, known: TensorMap, pointer: int) -> Any:
        size = element_type(known.dtype).bytes
        return self.driver.tensor_map(pointer, known.dtype, known.shape, known.box, size)

    def launch(self, parameters: Parameters, stream: int) -> None:
        """Launch every kernel, in order."""
        for launch, arguments in zip(self.program.launches, parameters, strict=True):
            self.driver.launch(
                self.functions[launch.kernel],
                *(launch.grid, launch.block, launch.shared_bytes, stream, arguments),
            )

    def unload(self) -> None:
        """Unload the machine code."""
        self.driver.unload_module(self.module)


Array = NDArray[Any]

# Kernels read vectors of up to so many bytes.
_WIDEST_ACCESS = 16


def is_readable(pointer: int) -> bool:
    """Return whether kernels can read and write an array that begins at an address."""
    return pointer != 0 and pointer % _WIDEST_ACCESS == 0


@frozen(eq=False)
class Given:
    """Tensor that a caller gave, checked.

    Attributes:
        name: Of the tensor.
        shape: Its extents.
        dtype: Its element type.
        view: Where it lies, if on the device.
        array: It on the host, otherwise.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    view: dlpack.TensorView | None = None
    array: Array | None = None

    @property
    def address(self) -> int:
        """Address on the device; 0 on the host."""
        return 0 if self.view is None else self.view.pointer

    @property
    def bytes(self) -> int:
        """Its size."""
        return prod(self.shape) * stored_type(self.dtype).itemsize

    def copy_to(self, driver: CudaDriver, pointer: int, stream: int) -> None:
        """Copy it to an address of the device when a stream has come here."""
        if self.view is not None and self.bytes:
            driver.begin_copy(pointer, self.view.pointer, self.bytes, stream)
        elif self.array is not None and self.array.nbytes:
            driver.begin_upload(pointer, self.array, stream)


@frozen(eq=False)
class Caller:
    """Caller of what is on a device.

    Attributes:
        device: The device.
        stream: Where it is run: torch's current stream where torch calls, else the device's.
    """

    device: Device
    stream: int
    _torch: Any = field(default=None, repr=False)

    @staticmethod
    def of(device: Device, values: Iterable[Any] = ()) -> Caller:
        """Torch, where one of the values is a tensor of it on a CUDA device; else anybody."""
        torch = sys.modules.get("torch")
        if torch is None or not any(_is_on_device(torch, value) for value in values):
            return Caller(device, device.stream)
        stream = torch.cuda.current_stream(device.device.index).cuda_stream
        return Caller(device, int(stream), torch)

    @property
    def is_recording(self) -> bool:
        """True if what torch begins on the stream becomes part of a CUDA graph."""
        return self._torch is not None and self.device.driver.is_capturing(self.stream)

    def has(self, value: object) -> bool:
        """Return whether a value is a tensor of torch on a CUDA device, and torch calls."""
        return self._torch is not None and _is_on_device(self._torch, value)

    def read(self, name: str, shape: tuple[int, ...], dtype: str, value: Any) -> Given:
        """Read a tensor: on the device where it lies, or anything that numpy takes.

        The stream waits for what others have begun on it. One that is not in row-major order is
        copied there, if its package does so.

        Raises:
            InvalidValueError: it is of another shape or type, or on another device.
        """
        if self.has(value):
            return self._read_of_torch(name, shape, dtype, value)
        if hasattr(value, "detach"):
            value = value.detach()
        where = dlpack.device_of(value)
        if where is None or where[0] == dlpack.CPU:
            array = host_array(value)
            _check(name, shape, str(stored_type(dtype)), array.shape, str(array.dtype))
            return Given(name, shape, dtype, array=np.ascontiguousarray(array))
        here = self.device.device.index
        if where[0] not in (dlpack.CUDA, dlpack.CUDA_MANAGED) or where[1] != here:
            kind = "cuda" if where[0] == dlpack.CUDA else f"DLPack's device type {where[0]}"
            raise _elsewhere(name, f"{kind}:{where[1]}", here)
        view = self._view(value)
        if not view.contiguous and hasattr(value, "contiguous"):
            view = self._view(value.contiguous())
        _check(name, shape, dtype, view.shape, view.dtype)
        if not view.contiguous:
            raise InvalidValueError(
                f"{name!r} does not lie in row-major order without gaps on the device; copy it so"
            )
        return Given(name, shape, dtype, view)

    def _read_of_torch(self, name: str, shape: tuple[int, ...], dtype: str, value: Any) -> Given:
        here = self.device.device.index
        if value.get_device() != here:
            raise _elsewhere(name, f"cuda:{value.get_device()}", here)
        if value.shape != shape or value.dtype is not getattr(self._torch, dtype, None):
            found = str(value.dtype).removeprefix("torch.")
            raise _wrong(name, shape, dtype, value.shape, found)
        try:
            if value.is_neg() or not value.is_contiguous():
                value = value.detach().resolve_neg().contiguous()
            pointer = int(value.data_ptr())
        except RuntimeError as error:  # a sparse one, or one without memory
            raise InvalidValueError(f"{name!r} has no address: {error}") from error
        view = dlpack.TensorView(pointer, shape, dtype, (dlpack.CUDA, here), True, value)
        return Given(name, shape, dtype, view)

    def written(self, name: str, shape: tuple[int, ...], dtype: str, value: Any) -> Given:
        """Read a tensor that is written to where it lies: what the caller holds, and no copy.

        Raises:
            InvalidValueError: it is of another shape or type, on another device, not in row-major
                order, or cannot be written to.
        """
        if self.has(value):
            is_in_order = value.is_contiguous() and not value.is_neg()
        else:
            where = dlpack.device_of(value)
            is_on_host = where is None or where[0] == dlpack.CPU
            is_in_order = is_on_host or self._view(value).contiguous
            if is_on_host and not (isinstance(value, np.ndarray) and value.flags.writeable):
                raise InvalidValueError(f"the array of out for {name!r} cannot be written to")
        if not is_in_order:
            raise InvalidValueError(f"the array of out for {name!r} is not contiguous")
        return self.read(name, shape, dtype, value)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """A new tensor of torch on the device, of unspecified content.

        Raises:
            InvalidValueError: torch has no such type.
        """
        kind = getattr(self._torch, dtype, None)
        if kind is None:
            raise InvalidValueError(f"torch has no tensors of type {dtype}")
        device = self._torch.device("cuda", self.device.device.index)
        return self._torch.empty(shape, dtype=kind, device=device)

    def _view(self, value: Any) -> dlpack.TensorView:
        """Place of a tensor of a device, once the stream waits for what was begun on it.

        Torch exports tensors of its current device only.
        """
        # The default stream has a number of its own there.
        waiting = self.stream or dlpack.DEFAULT_STREAM
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(value, torch.Tensor):
            return dlpack.view_of(value, waiting)
        with torch.cuda.device(self.device.device.index):
            return dlpack.view_of(value, waiting)


def _is_on_device(torch: Any, value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_cuda


def _elsewhere(name: str, where: str, here: int) -> InvalidValueError:
    return InvalidValueError(
        f"{name!r} is on {where}, and the program on cuda:{here}; move it there"
    )


def _check(name: str, shape: tuple[int, ...], dtype: str, found: Any, kind: str) -> None:
    if tuple(found) != shape or kind != dtype:
        raise _wrong(name, shape, dtype, found, kind)


def _wrong(
    name: str, shape: tuple[int, ...], dtype: str, found: Any, kind: str
) -> InvalidValueError:
    return InvalidValueError(
        f"{name!r} must be {dtype} of shape {list(shape)}, got {kind} of shape {list(found)}"
    )


def converted(array: DeviceArray, like: Any) -> Any:
    """An array as a tensor of the package that another one is of, which shares its memory."""
    package = sys.modules.get(type(like).__module__.split(".")[0])
    converter = getattr(package, "from_dlpack", None)
    return array if isinstance(like, DeviceArray) or converter is None else converter(array)
