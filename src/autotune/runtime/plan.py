"""A network as a list of steps over memory whose addresses are known but for a few beginnings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.ir.element_types import element_type
from autotune.runtime.arrays import NetworkTensor

__all__ = [
    "Call",
    "Check",
    "Constant",
    "Copy",
    "HostCall",
    "HostOperator",
    "Leaf",
    "Operand",
    "PackedOperand",
    "Packing",
    "Place",
    "Plan",
    "Repeat",
    "Requirement",
    "Step",
    "leaves",
    "place_values",
    "placed_steps",
    "places_of",
    "rounded",
    "unrolled",
    "with_places",
]

Array = NDArray[Any]
Program = TypeVar("Program")


@frozen
class HostOperator:
    """An operator without a schedule: it runs on the host, one call at a time.

    Attributes:
        kind: Its name among :data:`~autotune.networks.graph.making.HOST_OPERATORS`.
        attributes: What it is told beside its operands: numbers, names, tuples of them.
    """

    kind: str
    attributes: Mapping[str, Any] = field(factory=dict)


@frozen
class Requirement:
    """A condition on the elements of an operand, checked before the node runs.

    Attributes:
        operand: Number of the operand.
        low: The smallest number allowed, or one for each place along the last axis; None for any.
        high: The largest one, likewise.
        nonzero: Whether it must hold no zero: it divides integers.
    """

    operand: int
    low: int | tuple[int, ...] | None = None
    high: int | tuple[int, ...] | None = None
    nonzero: bool = False

    def check(self, array: Array, name: str) -> None:
        """Check what the operand holds.

        Raises:
            InvalidValueError: an element is not allowed.
        """
        if self.nonzero and not np.all(array):
            raise self.refusal(0, name)
        for bound, is_outside in ((self.low, np.less), (self.high, np.greater)):
            if bound is None:
                continue
            outside = array[is_outside(array, np.asarray(bound))]
            if outside.size:
                raise self.refusal(int(outside[0]), name)

    def refusal(self, element: int, name: str) -> InvalidValueError:
        """The error of an element that is not allowed."""
        if self.nonzero and not element:
            return InvalidValueError(f"{name}: an integer is divided by zero")
        return InvalidValueError(f"{name}: index {element} is not from {self.low} to {self.high}")


@frozen
class Place:
    """Beginning of an array: ``offset`` bytes behind the beginning of something.

    Attributes:
        kind: ``input``, ``output``, ``constant`` or ``arena``; ``value`` before values have places
            in the arena.
        number: Which of them.
        offset: Bytes.
        strides: Bytes for each trip of the loops around, the outermost first; shorter where the
            inner ones move nothing.
    """

    kind: Literal["input", "output", "constant", "arena", "value"]
    number: int = 0
    offset: int = 0
    strides: tuple[int, ...] = ()

    def moved(self, offset: int, strides: Sequence[int] = ()) -> Place:
        """The place so many bytes behind this one."""
        depth = max(len(self.strides), len(strides))
        both = ([*it, *[0] * (depth - len(it))] for it in (self.strides, strides))
        whole = tuple(map(sum, zip(*both, strict=True)))
        while whole and not whole[-1]:
            whole = whole[:-1]
        return evolve(self, offset=self.offset + offset, strides=whole)

    def at(self, trips: Sequence[int]) -> Place:
        """The place in the given trips of the loops around."""
        passed = sum(stride * trip for stride, trip in zip(self.strides, trips, strict=False))
        return evolve(self, offset=self.offset + passed, strides=())

    def is_aligned(self, alignment: int) -> bool:
        """Tell if it is a multiple of ``alignment`` in every trip, where its beginning is."""
        return not any(it % alignment for it in (self.offset, *self.strides))


@frozen
class Operand:
    """An array that a step knows shape and type of."""

    place: Place
    shape: tuple[int, ...]
    dtype: str

    @property
    def bytes(self) -> int:
        """Its size."""
        return prod(self.shape) * element_type(self.dtype).bytes


@frozen
class Call:
    """A call of a program.

    Attributes:
        program: Its key in :attr:`Plan.programs`.
        arguments: Of the inputs and then the outputs of its workload, in order; then what is
            packed of its constants. In the place of a constant that is packed there is what is
            made of it first: the program does not read it.
    """

    program: str
    arguments: tuple[Place, ...]


@frozen
class PackedOperand:
    """Operand that a program takes in the place of a constant.

    Attributes:
        entry: Its function that makes it.
        position: Of the constant among the inputs.
        bytes: Of each array that is made.
    """

    entry: str
    position: int
    bytes: tuple[int, ...]


@frozen
class HostCall:
    """An operator of the host.

    Attributes:
        operator: What it computes.
        operands: What it reads.
        results: What it writes.
        label: What it is called in messages.
    """

    operator: HostOperator
    operands: tuple[Operand, ...]
    results: tuple[Operand, ...]
    label: str = ""


@frozen
class Check:
    """A condition on what is computed; where it does not hold, nothing more is.

    Attributes:
        operand: An array of integers.
        requirement: What it must hold.
        label: What it is checked for, in messages.
    """

    operand: Operand
    requirement: Requirement
    label: str


@frozen
class Copy:
    """So many bytes from one place to another one, which do not overlap."""

    source: Place
    target: Place
    bytes: int


@frozen
class Repeat:
    """Steps that are made ``trips`` times."""

    trips: int
    steps: tuple[Step, ...]


Leaf = Call | HostCall | Check | Copy
Step = Leaf | Repeat


@frozen(eq=False)
class Constant:
    """Array that is the same in every call.

    Attributes:
        array: Its elements, as the graph has them: they may lie anywhere and be strided. None
            where a program packs it.
        bytes: Its size.
    """

    array: Array | None = field(repr=False)
    bytes: int


@frozen
class Packing:
    """Making of constants of a constant before the first call.

    Attributes:
        program: Key of the program that takes them.
        entry: Its function that makes all of them.
        constant: Number of the constant.
        made: Numbers of what is made.
    """

    program: str
    entry: str
    constant: int
    made: tuple[int, ...]


@frozen(eq=False)
class Plan(Generic[Program]):
    """A network whose steps follow one another, whatever its inputs are.

    Attributes:
        programs: What is called, by a key; that of the workload's spelling.
        tasks: By key of a program the name of its task; several may have one.
        steps: In order.
        constants: What calls read and packings make.
        packings: What is made before.
        arena_bytes: Size of the memory for values; a call in progress has one of its own.
        inputs: What the caller gives.
        outputs: What the caller's memory for outputs holds behind a call.

    Raises:
        InvalidValueError: a step is of a program, an input, an output or a constant that there is
            not.
    """

    programs: Mapping[str, Program] = field(repr=False)
    tasks: Mapping[str, str]
    steps: tuple[Step, ...] = field(repr=False)
    constants: tuple[Constant, ...] = field(repr=False)
    packings: tuple[Packing, ...]
    arena_bytes: int
    inputs: tuple[NetworkTensor, ...]
    outputs: tuple[NetworkTensor, ...]

    def __attrs_post_init__(self) -> None:
        counts = {
            "input": len(self.inputs),
            "output": len(self.outputs),
            "constant": len(self.constants),
            "arena": 1,
        }
        for step in leaves(self.steps):
            if isinstance(step, Call) and step.program not in self.programs:
                raise InvalidValueError(f"a plan calls {step.program!r}, which is no program")
            for place in places_of(step):
                if not 0 <= place.number < counts.get(place.kind, 0):
                    raise InvalidValueError(f"a plan uses {place}, which nothing is")

    @property
    def read_constants(self) -> frozenset[int]:
        """Numbers of the constants that steps read; others are packed alone."""
        places = (place for step in leaves(self.steps) for place in places_of(step))
        return frozenset(place.number for place in places if place.kind == "constant")

    @property
    def task_names(self) -> tuple[str, ...]:
        """Names of the tasks that are called, in the order of their first call."""
        calls = (it for it in leaves(self.steps) if isinstance(it, Call))
        return tuple(dict.fromkeys(self.tasks[call.program] for call in calls))


def leaves(steps: Sequence[Step]) -> Iterator[Leaf]:
    """All steps but loops, those in loops once."""
    for step in steps:
        if isinstance(step, Repeat):
            yield from leaves(step.steps)
        else:
            yield step


def places_of(step: Leaf) -> tuple[Place, ...]:
    """Places that a step reads and writes."""
    if isinstance(step, Call):
        return step.arguments
    if isinstance(step, HostCall):
        return tuple(it.place for it in (*step.operands, *step.results))
    return (step.operand.place,) if isinstance(step, Check) else (step.source, step.target)


def with_places(step: Leaf, change: Callable[[Place], Place]) -> Leaf:
    """A step with other places."""

    def changed(operands: Sequence[Operand]) -> tuple[Operand, ...]:
        return tuple(evolve(it, place=change(it.place)) for it in operands)

    if isinstance(step, Call):
        return evolve(step, arguments=tuple(map(change, step.arguments)))
    if isinstance(step, HostCall):
        return evolve(step, operands=changed(step.operands), results=changed(step.results))
    if isinstance(step, Check):
        return evolve(step, operand=changed([step.operand])[0])
    return evolve(step, source=change(step.source), target=change(step.target))


def placed_steps(steps: Sequence[Step], change: Callable[[Place], Place]) -> tuple[Step, ...]:
    """Steps with other places, those in loops too."""
    return tuple(
        evolve(step, steps=placed_steps(step.steps, change))
        if isinstance(step, Repeat)
        else with_places(step, change)
        for step in steps
    )


def unrolled(steps: Sequence[Step], trips: tuple[int, ...] = ()) -> Iterator[Leaf]:
    """All steps in the order in which they are made, with places that no loop moves."""
    for step in steps:
        if isinstance(step, Repeat):
            for trip in range(step.trips):
                yield from unrolled(step.steps, (*trips, trip))
        else:
            yield with_places(step, lambda place: place.at(trips))


Key = TypeVar("Key", str, int)


def place_values(
    sizes: Mapping[Key, int], lives: Mapping[Key, tuple[int, int]], alignment: int
) -> tuple[dict[Key, int], int]:
    """Offsets of values in one piece of memory, and its size.

    The largest is placed first, each at the lowest offset that is free for as long as it is
    needed.

    Args:
        sizes: Bytes of each value.
        lives: First and last moment that each is needed at, both included.
        alignment: Of every offset, in bytes.
    """
    names = sorted(sizes, key=lambda it: (-sizes[it], it))
    first, last = (np.array([lives[it][end] for it in names], np.int64) for end in (0, 1))
    begins, ends = (np.zeros(len(names), np.int64) for _ in range(2))
    for number, name in enumerate(names):
        size = rounded(sizes[name], alignment)
        meet = (first[:number] <= last[number]) & (last[:number] >= first[number])
        others = begins[:number][meet].tolist(), ends[:number][meet].tolist()
        taken = sorted(zip(*others, strict=True))
        begins[number] = _lowest_gap(taken, size)
        ends[number] = begins[number] + size
    return dict(zip(names, begins.tolist(), strict=True)), int(ends.max(initial=0))


def _lowest_gap(taken: Iterable[tuple[int, int]], size: int) -> int:
    offset = 0
    for begin, end in taken:
        if offset + size <= begin:
            return offset
        offset = max(offset, end)
    return offset


def rounded(size: int, alignment: int) -> int:
    """A multiple of the alignment that is at least as large, and not 0."""
    return max(1, -(-size // alignment)) * alignment
