"""Sums of contractions, carried through loops as the vectors that instructions take.

A loop carries the sums of a tile as one vector. Of one that is no power of two long LLVM takes
each element for itself where it is taken apart. So loops carry the parts that calls take, and
beside them what is subtracted from sums when these are complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = [
    "FIRST_CARRIED",
    "behind",
    "carrying_loops",
    "chains",
    "loops_around",
    "with_carried",
    "yield_also",
]

FIRST_CARRIED = 3
"""Which operand of a loop is the first that it carries; bounds and step come before."""


def chains(operations: Sequence[Any]) -> list[list[Any]]:
    """Contractions, each with those that continue its sums in the same block, in their order.

    Args:
        operations: The contractions, in the order of the program.
    """
    found: list[list[Any]] = []
    for operation in operations:
        sums = operation.operands[2]
        known = next((chain for chain in found if chain[-1].results[0] == sums), None)
        if known is None or _uses(sums) > 1 or known[-1].block != operation.block:
            found.append([operation])
        else:
            known.append(operation)
    return found


def carrying_loops(chain: Sequence[Any]) -> list[tuple[Any, int]]:
    """The loops that carry the sums of contractions and do nothing else with them.

    Returns:
        The outermost one first, each with the number of the sums among what it carries.
    """
    return loops_around(chain[0].operands[2], chain[-1].results[0], chain[0])


def loops_around(start: Any, end: Any, inner: Any) -> list[tuple[Any, int]]:
    """The loops that carry a value and do nothing else with it.

    Args:
        start: What it is at the start of an iteration of the innermost of them.
        end: What it is at the end.
        inner: An operation in that loop.

    Returns:
        As of :func:`carrying_loops`.
    """
    found: list[tuple[Any, int]] = []
    while (loop := inner.parent) is not None:
        loop = getattr(loop, "operation", loop)
        if loop.name != "scf.for":
            break
        *_, last = (view.operation for view in loop.regions[0].blocks[0].operations)
        arguments = list(loop.regions[0].blocks[0].arguments)[1:]
        at = next((at for at, argument in enumerate(arguments) if argument == start), None)
        if at is None or last.operands[at] != end or _uses(end) != 1 or _uses(start) != 1:
            break
        found.insert(0, (loop, at))
        start, end, inner = loop.operands[FIRST_CARRIED + at], loop.results[at], loop
    return found


def with_carried(ir: Any, loop: Any, starts: Sequence[Any]) -> Any:
    """A loop in the place of another one, which carries more values; they are to be yielded.

    Args:
        ir: The ``ir`` module of the bindings.
        loop: The loop, which is erased.
        starts: What the values are in the first iteration.
    """
    before = loop.regions[0].blocks[0]
    arguments = list(before.arguments)
    kinds = [value.type for value in starts]
    results = [*(result.type for result in loop.results), *kinds]
    with ir.InsertionPoint(loop), loop.location:
        made = ir.Operation.create("scf.for", results, [*loop.operands, *starts], regions=1)
    types = [*(argument.type for argument in arguments), *kinds]
    block = ir.Block.create_at_start(made.regions[0], types)
    for view in list(before.operations):
        block.append(view.operation)
    for old, new in zip(arguments, block.arguments, strict=False):
        old.replace_all_uses_with(new)
    for old, new in zip(loop.results, made.results, strict=False):
        old.replace_all_uses_with(new)
    loop.erase()
    return made


def yield_also(ir: Any, loop: Any, values: Sequence[Any]) -> None:
    """Hand more values to the next iteration of a loop."""
    *_, last = (view.operation for view in loop.regions[0].blocks[0].operations)
    with ir.InsertionPoint(last), last.location:
        ir.Operation.create("scf.yield", operands=[*last.operands, *values])
    last.erase()


def behind(ir: Any, operation: Any) -> Any:
    """The insertion point behind an operation, which is not the last one of its block."""
    order = [view.operation for view in operation.block.operations]
    return ir.InsertionPoint(order[order.index(operation) + 1])


def _uses(value: Any) -> int:
    return sum(1 for _ in value.uses)
