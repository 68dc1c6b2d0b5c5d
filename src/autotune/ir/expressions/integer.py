"""Immutable integer expressions over named variables.

The same expressions describe index arithmetic (variables are iteration axes) and symbolic
quantities of a sketch (variables are parameters). They evaluate on Python integers and on
numpy arrays alike, so that one expression serves a whole matrix of configurations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import field, frozen

from autotune.errors import InvalidValueError
from autotune.ir.converter import json_forms

if TYPE_CHECKING:
    from cattrs import Converter

_SYMBOLS = {"floordiv": "//", "mod": "%"}
# A nest asks for the same products and sums again and again, depth by depth.
_REMEMBERED = 8192
# Those of programs have a few dozen; a product of n factors takes n^2 steps to be read.
MOST_OPERANDS = 1024
_INT64 = 1 << 63
_BINARY = ("floordiv", "mod", "min", "max", "less")


@frozen(eq=False, repr=False)
class IntExpr:
    """Node; ``op`` is const, var, add, mul, floordiv, mod, min, max, less or select.

    Build nodes with :func:`const`, :func:`var`, the operators, :func:`ceildiv`,
    :func:`minimum`, :func:`maximum`, :func:`less` and :func:`select`; these simplify. Sums are
    kept as canonical linear combinations, so that equal quantities become equal expressions and
    are shared on a tape.
    """

    op: str
    args: tuple[Any, ...]
    _hash: int = field(init=False)
    _text: str | None = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.op, self.args)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[IntExpr], tuple[str, tuple[Any, ...]]]:
        # Hashes of strings, and with them this one, differ from process to process.
        return IntExpr, (self.op, self.args)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, IntExpr) or self._hash != other._hash:
            return False
        return self.op == other.op and self.args == other.args

    @property
    def value(self) -> int | None:
        """The constant's value, or None for anything that depends on a variable."""
        return self.args[0] if self.op == "const" else None

    @property
    def variables(self) -> frozenset[str]:
        """Names of the variables this expression depends on."""
        if self.op == "var":
            return frozenset({self.args[0]})
        if self.op == "const":
            return frozenset()
        return frozenset().union(*(arg.variables for arg in self.args))

    def __add__(self, other: IntLike) -> IntExpr:
        if not isinstance(other, IntExpr) and other == 0:
            return self
        return _pair(self, _wrap(other), 1)

    __radd__ = __add__

    def __neg__(self) -> IntExpr:
        return self * -1

    def __sub__(self, other: IntLike) -> IntExpr:
        return _pair(self, _wrap(other), -1)

    def __rsub__(self, other: IntLike) -> IntExpr:
        return _pair(_wrap(other), self, -1)

    def __mul__(self, other: IntLike) -> IntExpr:
        if other is _ONE or (not isinstance(other, IntExpr) and other == 1):
            return self
        return _product(self, _wrap(other))

    __rmul__ = __mul__

    def __floordiv__(self, other: IntLike) -> IntExpr:
        return _floordiv(self, _wrap(other))

    def __mod__(self, other: IntLike) -> IntExpr:
        return _mod(self, _wrap(other))

    def substitute(self, values: Mapping[str, IntLike]) -> IntExpr:
        """Replace variables of this expression by expressions or integers."""
        if self.op == "const":
            return self
        if self.op == "var":
            name = self.args[0]
            return _wrap(values[name]) if name in values else self
        args = [arg.substitute(values) for arg in self.args]
        return rebuilt(self.op, args)

    def __repr__(self) -> str:
        # Sums and products are sorted by it: written once.
        if self._text is None:
            object.__setattr__(self, "_text", self._written())
        return str(self._text)

    def _written(self) -> str:
        if self.op in ("const", "var"):
            return str(self.args[0])
        if self.op == "add":
            return "(" + " + ".join(map(repr, self.args)) + ")"
        if self.op == "mul":
            return "*".join(map(repr, self.args))
        if self.op in _SYMBOLS:
            return f"({self.args[0]!r} {_SYMBOLS[self.op]} {self.args[1]!r})"
        return f"{self.op}({', '.join(map(repr, self.args))})"


IntLike = IntExpr | int


@lru_cache(maxsize=_REMEMBERED)
def const(value: int) -> IntExpr:
    """The constant ``value``."""
    return IntExpr("const", (int(value),))


_ONE = const(1)


def var(name: str) -> IntExpr:
    """The variable called ``name``."""
    return IntExpr("var", (name,))


def ceildiv(numerator: IntLike, denominator: IntLike) -> IntExpr:
    """``numerator / denominator`` rounded up, for a positive denominator."""
    top, bottom = _wrap(numerator), _wrap(denominator)
    exact = _exact_quotient(top, bottom)
    return exact if exact is not None else (top + bottom - 1) // bottom


def minimum(left: IntLike, right: IntLike) -> IntExpr:
    """The smaller of the two."""
    return _extremum("min", _wrap(left), _wrap(right))


