"""Parts of a body that are the same in all iterations of a loop, computed before it begins.

A row is divided by one sum, or multiplied with one root: a division that is repeated for each of
its vectors takes longer than all else that the loop does. Long pipelines of compilers move such
parts out; the short one of a race does not, and none does where a loop may write what they read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from math import prod
from typing import TypeVar

from attrs import frozen

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
from autotune.lower.concrete import ConcreteLoop, ConcreteStatement
from autotune.lower.conditions import Below
from autotune.lower.elementary import ELEMENTARY
from autotune.lower.emitter import Value
from autotune.lower.quotients import divisor
from autotune.lower.state import Held, State

__all__ = ["invariants_held"]

_COSTLY = frozenset((*ELEMENTARY, "sqrt", "rsqrt", "div", "mod"))

_MOST_COPIES = 16
"""Copies of an expanded loop, at most, for each of which a part is computed before."""

T = TypeVar("T")


@contextmanager
def invariants_held(
    state: State,
    statement: ConcreteStatement,
    depth: int,
    is_expanded: Callable[[int], bool],
    conditions: Sequence[Below],
) -> Iterator[None]:
    """Compute what the loops of a statement from ``depth`` on do not change, and print with it.

    Args:
        state: Where the walk is.
        statement: The only one in these loops.
        depth: Number of the outermost of them.
        is_expanded: Whether the loop of a number, further in, is expanded.
        conditions: What has to hold so that the statement runs; where these say more than how far
            the loops go, what it would read may lie past the end of an array.
    """
    held, divisors = dict(state.held), dict(state.divisors)
    loops = statement.loops[depth:]
    inner = {loop.name for loop in loops}
    is_run = all(
        digit in inner
        for condition in conditions
        if condition.decided(state.digits) is not True
        for digit in state.digits.resolved(condition.form).digits
    )
    # A parallel loop is a function of its own, which knows nothing of what was computed outside,
    # and one with a bound may not run at all: integers are not divided by what it would not read.
    is_here = not any(loop.kind == "parallel" or loop.bound is not None for loop in loops)
    if is_run and is_here and statement.body is not None and statement.intrinsic is None:
        copies = [
            loop
            for number, loop in enumerate(statement.loops)
            if number > depth and loop.name != statement.lane and is_expanded(number)
        ]
        _Invariants(state, statement, loops, copies).hold(statement.body)
    yield
    state.held, state.divisors = held, divisors


@frozen(eq=False)
class _Invariants:
    """The parts that the loops of a statement do not change.

    Attributes:
        loops: All of them.
        copies: Those that are expanded.
    """

    state: State
    statement: ConcreteStatement
    loops: Sequence[ConcreteLoop]
    copies: Sequence[ConcreteLoop]

    def hold(self, node: ScalarExpr) -> None:
        """Hold the largest parts that no loop changes; a choice is computed where it is made."""
        state = self.state
        if isinstance(node, Select) or id(node) in state.held:
            return
        copies = self._copies(node)
        if copies is not None:
            if any(isinstance(it, (Unary, Binary)) and it.op in _COSTLY for it in walk(node)):
                state.held[id(node)] = self._held(copies, lambda: self._computed(node))
            return
        for part in children(node):
            self.hold(part)
        if isinstance(node, Binary) and node.op == "div" and self.statement.lane is not None:
            self._hold_divisor(node.right)

    def _hold_divisor(self, node: ScalarExpr) -> None:
        copies = None if id(node) in self.state.divisors else self._copies(node)
        if copies is None:
            return
        found = self._held(copies, lambda: self._computed(node))
        if all(value.dtype == "float32" for value in found.values.values()):
            values = {at: divisor(self.state.emitter, it) for at, it in found.values.items()}
            self.state.divisors[id(node)] = Held(found.loops, values)

    def _computed(self, node: ScalarExpr) -> Value:
        return computed(self.state, self.statement, node)

    def _held(self, copies: Sequence[ConcreteLoop], compute: Callable[[], T]) -> Held[T]:
        """The values that are computed, for each copy."""
        values: dict[tuple[int, ...], T] = {}
        for at in product(*(range(loop.extent) for loop in copies)):
            with ExitStack() as stack:
                for loop, value in zip(copies, at, strict=True):
                    stack.enter_context(self.state.digits.at(loop.name, value))
                values[at] = compute()
        return Held(tuple(loop.name for loop in copies), values)

    def _copies(self, node: ScalarExpr) -> list[ConcreteLoop] | None:
        """The expanded loops that a part depends on; None if it depends on others, too.

        It has to read memory, always, and not what the statement writes.
        """
        if not reads(node):
            return None
        found: set[str] = set()
        for it in walk(node):
            if isinstance(it, (Gather, Select)):
                return None
            if isinstance(it, Load):
                if self._buffer(it.tensor) == self.statement.write.buffer:
                    return None
                found.update(*(self._moving(index) for index in it.indices))
            elif isinstance(it, IndexValue):
                found |= self._moving(it.index)
        copies = [loop for loop in self.copies if loop.name in found]
        few = prod(loop.extent for loop in copies) <= _MOST_COPIES
        return copies if few and len(copies) == len(found) else None

    def _buffer(self, tensor: str) -> str:
        return self.statement.source.sources.get(tensor, tensor)

    def _moving(self, index: IntExpr) -> set[str]:
        """The loops that move an index."""
        digits = self.state.digits
        forms = [digits.resolved(self.statement.axes[it]) for it in index.variables]
        return {
            loop.name
            for loop in self.loops
            if any(digits.depends(form, loop.name) for form in forms)
        }
