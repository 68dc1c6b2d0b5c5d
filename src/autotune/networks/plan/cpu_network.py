"""A network as machine code: called in this process, or built for another processor.

The steps of its plan are words, which ``steps.c`` makes: in this process, and in libraries.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from math import prod
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

import numpy as np
from attrs import define, evolve, field, frozen
from numpy.typing import NDArray

from autotune import _native
from autotune.backends import (
    ALIGNMENT,
    BuildFailed,
    NativeCall,
    aligned_copy,
    aligned_empty,
    sample_native_call,
)
from autotune.backends.native.executable import ask_for_tiles, launch_on, pack_constant, table_of
from autotune.backends.native.exports import machine_of
from autotune.backends.native.machine_code import (
    LoadedCode,
    compile_library,
    load_object,
    object_of,
)
from autotune.backends.native.printed import PrintedProgram
from autotune.errors import InvalidValueError, UnsupportedTarget
from autotune.ir.element_types import element_type
from autotune.networks.frontend import CompiledNetwork
from autotune.networks.graph import Graph, Node, input_value
from autotune.networks.graph.making import run_on_host
from autotune.networks.plan.planning import plan_of
from autotune.runtime.arrays import address_of, handed_back, located_inputs
from autotune.runtime.plan import (
    Call,
    Check,
    Copy,
    HostCall,
    Leaf,
    Operand,
    Place,
    Plan,
    Repeat,
    Step,
    leaves,
)
from autotune.sketches import Candidate
from autotune.targets import Target, detect_cpu
from autotune.targets.processors import missing_features

__all__ = [
    "BuiltPlan",
    "CpuNetwork",
    "FRAME",
    "HostTable",
    "array_at",
    "compile_network",
    "printed_for",
    "written_steps",
]


Array = NDArray[Any]
_WARM_SECONDS = 1.0
_PROFILED_SECONDS, _MOST_PROFILED = 0.3, 25
FRAME = (
    *("steps", "inputs", "outputs", "constants", "programs", "hosts", "arena", "scratch"),
    *("threads", "launch", "pool", "times", "failure"),
)
"""Words of the frame of a call, all of 8 bytes: as of ``autotune_frame`` in ``steps.h``."""
_TIMES = FRAME.index("times")
_HERE = "x86_64-unknown-linux-gnu"


@frozen(eq=False)
class BuiltPlan:
    """A plan as machine code.

    Attributes:
        plan: The plan, without the arrays of its constants.
        target: The CPU that it is for.
        threads: How many it uses.
        objects: Object file of each program, by its key.
        constants: What steps read, by number; None of what is only packed.
        codes: The programs in this process, by key; none where it cannot run them.
        lacks: Why it cannot, in one line; "" where it can.
    """

    plan: Plan[PrintedProgram]
    target: Target
    threads: int
    objects: Mapping[str, bytes] = field(repr=False)
    constants: Sequence[Array | None] = field(repr=False)
    codes: Mapping[str, LoadedCode] = field(repr=False)
    lacks: str = ""


Save = Callable[[BuiltPlan, Path], tuple[str, ...]]


def compile_network(
    graph: Graph,
    candidates: Mapping[str, Candidate | None],
    target: Target,
    threads: int,
    names: Mapping[str, str] = MappingProxyType({}),
    save: Save | None = None,
) -> CpuNetwork:
    """Compile a graph for a CPU, which may be another one than that of this machine.

    Args:
        graph: The network.
        candidates: Schedules of its workloads, by digest; those that have none are loops over
            their axes as they are.
        target: The CPU, of x86-64 or AArch64.
        threads: How many the network uses.
        names: Of the workloads' tasks, by digest.
        save: Writes what runs elsewhere; None where nothing does.

    Raises:
        UnsupportedTarget: it is neither.
        UnsupportedWorkload: a workload has an element type that is not known.
        InvalidSchedule: a schedule is of another workload, or cannot be printed; names the task.
        BuildFailed: LLVM rejects a program; names the task.
        NativeCallFailed: a program uses tile registers, and the system does not give them.
    """
    lacks = _lacks_here(target)
    plan = plan_of(graph, candidates, printed_for(target), threads, names)
    if not lacks and any(it.layout.uses_tiles for it in plan.programs.values()):
        ask_for_tiles()
    objects, codes = {}, {}
    for key, program in plan.programs.items():
        try:
            objects[key] = _object(program, target)
            if not lacks:
                codes[key] = load_object(objects[key], program.layout.entries)
        except BuildFailed as error:
            raise BuildFailed(f"task {plan.tasks[key]!r}: {error}") from error
    constants = _packed_constants(plan, _packers(plan) if lacks else codes)
    without = tuple(evolve(it, array=None) for it in plan.constants)
    plan = evolve(plan, constants=without)
    return CpuNetwork(BuiltPlan(plan, target, threads, objects, constants, codes, lacks), save)


def _lacks_here(target: Target) -> str:
    """Say why a network for a CPU does not run in this process, in one line; "" where it does.

    Raises:
        UnsupportedTarget: it is no CPU of x86-64 or AArch64.
    """
    machine = machine_of(target)
    if not machine.is_x86:
        return f"a network for {machine.name} runs on {machine.architecture}, which this is not"
    lacking = missing_features(target.features, detect_cpu().features)
    if lacking:
        return f"a network for {machine.name} needs {', '.join(lacking)}, which this machine lacks"
    return ""


def printed_for(target: Target) -> Target:
    """The CPU of x86-64 whose schedules a CPU is given: one with the same registers and caches.

    Programs are printed alike for all architectures, but for instructions by name.

    Raises:
        UnsupportedTarget: it is no CPU of x86-64 or AArch64.
    """
    if machine_of(target).is_x86:
        return target
    return evolve(target, processor="x86-64", features=())


def _object(program: PrintedProgram, target: Target) -> bytes:
    machine = machine_of(target)
    if machine.is_x86:
        return object_of(program.text, target)
    entries = program.layout.entries
    return compile_library([program.text], machine.triple, machine.tuned_for, entries)


def _packers(plan: Plan[PrintedProgram]) -> dict[str, LoadedCode]:
    """Packers of constants, as machine code of this process without the rest of each program."""
    entries: dict[str, set[str]] = {}
    for it in plan.packings:
        entries.setdefault(it.program, set()).add(it.entry)
    return {
        key: load_object(
            compile_library([plan.programs[key].text], _HERE, "x86-64", wanted), wanted
        )
        for key, wanted in entries.items()
    }


def _packed_constants(
    plan: Plan[PrintedProgram], codes: Mapping[str, LoadedCode]
) -> list[Array | None]:
    """The constants that steps of a plan read, aligned, by number; None of others.

    Args:
        plan: The plan.
        codes: Machine code of its programs, which this processor can run.
    """
    found: list[Array | None] = [None] * len(plan.constants)
    for number in plan.read_constants:
        array = plan.constants[number].array
        found[number] = None if array is None else _aligned(array)
    for packing in plan.packings:
        array = plan.constants[packing.constant].array
        assert array is not None  # what is packed is not packed again
        known = found[packing.constant]
        source = _aligned(array) if known is None else known
        made = [aligned_empty((plan.constants[it].bytes,), "uint8") for it in packing.made]
        for number, memory in zip(packing.made, made, strict=True):
            # Elements that nothing writes are read by none that matters, and are no NaN.
            memory.fill(0)
            found[number] = memory
        program, code = plan.programs[packing.program], codes[packing.program]
        packed = next(it for it in program.layout.packed if it.entry == packing.entry)
        pack_constant(code, packed, program.own, [source, *made])
    return found


def _aligned(array: Array) -> Array:
    """An array where programs can read it, in place where it lies so."""
    is_placed = array.flags.c_contiguous and array.ctypes.data % ALIGNMENT == 0
    return array if is_placed else aligned_copy(array)


@frozen(eq=False)
class _Frame:
    """Memory of one call at a time.

    Attributes:
        words: What the steps are given.
        inputs: Addresses of the inputs.
        outputs: Addresses of the outputs.
        failure: What a check refuses.
        memory: The arena, and scratch memory.
    """

    words: Any
    inputs: Any
    outputs: Any
    failure: Any
    memory: tuple[Array, Array] = field(repr=False)


class CpuNetwork(CompiledNetwork):
    """A network as machine code.

    Calls may be made by several threads at once, of which one has the pool of threads and the
    others run all of their loops themselves; a forked child can call it.

    Args:
        built: The network.
        save: Writes what runs elsewhere, which holds its state; None where nothing does.
    """

    saves_state = True

    def __init__(self, built: BuiltPlan, save: Save | None = None) -> None:
        plan = built.plan
        self.built = built
        self._save = save
        self._address = _native.step_runner()
        self._run = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._address)
        self._steps = written_steps(plan)
        self._checks = [it for it in leaves(plan.steps) if isinstance(it, Check)]
        self._hosts = HostTable([it for it in leaves(plan.steps) if isinstance(it, HostCall)])
        self._kinds = [element_type(it.dtype).dtype for it in plan.inputs]
        self._outputs = [(it.shape, element_type(it.dtype).dtype) for it in plan.outputs]
        constants = [0 if it is None else it.ctypes.data for it in built.constants]
        programs = [code.address("run") for code in built.codes.values()]
        self._tables = table_of(constants), table_of(programs)
        self._frames: list[_Frame] = []
        self._process = 0

    @property
    def plan(self) -> Plan[PrintedProgram]:
        """Plan of what is computed."""
        return self.built.plan

    @property
    def lacks(self) -> str:
        """Reason for which it cannot be called here."""
        return self.built.lacks

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Run once.

        Inputs that are contiguous and begin at a multiple of 64 bytes are read where they lie,
        others are copied. Outputs share their memory with nothing.

        Raises:
            InvalidValueError: an input is missing, of another shape or type, or holds what leads
                to a division by zero or an index out of range.
            UnsupportedTarget: it runs elsewhere.
        """
        found = self._call(self._given(inputs))
        like = inputs[0] if inputs else None
        return tuple(
            handed_back(array, tensor.dtype, like)
            for array, tensor in zip(found, self.plan.outputs, strict=True)
        )

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name, from inputs by name, both as programs have them.

        As :func:`~autotune.networks.graph.evaluate` has them: bfloat16 is ``uint16``.

        Raises:
            InvalidValueError: as of a call, or there is another input.
        """
        names = [tensor.name for tensor in self.plan.inputs]
        if set(inputs) != set(names):
            raise InvalidValueError(f"inputs are {names}, and {list(inputs)} are given")
        found = self._call(self._given([inputs[name] for name in names]))
        return dict(zip((it.name for it in self.plan.outputs), found, strict=True))

    def save(self, path: Path | str) -> tuple[str, ...]:
        """Write what runs elsewhere.

        Raises:
            InvalidValueError: the file cannot be written, or nothing was given that writes it.
        """
        if self._save is None:
            raise InvalidValueError(
                f"{str(path)!r} cannot be written: this network was compiled to be called in this "
                "process alone"
            )
        return self._save(self.built, Path(path))

    def time_calls(self, inputs: Sequence[Any], repeats: int) -> tuple[float, ...]:
        """Seconds of each of ``repeats`` calls, after one that is not counted.

        They are made in native code, one right after the other.
        """
        given = self._given(inputs)
        with self._held_frame() as frame:
            outputs = self._place(frame, given)
            self._make(frame)
            call = NativeCall(self._address, (ctypes.addressof(frame.words),), (frame, outputs))
            return tuple(sample_native_call(call, 1, repeats).tolist())

    def profile(self, inputs: Sequence[Any]) -> dict[str, float]:
        """Seconds of all calls of each task in one inference, by name of the task.

        Of several inferences the medians count: on a busy machine a task of microseconds is
        interrupted for milliseconds in some of them. The first one maps memory and is left out,
        which makes no difference to one that takes a second.
        """
        names, given = self.plan.task_names, self._given(inputs)
        times = np.zeros(len(names) + 2, np.int64)
        with self._held_frame() as frame:
            outputs = self._place(frame, given)
            frame.words[_TIMES] = times.ctypes.data

            def inference() -> list[float]:
                times[1:] = 0
                times[0] = time.monotonic_ns()
                self._make(frame)
                return [float(it) * 1e-9 for it in times[1:-1]]

            try:
                found = [inference()]
                if sum(found[0]) < _WARM_SECONDS:
                    found = [inference()]
                    while len(found) < _MOST_PROFILED and sum(map(sum, found)) < _PROFILED_SECONDS:
                        found.append(inference())
            finally:
                frame.words[_TIMES] = 0
                del outputs  # which the calls wrote to
        return dict(zip(names, map(median, zip(*found, strict=True)), strict=True))

    def _given(self, inputs: Sequence[Any]) -> list[tuple[Array, int]]:
        """The inputs where programs can read them, and their addresses.

        Raises:
            InvalidValueError: one is missing, or of another shape or type.
            UnsupportedTarget: the network runs elsewhere.
        """
        if self.lacks:
            raise UnsupportedTarget(self.lacks)
        return located_inputs(self.plan.inputs, self._kinds, inputs)

    def _call(self, given: Sequence[tuple[Array, int]]) -> list[Array]:
        """The outputs of aligned inputs."""
        frame = self._frame()
        try:
            outputs = self._place(frame, given)
            self._make(frame)
        finally:
            self._frames.append(frame)
        return outputs

    def _place(self, frame: _Frame, given: Sequence[tuple[Array, int]]) -> list[Array]:
        """Put inputs in place, and memory for outputs, which is returned."""
        for number, (_, address) in enumerate(given):
            frame.inputs[number] = address
        outputs = []
        for number, (shape, kind) in enumerate(self._outputs):
            array, frame.outputs[number] = _new_output(shape, kind)
            outputs.append(array)
        return outputs

    def _make(self, frame: _Frame) -> None:
        """Make a call.

        Raises:
            InvalidValueError: a check refuses what was computed.
        """
        status = self._run(ctypes.addressof(frame.words))
        if status < 0:
            raise self._hosts.error()
        if status:
            check = self._checks[status - 1]
            is_unsigned = element_type(check.operand.dtype).dtype.kind == "u"
            element = frame.failure.value % (1 << 64) if is_unsigned else frame.failure.value
            raise check.requirement.refusal(element, check.label)

    @contextmanager
    def _held_frame(self) -> Iterator[_Frame]:
        frame = self._frame()
        try:
            yield frame
        finally:
            self._frames.append(frame)

    def _frame(self) -> _Frame:
        """A frame that no other call has until its caller appends it to the others."""
        if self._process != os.getpid():
            # The threads of a pool, and calls in progress, are not in a forked child.
            self._frames, self._process = [], os.getpid()
        try:
            return self._frames.pop()
        except IndexError:
            return self._new_frame()

    def _new_frame(self) -> _Frame:
        plan = self.plan
        sizes = (it.memory.bytes(self.built.threads) for it in plan.programs.values())
        scratch = max(sizes, default=0)
        memory = aligned_empty((plan.arena_bytes,), "uint8"), aligned_empty((scratch,), "uint8")
        for each in memory:
            # Elements that no kernel writes are read by none that matters, and are no NaN.
            each.fill(0)
        inputs, outputs = (table_of([0] * len(it)) for it in (plan.inputs, plan.outputs))
        failure, launch = ctypes.c_int64(), launch_on(self.built.threads)
        words = {
            "steps": self._steps.ctypes.data,
            "inputs": ctypes.addressof(inputs),
            "outputs": ctypes.addressof(outputs),
            "constants": ctypes.addressof(self._tables[0]),
            "programs": ctypes.addressof(self._tables[1]),
            "hosts": ctypes.addressof(self._hosts.table),
            "arena": memory[0].ctypes.data,
            "scratch": memory[1].ctypes.data,
            "threads": self.built.threads,
            "launch": launch.function,
            "pool": launch.pool,
            "times": 0,
            "failure": ctypes.addressof(failure),
        }
        given = (ctypes.c_uint64 * len(FRAME))(*(words[name] for name in FRAME))
        return _Frame(given, inputs, outputs, failure, memory)


def _new_output(shape: tuple[int, ...], kind: np.dtype[Any]) -> tuple[Array, int]:
    """An aligned array and its address, in less time than it takes to ask one for that."""
    memory = np.empty(prod(shape) * kind.itemsize + ALIGNMENT, np.uint8)
    address = address_of(memory)
    begin = -address % ALIGNMENT
    return np.ndarray(shape, kind, memory, begin), address + begin


_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int64)


class HostTable:
    """Functions that steps call for operators of the host.

    Args:
        calls: The calls, in order.
    """

    def __init__(self, calls: Sequence[HostCall]) -> None:
        self._calls = [(_node(call), (*call.operands, *call.results)) for call in calls]
        self._errors = threading.local()
        self._function = _FUNCTION(self._run)
        address = ctypes.cast(self._function, ctypes.c_void_p).value or 0
        self.table = table_of([address] * len(calls))

    def error(self) -> BaseException:
        """Error that the latest failed call in this thread has raised."""
        found: BaseException = self._errors.last
        return found

    def _run(self, pointers: Any, number: int) -> int:
        try:
            node, operands = self._calls[number]
            arrays = [
                array_at(pointers[position], operand) for position, operand in enumerate(operands)
            ]
            count = len(node.operands)
            found = run_on_host(node, arrays[:count])
            for target, result in zip(arrays[count:], found, strict=True):
                target[...] = result
        except BaseException as error:  # C knows none; the caller of the network raises it
            self._errors.last = error
            return 1
        return 0


def _node(call: HostCall) -> Node:
    operands = (
        input_value(f"operand{number}", it.shape, it.dtype)
        for number, it in enumerate(call.operands)
    )
    results = tuple((it.shape, it.dtype) for it in call.results)
    return Node(call.operator, tuple(operands), results, name=call.label)


def array_at(address: int, operand: Operand) -> Array:
    """An array in memory that a program gives."""
    kind = element_type(operand.dtype).dtype
    if not operand.bytes:
        return np.empty(operand.shape, kind)
    memory: Any = (ctypes.c_char * operand.bytes).from_address(address)
    return np.frombuffer(memory, kind).reshape(operand.shape)


_CALL, _HOST, _COPY, _CHECK, _REPEAT = range(5)
_KINDS: Mapping[str, int] = {"input": 0, "output": 1, "constant": 2, "arena": 3}
_MOST, _LEAST, _WORD = (1 << 63) - 1, -(1 << 63), (1 << 64) - 1


def written_steps(plan: Plan[PrintedProgram]) -> NDArray[np.int64]:
    """The steps of a plan: sizes of what a reader needs, and the words of each step in order."""
    writer = _Writer(plan)
    words = writer.steps(plan.steps, 0)
    head = writer.arrays, writer.depth, len(words), len(plan.task_names) + 1
    return np.array([*head, *words], np.int64)


@define(eq=False)
class _Writer:
    """State of what is written.

    Attributes:
        plan: The plan.
        arrays: The most arrays that one of its calls is given.
        depth: The most loops that are around a step.
        programs: Numbers of the programs.
        tasks: Where the times of tasks are kept.
        counts: Checks and calls of the host so far.
    """

    plan: Plan[PrintedProgram]
    arrays: int = 0
    depth: int = 0
    programs: dict[str, int] = field(init=False)
    tasks: dict[str, int] = field(init=False)
    counts: dict[type, int] = field(factory=lambda: {Check: -1, HostCall: -1})

    def __attrs_post_init__(self) -> None:
        self.programs = {key: number for number, key in enumerate(self.plan.programs)}
        self.tasks = {name: number for number, name in enumerate(self.plan.task_names, 1)}

    def steps(self, steps: Sequence[Step], depth: int) -> list[int]:
        """The words of steps inside of so many loops."""
        self.depth = max(self.depth, depth)
        found: list[int] = []
        for step in steps:
            if isinstance(step, Repeat):
                body = self.steps(step.steps, depth + 1)
                found += [_REPEAT, step.trips, len(body), *body]
            else:
                found += self._leaf(step)
        return found

    def _leaf(self, step: Leaf) -> Iterator[int]:
        if isinstance(step, Call):
            return self._call(step)
        if isinstance(step, Copy):
            return chain([_COPY, step.bytes], _place(step.target), _place(step.source))
        self.counts[type(step)] += 1
        number = self.counts[type(step)]
        if isinstance(step, Check):
            return chain([_CHECK, number], _condition(step), _place(step.operand.place))
        places = [it.place for it in (*step.operands, *step.results)]
        return chain([_HOST, number], self._given(dict(enumerate(places))))

    def _call(self, step: Call) -> Iterator[int]:
        program = self.plan.programs[step.program]
        self.arrays = max(self.arrays, program.arrays)
        yield from (_CALL, self.programs[step.program], self.tasks[self.plan.tasks[step.program]])
        yield from self._given(dict(zip(program.positions, step.arguments, strict=True)))
        parts = program.memory.parts
        yield len(parts)
        for part in parts:
            yield from (part.position, part.fixed, part.each)

    def _given(self, places: Mapping[int, Place]) -> Iterator[int]:
        """Places of arrays by position among those that a function is given."""
        self.arrays = max(self.arrays, len(places))
        yield len(places)
        for position, place in places.items():
            yield position
            yield from _place(place)


def _place(place: Place) -> tuple[int, ...]:
    return _KINDS[place.kind], place.number, place.offset, len(place.strides), *place.strides


def _condition(step: Check) -> Iterator[int]:
    """Element type and number of elements, and what is allowed along the last axis.

    Numbers of types without sign are compared as such.
    """
    dtype, requirement = step.operand.dtype, step.requirement
    size = element_type(dtype).bytes
    is_unsigned = dtype == "bool" or dtype.startswith("u")
    least, most = (0, _WORD) if is_unsigned else (_LEAST, _MOST)
    sides: list[Sequence[int]] = []
    for bound, free in ((requirement.low, least), (requirement.high, most)):
        numbers = bound if isinstance(bound, tuple) else (free if bound is None else bound,)
        sides.append([min(max(it, least), most) for it in numbers])
    is_bounded = not (requirement.low is None and requirement.high is None)
    period = max(map(len, sides)) if is_bounded else 0
    yield from (-size if is_unsigned else size, step.operand.bytes // size)
    yield from (int(requirement.nonzero), period)
    for side in sides:
        whole = side if len(side) == period else [*side] * period
        yield from (it - (1 << 64) if it > _MOST else it for it in whole)
