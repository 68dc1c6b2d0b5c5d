"""The typed scalar expression that a stage computes at every point of its iteration space."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from attrs import evolve, field, frozen

from autotune.ir.converter import json_forms, tagged_lists
from autotune.ir.expressions.integer import IntExpr, IntLike, var

if TYPE_CHECKING:
    from cattrs import Converter

ARITHMETIC = ("add", "sub", "mul", "div", "max", "min", "pow", "mod")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
LOGIC = ("and", "or")
UNARY = (
    "neg",
    "abs",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "tanh",
    "sigmoid",
    "erf",
    "floor",
    "ceil",
    "round",
    "not",
)


def _identity(value: float) -> object:
    """Key that tells literals apart: both zeros are equal numbers, and a NaN is equal to none."""
    if value != value:
        return "nan"
    return value if value else ("zero", math.copysign(1.0, value))


@frozen
class Constant:
    """A literal of type ``dtype``; those with the same bits are equal."""

    value: float | int | bool = field(eq=_identity)
    dtype: str


@frozen
class Load:
    """The element of ``tensor`` at ``indices`` (expressions over the stage's axes)."""

    tensor: str
    indices: tuple[IntExpr, ...]


@frozen
class Gather:
    """The element of ``tensor`` at ``indices`` that are computed: whole numbers, each a body.

    At least one of them depends on data, or is no index expression; else it is a :class:`Load`.
    """

    tensor: str
    indices: tuple[ScalarExpr, ...]


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
    """A function of one operand; ``op`` is one of ``UNARY``.

    ``round`` goes to the even number from halfway.
    """

    op: str
    operand: ScalarExpr


@frozen
class Binary:
    """A function of two operands: arithmetic, comparison or logic.

    ``div`` of integers truncates; ``mod`` has the sign of its divisor, as in Python.
    """

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


ScalarExpr = Constant | Load | Gather | IndexValue | Cast | Unary | Binary | Select


def children(body: ScalarExpr) -> tuple[ScalarExpr, ...]:
    """Direct operands of a node."""
    if isinstance(body, (Load, Constant, IndexValue)):
        return ()
    if isinstance(body, (Cast, Unary)):
        return (body.operand,)
    if isinstance(body, Binary):
        return (body.left, body.right)
    if isinstance(body, Select):
        return (body.condition, body.on_true, body.on_false)
    return body.indices if isinstance(body, Gather) else ()


def walk(body: ScalarExpr) -> Iterator[ScalarExpr]:
    """Every node, parents before children."""
    waiting = [body]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(children(node)))


def loads(body: ScalarExpr) -> tuple[Load, ...]:
    """Every load in reading order, repeated when the body repeats it."""
    return tuple(node for node in walk(body) if isinstance(node, Load))


def gathers(body: ScalarExpr) -> tuple[Gather, ...]:
    """Every gather in reading order, repeated when the body repeats it."""
    return tuple(node for node in walk(body) if isinstance(node, Gather))


def reads(body: ScalarExpr) -> tuple[Load | Gather, ...]:
    """Every load and gather in reading order, a gather before what its indices read."""
    return tuple(node for node in walk(body) if isinstance(node, (Load, Gather)))


def operation_counts(body: ScalarExpr) -> dict[str, int]:
    """Count each arithmetic, comparison, logic, cast or function operation.

    Padding predicates are index arithmetic: what a condition on indices computes is not counted.
    Nor is what computes the indices of a gather.
    """
    counts: dict[str, int] = {}

    def visit(node: ScalarExpr) -> None:
        if isinstance(node, Gather):
            return
        if isinstance(node, (Unary, Binary)):
            counts[node.op] = counts.get(node.op, 0) + 1
        elif isinstance(node, Cast):
            counts["cast"] = counts.get("cast", 0) + 1
        if isinstance(node, Select):
            counts["select"] = counts.get("select", 0) + 1
            if any(isinstance(inner, (Load, Gather)) for inner in walk(node.condition)):
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
    if isinstance(body, Gather):
        return evolve(body, indices=tuple(transform(index, replace) for index in body.indices))
    return body


def renamed_body(
    body: ScalarExpr, tensors: Mapping[str, str], axes: Mapping[str, str]
) -> ScalarExpr:
    """The same expression over tensors and axes of other names.

    Args:
        body: The expression.
        tensors: New name of each tensor that it reads.
        axes: New name of each axis that its indices depend on.
    """
    variables = {name: var(new) for name, new in axes.items()}

    def replace(node: ScalarExpr) -> ScalarExpr | None:
        if isinstance(node, Load):
            indices = tuple(index.substitute(variables) for index in node.indices)
            return Load(tensors[node.tensor], indices)
        if isinstance(node, Gather):
            places = (renamed_body(index, tensors, axes) for index in node.indices)
            return Gather(tensors[node.tensor], tuple(places))
        if isinstance(node, IndexValue):
            return IndexValue(node.index.substitute(variables))
        return None

    return transform(body, replace)


def substitute(body: ScalarExpr, values: Mapping[str, IntLike]) -> ScalarExpr:
    """``body`` with axes replaced by expressions wherever indices use them."""

    def replace(node: ScalarExpr) -> ScalarExpr | None:
        if isinstance(node, Load):
            return Load(node.tensor, tuple(index.substitute(values) for index in node.indices))
        return IndexValue(node.index.substitute(values)) if isinstance(node, IndexValue) else None

    return transform(body, replace)


@json_forms
def _forms(converter: Converter) -> None:
    kinds: dict[str, type[ScalarExpr]] = {
        "constant": Constant,
        "load": Load,
        "gather": Gather,
        "index": IndexValue,
        "cast": Cast,
        "select": Select,
        **dict.fromkeys(UNARY, Unary),
        **dict.fromkeys((*ARITHMETIC, *COMPARISONS, *LOGIC), Binary),
    }
    tagged_lists(converter, ScalarExpr, "scalar expression", kinds)
    converter.register_unstructure_hook(Constant, _write_constant)
    converter.register_structure_hook(float | int | bool, _read_number)


def _write_constant(constant: Constant) -> list[Any]:
    """JSON has no infinity: a text stands for it."""
    infinite = isinstance(constant.value, float) and math.isinf(constant.value)
    value = str(constant.value) if infinite else constant.value
    return ["constant", value, constant.dtype]


def _read_number(data: Any, _: Any) -> float | int | bool:
    if not isinstance(data, (bool, int, float, str)):
        raise TypeError(f"{data!r} is not a number")
    return float(data) if isinstance(data, str) else data
