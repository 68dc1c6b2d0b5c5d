"""The steps of a plan as words, which ``steps.c`` makes: in this process, and in libraries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from autotune.backends.native.printed import PrintedProgram
from autotune.ir.element_types import element_type
from autotune.runtime.plan import Call, Check, Copy, HostCall, Leaf, Place, Plan, Repeat, Step

__all__ = ["FRAME", "written_steps"]

FRAME = (
    *("steps", "inputs", "outputs", "constants", "programs", "hosts", "arena", "scratch"),
    *("threads", "launch", "pool", "times", "failure"),
)
"""Words of the frame of a call, all of 8 bytes: as of ``autotune_frame`` in ``steps.h``."""

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
