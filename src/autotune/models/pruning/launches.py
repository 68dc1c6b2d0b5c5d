"""The kernels that a nest launches on a GPU, and their limits."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

from autotune.ir.expressions import IntExpr, const, maximum
from autotune.nest.loop_nest import Buffer, Loop, LoopNest, Statement
from autotune.targets import Target, most_shared_memory

__all__ = ["MAX_VTHREADS", "Launch", "executions", "launches", "limits", "trip_count"]

MAX_VTHREADS = 8
"""Virtual threads that a thread may interleave: a quarter of a warp, as in the TVM of Pruner."""

# Loops that different threads run, not one thread after the other.
_SPREAD = ("block", "thread")


@frozen(eq=False)
class Launch:
    """Statements inside one outermost loop: one kernel.

    Attributes:
        statements: In program order.
        buffers: Shared and local buffers that they write.
        blocks: Blocks of the grid.
        threads: Threads of a block.
        vthreads: Virtual threads that a thread interleaves.
        shared_bytes: Shared memory of a block.
    """

    statements: tuple[Statement, ...]
    buffers: tuple[Buffer, ...]
    blocks: IntExpr
    threads: IntExpr
    vthreads: IntExpr
    shared_bytes: IntExpr


def launches(nest: LoopNest) -> tuple[Launch, ...]:
    """The kernels of a nest in program order; a statement without loops is one by itself."""
    groups: dict[str, list[Statement]] = {}
    for statement in nest.statements:
        outermost = statement.loops[0].name if statement.loops else statement.name
        groups.setdefault(outermost, []).append(statement)
    return tuple(_launch(nest, statements) for statements in groups.values())


def _launch(nest: LoopNest, statements: list[Statement]) -> Launch:
    written = {a.buffer for statement in statements for a in statement.accesses if a.write}
    buffers = tuple(b for b in nest.buffers if b.scope != "global" and b.name in written)
    shared = const(0)
    for buffer in buffers:
        shared = shared + buffer.bytes if buffer.scope == "shared" else shared
    return Launch(
        tuple(statements),
        buffers,
        _largest(trip_count(_own(statement, "block")) for statement in statements),
        _largest(trip_count(_own(statement, "thread")) for statement in statements),
        _largest(trip_count(_own(statement, "vthread")) for statement in statements),
        shared,
    )


def limits(nest: LoopNest, target: Target) -> list[tuple[IntExpr, float]]:
    """Quantities with the upper bounds that make every kernel legal on ``target``.

    Limits that the target does not know are left out.
    """
    found: list[tuple[IntExpr, float]] = []
    for launch in launches(nest):
        found.append((launch.vthreads, MAX_VTHREADS))
        if target.max_threads_per_block:
            found.append((launch.threads, target.max_threads_per_block))
        if target.shared_memory_bytes:
            # What is fetched ahead is asked for when the kernel is launched.
            ahead = any(buffer.stages.value != 1 for buffer in launch.buffers)
            most = most_shared_memory(target) if ahead else target.shared_memory_bytes
            found.append((launch.shared_bytes, most))
        for statement in launch.statements:
            lanes = trip_count(_own(statement, "vectorized"))
            width = max(nest.element_bytes(access.buffer) for access in statement.accesses)
            found.append((lanes * width, target.vector_bytes))
    holds = {expression: most for expression, most in found if not _always(expression, most)}
    return list(holds.items())


def _always(expression: IntExpr, most: float) -> bool:
    return expression.value is not None and expression.value <= most


def executions(statement: Statement) -> IntExpr:
    """Number of times that a thread executes a statement, virtual threads included.

    Virtual threads around a copy that all threads of a block make together do not repeat it.
    """
    return trip_count(
        loop
        for loop in statement.loops
        if loop.kind not in _SPREAD and loop.name not in statement.cooperating
    )


def trip_count(loops: Iterable[Loop]) -> IntExpr:
    """Product of the extents of loops."""
    result = const(1)
    for loop in loops:
        result = result * loop.extent
    return result


def _own(statement: Statement, kind: str) -> list[Loop]:
    return [
        loop
        for loop in statement.loops
        if loop.kind == kind and loop.name not in statement.cooperating
    ]


def _largest(values: Iterable[IntExpr]) -> IntExpr:
    result = const(1)
    for value in dict.fromkeys(values):
        result = value if result.value == 1 else maximum(result, value)
    return result
