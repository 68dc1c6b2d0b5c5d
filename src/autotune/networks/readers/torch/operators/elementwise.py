"""Operators that compute each element by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autotune.errors import UnsupportedWorkload
from autotune.networks.graph import (
    Scalar,
    Value,
    binary,
    constant,
    elementwise,
    maximum,
    minimum,
    reshape,
    select,
    unary,
    where,
)
from autotune.networks.readers.forms import (
    as_type,
    celu,
    gelu,
    gelu_tanh,
    is_float,
    ordered,
    softplus,
)
from autotune.networks.readers.torch.call import Call, Operator, number, operand, promoted

__all__ = ["ELEMENTWISE"]


def _softplus(x: Scalar, beta: float = 1, threshold: float = 20) -> Scalar:
    scaled = x * beta
    return where(scaled > threshold, x, softplus(scaled) / beta)


def _elu(x: Scalar, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Scalar:
    grown = ((x * input_scale).call("exp") - 1) * (alpha * scale)
    return where(x < 0, grown, x * scale)


def _hard_sigmoid(x: Scalar) -> Scalar:
    return minimum(maximum(x + 3, 0), 6) / 6


def _sign(x: Scalar) -> Scalar:
    positive = where(x > 0, 1, x)
    positive = positive if x.dtype.startswith("uint") else where(x < 0, -1, positive)
    return where(x.differs(x), 0, positive) if x.is_float else positive


def _log_sigmoid(x: Scalar) -> Scalar:
    return minimum(x, 0) - (1 + (-x.call("abs")).call("exp")).call("log")


def _clamped(x: Scalar, low: float | None = None, high: float | None = None) -> Scalar:
    raised = x if low is None else maximum(x, low)
    return raised if high is None else minimum(raised, high)


def _trunc(x: Scalar) -> Scalar:
    return where(x < 0, x.call("ceil"), x.call("floor"))


_FUNCTIONS: Mapping[str, Callable[..., Scalar]] = {
    "relu": lambda x: maximum(x, 0),
    "relu6": lambda x: _clamped(x, 0, 6),
    "silu": lambda x: x * x.call("sigmoid"),
    "mish": lambda x: x * _softplus(x).call("tanh"),
    "elu": _elu,
    "celu": celu,
    "gelu": lambda x, approximate="none": (gelu_tanh if approximate == "tanh" else gelu)(x),
    "softplus": _softplus,
    "log_sigmoid": _log_sigmoid,
    "hardtanh": lambda x, min_val=-1, max_val=1: _clamped(x, min_val, max_val),
    "hardsigmoid": _hard_sigmoid,
    "hardswish": lambda x: x * _hard_sigmoid(x),
    "leaky_relu": lambda x, negative_slope=0.01: where(x > 0, x, x * negative_slope),
    "reciprocal": lambda x: 1 / x,
    "square": lambda x: x * x,
    "erfc": lambda x: 1 - x.call("erf"),
}
"""Functions of an element and the operator's numbers."""

_WHOLE: Mapping[str, Callable[..., Scalar]] = {
    "sign": _sign,
    "trunc": _trunc,
}
"""Functions that are of whole numbers, too."""

_NAMED: Mapping[str, str] = {
    **{it: it for it in ("exp", "expm1", "exp2", "log", "log1p", "log2", "log10", "sqrt")},
    **{it: it for it in ("rsqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh")},
    **{it: it for it in ("asinh", "acosh", "atanh", "tanh", "sigmoid", "erf", "floor", "ceil")},
    **{it: it for it in ("abs", "neg")},
    "lgamma": "gamma_log",
}
"""Functions of expressions, or of the C library."""

_UNCHANGED_WHOLE = ("floor", "ceil", "round", "trunc", "fix", "abs", "relu")


def _computed(call: Call) -> Value:
    """The first operand in the type that a function of it is computed in."""
    return as_type(call.x, call.dtype if is_float(call.dtype) else call.x.dtype)


def _is_as_it_is(kind: str, x: Value) -> bool:
    if kind == "abs" and x.dtype.startswith("int") or kind == "relu" and x.dtype != "bool":
        return False
    return kind in _UNCHANGED_WHOLE and not is_float(x.dtype)


def _function(call: Call) -> Value:
    """A function of an element and numbers, which have the names of its parameters."""
    kind, x = call.kind, _computed(call)
    if _is_as_it_is(kind, x):
        return x
    numbers = dict(list(call.arguments.items())[1:])
    numbers = {it: value for it, value in numbers.items() if value is not None}
    if kind == "hardtanh" and not is_float(x.dtype):
        numbers = {it: number(value, x.dtype) for it, value in numbers.items()}
    function = {**_FUNCTIONS, **_WHOLE}[kind]
    return elementwise(lambda it: function(it, **numbers), x, name=kind)


