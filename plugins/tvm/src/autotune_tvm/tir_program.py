"""Statements of a program that is being printed, until it is known how often each value is used.

TVM's analyzer puts what a name stands for in the place of the name, again and again: expressions
that use one another twice each take exponential time. So a value that is used once becomes a part
of the expression that uses it, a small one gets a name, and a large one a place in an array on the
stack, of which LLVM's first pass makes a value again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import define, field
from tvm import tirx

__all__ = ["Block", "Frame", "Node", "Statement", "int64", "sequence"]

_MOST_NAMED = 24
"""Operations in what a name may stand for."""

_SLOTS = 16


def int64(value: int) -> Any:
    """A constant of 64 bits."""
    return tirx.IntImm("int64", value)


def kept_on_stack(buffer: Any) -> Any:
    """An allocation on the stack, however large: TVM takes others of 1 KB and more from a heap."""
    return tirx.AllocBuffer(buffer, {"disable_lower_builtin": tirx.IntImm("bool", 1)})


@define(eq=False)
class Frame:
    """Allocations of a function, or of the share of one thread in a parallel loop.

    Attributes:
        allocations: The statements.
        places: The array that each place is, or that holds its registers.
        slots: Arrays of places for values, by type, and how many places are taken.
        streams: Whether anything is written past the caches.
    """

    allocations: list[Any] = field(factory=list)
    places: dict[str, Any] = field(factory=dict)
    slots: dict[str, list[Any]] = field(factory=dict)
    taken: dict[str, int] = field(factory=dict)
    streams: bool = False

    def array(self, name: str, dtype: str, elements: int) -> Any:
        """A new array on the stack."""
        buffer = tirx.decl_buffer((elements,), dtype, name=name)
        self.allocations.append(kept_on_stack(buffer))
        return buffer

    def slot(self, dtype: str) -> tuple[Any, Any]:
        """A place for a value: its array, and its index there."""
        taken = self.taken.get(dtype, 0)
        arrays = self.slots.setdefault(dtype, [])
        if taken == _SLOTS * len(arrays):
            arrays.append(self.array(f"values_{dtype}_{len(arrays)}", dtype, _SLOTS))
        self.taken[dtype] = taken + 1
        return arrays[taken // _SLOTS], int64(taken % _SLOTS)


@define(eq=False)
class Node:
    """A value that is not a constant.

    Attributes:
        make: Its expression, given those of its operands.
        operands: Nodes or expressions.
        dtype: TVM's type of it.
        block: Where it is computed.
        reads: Whether it reads memory, which may change.
        uses: How often it is used.
        user: What used it last.
        is_used_elsewhere: Whether another block uses it.
        before: How many statements of its block come before it.
        settles: How many come before what its expression is a part of.
        size: Operations that a name stands for that is used for it.
        has_mask: Whether there is a vector of truth values in that: TVM's analyzer, to which names
            are told, fails at some of these.
        reference: What is said for it once it has a name.
    """

    make: Callable[..., Any]
    operands: Sequence[Any]
    dtype: str
    block: Block
    reads: bool = False
    uses: int = 0
    user: Node | Statement | None = None
    is_used_elsewhere: bool = False
    before: int = 0
    settles: int = 0
    size: int = 1
    has_mask: bool = False
    reference: Any = None

    def expression(self) -> Any:
        """Its expression."""
        return self.make(*map(referenced, self.operands))


def referenced(operand: Any) -> Any:
    """The expression that stands for a node or an expression."""
    if not isinstance(operand, Node):
        return operand
    return operand.expression() if operand.reference is None else operand.reference


@define(eq=False)
class Statement:
    """A statement.

    Attributes:
        make: TVM's, given the expressions of its operands and the bodies inside.
        operands: Nodes or expressions.
        inside: Its blocks.
        settles: How many statements of its block come before it.
    """

    make: Callable[..., Any]
    operands: Sequence[Any] = ()
    inside: Sequence[Block] = ()
    settles: int = 0


@define(eq=False)
class Block:
    """Statements that run one after the other.

    Attributes:
        frame: What allocates for it.
        depth: Number of loops around it.
        prologue: TVM's statements that it begins with: integers of addresses.
        items: Values and statements.
        statements: How many of them are statements.
        known: The integers that its prologue has.
    """

    frame: Frame
    depth: int
    prologue: list[Any] = field(factory=list)
    items: list[Node | Statement] = field(factory=list)
    statements: int = 0
    known: dict[Any, Any] = field(factory=dict)

    def add(self, item: Node | Statement) -> None:
        """Add a value or a statement."""
        for operand in item.operands:
            if isinstance(operand, Node):
                operand.uses += 1
                operand.user = item
                operand.is_used_elsewhere |= operand.block is not self
        if isinstance(item, Node):
            item.before = self.statements
        else:
            item.settles = self.statements
            self.statements += 1
        self.items.append(item)

    def rendered(self) -> list[Any]:
        """TVM's statements."""
        made = list(self.prologue)
        for item in reversed(self.items):
            if isinstance(item, Node):
                item.settles = item.before
                if item.user is not None and item.uses == 1 and not item.is_used_elsewhere:
                    item.settles = item.user.settles
        for item in self.items:
            if isinstance(item, Statement):
                bodies = [sequence(block.rendered()) for block in item.inside]
                made.append(item.make(*map(referenced, item.operands), *bodies))
            elif item.uses:
                made += self._named(item)
        return made

    def _named(self, node: Node) -> list[Any]:
        """The statement that names a value; none where it is a part of another's expression."""
        parts = [operand for operand in node.operands if isinstance(operand, Node)]
        node.size = 1 + sum(part.size for part in parts)
        is_mask = node.dtype.startswith("boolx")
        node.has_mask = is_mask or any(part.has_mask for part in parts)
        is_small, is_moved = node.size <= _MOST_NAMED, node.reads and node.settles != node.before
        if node.uses == 1 and is_small and not is_moved and not node.is_used_elsewhere:
            return []
        expression, dtype = node.expression(), node.dtype
        if node.dtype == "bool" or (is_small and not node.has_mask):
            node.reference = tirx.Var("v", dtype)
            return [tirx.Bind(node.reference, expression)]
        if is_mask:
            dtype = dtype.replace("bool", "uint8")
            expression = tirx.Cast(dtype, expression)
        buffer, index = self.frame.slot(dtype)
        node.size, node.has_mask, node.reference = 1, is_mask, tirx.BufferLoad(buffer, [index])
        if is_mask:
            zeros = tirx.Broadcast(tirx.IntImm("uint8", 0), int(dtype.partition("x")[2]))
            node.reference = tirx.NE(node.reference, zeros)
        return [tirx.BufferStore(buffer, expression, [index])]


def sequence(statements: Sequence[Any]) -> Any:
    """Join several statements to one."""
    if not statements:
        return tirx.Evaluate(tirx.IntImm("int32", 0))
    return tirx.SeqStmt(statements) if len(statements) > 1 else statements[0]
