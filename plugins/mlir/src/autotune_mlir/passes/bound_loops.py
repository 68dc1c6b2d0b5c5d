"""Loops of which only some iterations are run, in programs on buffers.

Loops of the Transform dialect run over whole extents of tensors. A schedule gives loops names, and
says in an attribute of the function which iterations of some of them are run, depending on those
around them; the loops keep their names through bufferization, and get their ends there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from attrs import frozen

from autotune.backends import InvalidSchedule
from autotune_mlir.traversal import ancestors, constant_index, operations_in

__all__ = ["BOUNDS", "LOOP", "LoopBound", "Position", "bound_loops", "mark_of", "share_by_turns"]

BOUNDS = "autotune.bounds"
"""Attribute of a function: which iterations its loops run."""

LOOP = "autotune.loop"
"""Attribute of a loop: its name."""

_BOUNDED = "autotune.bounded"
_MARKS, _PARTS, _START = "; ", " | ", "-"
_IN_TURNS = "#omp<schedulekind dynamic>"


@frozen
class Position:
    """What a loop adds to a sum over the loops around another one.

    Attributes:
        loop: Its name.
        dimension: Which of its variables it is: a parallel loop has several.
        trips: Iterations of this variable.
        step: By how much an iteration moves the axis.
        factor: By what the place along the axis is multiplied.
    """

    loop: str
    dimension: int
    trips: int
    step: int
    factor: int


@frozen
class LoopBound:
    """Which iterations a loop runs: those of which the variable, ``scale`` times, is within ends.

    Attributes:
        loop: Its name.
        width: By how much an iteration moves its variable.
        scale: By what its variable is multiplied.
        end: What that is at most, beside ``positions``.
        begin: What it is at least, beside ``positions``; None: from the start.
        positions: What is added to both.
    """

    loop: str
    width: int
    scale: int
    end: int
    begin: int | None
    positions: tuple[Position, ...]


def mark_of(bounds: Sequence[LoopBound]) -> str:
    """The value of the attribute."""
    return _MARKS.join(map(_mark, bounds))


def _mark(bound: LoopBound) -> str:
    begin = _START if bound.begin is None else bound.begin
    own = f"{bound.width} {bound.scale} {bound.end} {begin} {bound.loop}"
    others = (
        f"{it.dimension} {it.trips} {it.step} {it.factor} {it.loop}" for it in bound.positions
    )
    return _PARTS.join([own, *others])


def _marked(text: str) -> Iterator[LoopBound]:
    for mark in text.split(_MARKS):
        own, *others = mark.split(_PARTS)
        width, scale, end, first, loop = own.split(" ", 4)
        begin = None if first == _START else int(first)
        positions = []
        for other in others:
            *numbers, name = other.split(" ", 4)
            positions.append(Position(name, *map(int, numbers)))
        yield LoopBound(loop, int(width), int(scale), int(end), begin, tuple(positions))


def bound_loops(ir: Any, kernel: Any) -> None:
    """Let the marked loops run the iterations that their marks say, of those that they had.

    Args:
        ir: The ``ir`` module of the bindings.
        kernel: The function, on buffers, of which parallel loops are still ``scf.forall``; loses
            the attribute.

    Raises:
        InvalidSchedule: a loop is not there, or is none that the schedule has made.
    """
    if BOUNDS not in kernel.attributes:
        return
    bounds = list(_marked(kernel.attributes[BOUNDS].value))
    del kernel.attributes[BOUNDS]
    for bound in bounds:
        loops = [it for it in operations_in(kernel) if _name(it) == bound.loop]
        if not loops:
            raise InvalidSchedule(f"bound_loop: the program has no loop {bound.loop!r}")
        for loop in loops:
            _set_ends(ir, loop, bound)


def share_by_turns(ir: Any, module: Any) -> None:
    """Let threads take the iterations of loops around bounded ones as they come.

    Neighbours take about as long, and the last ones much longer than the first.

    Args:
        ir: The ``ir`` module of the bindings.
        module: The program, of which parallel loops are OpenMP's and others are ``scf.for``.
    """
    for operation in list(operations_in(module.operation)):
        if _BOUNDED in operation.attributes:
            for around in ancestors(operation):
                if around.name == "omp.wsloop":
                    around.attributes["schedule_kind"] = ir.Attribute.parse(_IN_TURNS)


def _set_ends(ir: Any, loop: Any, bound: LoopBound) -> None:
    """Give a loop its end, and its beginning."""
    first, last = (constant_index(it) for it in list(loop.operands)[:2])
    if loop.name != "scf.for" or first != 0 or last is None:
        raise InvalidSchedule(f"bound_loop: {bound.loop!r} is no loop from 0 to its extent")
    around = {_name(it): it for it in ancestors(loop)}
    variables = [_variable(around.get(it.loop), it, bound) for it in bound.positions]
    names = [f"d{number}" for number in range(len(variables))]
    terms = [f"{factor} * {name}" for name, (_, factor) in zip(names, variables, strict=True)]
    step = bound.width * bound.scale

    def limit(kind: str, start: int, constant: int, rounded: str) -> Any:
        place = f"(({' + '.join([*terms, str(constant)])}) {rounded}) * {bound.width}"
        text = f"affine_map<({', '.join(names)}) -> ({start}, {place})>"
        values = [value for value, _ in variables]
        index, attributes = ir.IndexType.get(), {"map": ir.Attribute.parse(text)}
        return ir.Operation.create(f"affine.{kind}", [index], values, attributes).results[0]

    with ir.InsertionPoint(loop), loop.location:
        loop.operands[1] = limit("min", last, bound.end, f"floordiv {step} + 1")
        if bound.begin is not None:
            loop.operands[0] = limit("max", 0, bound.begin, f"ceildiv {step}")
    loop.attributes[_BOUNDED] = ir.UnitAttr.get()


def _variable(loop: Any | None, position: Position, bound: LoopBound) -> tuple[Any, int]:
    """The variable of a loop, and by what it is multiplied in a sum.

    Raises:
        InvalidSchedule: the loop is not there, or does not move its axis as was said.
    """
    if loop is not None and loop.name == "scf.for":
        first, step = constant_index(loop.operands[0]), constant_index(loop.operands[2])
        if (first, step) == (0, position.step):
            return loop.regions[0].blocks[0].arguments[0], position.factor
    elif loop is not None and loop.name == "scf.forall":
        extents = list(loop.attributes["staticUpperBound"])
        begins = set(loop.attributes["staticLowerBound"]) == {0}
        moves = set(loop.attributes["staticStep"]) == {1}
        dimension = position.dimension
        if begins and moves and extents[dimension : dimension + 1] == [position.trips]:
            variable = loop.regions[0].blocks[0].arguments[dimension]
            return variable, position.factor * position.step
    raise InvalidSchedule(
        f"bound_loop: no loop {position.loop!r} around {bound.loop!r} moves its axis in steps of "
        f"{position.step}"
    )


def _name(operation: Any) -> str:
    return str(operation.attributes[LOOP].value) if LOOP in operation.attributes else ""