def _named(call: Call) -> Value:
    kind, x = call.kind, _computed(call)
    return x if _is_as_it_is(kind, x) else unary(_NAMED[kind], x)


def _round(call: Call) -> Value:
    x, decimals = call.x, call.get("decimals", 0)
    if not is_float(x.dtype):
        return x
    if not decimals:
        return unary("round", x)
    # As torch has it: by a power of ten, on the side on which it is whole.
    ten = 10.0 ** abs(decimals)
    if decimals > 0:
        return elementwise(lambda it: (it * ten).call("round") / ten, x, name="round")
    return elementwise(lambda it: (it / ten).call("round") * ten, x, name="round")


# Two operands.


def _sides(call: Call, dtype: str | None = None) -> tuple[Any, Any, str]:
    """Both operands of a call in one type, one at least a tensor."""
    left, right = list(call.arguments.values())[:2]
    kind = dtype or promoted(left, right)
    return *_tensors(operand(left, kind), operand(right, kind), kind), kind


def _tensors(left: Any, right: Any, dtype: str) -> tuple[Any, Any]:
    """Two numbers are no operands of a graph: the first becomes a constant."""
    if isinstance(left, Value) or isinstance(right, Value):
        return left, right
    return constant(left, dtype), right


def _result(found: Value, call: Call) -> Value:
    return as_type(found, call.dtype)


_ON_TRUTHS = {"add": "or", "mul": "and", "maximum": "or", "minimum": "and"}
_OPERATIONS = {"add": "add", "sub": "sub", "mul": "mul", "maximum": "max", "minimum": "min"}


def _arithmetic(call: Call) -> Value:
    """Sums with a factor of the second operand, products, extremes."""
    left, right, dtype = _sides(call)
    alpha = call.get("alpha", 1)
    if dtype == "bool":
        if not alpha:
            right = binary("and", right, False) if isinstance(right, Value) else False
        return _result(binary(_ON_TRUTHS[call.kind], left, right), call)
    if alpha != 1:
        factor = number(alpha, dtype)
        right = binary("mul", right, factor) if isinstance(right, Value) else right * factor
    return _result(binary(_OPERATIONS[call.kind], left, right), call)


def _div(call: Call) -> Value:
    mode = call.get("rounding_mode")
    if call.kind == "floor_divide":
        mode = "floor"
    if mode is None:
        left, right, _ = _sides(call, call.dtype)
        return binary("div", left, right)
    left, right, dtype = _sides(call)
    if is_float(dtype):
        return NotImplemented  # type: ignore[no-any-return]
    if mode == "trunc":
        return _result(binary("div", left, right), call)
    if not isinstance(left, Value):
        left, right = _tensors(left, right, dtype)
    rest = binary("mod", left, right)
    return _result(binary("div", binary("sub", left, rest), right), call)


def _remainder(call: Call) -> Value:
    left, right, _ = _sides(call)
    return _result(binary("mod" if call.kind == "remainder" else "fmod", left, right), call)


def _pow(call: Call) -> Value:
    left, right, dtype = _sides(call, call.dtype)
    if not is_float(dtype):
        return _whole_power(left, right, dtype)
    exponent = [*call.arguments.values()][1]
    if not isinstance(exponent, Value) and (special := _POWERS.get(float(exponent))) is not None:
        return elementwise(special, left, name="pow")
    return binary("pow", left, right)


_POWERS: Mapping[float, Callable[[Scalar], Scalar]] = {
    0.5: lambda x: x.call("sqrt"),
    -0.5: lambda x: x.call("rsqrt"),
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
    -1.0: lambda x: 1 / x,
    -2.0: lambda x: 1 / (x * x),
}
"""Exponents of which torch does not ask the C library."""


def _whole_power(left: Any, right: Any, dtype: str) -> Value:
    if dtype == "bool":
        # 0 ** 0 is 1, and so is 1 to whatever power.
        return binary("or", left, _not(right))

    def power(x: Scalar, y: Scalar) -> Scalar:
        raised = x.binary("pow", maximum(y, 0))
        if dtype.startswith("uint"):
            return raised
        half = y / 2
        odd = (y - half * 2).differs(0)
        below = where(x.equals(1), 1, where(x.equals(-1), where(odd, x, x * x), x * 0))
        return where(y < 0, below, raised)

    return elementwise(power, left, right, name="pow")


def _not(x: Any) -> Any:
    return unary("not", x) if isinstance(x, Value) else not x


