"""Typed scalar expressions, written with Python's operators.

``elementwise(lambda x, y: where(x > y, x, y * 2), a, b)``: the function is given one
:class:`Scalar` per operand. Numbers take the type of the scalar beside them. Integers are divided
as the languages of models have it, and never with a signal: quotients are truncated, those of the
smallest number by -1 wrap around, and that no divisor is 0 is checked before a program runs.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from autotune.errors import InvalidValueError
from autotune.ir.element_types import element_type
from autotune.ir.expressions import Binary, Cast, Constant, Load, ScalarExpr, Select, Unary
from autotune.ir.expressions.scalar import UNARY, walk

__all__ = ["Number", "Scalar", "divisors", "maximum", "minimum", "scalar_constant", "where"]

Number = float | int | bool


def scalar_constant(value: Number, dtype: str) -> Scalar:
    """A number of a type."""
    kind = float if element_type(dtype).is_float else bool if dtype == "bool" else int
    return Scalar(Constant(kind(value), dtype), dtype)


@frozen(eq=False)
class Scalar:
    """An expression of a type.

    Attributes:
        body: The expression.
        dtype: Name of its type.
    """

    body: ScalarExpr
    dtype: str

    @property
    def is_float(self) -> bool:
        """True of floating-point numbers."""
        return element_type(self.dtype).is_float

    @property
    def is_signed(self) -> bool:
        """True of integers that may be negative."""
        return self.dtype.startswith("int")

    def _other(self, other: Scalar | Number) -> Scalar:
        if not isinstance(other, Scalar):
            return scalar_constant(other, self.dtype)
        if other.dtype != self.dtype:
            raise InvalidValueError(f"{self.dtype} and {other.dtype} are combined without a cast")
        return other

    def binary(self, op: str, other: Scalar | Number) -> Scalar:
        """An operation of :class:`~autotune.ir.expressions.Binary`, the right one not checked."""
        right = self._other(other)
        is_truth = op in ("lt", "le", "gt", "ge", "eq", "ne", "and", "or")
        return Scalar(Binary(op, self.body, right.body), "bool" if is_truth else self.dtype)

    def call(self, op: str) -> Scalar:
        """A function of one operand.

        Raises:
            InvalidValueError: there is no such function.
        """
        if op not in UNARY:
            raise InvalidValueError(f"no function {op!r} of scalars; there are {', '.join(UNARY)}")
        return Scalar(Unary(op, self.body), self.dtype)

    def cast(self, dtype: str) -> Scalar:
        """The number in another type."""
        return self if dtype == self.dtype else Scalar(Cast(dtype, self.body), dtype)

    def equals(self, other: Scalar | Number) -> Scalar:
        """Equality of both."""
        return self.binary("eq", other)

    def differs(self, other: Scalar | Number) -> Scalar:
        """Inequality of both; NaN differs from itself."""
        return self.binary("ne", other)

    def __add__(self, other: Scalar | Number) -> Scalar:
        return self.binary("add", other)

    def __radd__(self, other: Number) -> Scalar:
        return self._other(other) + self

    def __sub__(self, other: Scalar | Number) -> Scalar:
        return self.binary("sub", other)

    def __rsub__(self, other: Number) -> Scalar:
        return self._other(other) - self

    def __mul__(self, other: Scalar | Number) -> Scalar:
        return self.binary("mul", other)

    def __rmul__(self, other: Number) -> Scalar:
        return self._other(other) * self

    def __pow__(self, other: Scalar | Number) -> Scalar:
        return self.binary("pow", other)

    def __truediv__(self, other: Scalar | Number) -> Scalar:
        """The quotient; of integers truncated."""
        return self.binary("div", other) if self.is_float else _quotient(self, self._other(other))

    def __rtruediv__(self, other: Number) -> Scalar:
        return self._other(other) / self

    def __mod__(self, other: Scalar | Number) -> Scalar:
        """The remainder, with the sign of the divisor."""
        return self.binary("mod", other) if self.is_float else _modulo(self, self._other(other))

    def __neg__(self) -> Scalar:
        return self.call("neg")

    def __lt__(self, other: Scalar | Number) -> Scalar:
        return self.binary("lt", other)

    def __le__(self, other: Scalar | Number) -> Scalar:
        return self.binary("le", other)

    def __gt__(self, other: Scalar | Number) -> Scalar:
        return self.binary("gt", other)

    def __ge__(self, other: Scalar | Number) -> Scalar:
        return self.binary("ge", other)

    def __and__(self, other: Scalar | Number) -> Scalar:
        return self.binary("and", other)

    def __or__(self, other: Scalar | Number) -> Scalar:
        return self.binary("or", other)

    def __invert__(self) -> Scalar:
        return self.call("not")


def where(condition: Scalar, yes: Scalar | Number, no: Scalar | Number) -> Scalar:
    """``yes`` where the condition holds, else ``no``; one of them may be a number."""
    left = yes if isinstance(yes, Scalar) else None
    if left is None:
        if not isinstance(no, Scalar):
            raise InvalidValueError("one side of a choice has to have a type")
        left = scalar_constant(yes, no.dtype)  # type: ignore[arg-type]
    return Scalar(Select(condition.body, left.body, left._other(no).body), left.dtype)


def maximum(left: Scalar, right: Scalar | Number) -> Scalar:
    """The larger of both; NaN where one is."""
    return left.binary("max", right)


def minimum(left: Scalar, right: Scalar | Number) -> Scalar:
    """The smaller of both; NaN where one is."""
    return left.binary("min", right)


def _guarded(divisor: Scalar) -> Scalar:
    """A divisor that no processor stops at: -1 is handled beside it."""
    _check_divisor(divisor)
    if not divisor.is_signed or isinstance(divisor.body, Constant):
        return divisor
    return where(divisor.equals(-1), 1, divisor)


def _quotient(left: Scalar, right: Scalar) -> Scalar:
    guarded = _guarded(right)
    if isinstance(right.body, Constant) and right.body.value == -1:
        return left.call("neg")
    found = left.binary("div", guarded)
    return found if guarded is right else where(right.equals(-1), left.call("neg"), found)


def _modulo(left: Scalar, right: Scalar) -> Scalar:
    guarded = _guarded(right)
    if isinstance(right.body, Constant) and right.body.value == -1:
        return left * 0
    # What -1 leaves is what 1 leaves: nothing.
    return left.binary("mod", guarded)


def _check_divisor(divisor: Scalar) -> None:
    body = divisor.body
    while isinstance(body, Cast):
        body = body.operand
    if isinstance(body, Constant):
        if not body.value:
            raise InvalidValueError("an integer is divided by zero")
    elif not isinstance(body, Load):
        raise InvalidValueError("an integer is divided by an operand or a constant, as it is")


def divisors(body: ScalarExpr) -> Iterator[str]:
    """The tensors of which elements divide integers, by how :class:`Scalar` writes that."""
    for node in walk(body):
        if isinstance(node, Binary) and node.op in ("div", "mod"):
            right = node.right
            while isinstance(right, Select | Cast):
                if isinstance(right, Cast) and element_type(right.dtype).is_float:
                    break
                right = right.operand if isinstance(right, Cast) else right.on_false
            if isinstance(right, Load):
                yield right.tensor
