"""Parameters of programs that only their own tools understand: named lists of values.

Constraints written as expressions: read into a tree of our own, never run as code.

The grammar is the part of Python's that tuners use: names of parameters, numbers, texts, True and
False, arithmetic, comparisons (also chained, ``in`` and ``not in`` of a list), ``and``, ``or``,
``not`` and ``a if b else c``. Calls, attributes, subscripts and everything else are refused.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, UnknownNameError, near_matches
from autotune.sketches import Categorical, Ordinal, Param

__all__ = ["Condition", "Parameter", "Value", "column_scale", "encode_config", "parse_condition"]

Value = int | float | str | bool
"""Types of a parameter's values."""

_LARGEST = 2**53
"""Whole numbers up to here are exact in float64, in which surrogates compute."""
MOST_VALUES = 1 << 20
"""Of one parameter."""
_SHOWN = 12


def _as_tuple(values: Sequence[Value]) -> tuple[Value, ...]:
    return tuple(values)


@frozen
class Parameter:
    """Tunable: a name and the values it may have.

    A configuration holds one integer per parameter: the value itself where all values are whole
    numbers or truth values, else its position among :attr:`values`.

    Attributes:
        name: What constraints and commands call it: letters, digits and ``_``.
        values: Its values, each once.
        default: The value where nobody tunes, or None.

    Raises:
        InvalidValueError: the name is no identifier, a value is of another type, not finite or
            there twice, or the default is none of the values.
    """

    name: str
    values: tuple[Value, ...] = field(converter=_as_tuple)
    default: Value | None = None
    # 1, 1.0 and True are three values, which dictionaries take for one.
    _positions: dict[type, dict[Value, int]] = field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise InvalidValueError(
                f"a parameter is called {self.name!r}; names are letters, digits and _"
            )
        if not 0 < len(self.values) <= MOST_VALUES:
            raise InvalidValueError(
                f"parameter {self.name!r} has {len(self.values)} values; there can be 1 to "
                f"{MOST_VALUES}"
            )
        positions: dict[type, dict[Value, int]] = {}
        for position, value in enumerate(self.values):
            _check_value(self.name, value)
            if positions.setdefault(type(value), {}).setdefault(value, position) != position:
                raise InvalidValueError(f"parameter {self.name!r} has value {value!r} twice")
        object.__setattr__(self, "_positions", positions)
        if self.default is not None:
            self.encode(self.default)

    @property
    def is_whole(self) -> bool:
        """True if its values are whole numbers, which then stand for themselves."""
        return set(self._positions) in ({int}, {bool})

    @property
    def column(self) -> Param:
        """The column of a configuration matrix that holds it."""
        if self.is_whole:
            return Ordinal(self.name, tuple(sorted(map(int, self.values))))
        return Categorical(self.name, tuple(map(_label, self.values)))

    def encode(self, value: Value) -> int:
        """Encode a value as a configuration holds it.

        Raises:
            InvalidValueError: it is none of the values; says which are, and what is near.
        """
        kinds = [type(value)]
        if _is_number(kinds[0]):
            # Numbers proper are equal by value: JSON may write 1.0 as 1.
            kinds += filter(_is_number, self._positions)
        for kind in kinds:
            if kind in self._positions and value in self._positions[kind]:
                return int(value) if self.is_whole else self._positions[kind][value]
        raise InvalidValueError(self._unknown(value))

    def decode(self, column: int) -> Value:
        """The value that a configuration holds as ``column``.

        Raises:
            InvalidValueError: there is none.
        """
        if not self.is_whole:
            if 0 <= column < len(self.values):
                return self.values[column]
        else:
            (kind,) = self._positions
            position = self._positions[kind].get(column)
            if position is not None:
                return self.values[position]
        raise InvalidValueError(self._unknown(column))

    def _unknown(self, value: object) -> str:
        shown = ", ".join(map(repr, self.values[:_SHOWN]))
        more = "" if len(self.values) <= _SHOWN else f" and {len(self.values) - _SHOWN} more"
        near = self._nearest(value)
        return (
            f"parameter {self.name!r} cannot be {value!r}; allowed: {shown}{more}"
            f"{'' if near is None else f'; the nearest is {near!r}'}"
        )

    def _nearest(self, value: object) -> Value | None:
        if isinstance(value, (int, float)) and math.isfinite(value):
            numbers = [it for it in self.values if isinstance(it, (int, float))]
            return min(numbers, key=lambda it: abs(it - value), default=None)
        texts = {str(it): it for it in self.values}
        found = near_matches(str(value), tuple(texts))
        return texts[found[0]] if found else None


