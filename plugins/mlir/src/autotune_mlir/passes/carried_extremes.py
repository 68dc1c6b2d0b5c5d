"""Maxima and minima of vectors, with what is not a number kept apart.

Of MLIR's maximum one operand that is NaN makes the result NaN. Processors have no instruction for
that: each maximum is three, and in a reduction the next one waits for all of them. Here it waits
for one, the maximum of C's ``x > m ? x : m``, which passes over an ``x`` that is NaN; a vector
beside it remembers which lanes had one, two operands at a time, and is looked at in the end.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from attrs import frozen

from autotune_mlir.passes.carried_sums import (
    FIRST_CARRIED,
    behind,
    loops_around,
    with_carried,
    yield_also,
)
from autotune_mlir.passes.vector_maker import constant_of
from autotune_mlir.traversal import users_of

__all__ = ["EXTREMES", "chosen", "compare", "track_numbers"]

EXTREMES = MappingProxyType({"arith.maximumf": "ogt", "arith.minimumf": "olt"})
"""The operations that :func:`track_numbers` takes, each with the comparison that it is."""

_PREDICATES = MappingProxyType({"ogt": 2, "olt": 4, "uno": 14})
_WIDTHS = (32, 64)
# Of four registers, the widest there are.
_MOST_BYTES = 256


def track_numbers(ir: Any, operations: Sequence[Any]) -> None:
    """Compare without regard to NaN, and see to that apart, where one extreme follows another.

    Args:
        ir: The ``ir`` module of the bindings; the context is the current one.
        operations: Operations :data:`EXTREMES`, in the order of the program. Those of numbers and
            of half precision are left alone, and single ones, unless a loop carries them and at
            most four registers: with more of them, others are computed while one waits.
    """
    taken = _chains([it for it in operations if _is_taken(ir, it)])
    # Each of several that one loop carries puts another one in its place.
    for links, alone in [(it, _Chain.of(it).waits) for it in taken]:
        if alone:
            _track(ir, _Chain.of(links))
        elif len(links) > 1:
            _look_at_once(ir, _Chain.of(links))


def compare(ir: Any, predicate: str, left: Any, right: Any) -> Any:
    """A comparison of floats, at the current insertion point."""
    bit = ir.IntegerType.get_signless(1)
    is_vector = isinstance(left.type, ir.VectorType)
    kind = ir.VectorType.get(list(left.type.shape), bit) if is_vector else bit
    integer = ir.IntegerType.get_signless(64)
    attributes = {"predicate": ir.IntegerAttr.get(integer, _PREDICATES[predicate])}
    return ir.Operation.create("arith.cmpf", [kind], [left, right], attributes).results[0]


def chosen(ir: Any, condition: Any, value: Any, other: Any) -> Any:
    """One of two values, at the current insertion point."""
    return ir.Operation.create("arith.select", [value.type], [condition, value, other]).results[0]


@frozen
class _Link:
    """An extreme of what came before and a value.

    Attributes:
        operation: The operation.
        at: Which operand came before.
    """

    operation: Any
    at: int

    @property
    def start(self) -> Any:
        """What came before."""
        return self.operation.operands[self.at]

    @property
    def value(self) -> Any:
        """What is new."""
        return self.operation.operands[1 - self.at]


@frozen
class _Chain:
    """Extremes of one kind, each of the one before and a value, and loops that carry them.

    Attributes:
        links: The extremes, in one block.
        loops: As of :func:`~autotune_mlir.passes.carried_sums.loops_around`.
    """

    links: Sequence[_Link]
    loops: Sequence[tuple[Any, int]]

    @classmethod
    def of(cls, operations: Sequence[Any]) -> _Chain:
        """The chain of operations that follow each other."""
        first, total = operations[0], operations[-1].results[0]
        around = [loops_around(operand, total, first) for operand in first.operands]
        at = next((at for at, loops in enumerate(around) if loops), 0)
        links = [_Link(first, at)]
        for before, operation in itertools.pairwise(operations):
            links.append(_Link(operation, list(operation.operands).index(before.results[0])))
        return cls(links, around[at])

    @property
    def start(self) -> Any:
        """What the first extreme is of, before all loops."""
        loop, place = self.loops[0]
        return loop.operands[FIRST_CARRIED + place]

    @property
    def waits(self) -> bool:
        """Whether a loop carries it, and little beside it that is computed meanwhile."""
        kinds = [result.type for loop, _ in self.loops[-1:] for result in loop.results]
        carried = sum(
            math.prod(kind.shape) * getattr(kind.element_type, "width", 64) // 8
            for kind in kinds
            if hasattr(kind, "element_type")
        )
        return bool(self.loops) and carried <= _MOST_BYTES


def _is_taken(ir: Any, operation: Any) -> bool:
    kind = operation.results[0].type
    if not isinstance(kind, ir.VectorType) or not isinstance(kind.element_type, ir.FloatType):
        return False
    return kind.element_type.width in _WIDTHS


def _chains(operations: Sequence[Any]) -> list[list[Any]]:
    """Operations that follow each other in a block, with no other use of what is between."""
    found: list[list[Any]] = []
    for operation in operations:
        known = next((it for it in found if _continues(it[-1], operation)), None)
        if known is None:
            found.append([operation])
        else:
            known.append(operation)
    return found


def _continues(before: Any, operation: Any) -> bool:
    same = before.name == operation.name and before.block == operation.block
    return same and users_of(before.results[0]) == [operation]


def _track(ir: Any, chain: _Chain) -> None:
    """Have a chain compare, and its loops carry which lanes had something that is no number."""
    start, around = chain.start, chain.loops[0][0]
    with ir.InsertionPoint(around), around.location:
        seen = constant_of(ir, start.type, ir.FloatAttr.get(start.type.element_type, 0.0))
    loops = []
    for old, _ in chain.loops:
        loops.append(with_carried(ir, old, [seen]))
        seen = list(loops[-1].regions[0].blocks[0].arguments)[-1]
    values = [link.value for link in chain.links]
    last = [_as_comparison(ir, link) for link in chain.links][-1]
    with behind(ir, last), last.location:
        for one, other in itertools.zip_longest(values[::2], values[1::2]):
            seen = _seen(ir, one, other, seen)
    for loop in reversed(loops):
        yield_also(ir, loop, [seen])
        seen = list(loop.results)[-1]
    place = chain.loops[0][1]
    with behind(ir, loops[0]), loops[0].location:
        _answer(ir, loops[0].results[place], seen, start)


def _look_at_once(ir: Any, chain: _Chain) -> None:
    """Have a chain compare, and look for what is no number behind it.

    A comparison with what came before keeps that where it is no number.
    """
    values = [link.value for link in chain.links]
    last = [_as_comparison(ir, link) for link in chain.links][-1]
    users = _uses(last.results[0])
    with behind(ir, last), last.location:
        seen = last.results[0]
        for one, other in itertools.zip_longest(values[::2], values[1::2]):
            seen = _seen(ir, one, other, seen)
    for user, number in users:
        user.operands[number] = seen


def _as_comparison(ir: Any, link: _Link) -> Any:
    """The operation that chooses the extreme, in place of a link."""
    operation = link.operation
    with ir.InsertionPoint(operation), operation.location:
        further = compare(ir, EXTREMES[operation.name], link.value, link.start)
        made = chosen(ir, further, link.value, link.start)
    operation.results[0].replace_all_uses_with(made)
    operation.erase()
    return made.owner.operation


def _seen(ir: Any, one: Any, other: Any | None, before: Any) -> Any:
    """What is NaN where that was, or where one of two values is, at the insertion point.

    The sum is NaN, too. A constant in its place would make LLVM collect all comparisons of an
    unrolled loop in front of the maxima, and keep all values until then.
    """
    if other is None:
        return chosen(ir, compare(ir, "uno", one, one), one, before)
    total = ir.Operation.create("arith.addf", [one.type], [one, other]).results[0]
    return chosen(ir, compare(ir, "uno", one, other), total, before)


def _answer(ir: Any, total: Any, seen: Any, start: Any) -> None:
    """Have the users of an extreme read NaN where that was, at the insertion point."""
    users = _uses(total)
    strange = constant_of(ir, total.type, ir.FloatAttr.get(total.type.element_type, math.nan))
    result = chosen(ir, compare(ir, "uno", seen, start), strange, total)
    for user, number in users:
        user.operands[number] = result


def _uses(value: Any) -> list[tuple[Any, int]]:
    """Operations that read a value, and at which place among their operands."""
    return [(getattr(use.owner, "operation", use.owner), use.operand_number) for use in value.uses]
