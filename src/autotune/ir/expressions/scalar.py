"""The typed scalar expression that a stage computes at every point of its iteration space."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from attrs import evolve, frozen

from autotune.errors import InvalidValueError
from autotune.ir.expressions.integer import IntExpr

ARITHMETIC = ("add", "sub", "mul", "div", "max", "min", "pow")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
LOGIC = ("and", "or")
UNARY = (
    "neg",
    "abs",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "tanh",
    "sigmoid",
    "erf",
    "floor",
    "ceil",
    "not",
)


@frozen
class Constant:
    """A literal of type ``dtype``."""

    value: float | int | bool
    dtype: str


@frozen
class Load:
    """The element of ``tensor`` at ``indices`` (expressions over the stage's axes)."""

    tensor: str
    indices: tuple[IntExpr, ...]


@frozen
class IndexValue:
    """An index expression used as a number (for predicates and position-dependent bodies)."""

    index: IntExpr


@frozen
class Cast:
    """``operand`` converted to ``dtype``."""

    dtype: str
    operand: ScalarExpr


@frozen
class Unary:
    """A function of one operand; ``op`` is one of ``UNARY``."""

    op: str
    operand: ScalarExpr


@frozen
class Binary:
    """A function of two operands: arithmetic, comparison or logic."""

    op: str
    left: ScalarExpr
    right: ScalarExpr


@frozen
class Select:
    """``on_true`` where ``condition`` holds, else ``on_false``, which is not evaluated there.

    Loads in the branch not taken may be out of bounds: this is how padding is written.
    """

    condition: ScalarExpr
    on_true: ScalarExpr
    on_false: ScalarExpr


ScalarExpr = Constant | Load | IndexValue | Cast | Unary | Binary | Select


def children(body: ScalarExpr) -> tuple[ScalarExpr, ...]:
    """Direct operands of a node."""
    if isinstance(body, (Cast, Unary)):
        return (body.operand,)
    if isinstance(body, Binary):
        return (body.left, body.right)
    if isinstance(body, Select):
        return (body.condition, body.on_true, body.on_false)
    return ()


def walk(body: ScalarExpr) -> Iterator[ScalarExpr]:
    """Every node, parents before children."""
    yield body
    for child in children(body):
        yield from walk(child)


def loads(body: ScalarExpr) -> tuple[Load, ...]:
    """Every load in reading order, repeated when the body repeats it."""
    return tuple(node for node in walk(body) if isinstance(node, Load))


def operation_counts(body: ScalarExpr) -> dict[str, int]:
    """How often each arithmetic, comparison, logic, cast or function operation occurs.

    Padding predicates are index arithmetic: what a condition on indices computes is not counted.
    """
    counts: dict[str, int] = {}

    def visit(node: ScalarExpr) -> None:
        if isinstance(node, (Unary, Binary)):
            counts[node.op] = counts.get(node.op, 0) + 1
        elif isinstance(node, Cast):
            counts["cast"] = counts.get("cast", 0) + 1
        if isinstance(node, Select):
            counts["select"] = counts.get("select", 0) + 1
            if any(isinstance(inner, Load) for inner in walk(node.condition)):
                visit(node.condition)
            visit(node.on_true)
            visit(node.on_false)
            return
        for child in children(node):
            visit(child)

    visit(body)
    return counts


def transform(body: ScalarExpr, replace: Callable[[ScalarExpr], ScalarExpr | None]) -> ScalarExpr:
    """Rebuild ``body``; where ``replace`` returns a node, that node is used as it is."""
    replacement = replace(body)
    if replacement is not None:
        return replacement
    if isinstance(body, (Cast, Unary)):
        return evolve(body, operand=transform(body.operand, replace))
    if isinstance(body, Binary):
        return evolve(
            body, left=transform(body.left, replace), right=transform(body.right, replace)
        )
    if isinstance(body, Select):
        return Select(
            transform(body.condition, replace),
            transform(body.on_true, replace),
            transform(body.on_false, replace),
        )
    return body


def scalar_to_json(body: ScalarExpr) -> Any:
    """A JSON list ``[kind, ...]`` that :func:`scalar_from_json` reads back."""
    if isinstance(body, Constant):
        value = body.value
        if isinstance(value, float) and value in (float("inf"), float("-inf")):
            return ["constant", "inf" if value > 0 else "-inf", body.dtype]
        return ["constant", value, body.dtype]
    if isinstance(body, Load):
        return ["load", body.tensor, [index.to_json() for index in body.indices]]
    if isinstance(body, IndexValue):
        return ["index", body.index.to_json()]
    if isinstance(body, Cast):
        return ["cast", body.dtype, scalar_to_json(body.operand)]
    operands = [scalar_to_json(child) for child in children(body)]
    if isinstance(body, Select):
        return ["select", *operands]
    return [body.op, *operands]


def scalar_from_json(data: Any) -> ScalarExpr:
    """Read what :func:`scalar_to_json` wrote.

    Raises:
        InvalidValueError: the value is not a scalar body.
    """
    if not isinstance(data, list) or not data:
        raise InvalidValueError(f"not a scalar expression: {data!r}")
    kind, *rest = data
    try:
        leaf = _leaf_from_json(kind, rest)
    except (IndexError, TypeError, ValueError) as error:
        raise InvalidValueError(f"not a scalar expression: {data!r}") from error
    if leaf is not None:
        return leaf
    operands = [scalar_from_json(item) for item in rest]
    if kind == "select" and len(operands) == 3:
        return Select(*operands)
    if kind in UNARY and len(operands) == 1:
        return Unary(kind, operands[0])
    if kind in (*ARITHMETIC, *COMPARISONS, *LOGIC) and len(operands) == 2:
        return Binary(kind, operands[0], operands[1])
    raise InvalidValueError(f"not a scalar expression: {data!r}")


def _leaf_from_json(kind: Any, rest: list[Any]) -> ScalarExpr | None:
    """A node whose JSON form is not just its operands'; None for any other kind."""
    if kind == "constant":
        value = float(rest[0]) if isinstance(rest[0], str) else rest[0]
        return Constant(value, rest[1])
    if kind == "load":
        return Load(rest[0], tuple(IntExpr.from_json(index) for index in rest[1]))
    if kind == "index":
        return IndexValue(IntExpr.from_json(rest[0]))
    if kind == "cast":
        return Cast(rest[0], scalar_from_json(rest[1]))
    return None
