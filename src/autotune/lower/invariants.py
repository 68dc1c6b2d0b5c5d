"""Parts of a body that are the same in all iterations of a loop, computed before it begins.

A row is divided by one sum, or multiplied with one root: a division that is repeated for each of
its vectors takes longer than all else that the loop does. Long pipelines of compilers move such
parts out; the short one of a race does not, and none does where a loop may write what they read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from autotune.ir.expressions import (
    Binary,
    Gather,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    Unary,
)
from autotune.ir.expressions.scalar import children, reads, walk
from autotune.lower.bodies import computed
from autotune.lower.concrete import ConcreteStatement
from autotune.lower.conditions import Below
from autotune.lower.elementary import ELEMENTARY
from autotune.lower.quotients import divisor
from autotune.lower.state import State

__all__ = ["invariants_held"]

_COSTLY = frozenset((*ELEMENTARY, "sqrt", "rsqrt", "div", "mod"))


@contextmanager
def invariants_held(
    state: State, statement: ConcreteStatement, depth: int, conditions: Sequence[Below]
) -> Iterator[None]:
    """Compute what the loops of a statement from ``depth`` on do not change, and print with it.

    Args:
        state: Where the walk is.
        statement: The only one in these loops.
        depth: Number of the outermost of them.
        conditions: What has to hold so that the statement runs; where these say more than how far
            the loops go, what it would read may lie past the end of an array.
    """
    held, divisors = dict(state.held), dict(state.divisors)
    inner = [loop.name for loop in statement.loops[depth:]]
    is_run = all(
        digit in inner
        for condition in conditions
        if condition.decided(state.digits) is not True
        for digit in state.digits.resolved(condition.form).digits
    )
    # A parallel loop is a function of its own, which knows nothing of what was computed outside.
    is_here = not any(loop.kind == "parallel" for loop in statement.loops[depth:])
    if is_run and is_here and statement.body is not None and statement.intrinsic is None:
        _hold(state, statement, statement.body, inner)
    yield
    state.held, state.divisors = held, divisors


def _hold(
    state: State, statement: ConcreteStatement, node: ScalarExpr, inner: Sequence[str]
) -> None:
    """Hold the largest parts that no inner loop changes; a choice is computed where it is made."""
    if isinstance(node, Select) or id(node) in state.held:
        return
    if _is_invariant(state, statement, node, inner):
        if any(isinstance(it, (Unary, Binary)) and it.op in _COSTLY for it in walk(node)):
            state.held[id(node)] = computed(state, statement, node)
        return
    for part in children(node):
        _hold(state, statement, part, inner)
    if isinstance(node, Binary) and node.op == "div" and statement.lane in inner:
        _hold_divisor(state, statement, node.right, inner)


def _hold_divisor(
    state: State, statement: ConcreteStatement, node: ScalarExpr, inner: Sequence[str]
) -> None:
    if id(node) in state.divisors or not _is_invariant(state, statement, node, inner):
        return
    value = computed(state, statement, node)
    if value.dtype == "float32":
        state.divisors[id(node)] = divisor(state.emitter, value)


def _is_invariant(
    state: State, statement: ConcreteStatement, node: ScalarExpr, inner: Sequence[str]
) -> bool:
    """Whether a part reads memory, always, and neither what nor where an inner loop changes."""
    if not reads(node):
        return False
    for it in walk(node):
        if isinstance(it, (Gather, Select)):
            return False
        if isinstance(it, Load):
            if statement.source.sources.get(it.tensor, it.tensor) == statement.write.buffer:
                return False
            if any(_moves(state, statement, index, inner) for index in it.indices):
                return False
        if isinstance(it, IndexValue) and _moves(state, statement, it.index, inner):
            return False
    return True


def _moves(
    state: State, statement: ConcreteStatement, index: IntExpr, inner: Sequence[str]
) -> bool:
    """Whether an index depends on an inner loop."""
    forms = [state.digits.resolved(statement.axes[it]) for it in index.variables]
    return any(state.digits.depends(form, loop) for form in forms for loop in inner)