def _compared(call: Call) -> Value:
    left, right, dtype = _sides(call)
    if dtype == "bool":
        left, right = (operand(it, "uint8") for it in (left, right))
    return binary(call.kind, left, right)


def _logical(call: Call) -> Value:
    left, right, _ = _sides(call, "bool")
    return binary(call.kind.removeprefix("logical_"), left, right)


_BITS = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}
_BITS |= {f"__{it}__": it for it in ("and", "or", "xor")}


def _bitwise(call: Call) -> Value:
    left, right, dtype = _sides(call)
    op = _BITS[call.kind]
    return binary(op if dtype == "bool" else f"bit_{op}", left, right)


def _shift(call: Call) -> Value:
    left, right, dtype = _sides(call)
    if is_float(dtype):
        raise UnsupportedWorkload("shifts of floats are not supported")
    return binary(_SHIFTS[call.kind], left, right)


_SHIFTS = {
    **dict.fromkeys(("bitwise_left_shift", "__lshift__"), "shift_left"),
    **dict.fromkeys(("bitwise_right_shift", "__rshift__"), "shift_right"),
}


def _of_library(call: Call) -> Value:
    left, right, _ = _sides(call, call.dtype)
    return binary(_LIBRARY[call.kind], left, right)


_LIBRARY = {"atan2": "atan2", "hypot": "hypot", "nextafter": "next_after"}


def _ignoring_nan(call: Call) -> Value:
    """The larger or smaller one of two, of which one may be NaN."""
    left, right, dtype = _sides(call)
    op = "max" if call.kind == "fmax" else "min"
    if not is_float(dtype):
        return _arithmetic(
            Call(op + "imum", call.overload, call.arguments, call.results, call.strides)
        )

    def function(a: Scalar, b: Scalar) -> Scalar:
        return where(a.differs(a), b, where(b.differs(b), a, a.binary(op, b)))

    return elementwise(function, left, right, name=call.kind)


def _sign_bit(call: Call) -> Value:
    """Of a zero that of its reciprocal; in the type that torch says, which need not be truths."""

    def negative(x: Scalar) -> Scalar:
        return (x < 0) | (x.equals(0) & (1 / x < 0)) if x.is_float else x < 0

    return _result(elementwise(negative, ordered(call.x), name="signbit"), call)


def _where(call: Call) -> Value:
    condition, *sides = call.arguments.values()
    yes, no = (operand(it, call.dtype) for it in sides)
    return select(as_type(condition, "bool"), *_tensors(yes, no, call.dtype))


def _clamp(call: Call) -> Value:
    x = as_type(call.x, call.dtype)
    low, high = call.get("min"), call.get("max")
    if call.dtype == "bool":
        raise UnsupportedWorkload("bounds of truths are not supported")
    if low is not None:
        x = binary("max", x, operand(low, call.dtype))
    return x if high is None else binary("min", x, operand(high, call.dtype))


def _prelu(call: Call) -> Value:
    x, slope = call.x, call["weight"]
    if slope.rank == 1 and call.kind == "prelu":
        slope = reshape(slope, (-1, *[1] * max(0, x.rank - 2)))
    return elementwise(lambda it, by: where(it > 0, it, it * by), x, slope, name="prelu")


def _rrelu(call: Call) -> Value:
    """In evaluation: the slope is between those from which training draws."""
    slope = (call["lower"] + call["upper"]) / 2
    return elementwise(lambda x: where(x < 0, x * slope, x), call.x, name="rrelu")


ELEMENTWISE: Mapping[str, Operator] = {
    **dict.fromkeys((*_FUNCTIONS, *_WHOLE), _function),
    **dict.fromkeys(_NAMED, _named),
    **dict.fromkeys(("add", "sub", "mul", "maximum", "minimum"), _arithmetic),
    **dict.fromkeys(("div", "floor_divide"), _div),
    **dict.fromkeys(("remainder", "fmod"), _remainder),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), _compared),
    **dict.fromkeys((f"logical_{it}" for it in ("and", "or", "xor")), _logical),
    **dict.fromkeys(_BITS, _bitwise),
    **dict.fromkeys(_SHIFTS, _shift),
    **dict.fromkeys(_LIBRARY, _of_library),
    **dict.fromkeys(("fmax", "fmin"), _ignoring_nan),
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max", "clip"), _clamp),
    **dict.fromkeys(("prelu", "_prelu_kernel"), _prelu),
    "round": _round,
    "pow": _pow,
    "logical_not": lambda call: unary("not", as_type(call.x, "bool")),
    "bitwise_not": lambda call: unary("not" if call.x.dtype == "bool" else "bit_not", call.x),
    "signbit": _sign_bit,
    "where": _where,
    "rrelu": _rrelu,
}
