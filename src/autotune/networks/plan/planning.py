"""From a graph to a plan: an order of its nodes, and places for what they compute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from attrs import define, field

from autotune.backends import ALIGNMENT, InvalidSchedule
from autotune.errors import InvalidValueError
from autotune.ir.element_types import element_type
from autotune.ir.workloads import Workload
from autotune.networks.frontend import NetworkTensor
from autotune.networks.graph import Graph, HostOperator, Loop, Node, Value
from autotune.networks.graph.graph import results_of
from autotune.networks.plan.constants import Constants
from autotune.networks.plan.lifetimes import lifetimes
from autotune.networks.plan.native_program import NativeProgram, native_program
from autotune.networks.plan.ordering import ordered
from autotune.networks.plan.placing import place_values
from autotune.networks.plan.plan import (
    Call,
    Check,
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
    placed_steps,
)
from autotune.sketches import Candidate
from autotune.targets import Target

__all__ = ["plan_graph", "plan_of"]

Places = dict[object, Place]


def plan_of(
    graph: Graph,
    candidates: Mapping[str, Candidate | None],
    target: Target,
    threads: int,
    names: Mapping[str, str] = MappingProxyType({}),
) -> Plan[NativeProgram]:
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
    packed = {spelling: program.packed for spelling, program in programs.items()}
    return plan_graph(graph, programs, tasks, packed)


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
        if isinstance(operation, HostOperator) and operation.kind == "reshape":
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
    return int(np.prod(shape, dtype=np.int64)) * element_type(dtype).bytes
