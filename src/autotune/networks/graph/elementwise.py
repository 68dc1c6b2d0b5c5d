"""Operations element by element, on shapes that broadcast as in numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import numpy as np

from autotune.errors import InvalidValueError
from autotune.ir.element_types import element_type
from autotune.ir.expressions import Constant, IntExpr, const, var
from autotune.ir.expressions.scalar import COMPARISONS, LOGIC, UNARY
from autotune.ir.workloads import Stage, Tensor
from autotune.networks.graph.graph import Value, constant
from autotune.networks.graph.host import BITWISE, FUNCTIONS
from autotune.networks.graph.making import HALVES, host, load, program, spatial, widened
from autotune.networks.graph.scalars import (
    Number,
    Scalar,
    maximum,
    minimum,
    scalar_constant,
    where,
)

__all__ = [
    "binary",
    "broadcast_indices",
    "cast",
    "clamp",
    "common_shape",
    "elementwise",
    "select",
    "unary",
]

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
                return scalar_constant(operand, _computed(tensors[0].dtype))
            if any(operand is it for it in read):
                return _element(next(waiting), shape)
            return _literal(operand)

        result = function(*map(scalar, operands))
        wanted = dtype or _result_type(result, tensors)
        return [Stage(Tensor("y", shape, wanted), spatial(shape), result.cast(wanted).body)]

    return program(name, read, stages)


def _computed(dtype: str) -> str:
    return "float32" if dtype in HALVES else dtype


def _element(tensor: Tensor, shape: Sequence[int]) -> Scalar:
    body = widened(load(tensor, broadcast_indices(tensor.shape, shape)), tensor.dtype)
    return Scalar(body, _computed(tensor.dtype))


def _is_literal(value: Value) -> bool:
    """Tell if it is one number, which a body may hold; NaN is none in JSON."""
    if value.constant is None or value.constant.size != 1:
        return False
    return not np.any(np.isnan(element_type(value.dtype).numbers(value.constant)))


def _literal(value: Value) -> Scalar:
    number = element_type(value.dtype).numbers(np.asarray(value.constant)).item()
    return scalar_constant(number, _computed(value.dtype))


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