def column_scale(param: Param) -> NDArray[np.float64] | None:
    """The numbers that the values of a column stand for, in the order of the values; [values].

    None where a column is an unordered choice, or a factor whose values only its product says.
    """
    if isinstance(param, Categorical):
        try:
            numbers = np.array([float(label) for label in param.labels])
        except ValueError:
            return None
        return numbers if np.isfinite(numbers).all() else None
    return None if param.values is None else np.array(param.values, dtype=np.float64)


def encode_config(parameters: Sequence[Parameter], config: Mapping[str, Value]) -> tuple[int, ...]:
    """A row of a configuration matrix from values by name.

    Raises:
        InvalidValueError: a parameter is missing or unknown, or a value none of its own.
    """
    names = [parameter.name for parameter in parameters]
    if set(names) != set(config):
        missing = sorted(set(names) - set(config))
        unknown = sorted(map(str, set(config) - set(names)))
        said = [f"lacks {', '.join(missing)}"] * bool(missing)
        said += [f"has {', '.join(unknown)}"] * bool(unknown)
        raise InvalidValueError(
            f"a configuration {' and '.join(said)}; its parameters are {', '.join(names)}"
        )
    return tuple(parameter.encode(config[parameter.name]) for parameter in parameters)


def _check_value(name: str, value: object) -> None:
    if not isinstance(value, (bool, int, float, str)):
        raise InvalidValueError(
            f"parameter {name!r} has value {value!r}; values are numbers, texts or truth values"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidValueError(f"parameter {name!r} has value {value!r}, which is not finite")
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise InvalidValueError(f"parameter {name!r} has value {value}, which is beyond 2**53")


def _is_number(kind: type) -> bool:
    return issubclass(kind, (int, float)) and kind is not bool


def _label(value: Value) -> str:
    return value if isinstance(value, str) else repr(value)


_LONGEST = 10_000
_DEEPEST = 64
Columns = Mapping[str, NDArray[Any]]

_ARITHMETIC: Mapping[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
}
_COMPARISONS: Mapping[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
_ALLOWED = "parameters, numbers, texts, + - * / // % **, comparisons, in, and, or, not and if-else"


@frozen
class Node:
    """A node of a condition.

    Attributes:
        op: ``value`` and ``name`` (args: it), an operator of two operands, ``neg``, ``not``,
            ``and``, ``or``, ``if`` (condition, then, else) or ``in`` (operand, tuple of values).
        args: The operands.
    """

    op: str
    args: tuple[Any, ...]


@frozen
class Condition:
    """A constraint over parameters.

    Attributes:
        text: As it was written.
        node: What it says.
        names: The parameters that it is about, in the order of their first use.
    """

    text: str
    node: Node
    names: tuple[str, ...]

    def holds(self, columns: Columns) -> NDArray[np.bool_]:
        """Mark the rows for which it holds; [n].

        As in Python, the right of ``and`` and ``or`` and the branches of ``if`` are only looked
        at where they decide.

        Args:
            columns: Values of each parameter of :attr:`names`, [n]: numbers, or objects.

        Raises:
            InvalidValueError: it divides by zero, or compares what cannot be compared.
        """
        size = len(next(iter(columns.values()))) if columns else 1
        try:
            with np.errstate(all="ignore"):
                found = _evaluate(self.node, columns, size)
            return spread(truth(found), size)
        except ZeroDivisionError:
            raise InvalidValueError(f"constraint {self.text!r} divides by zero") from None
        except (TypeError, OverflowError) as error:
            raise InvalidValueError(
                f"constraint {self.text!r} cannot be computed: {error}"
            ) from None


def parse_condition(text: str, names: Iterable[str]) -> Condition:
    """Read a constraint over the parameters ``names``.

    Raises:
        InvalidValueError: it is no expression, or has something that is not allowed; names it.
        UnknownNameError: it is about a parameter that there is none of.
    """
    if not isinstance(text, str) or not text.strip():
        raise InvalidValueError(f"a constraint is an expression in a text, not {text!r}")
    if len(text) > _LONGEST:
        raise InvalidValueError(f"a constraint has {len(text)} characters, more than {_LONGEST}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = getattr(error, "msg", None) or type(error).__name__
        raise InvalidValueError(
            f"constraint {_short(text)!r} is no expression: {reason}"
        ) from None
    used: dict[str, None] = {}
    node = _Reader(text, frozenset(names), used).read(tree.body, 0)
    return Condition(text.strip(), node, tuple(used))


@frozen
class _Reader:
    """Turns Python's tree of a constraint into ours, and notes the names in it."""

    text: str
    names: frozenset[str]
    used: dict[str, None]

    def read(self, tree: ast.expr, depth: int) -> Node:
        if depth > _DEEPEST:
            raise self._refusal(tree, f"is nested more than {_DEEPEST} deep")
        deeper = depth + 1
        if isinstance(tree, ast.Constant):
            return self._constant(tree)
        if isinstance(tree, ast.Name):
            if tree.id not in self.names:
                owner = f"parameter in constraint {_short(self.text)!r}:"
                raise UnknownNameError(owner, tree.id, self.names)
            self.used.setdefault(tree.id)
            return Node("name", (tree.id,))
        if isinstance(tree, ast.BinOp) and type(tree.op) in _ARITHMETIC:
            operands = self.read(tree.left, deeper), self.read(tree.right, deeper)
            return Node(_ARITHMETIC[type(tree.op)], operands)
        if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, (ast.USub, ast.UAdd, ast.Not)):
            operand = self.read(tree.operand, deeper)
            if isinstance(tree.op, ast.UAdd):
                return operand
            return Node("not" if isinstance(tree.op, ast.Not) else "neg", (operand,))
        if isinstance(tree, ast.BoolOp):
            op = "and" if isinstance(tree.op, ast.And) else "or"
            return Node(op, tuple(self.read(it, deeper) for it in tree.values))
        if isinstance(tree, ast.IfExp):
            parts = (tree.test, tree.body, tree.orelse)
            return Node("if", tuple(self.read(it, deeper) for it in parts))
        if isinstance(tree, ast.Compare):
            return self._comparison(tree, deeper)
        raise self._refusal(tree, "is not allowed")

    def _constant(self, tree: ast.Constant) -> Node:
        if not isinstance(tree.value, (bool, int, float, str)):
            raise self._refusal(tree, "is not allowed")
        return Node("value", (tree.value,))

    def _comparison(self, tree: ast.Compare, depth: int) -> Node:
        """A chain, as the conjunction of its links."""
        links = []
        left = tree.left
        for op, right in zip(tree.ops, tree.comparators, strict=True):
            if type(op) in _COMPARISONS:
                operands = self.read(left, depth), self.read(right, depth)
                links.append(Node(_COMPARISONS[type(op)], operands))
            elif isinstance(op, (ast.In, ast.NotIn)):
                member = Node("in", (self.read(left, depth), self._listed(right)))
                links.append(member if isinstance(op, ast.In) else Node("not", (member,)))
            else:
                raise self._refusal(tree, "is not allowed")
            left = right
        return links[0] if len(links) == 1 else Node("and", tuple(links))

    def _listed(self, tree: ast.expr) -> tuple[Any, ...]:
        if not isinstance(tree, (ast.List, ast.Tuple, ast.Set)):
            raise self._refusal(tree, "is no list of values")
        values = [self.read(it, 0) for it in tree.elts]
        for value, element in zip(values, tree.elts, strict=True):
            negated = value.op == "neg" and value.args[0].op == "value"
            if value.op != "value" and not negated:
                raise self._refusal(element, "is no value")
        return tuple(-it.args[0].args[0] if it.op == "neg" else it.args[0] for it in values)

    def _refusal(self, tree: ast.expr, why: str) -> InvalidValueError:
        part = ast.get_source_segment(self.text.strip(), tree) or type(tree).__name__
        called = "it calls a function: " if isinstance(tree, ast.Call) else ""
        return InvalidValueError(
            f"constraint {_short(self.text)!r}: {called}{_short(part)!r} {why}; there can be "
            f"{_ALLOWED}"
        )


def _evaluate(node: Node, columns: Columns, size: int) -> Any:
    """The value of a node: a scalar of Python, or a column [size]."""
    op, args = node.op, node.args
    if op == "value":
        return args[0]
    if op == "name":
        return column_of(columns[args[0]])
    if op in ("and", "or", "if"):
        return _branching(node, columns, size)
    first = _evaluate(args[0], columns, size)
    if op == "neg":
        return negated(first)
    if op == "not":
        return ~spread(truth(first), size)
    if op == "in":
        found = np.zeros(size, dtype=np.bool_)
        for value in args[1]:
            found |= operated("==", first, value)
        return found
    return operated(op, first, _evaluate(args[1], columns, size))


def _branching(node: Node, columns: Columns, size: int) -> NDArray[Any]:
    """``and``, ``or`` or ``if``: each operand on the rows for which the ones before leave it."""
    if node.op == "if":
        chosen = spread(truth(_evaluate(node.args[0], columns, size)), size)
        branches = zip((chosen, ~chosen), node.args[1:], strict=True)
        return joined(
            [(np.flatnonzero(rows), _on_rows(part, columns, rows)) for rows, part in branches],
            size,
        )
    *earlier, last = node.args
    parts = []
    is_open = np.ones(size, dtype=np.bool_)
    for part in earlier:
        rows, values = np.flatnonzero(is_open), _on_rows(part, columns, is_open)
        decided = truth(values) if node.op == "or" else ~truth(values)
        parts.append((rows[decided], values[decided]))
        is_open[rows[decided]] = False
    parts.append((np.flatnonzero(is_open), _on_rows(last, columns, is_open)))
    return joined(parts, size)


def _on_rows(node: Node, columns: Columns, rows: NDArray[np.bool_]) -> NDArray[Any]:
    """The values of a node on some rows; [rows]."""
    count = int(rows.sum())
    if not count:
        return np.zeros(0, dtype=np.bool_)
    found = _evaluate(node, {name: column[rows] for name, column in columns.items()}, count)
    return spread(found, count)


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."


_MOST_BITS = 4096
"""Of a power: constraints come with files, and a short text can ask for all of memory."""


def _power(base: Any, exponent: Any) -> Any:
    whole = isinstance(base, int) and isinstance(exponent, int)
    if whole and abs(base) > 1 and base.bit_length() * exponent > _MOST_BITS:
        raise OverflowError(f"a power has more than {_MOST_BITS} bits")
    return base**exponent


def _of_numbers(operate: Callable[[Any, Any], Any], symbol: str) -> Callable[[Any, Any], Any]:
    """An operation that means something else, of any size, for texts."""

    def checked(first: Any, second: Any) -> Any:
        if isinstance(first, str) or isinstance(second, str):
            raise TypeError(f"{symbol} is for numbers, not texts")
        return operate(first, second)

    return checked


ARITHMETIC = ("+", "-", "*", "/", "//", "%", "**")
_DIVISIONS = ("/", "//", "%")
_PYTHON: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": _of_numbers(operator.mul, "*"),
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": _of_numbers(operator.mod, "%"),
    "**": _power,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_MACHINE = {**_PYTHON, "*": operator.mul, "%": operator.mod, "**": operator.pow}
_BY_ROW = {symbol: np.frompyfunc(operate, 2, 1) for symbol, operate in _PYTHON.items()}


def column_of(values: NDArray[Any]) -> NDArray[Any]:
    """Values as operations take them: truth values, int64, float64, or Python's objects; [n]."""
    kind = values.dtype.kind
    if kind == "b":
        return values
    if kind == "f":
        return values.astype(np.float64)
    if kind in "iu" and _reach(values) <= _LARGEST:
        return values.astype(np.int64)
    return values.astype(object)


def operated(symbol: str, first: Any, second: Any) -> Any:
    """An operation on scalars of Python or columns, as Python computes it for each row.

    Raises:
        ZeroDivisionError: a divisor is zero.
        TypeError: values of these types have no such operation.
        OverflowError: a number is too large.
    """
    if symbol in ARITHMETIC:
        first, second = _number(first), _number(second)
    if not isinstance(first, np.ndarray) and not isinstance(second, np.ndarray):
        return _PYTHON[symbol](first, second)
    if _is_exact(symbol, first, second):
        if symbol in _DIVISIONS and np.any(np.asarray(second) == 0):
            raise ZeroDivisionError
        return _MACHINE[symbol](first, second)
    found = _BY_ROW[symbol](first, second)
    return found if symbol in ARITHMETIC else truth(found)


def negated(value: Any) -> Any:
    """The value times -1."""
    return -_number(value)


def truth(value: Any) -> Any:
    """Mark the values that count as true."""
    return value.astype(np.bool_) if isinstance(value, np.ndarray) else bool(value)


def spread(value: Any, size: int) -> NDArray[Any]:
    """A scalar on every row; a column as it is; [size]."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, bool):
        return np.full(size, value)
    return np.full(size, value, dtype=object if _reach(value) > _LARGEST else None)


def joined(parts: Sequence[tuple[NDArray[np.intp], NDArray[Any]]], size: int) -> NDArray[Any]:
    """Join a column of parts, each the rows that it is of and their values; [size]."""
    kinds = {values.dtype for _, values in parts if len(values)}
    if len(kinds) == 1:
        (kind,) = kinds
    else:
        # Truth values and whole numbers agree in everything; fractions round.
        is_whole = kinds <= {np.dtype(np.bool_), np.dtype(np.int64)}
        kind = np.dtype(np.int64 if is_whole else object)
    column = np.empty(size, dtype=kind)
    for rows, values in parts:
        column[rows] = values
    return column


def _is_exact(symbol: str, first: Any, second: Any) -> bool:
    """Return whether machine numbers give what Python's give."""
    reaches = _reach(first), _reach(second)
    if max(reaches) > _LARGEST:
        return False
    if symbol == "**":
        return _is_whole(first) and _is_whole(second) and _has_small_powers(reaches, second)
    largest = {"+": sum(reaches), "-": sum(reaches), "*": math.prod(reaches)}
    return largest.get(symbol, 0) <= _LARGEST


def _has_small_powers(reaches: tuple[float, float], exponents: Any) -> bool:
    if not np.size(exponents) or np.min(exponents) < 0 or reaches[1] >= _LARGEST.bit_length():
        return False
    largest: int = int(reaches[0]) ** int(reaches[1])
    return largest <= _LARGEST


def _reach(value: Any) -> float:
    """Largest absolute value of whole numbers, 0 of fractions, infinity of all others."""
    if isinstance(value, np.ndarray):
        kind = value.dtype.kind
        if kind in "iu":
            return max(-int(value.min()), int(value.max())) if value.size else 0
        return {"b": 1, "f": 0}.get(kind, math.inf)
    if isinstance(value, int):
        return abs(value)
    return 0 if isinstance(value, float) else math.inf


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, np.ndarray) and value.dtype.kind == "i")


def _number(value: Any) -> Any:
    """Truth values count as 0 and 1, as in Python; numpy would refuse to subtract them."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, np.ndarray) and value.dtype == np.bool_:
        return value.astype(np.int64)
    return value
