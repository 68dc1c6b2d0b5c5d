"""From a graph to a plan: an order of its nodes, and places for what they compute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

from attrs import define, field
from numpy.typing import NDArray

from autotune.backends import ALIGNMENT, BuildRequest, InvalidSchedule
from autotune.backends.native import NativeBackend
from autotune.backends.native.executable import Layout
from autotune.backends.native.printed import PrintedProgram, printed_program
from autotune.errors import InvalidValueError
from autotune.ir.element_types import element_type
from autotune.ir.workloads import Workload
from autotune.networks.frontend import NetworkTensor
from autotune.networks.graph import Graph, Loop, Node, Value
from autotune.networks.graph.graph import results_of
from autotune.networks.graph.making import DistinctArrays
from autotune.runtime.plan import (
    Call,
    Check,
    Constant,
    Copy,
    HostCall,
    Operand,
    PackedOperand,
    Packing,
    Place,
    Plan,
    Program,
    Repeat,
    Step,
    leaves,
    place_values,
    placed_steps,
    places_of,
)
from autotune.sketches import Candidate
from autotune.targets import Target

__all__ = ["native_program", "plan_graph", "plan_of"]


Array = NDArray[Any]


@define(eq=False)
class Constants:
    """Constants, by number in the order in which they were asked for.

    Attributes:
        found: What there is.
    """

    found: list[Constant] = field(factory=list)
    _distinct: DistinctArrays = field(factory=DistinctArrays)
    _numbers: dict[int, int] = field(factory=dict)

    def number(self, array: Array) -> int:
        """Number of a constant of these bytes."""
        first = self._distinct.first(array, array.nbytes)
        if id(first) not in self._numbers:
            self._numbers[id(first)] = len(self.found)
            self.found.append(Constant(first, first.nbytes))
        return self._numbers[id(first)]

    def made(self, size: int) -> int:
        """Number of a constant of so many bytes that a program makes."""
        self.found.append(Constant(None, size))
        return len(self.found) - 1


Places = dict[object, Place]


def plan_of(
    graph: Graph,
    candidates: Mapping[str, Candidate | None],
    target: Target,
    threads: int,
    names: Mapping[str, str] = MappingProxyType({}),
) -> Plan[PrintedProgram]:
    """The plan of a graph for a CPU.

    Args:
        graph: The network.
        candidates: Schedules of its workloads, by digest; those that have none are loops over
            their axes as they are.
        target: The CPU.
        threads: How many the network uses.
        names: Of the workloads' tasks, by digest.

    Raises:
        UnsupportedTarget: it is no x86-64 CPU.
        UnsupportedWorkload: a workload has an element type that is not known.
        InvalidSchedule: a schedule is of another workload or of none of the network's, or cannot
            be printed; names the task.
    """
    programs, tasks = {}, {}
    unknown = sorted({*candidates} - {it.digest for it in graph.workloads})
    if unknown:
        raise InvalidSchedule(f"a schedule is of workload {unknown[0]!r}, which the network lacks")
    for workload in graph.workloads:
        task = tasks[workload.spelling] = names.get(workload.digest, workload.name)
        try:
            made = native_program(workload, candidates.get(workload.digest), target, threads)
        except InvalidSchedule as error:
            raise InvalidSchedule(f"task {task!r}: {error}") from error
        programs[workload.spelling] = made
    packed = {spelling: _packed(program.layout) for spelling, program in programs.items()}
    return plan_graph(graph, programs, tasks, packed)


def native_program(
    workload: Workload, candidate: Candidate | None, target: Target, threads: int
) -> PrintedProgram:
    """Print the program of a workload.

    Args:
        workload: What it computes.
        candidate: A schedule of it or of an equal one; None for loops over the axes as they are.
        target: A CPU.
        threads: How many it is called with.

    Raises:
        UnsupportedWorkload: the backend does not know an element type of it.
        InvalidSchedule: the candidate is of another workload, or cannot be printed.
    """
    try:
        own_candidate = None if candidate is None else candidate.on(workload)
    except InvalidValueError as error:
        raise InvalidSchedule(str(error)) from error
    NativeBackend().check_workload(workload)
    return printed_program(BuildRequest(workload, None, own_candidate, target, threads))


def _packed(layout: Layout) -> tuple[PackedOperand, ...]:
    """Arrays that are made of constants before a program runs."""

    def sizes(numbers: Sequence[int]) -> tuple[int, ...]:
        return tuple(layout.scratch[number].bytes(1) for number in numbers)

    return tuple(PackedOperand(it.entry, it.position, sizes(it.scratch)) for it in layout.packed)


def plan_graph(
    graph: Graph,
    programs: Mapping[str, Program],
    tasks: Mapping[str, str],
    packed: Mapping[str, Sequence[PackedOperand]],
    alignment: int = ALIGNMENT,
) -> Plan[Program]:
    """The plan of a graph.

    Values that are never needed at the same time share memory. What is returned is computed where
    the caller's outputs lie, unless it is an input, a constant, or returned twice: then it is
    copied there. A reshape is another name for its operand.

    Args:
        graph: The network.
        programs: Of each of its workloads, by spelling.
        tasks: Names of the programs' tasks, by the same.
        packed: What programs take packed, by the same.
        alignment: What programs expect of the beginnings of arrays, in bytes.

    Raises:
        InvalidValueError: a program takes packed what is no constant.
    """
    planner = _Planner(packed, alignment)
    inputs: Places = {value.key: Place("input", at) for at, value in enumerate(graph.inputs)}
    steps = planner.steps(graph, inputs)
    for number, value in enumerate(graph.outputs.values()):
        steps += planner.returned(planner.place(value, inputs), value, Place("output", number), 0)
    resolved = placed_steps(steps, planner.resolved)
    lives = lifetimes(resolved)
    sizes = {number: planner.sizes[number] for number in lives}
    offsets, arena = place_values(sizes, lives, alignment)

    def in_arena(place: Place) -> Place:
        if place.kind != "value":
            return place
        return Place("arena").moved(offsets[place.number] + place.offset, place.strides)

    return Plan(
        programs,
        tasks,
        placed_steps(resolved, in_arena),
        tuple(planner.constants.found),
        tuple(planner.packings.values()),
        arena,
        tuple(NetworkTensor(it.name, it.shape, it.dtype) for it in graph.inputs),
        tuple(NetworkTensor(name, it.shape, it.dtype) for name, it in graph.outputs.items()),
    )


@define(eq=False)
class _Planner:
    """State of a plan while its steps are made.

    Attributes:
        packed: As of :func:`plan_graph`.
        alignment: As of :func:`plan_graph`.
        sizes: Bytes of each value that a step computes.
        claimed: Where values lie that have a place outside of the arena, or in another value.
        constants: What is constant.
        packings: What is packed, by program, entry and constant.
    """

    packed: Mapping[str, Sequence[PackedOperand]]
    alignment: int
    sizes: list[int] = field(factory=list)
    claimed: dict[int, Place] = field(factory=dict)
    constants: Constants = field(factory=Constants)
    packings: dict[tuple[str, str, int], Packing] = field(factory=dict)

    def new(self, size: int) -> Place:
        """A value of so many bytes."""
        self.sizes.append(size)
        return Place("value", len(self.sizes) - 1)

    def place(self, value: Value, places: Places) -> Place:
        """Place of a value that is known."""
        if value.constant is not None:
            return Place("constant", self.constants.number(value.constant))
        return places[value.key]

    def resolved(self, place: Place) -> Place:
        """The place of something that is computed elsewhere than in a value of its own."""
        while place.kind == "value" and place.number in self.claimed:
            place = self.claimed[place.number].moved(place.offset, place.strides)
        return place

    def steps(self, graph: Graph, places: Places, depth: int = 0) -> list[Step]:
        """The steps of a graph; where its values lie is added to ``places``."""
        found: list[Step] = []
        for node in ordered(graph):
            operands = [self.place(value, places) for value in node.operands]
            found += _checks(node, operands)
            made, results = self._node(node, operands, depth)
            found += made
            places.update(zip((it.key for it in results_of(node)), results, strict=True))
        return found

    def returned(self, place: Place, value: Value, target: Place, mark: int) -> list[Step]:
        """Bring a value to where somebody wants it: nothing, if it is computed there.

        Args:
            place: Where it lies.
            value: The value.
            target: Where it is wanted.
            mark: Number of the first value that may be computed elsewhere.
        """
        size = _bytes_of(value.shape, value.dtype)
        is_free = place.number >= mark and place.number not in self.claimed
        is_whole = place == Place("value", place.number) and self.sizes[place.number] == size
        if is_whole and is_free and target.is_aligned(self.alignment):
            self.claimed[place.number] = target
            return []
        return [Copy(place, target, size)] if size else []

    def _node(
        self, node: Node, operands: list[Place], depth: int
    ) -> tuple[list[Step], list[Place]]:
        """The steps of a node, and where its results lie."""
        operation = node.operation
        if isinstance(operation, Loop):
            return self._loop(operation, node, operands, depth)
        if node.is_reshape:
            return [], operands
        results = [self.new(_bytes_of(shape, dtype)) for shape, dtype in node.results]
        if isinstance(operation, Workload):
            return [self._call(operation.spelling, operands, results)], results
        read = tuple(
            Operand(place, value.shape, value.dtype)
            for place, value in zip(operands, node.operands, strict=True)
        )
        written = tuple(
            Operand(place, shape, dtype)
            for place, (shape, dtype) in zip(results, node.results, strict=True)
        )
        return [HostCall(operation, read, written, node.label)], results

    def _call(self, program: str, operands: Sequence[Place], results: Sequence[Place]) -> Call:
        given, more = [*operands], list[Place]()
        for one in self.packed.get(program, ()):
            place = given[one.position]
            if place.kind != "constant":
                raise InvalidValueError(
                    f"a schedule packs operand {one.position} of program {program!r}, which is no "
                    "constant"
                )
            made = self._packing(program, one, place.number)
            given[one.position] = made[0]
            more += made
        return Call(program, (*given, *results, *more))

    def _packing(self, program: str, one: PackedOperand, constant: int) -> list[Place]:
        key = program, one.entry, constant
        if key not in self.packings:
            made = tuple(map(self.constants.made, one.bytes))
            self.packings[key] = Packing(program, one.entry, constant, made)
        return [Place("constant", number) for number in self.packings[key].made]

    def _loop(
        self, loop: Loop, node: Node, operands: Sequence[Place], depth: int
    ) -> tuple[list[Step], list[Place]]:
        """The steps of a loop: states lie where its last ones are returned."""
        results = [self.new(_bytes_of(shape, dtype)) for shape, dtype in node.results]
        mark = len(self.sizes)
        states, kept = results[: loop.states], results[loop.states :]
        before = [
            Copy(place, state, self.sizes[state.number])
            for place, state in zip(operands, states, strict=False)
        ]
        inputs, body = self._loop_inputs(loop, operands, states, depth)
        body += self.steps(loop.body, inputs, depth + 1)
        outputs = [(it, self.place(it, inputs)) for it in loop.body.outputs.values()]
        for (value, place), whole, reverse in zip(
            outputs[loop.states :], kept, loop.kept_reverse, strict=True
        ):
            size = _bytes_of(value.shape, value.dtype)
            target = _slice(whole, size, loop.trips, reverse, depth)
            body += self.returned(place, value, target, mark)
        body += self._next_states([place for _, place in outputs[: loop.states]], states)
        return [*before, Repeat(loop.trips, tuple(body))], results

    def _loop_inputs(
        self, loop: Loop, operands: Sequence[Place], states: Sequence[Place], depth: int
    ) -> tuple[Places, list[Step]]:
        """Places of the inputs of a loop's body, and copies of slices that are not aligned."""
        places, copies = list(states), list[Step]()
        values = loop.body.inputs[loop.states :]
        for number, (value, place) in enumerate(zip(values, operands[loop.states :], strict=True)):
            if number >= loop.slices:
                places.append(place)
                continue
            size = _bytes_of(value.shape, value.dtype)
            part = _slice(place, size, loop.trips, loop.reverse[number], depth)
            if not part.is_aligned(self.alignment):
                aligned = self.new(size)
                copies.append(Copy(part, aligned, size))
                part = aligned
            places.append(part)
        keys = (value.key for value in loop.body.inputs)
        return dict(zip(keys, places, strict=True)), copies

    def _next_states(self, found: Sequence[Place], states: Sequence[Place]) -> Iterator[Step]:
        """Copies of what a step made of the states; states that change places are put aside."""
        late = []
        for place, state in zip(found, states, strict=True):
            size = self.sizes[state.number]
            if place == state or not size:
                continue
            if place in states:
                aside = self.new(size)
                yield Copy(place, aside, size)
                place = aside
            late.append(Copy(place, state, size))
        yield from late


