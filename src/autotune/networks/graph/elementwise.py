"""Operations element by element, on shapes that broadcast as in numpy.

``elementwise(lambda x, y: where(x > y, x, y * 2), a, b)``: the function is given one
:class:`Scalar` per operand. Numbers take the type of the scalar beside them. Integers are divided
as the languages of models have it, and never with a signal: quotients are truncated, those of the
smallest number by -1 wrap around, and that no divisor is 0 is checked before a program runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import numpy as np
from attrs import frozen

from autotune.errors import InvalidValueError
from autotune.ir.element_types import element_type
from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    Unary,
    const,
    var,
)
from autotune.ir.expressions.scalar import COMPARISONS, LOGIC, UNARY
from autotune.ir.workloads import Stage, Tensor
from autotune.networks.graph.graph import Value, constant
from autotune.networks.graph.making import (
    BITWISE,
    FUNCTIONS,
    HALVES,
    computed_type,
    host,
    load,
    program,
    spatial,
    widened,
)

__all__ = [
    "Number",
    "Scalar",
    "binary",
    "broadcast_indices",
    "cast",
    "clamp",
    "common_shape",
    "elementwise",
    "maximum",
    "minimum",
    "scalar_constant",
    "select",
    "unary",
    "where",
]

Number = float | int | bool


def scalar_constant(value: Number, dtype: str) -> Scalar:
    """A number of a type."""
    kind = float if element_type(dtype).is_float else bool if dtype == "bool" else int
    return Scalar(Constant(kind(value), dtype), dtype)


def _operator(op: str) -> Callable[[Scalar, Scalar | Number], Scalar]:
    """A method that is an operation of two scalars."""
    return lambda left, right: left.binary(op, right)


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

    __add__, __sub__, __mul__ = (_operator(it) for it in ("add", "sub", "mul"))
    __pow__, __and__, __or__ = (_operator(it) for it in ("pow", "and", "or"))
    __lt__, __le__, __gt__, __ge__ = (_operator(it) for it in ("lt", "le", "gt", "ge"))

    def __radd__(self, other: Number) -> Scalar:
        return self._other(other) + self

    def __rsub__(self, other: Number) -> Scalar:
        return self._other(other) - self

    def __rmul__(self, other: Number) -> Scalar:
        return self._other(other) * self

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


_PLAIN = ("add", "sub", "mul", "max", "min", *COMPARISONS, *LOGIC)


def elementwise(
    function: Callable[..., Scalar],
    *operands: Value | Number,
    dtype: str | None = None,
    name: str = "elementwise",
) -> Value:
    """A function of the elements at the same place.

    Args:
        function: From a scalar for each operand to a scalar. Halves arrive as float32; numbers,
            and constants of one element, as constants, numbers in the type of the first tensor.
        operands: Tensors whose shapes broadcast, and numbers.
        dtype: Type of the result; by default that of what the function returns, where it returns
            float32 and the tensors are halves their type.
        name: Name of the workload.

    Raises:
        InvalidValueError: the shapes do not broadcast, types are combined without a cast, or an
            integer is divided by a constant zero.
    """
    tensors = [it for it in operands if isinstance(it, Value)]
    if not tensors:
        raise InvalidValueError(f"{name}: an operation on tensors has a tensor among its operands")
    shape = common_shape([it.shape for it in tensors])
    inlined = any(it.constant is None for it in tensors)
    read = [it for it in tensors if not (inlined and _is_literal(it))]

    def stages(given: Sequence[Tensor]) -> list[Stage]:
        waiting = iter(given)

        def scalar(operand: Value | Number) -> Scalar:
            if not isinstance(operand, Value):
                return scalar_constant(operand, computed_type(tensors[0].dtype))
            if any(operand is it for it in read):
                return _element(next(waiting), shape)
            return _literal(operand)

        result = function(*map(scalar, operands))
        wanted = dtype or _result_type(result, tensors)
        return [Stage(Tensor("y", shape, wanted), spatial(shape), result.cast(wanted).body)]

    return program(name, read, stages)


def _element(tensor: Tensor, shape: Sequence[int]) -> Scalar:
    body = widened(load(tensor, broadcast_indices(tensor.shape, shape)), tensor.dtype)
    return Scalar(body, computed_type(tensor.dtype))


def _is_literal(value: Value) -> bool:
    """Tell if it is one number, which a body may hold; NaN is none in JSON."""
    if value.constant is None or value.constant.size != 1:
        return False
    return not np.any(np.isnan(element_type(value.dtype).numbers(value.constant)))


def _literal(value: Value) -> Scalar:
    number = element_type(value.dtype).numbers(np.asarray(value.constant)).item()
    return scalar_constant(number, computed_type(value.dtype))


def _result_type(result: Scalar, tensors: Sequence[Value]) -> str:
    """The type of a result: that of the halves where halves were computed with in float32."""
    floats = {it.dtype for it in tensors if element_type(it.dtype).is_float}
    halves = floats & {*HALVES}
    if result.dtype == "float32" and len(floats) == len(halves) == 1:
        return next(iter(halves))
    return result.dtype


def broadcast_indices(shape: Sequence[int], to: Sequence[int]) -> list[IntExpr]:
    """The indices of a tensor of ``shape`` at a place of the shape that it is broadcast to."""
    skipped = len(to) - len(shape)
    return [
        const(0) if extent < to[skipped + at] else var(f"i{skipped + at}")
        for at, extent in enumerate(shape)
    ]


def common_shape(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The shape that shapes broadcast to.

    Raises:
        InvalidValueError: they do not.
    """
    try:
        return tuple(map(int, np.broadcast_shapes(*map(tuple, shapes))))
    except ValueError:
        written = ", ".join(str([*shape]) for shape in shapes)
        raise InvalidValueError(f"shapes {written} do not broadcast") from None