def maximum(left: IntLike, right: IntLike) -> IntExpr:
    """The larger of the two."""
    return _extremum("max", _wrap(left), _wrap(right))


def less(left: IntLike, right: IntLike) -> IntExpr:
    """1 where ``left < right``, else 0."""
    low, high = _wrap(left), _wrap(right)
    if low == high:
        return const(0)
    if low.op == "const" and high.op == "const":
        return const(int(low.args[0] < high.args[0]))
    return IntExpr("less", (low, high))


def nontrivial(extent: IntLike) -> IntExpr:
    """1 where a loop of this extent runs more than once, else 0."""
    return less(1, extent)


def select(condition: IntLike, when_true: IntLike, when_false: IntLike) -> IntExpr:
    """``when_true`` where ``condition`` is not zero, else ``when_false``; both are evaluated."""
    chosen, first, second = _wrap(condition), _wrap(when_true), _wrap(when_false)
    if chosen.op == "const":
        return first if chosen.args[0] != 0 else second
    if first == second:
        return first
    if chosen.op == "less" and first == const(1) and second == const(0):
        return chosen
    return IntExpr("select", (chosen, first, second))


def product(factors: Iterable[IntExpr]) -> IntExpr:
    """The product of all of them; 1 of none."""
    result = const(1)
    for factor in factors:
        result = result * factor
    return result


def evaluate(expression: IntExpr, env: Mapping[str, Any]) -> Any:
    """The value under ``env``, which maps names to integers or to integer arrays that broadcast.

    Raises:
        InvalidValueError: a variable has no value in ``env``.
    """
    op, args = expression.op, expression.args
    if op == "const":
        return args[0]
    if op == "var":
        if args[0] not in env:
            raise InvalidValueError(f"no value for variable {args[0]!r}")
        return env[args[0]]
    values = [evaluate(arg, env) for arg in args]
    if op == "select":
        condition, when_true, when_false = values
        if _is_array(*values):
            return np.where(np.asarray(condition) != 0, when_true, when_false)
        return when_true if condition != 0 else when_false
    result = values[0]
    for value in values[1:]:
        result = apply_operation(op, result, value)
    return result


def apply_operation(op: str, left: Any, right: Any) -> Any:
    """Apply a binary operation to integers or integer arrays."""
    if op == "add":
        return left + right
    if op == "mul":
        return left * right
    if op == "floordiv":
        return left // right
    if op == "mod":
        return left % right
    if op == "less":
        return (
            np.less(left, right).astype(np.int64) if _is_array(left, right) else int(left < right)
        )
    if op == "min":
        return np.minimum(left, right) if _is_array(left, right) else min(left, right)
    return np.maximum(left, right) if _is_array(left, right) else max(left, right)


def _is_array(*values: Any) -> bool:
    return any(isinstance(value, np.ndarray) for value in values)


def _wrap(value: IntLike) -> IntExpr:
    return value if isinstance(value, IntExpr) else const(value)


def rebuilt(op: str, args: list[IntExpr]) -> IntExpr:
    """The node ``op`` of these operands, simplified."""
    if op == "add":
        return _linear_sum([(arg, 1) for arg in args])
    if op == "mul":
        # A number in front of several factors stays there; it would go into a lone sum.
        first, *rest = sorted(args, key=lambda arg: arg.op == "const")
        for arg in rest:
            first = _product(first, arg)
        return first
    if op == "floordiv":
        return _floordiv(args[0], args[1])
    if op == "mod":
        return _mod(args[0], args[1])
    if op == "less":
        return less(args[0], args[1])
    if op == "select":
        return select(args[0], args[1], args[2])
    return _extremum(op, args[0], args[1])


def _split_coefficient(term: IntExpr) -> tuple[int, IntExpr]:
    """``3*x*y`` as ``(3, x*y)``."""
    if term.op == "mul" and term.args[0].op == "const":
        rest = term.args[1:]
        return term.args[0].args[0], rest[0] if len(rest) == 1 else IntExpr("mul", rest)
    return 1, term


@lru_cache(maxsize=_REMEMBERED)
def _pair(left: IntExpr, right: IntExpr, sign: int) -> IntExpr:
    return _linear_sum([(left, 1), (right, sign)])


def _linear_sum(parts: list[tuple[IntExpr, int]]) -> IntExpr:
    constant = 0
    coefficients: dict[IntExpr, int] = {}
    for part, sign in parts:
        terms = part.args if part.op == "add" else (part,)
        for term in terms:
            if term.op == "const":
                constant += sign * term.args[0]
            else:
                coefficient, base = _split_coefficient(term)
                coefficients[base] = coefficients.get(base, 0) + sign * coefficient
    summands = [
        _scaled(base, coefficient)
        for base, coefficient in sorted(coefficients.items(), key=_first_text)
        if coefficient != 0
    ]
    if constant != 0 or not summands:
        summands.append(const(constant))
    return summands[0] if len(summands) == 1 else IntExpr("add", tuple(summands))