def _slice(whole: Place, size: int, trips: int, reverse: bool, depth: int) -> Place:
    """The part of an array that a trip of the loop at this depth reads or writes."""
    around = (0,) * depth
    if reverse:
        return whole.moved((trips - 1) * size, (*around, -size))
    return whole.moved(0, (*around, size))


def _checks(node: Node, operands: Sequence[Place]) -> list[Step]:
    found: list[Step] = []
    for requirement in node.requirements:
        value = node.operands[requirement.operand]
        if value.constant is None:
            operand = Operand(operands[requirement.operand], value.shape, value.dtype)
            found.append(Check(operand, requirement, node.label))
    return found


def _bytes_of(shape: Sequence[int], dtype: str) -> int:
    return prod(shape) * element_type(dtype).bytes


Lives = dict[int, tuple[int, int]]


def lifetimes(steps: Sequence[Step]) -> Lives:
    """First and last step that each value is needed in; steps are counted without trips of loops.

    What is used inside of a loop and outside of it is needed in all of the loop.

    Args:
        steps: The steps, with places of kind ``value``.
    """
    uses: Counter[int] = Counter()
    for step in leaves(steps):
        uses.update(_values_of(step))
    found, _, _ = _walked(steps, uses, 0)
    return found


def _walked(
    steps: Sequence[Step], uses: Counter[int], begin: int
) -> tuple[Lives, Counter[int], int]:
    """Lives in steps that begin at a number, how often each value is used there, and the next
    number."""
    lives: Lives = {}
    counts: Counter[int] = Counter()
    at = begin
    for step in steps:
        if isinstance(step, Repeat):
            inner, used, end = _walked(step.steps, uses, at)
            whole = at, end - 1
            inner = {it: inner[it] if used[it] == uses[it] else whole for it in inner}
        else:
            used, end = Counter(_values_of(step)), at + 1
            inner = dict.fromkeys(used, (at, at))
        for value, (first, last) in inner.items():
            old = lives.get(value, (first, last))
            lives[value] = min(old[0], first), max(old[1], last)
        counts += used
        at = end
    return lives, counts, at


