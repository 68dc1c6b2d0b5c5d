"""Innermost loops of few instructions, whose iterations stand several one after the other.

for i < 125: Y[i*4 : +4] = ...  ->  for i < 25: Y[i*20 : +4] = ...; ... Y[i*20 + 16 : +4] = ...

Counting and jumping take as long as one vector does. Iterations keep their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from attrs import evolve

from autotune.lower.concrete import ConcreteLoop, ConcreteStatement
from autotune.lower.elementary import ELEMENTARY
from autotune.lower.linear import Digits

__all__ = ["with_short_bodies_repeated"]

_TIMES = (4, 5, 8, 6, 7, 3, 2)
_LEAST_EXTENT = 9


def with_short_bodies_repeated(
    statements: Sequence[ConcreteStatement], width: int, digits: Digits
) -> list[ConcreteStatement]:
    """The statements, with their innermost loops split and one part expanded.

    Args:
        statements: As they are printed.
        width: Lanes of a vector register; loops over as many or more are left as they are.
        digits: The digits of the program.
    """
    shared = Counter(loop.name for statement in statements for loop in statement.loops)

    def revised(statement: ConcreteStatement) -> ConcreteStatement:
        loop = _innermost(statement, width)
        if loop is None or shared[loop.name] > 1:
            return statement
        times = next((it for it in _TIMES if loop.extent % it == 0), None)
        if times is None:
            return statement
        split = statement.split(loop.name, times, digits)
        at = statement.loops.index(loop) + 1
        repeated = evolve(split.loops[at], kind="unrolled")
        return evolve(split, loops=(*split.loops[:at], repeated, *split.loops[at + 1 :]))

    return [revised(statement) for statement in statements]


def _innermost(statement: ConcreteStatement, width: int) -> ConcreteLoop | None:
    """The loop around what is printed at once, if that is little and the loop a plain one."""
    lanes = statement.loops[-1].extent if statement.lane is not None else 1
    around = [loop for loop in statement.loops if loop.extent > 1]
    around = around[: -1 if statement.lane is not None else None]
    if lanes >= width or not around or statement.intrinsic is not None:
        return None
    if statement.tile or statement.interleaves or statement.early or statement.source.pipelined:
        return None
    if any(name in ELEMENTARY for name in statement.source.operations):
        return None
    loop = around[-1]
    is_plain = loop.kind == "serial" and len(loop.axes) == 1 and loop.bound is None
    return loop if is_plain and loop.extent >= _LEAST_EXTENT else None
