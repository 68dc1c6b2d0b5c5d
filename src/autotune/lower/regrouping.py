"""Statements whose innermost loops are cut in another way than the nest has them.

- Partial sums lie in lanes where a reduction is split into vectors. The nest adds them one by one;
  here the loop over lanes becomes the innermost one, whose lanes are combined in halves:

    for l, i: S[i] += P[i, l]  ->  for i: S[i] += the sum of P[i, 0 : n]

- Of loops of few instructions several iterations stand one after the other, in their order, since
  counting and jumping take as long as one vector does:

    for i < 125: Y[i*4 : +4] = ...  ->  for i < 25: Y[i*20 : +4] = ...; ... Y[i*20 + 16 : +4] = ...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from attrs import evolve

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import Load
from autotune.ir.workloads import Workload
from autotune.lower.concrete import MOST_LANES, ConcreteLoop, ConcreteStatement
from autotune.lower.elementary import ELEMENTARY
from autotune.lower.linear import Digits, Linear

__all__ = ["with_lanes_combined", "with_short_bodies_repeated"]

_LEAST_LANES = 4
_TIMES = (4, 5, 8, 6, 7, 3, 2)
_LEAST_EXTENT = 9


def with_lanes_combined(
    statements: Sequence[ConcreteStatement], workload: Workload, digits: Digits
) -> list[ConcreteStatement]:
    """The statements, those that add up the lanes of another one's partial sums in vectors."""
    shared = Counter(loop.name for statement in statements for loop in statement.loops)

    def revised(statement: ConcreteStatement) -> ConcreteStatement:
        if statement.guards or not _combines(statement, workload):
            return statement
        for loop in statement.loops:
            if shared[loop.name] == 1 and _is_plain(loop):
                partial = _lanes_read(statement, loop, digits)
                if partial is not None and _is_written_in_lanes(
                    *partial, loop, statements, digits
                ):
                    others = tuple(it for it in statement.loops if it is not loop)
                    lanes = evolve(loop, kind="vectorized")
                    return evolve(statement, loops=(*others, lanes), combines_lanes=True)
        return statement

    return [revised(statement) for statement in statements]


def _combines(statement: ConcreteStatement, workload: Workload) -> bool:
    stage = workload.stage(statement.source.stage)
    return (
        statement.source.role == "compute"
        and stage.combiner is not None
        and stage.scan_axis is None
    )


def _is_plain(loop: ConcreteLoop) -> bool:
    return (
        len(loop.axes) == 1
        and loop.bound is None
        and loop.kind in ("serial", "vectorized", "unrolled")
        and _LEAST_LANES <= loop.extent <= MOST_LANES
    )


def _lanes_read(
    statement: ConcreteStatement, loop: ConcreteLoop, digits: Digits
) -> tuple[str, int] | None:
    """The buffer of which a loop goes through one index, which nothing else moves, and the index.

    None where the loop does anything else, or moves what is written.
    """
    body = statement.body
    if not isinstance(body, Load):
        return None
    try:
        read = [digits.of_expression(index, statement.axes) for index in body.indices]
        written = [digits.of_form(form, statement.axes) for form in statement.write.forms]
    except UnsupportedWorkload:
        return None
    if any(digits.depends(form, loop.name) for form in written):
        return None
    moved = [at for at, form in enumerate(read) if digits.depends(form, loop.name)]
    if len(moved) != 1 or read[moved[0]] != Linear(((loop.name, 1),)):
        return None
    return statement.source.sources.get(body.tensor, body.tensor), moved[0]


def _is_written_in_lanes(
    buffer: str,
    index: int,
    loop: ConcreteLoop,
    statements: Sequence[ConcreteStatement],
    digits: Digits,
) -> bool:
    """Tell whether all statements that write a buffer do so in whole vectors along an index."""
    writers = [it for it in statements if it.write.buffer == buffer]
    for writer in writers:
        lane, last = writer.lane, writer.loops[-1] if writer.loops else None
        if lane is None or last is None or last.extent != loop.extent:
            return False
        form = digits.of_form(writer.write.forms[index], writer.axes)
        if form != Linear(((lane, 1),)):
            return False
    return bool(writers)


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
        loop = _short_loop(statement, width)
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


def _short_loop(statement: ConcreteStatement, width: int) -> ConcreteLoop | None:
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