def unary(op: str, x: Value) -> Value:
    """A function of each element: one of expressions, or of the C library.

    Raises:
        InvalidValueError: there is no such function.
    """
    if op in FUNCTIONS:
        return host("function", [x], [(x.shape, x.dtype)], function=op)[0]
    if op in BITWISE:
        return host("bitwise", [x], [(x.shape, x.dtype)], function=op)[0]
    if op not in UNARY:
        known = ", ".join((*UNARY, *FUNCTIONS, "bit_not"))
        raise InvalidValueError(f"no function {op!r}; there are {known}")
    return elementwise(lambda it: it.call(op), x, name=op)


def binary(op: str, left: Value | Number, right: Value | Number) -> Value:
    """An operation on two elements, of one type.

    ``div`` of integers truncates, ``mod`` has the sign of the divisor, ``fmod`` that of what is
    divided. ``max`` and ``min`` of NaN are NaN. ``bit_and`` and the like are of integers,
    ``atan2`` and the like of floats.

    Raises:
        InvalidValueError: there is no such operation, or the types differ.
    """
    if op in BITWISE or op in FUNCTIONS:
        kind = "bitwise" if op in BITWISE else "function"
        values = _as_values(left, right)
        shape = common_shape([it.shape for it in values])
        return host(kind, values, [(shape, values[0].dtype)], function=op)[0]
    if op not in _BINARY:
        known = ", ".join((*_BINARY, *BITWISE, *FUNCTIONS))
        raise InvalidValueError(f"no operation {op!r}; there are {known}")
    return elementwise(_BINARY[op], left, right, name=op)


def _as_values(*operands: Value | Number) -> list[Value]:
    dtype = next(it.dtype for it in operands if isinstance(it, Value))
    return [it if isinstance(it, Value) else constant(it, dtype) for it in operands]


def _plain(op: str, left: Scalar, right: Scalar) -> Scalar:
    return left.binary(op, right)


def _power(left: Scalar, right: Scalar) -> Scalar:
    """A power; a square is a product, which costs less."""
    is_square = isinstance(right.body, Constant) and right.body.value == 2
    return left * left if is_square and left.dtype == right.dtype else left**right


def _remainder(left: Scalar, right: Scalar) -> Scalar:
    """The remainder with the sign of what is divided."""
    if not left.is_float:
        return left - left / right * right
    rest = left.call("abs") % right.call("abs")
    return where(left < 0, -rest, rest)


_BINARY: Mapping[str, Callable[[Scalar, Scalar], Scalar]] = MappingProxyType(
    {
        **{op: partial(_plain, op) for op in _PLAIN},
        "div": lambda left, right: left / right,
        "mod": lambda left, right: left % right,
        "pow": _power,
        "fmod": _remainder,
        "xor": lambda left, right: left.differs(right),
    }
)


def select(condition: Value, yes: Value | Number, no: Value | Number) -> Value:
    """``yes`` where the condition holds, else ``no``."""
    dtype = next((it.dtype for it in (yes, no) if isinstance(it, Value)), "float32")
    sides = [it if isinstance(it, Value) else constant(it, dtype) for it in (yes, no)]
    return elementwise(where, condition, *sides, name="where")


def cast(x: Value, dtype: str) -> Value:
    """The elements in another type: floats rounded to nearest even, or towards zero to integers.

    Integers that do not fit wrap around. A float that an integer type cannot hold may become any
    number of it.
    """
    return x if x.dtype == dtype else elementwise(lambda it: it, x, dtype=dtype, name="cast")


def clamp(x: Value, low: Number | None = None, high: Number | None = None) -> Value:
    """At least ``low`` and at most ``high``, which wins; NaN stays NaN."""

    def clamped(it: Scalar) -> Scalar:
        raised = it if low is None else maximum(it, low)
        return raised if high is None else minimum(raised, high)

    return elementwise(clamped, x, name="clamp")
