"""Sums that loops add to in a register, where all of their iterations add to the same memory.

S[i] for k: S[i] = S[i] + X[i, k]  ->  sum = S[i]; for k: sum = sum + X[i, k]; S[i] = sum

Long pipelines of compilers do this; the short one of a race would wait for memory in each
iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from autotune.lower.concrete import ConcreteStatement
from autotune.lower.conditions import Below
from autotune.lower.linear import Linear
from autotune.lower.memory import load, store
from autotune.lower.places import Place
from autotune.lower.state import State

__all__ = ["sum_in_register"]


@contextmanager
def sum_in_register(
    state: State,
    statement: ConcreteStatement,
    depth: int,
    place: Place,
    at: Linear,
    conditions: Sequence[Below],
) -> Iterator[None]:
    """Print the loops of a statement from ``depth`` on with what it adds to in a register.

    Args:
        state: Where the walk is.
        statement: The only one in these loops.
        depth: Number of the outermost of them.
        place: Where it writes.
        at: The element there.
        conditions: What has to hold so that it runs; where that is not sure, memory is used.
    """
    if not _adds(state, statement) or not _is_one_place(state, statement, depth, place, at):
        yield
        return
    if any(condition.decided(state.digits) is not True for condition in conditions):
        yield
        return
    lane = None
    if statement.lane is not None and not statement.combines_lanes:
        lane = (statement.lane, statement.loops[-1].extent)
    lanes = lane[1] if lane else 1
    register = Place(f"{statement.name}.sum", place.dtype, "registers", (lanes,), lanes=lanes)
    state.emitter.allocate(register)
    with state.in_lanes(lane):
        state.emitter.set_register(register, 0, load(state, place, at))
    state.sums[statement.name] = register
    yield
    del state.sums[statement.name]
    with state.in_lanes(lane):
        store(state, place, at, state.emitter.register(register, 0), None, stream=False)


def _adds(state: State, statement: ConcreteStatement) -> bool:
    """Tell if a statement combines values with what it finds, and not in a register yet."""
    if statement.source.role != "compute" or statement.intrinsic or statement.body is None:
        return False
    stage = state.workload.stage(statement.source.stage)
    is_sum = stage.combiner is not None and stage.scan_axis is None
    return is_sum and statement.name not in state.sums


def _is_one_place(
    state: State, statement: ConcreteStatement, depth: int, place: Place, at: Linear
) -> bool:
    """Tell if no loop from ``depth`` on moves what is written, but for neighbouring lanes."""
    loops, digits, lane = statement.loops[depth:], state.digits, statement.lane
    if place.kind == "registers" or any(loop.kind == "parallel" for loop in loops):
        return False
    at = digits.resolved(at)
    if lane is not None and not statement.combines_lanes:
        if at.coefficient(lane) != 1 or not digits.is_apart(at, lane):
            return False
        at = at.without(lane)
    return not any(digits.depends(at, loop.name) for loop in loops)