def _first_text(item: tuple[IntExpr, int]) -> str:
    return repr(item[0])


def _scaled(base: IntExpr, coefficient: int) -> IntExpr:
    if coefficient == 1:
        return base
    factors = base.args if base.op == "mul" else (base,)
    return IntExpr("mul", (const(coefficient), *factors))


def _factors(expression: IntExpr) -> tuple[int, list[IntExpr]]:
    if expression.op == "const":
        return expression.args[0], []
    coefficient, base = _split_coefficient(expression)
    return coefficient, list(base.args) if base.op == "mul" else [base]


@lru_cache(maxsize=_REMEMBERED)
def _product(left: IntExpr, right: IntExpr) -> IntExpr:
    left_constant, left_factors = _factors(left)
    right_constant, right_factors = _factors(right)
    constant = left_constant * right_constant
    factors = [*left_factors, *right_factors]
    if constant == 0 or not factors:
        return const(constant)
    if len(factors) == 1 and factors[0].op == "add":
        return _linear_sum([(term, constant) for term in factors[0].args])
    factors.sort(key=repr)
    base = factors[0] if len(factors) == 1 else IntExpr("mul", tuple(factors))
    return _scaled(base, constant)


def _exact_quotient(top: IntExpr, bottom: IntExpr) -> IntExpr | None:
    """``top / bottom`` when it is a whole number whatever the (positive) variables are."""
    if bottom == const(1):
        return top
    top_constant, top_factors = _factors(top)
    bottom_constant, bottom_factors = _factors(bottom)
    if top_constant == 0:
        return const(0)
    if bottom_constant == 0 or top_constant % bottom_constant != 0:
        return None
    remaining: list[IntExpr] = [*top_factors]
    for factor in bottom_factors:
        if factor not in remaining:
            return None
        remaining.remove(factor)
    result = const(top_constant // bottom_constant)
    for factor in remaining:
        result = _product(result, factor)
    return result


def _floordiv(top: IntExpr, bottom: IntExpr) -> IntExpr:
    if bottom == const(0):
        raise InvalidValueError(f"division of {top!r} by zero")
    exact = _exact_quotient(top, bottom)
    if exact is not None:
        return exact
    if top.op == "const" and bottom.op == "const":
        return const(top.args[0] // bottom.args[0])
    return IntExpr("floordiv", (top, bottom))


def _mod(top: IntExpr, bottom: IntExpr) -> IntExpr:
    if bottom == const(0):
        raise InvalidValueError(f"remainder of {top!r} by zero")
    if _exact_quotient(top, bottom) is not None:
        return const(0)
    if top.op == "const" and bottom.op == "const":
        return const(top.args[0] % bottom.args[0])
    return IntExpr("mod", (top, bottom))


def _extremum(op: str, left: IntExpr, right: IntExpr) -> IntExpr:
    if left == right:
        return left
    if left.op == "const" and right.op == "const":
        return const(apply_operation(op, left.args[0], right.args[0]))
    return IntExpr(op, tuple(sorted((left, right), key=repr)))


@json_forms
def _forms(converter: Converter) -> None:
    converter.register_unstructure_hook(IntExpr, _write)
    converter.register_structure_hook(IntExpr, _read)


def _write(expression: IntExpr) -> Any:
    """An integer, a name, or ``[op, arg, ...]``."""
    if expression.op in ("const", "var"):
        return expression.args[0]
    return [expression.op, *map(_write, expression.args)]


def _read(data: Any, _: Any = None) -> IntExpr:
    if isinstance(data, bool) or not isinstance(data, (int, str, list)):
        raise InvalidValueError(f"not an integer expression: {data!r}")
    if isinstance(data, int):
        return const(data)
    if isinstance(data, str):
        return var(data)
    if len(data) > MOST_OPERANDS + 1:
        raise _too_many(len(data) - 1)
    if len(data) < 3 or data[0] not in ("add", "mul", "select", *_BINARY):
        raise InvalidValueError(f"not an integer expression: {data!r}")
    if data[0] in _BINARY and len(data) != 3:
        raise InvalidValueError(f"{data[0]} takes two operands: {data!r}")
    if data[0] == "select" and len(data) != 4:
        raise InvalidValueError(f"select takes three operands: {data!r}")
    found = rebuilt(data[0], list(map(_read, data[1:])))
    if len(found.args) > MOST_OPERANDS:
        raise _too_many(len(found.args))
    for part in (found, *found.args):
        # What was small may have been multiplied out.
        value = part.value if isinstance(part, IntExpr) else None
        if value is not None and not -_INT64 <= value < _INT64:
            raise InvalidValueError(
                f"a constant of an integer expression, {value}, has over 64 bits"
            )
    return found


def _too_many(operands: int) -> InvalidValueError:
    return InvalidValueError(
        f"an integer expression has {operands} operands, more than {MOST_OPERANDS}"
    )