def _values_of(step: Step) -> list[int]:
    assert not isinstance(step, Repeat)
    return [place.number for place in places_of(step) if place.kind == "value"]


# What another order has to save: that of the graph follows its layers, whose results are in cache.
_WORTH_IT = 0.95


def ordered(graph: Graph) -> Sequence[Node]:
    """The nodes of a graph, each behind those that it reads from.

    In the graph's own order, unless one in which the node that takes the least memory comes next
    needs less at its peak.
    """
    own = graph.nodes
    memory = _Memory(graph, own)
    other = memory.greedy(own)
    return other if memory.peak(other) < _WORTH_IT * memory.peak(own) else own


class _Memory:
    """Bytes that the values of a graph take, and which nodes need them."""

    def __init__(self, graph: Graph, nodes: Sequence[Node]) -> None:
        self._roots: dict[object, object] = {}
        self._sizes: dict[object, int] = {}
        self._uses: dict[object, int] = {}
        for node in nodes:
            for result in results_of(node):
                if node.is_reshape:
                    self._roots[result.key] = self._root(node.operands[0])
                else:
                    self._sizes[result.key] = _bytes_of(result.shape, result.dtype)
            for key in self._read(node):
                self._uses[key] = self._uses.get(key, 0) + 1
        for value in graph.outputs.values():
            self._uses[self._root(value)] = len(nodes) + 1

    def peak(self, nodes: Sequence[Node]) -> int:
        """The most bytes that are needed at a time."""
        left, now, most = dict(self._uses), 0, 0
        for node in nodes:
            now += self._made(node)
            most = max(most, now)
            now -= self._freed(node, left, is_done=True)
        return most

    def greedy(self, nodes: Sequence[Node]) -> list[Node]:
        """An order in which the next node is the one that adds least."""
        left = dict(self._uses)
        known = {id(node) for node in nodes}
        missing = {
            id(node): len({id(it.node) for it in node.operands if id(it.node) in known})
            for node in nodes
        }
        readers: dict[int, list[Node]] = {}
        for node in nodes:
            for source in {id(it.node) for it in node.operands if id(it.node) in known}:
                readers.setdefault(source, []).append(node)
        rank = {id(node): number for number, node in enumerate(nodes)}
        ready = [node for node in nodes if not missing[id(node)]]
        found = []
        while ready:
            costs = (
                (self._made(it) - self._freed(it, left, is_done=False), rank[id(it)], at)
                for at, it in enumerate(ready)
            )
            node = ready.pop(min(costs)[2])
            self._freed(node, left, is_done=True)
            found.append(node)
            for reader in readers.get(id(node), ()):
                missing[id(reader)] -= 1
                if not missing[id(reader)]:
                    ready.append(reader)
        return found

    def _root(self, value: Value) -> object:
        return self._roots.get(value.key, value.key)

    def _read(self, node: Node) -> set[object]:
        if node.is_reshape:
            return set()
        return {self._root(value) for value in node.operands if value.constant is None}

    def _made(self, node: Node) -> int:
        return sum(self._sizes.get(it.key, 0) for it in results_of(node))

    def _freed(self, node: Node, left: dict[object, int], *, is_done: bool) -> int:
        """Bytes that are needed no longer behind a node; once it is done, that is noted."""
        freed = 0
        for key in self._read(node):
            if left[key] == 1:
                freed += self._sizes.get(key, 0)
            if is_done:
                left[key] -= 1
        unread = (it.key for it in results_of(node) if it.key not in self._uses)
        freed += sum(self._sizes.get(key, 0) for key in unread)
        return freed
