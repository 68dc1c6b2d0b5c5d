"""Operators that compute each element by itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from autotune.errors import UnsupportedWorkload
from autotune.ir.element_types import element_type
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


def _selu(x: Scalar) -> Scalar:
    return _elu(x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


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


def _hardshrink(x: Scalar, lambd: float = 0.5) -> Scalar:
    return where((x >= -lambd) & (x <= lambd), 0, x)


def _softshrink(x: Scalar, lambd: float = 0.5) -> Scalar:
    inside = where((x >= -lambd) & (x <= lambd), x * 0, x)
    return where(x > lambd, x - lambd, where(x < -lambd, x + lambd, inside))


def _logit(x: Scalar, eps: float | None = None) -> Scalar:
    inside = x if eps is None else minimum(maximum(x, eps), 1 - eps)
    return (inside / (1 - inside)).call("log")


_FUNCTIONS: Mapping[str, Callable[..., Scalar]] = {
    "relu": lambda x: maximum(x, 0),
    "relu6": lambda x: _clamped(x, 0, 6),
    "silu": lambda x: x * x.call("sigmoid"),
    "mish": lambda x: x * _softplus(x).call("tanh"),
    "elu": _elu,
    "selu": _selu,
    "celu": celu,
    "gelu": lambda x, approximate="none": (gelu_tanh if approximate == "tanh" else gelu)(x),
    "softplus": _softplus,
    "log_sigmoid": _log_sigmoid,
    "hardtanh": lambda x, min_val=-1, max_val=1: _clamped(x, min_val, max_val),
    "hardsigmoid": _hard_sigmoid,
    "hardswish": lambda x: x * _hard_sigmoid(x),
    "hardshrink": _hardshrink,
    "softshrink": _softshrink,
    "leaky_relu": lambda x, negative_slope=0.01: where(x > 0, x, x * negative_slope),
    "threshold": lambda x, threshold, value: where(x <= threshold, value, x),
    "reciprocal": lambda x: 1 / x,
    "square": lambda x: x * x,
    "erfc": lambda x: 1 - x.call("erf"),
    "logit": _logit,
    "deg2rad": lambda x: x * (math.pi / 180),
    "rad2deg": lambda x: x * (180 / math.pi),
}
"""Functions of an element and the operator's numbers."""

_WHOLE: Mapping[str, Callable[..., Scalar]] = {
    "sign": _sign,
    "sgn": _sign,
    "trunc": _trunc,
    "fix": _trunc,
    "frac": lambda x: x - _trunc(x),
}
"""Functions that are of whole numbers, too."""

_NAMED: Mapping[str, str] = {
    **{it: it for it in ("exp", "expm1", "exp2", "log", "log1p", "log2", "log10", "sqrt")},
    **{it: it for it in ("rsqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh")},
    **{it: it for it in ("asinh", "acosh", "atanh", "tanh", "sigmoid", "erf", "floor", "ceil")},
    **{it: it for it in ("abs", "neg")},
    "lgamma": "gamma_log",
    "special_gammaln": "gamma_log",
}
"""Functions of expressions, or of the C library."""

_UNCHANGED_WHOLE = ("floor", "ceil", "round", "trunc", "fix", "abs", "relu")
_FUNCTION_NAMES = {
    "sigmoid_": "sigmoid",
    "special_expit": "sigmoid",
    "special_erf": "erf",
    "special_erfc": "erfc",
    "special_exp2": "exp2",
    "special_expm1": "expm1",
    "special_log1p": "log1p",
    "special_logit": "logit",
    "negative": "neg",
    "absolute": "abs",
    "arctan": "atan",
    "log_sigmoid_forward": "log_sigmoid",
}


def _computed(call: Call) -> Value:
    """The first operand in the type that a function of it is computed in."""
    return as_type(call.x, call.dtype if is_float(call.dtype) else call.x.dtype)


def _is_as_it_is(kind: str, x: Value) -> bool:
    if kind == "abs" and x.dtype.startswith("int") or kind == "relu" and x.dtype != "bool":
        return False
    return kind in _UNCHANGED_WHOLE and not is_float(x.dtype)


def _function(call: Call) -> Value:
    """A function of an element and numbers, which have the names of its parameters."""
    kind = _FUNCTION_NAMES.get(call.kind, call.kind)
    x = _computed(call)
    if _is_as_it_is(kind, x):
        return x
    numbers = dict(list(call.arguments.items())[1:])
    numbers = {it: value for it, value in numbers.items() if value is not None}
    if kind == "hardtanh" and not is_float(x.dtype):
        numbers = {it: number(value, x.dtype) for it, value in numbers.items()}
    function = {**_FUNCTIONS, **_WHOLE}[kind]
    return elementwise(lambda it: function(it, **numbers), x, name=kind)


def _log_sigmoid_forward(call: Call) -> list[Value]:
    """Also the buffer of torch's backward, which nothing else reads."""
    found = elementwise(_log_sigmoid, call.x, name="log_sigmoid")
    return [found, elementwise(lambda it: (-it.call("abs")).call("exp"), call.x)]


def _named(call: Call) -> Value:
    kind = _FUNCTION_NAMES.get(call.kind, call.kind)
    x = _computed(call)
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


def _is_nan(call: Call) -> Value:
    return _tested(lambda x: x.differs(x), call, whole=False)


def _is_inf(call: Call) -> Value:
    return _tested(lambda x: x.equals(math.inf) | x.equals(-math.inf), call, whole=False)


def _is_finite(call: Call) -> Value:
    return _tested(lambda x: (x - x).equals(0), call, whole=True)


def _tested(test: Callable[[Scalar], Scalar], call: Call, whole: bool) -> Value:
    """A truth for each float; for each whole number it is the same."""
    x = call.x
    if not is_float(x.dtype):
        return elementwise(lambda it: it.equals(it) if whole else it.differs(it), ordered(x))
    return elementwise(test, x, dtype="bool", name=call.kind)


def _nan_to_num(call: Call) -> Value:
    x = call.x
    if not is_float(x.dtype):
        return x
    largest = element_type(x.dtype).largest
    nan, high = call.get("nan", 0.0), call.get("posinf", largest)
    low = call.get("neginf", -largest)

    def function(it: Scalar) -> Scalar:
        finite = where(it.equals(math.inf), high, where(it.equals(-math.inf), low, it))
        return where(it.differs(it), nan, finite)

    return elementwise(function, x, name="nan_to_num")


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
    kind = "sub" if call.kind == "subtract" else call.kind
    alpha = call.get("alpha", 1)
    if dtype == "bool":
        if not alpha:
            right = binary("and", right, False) if isinstance(right, Value) else False
        return _result(binary(_ON_TRUTHS[kind], left, right), call)
    if alpha != 1:
        factor = number(alpha, dtype)
        right = binary("mul", right, factor) if isinstance(right, Value) else right * factor
    return _result(binary(_OPERATIONS[kind], left, right), call)


def _rsub(call: Call) -> Value:
    left, right, dtype = _sides(call)
    alpha = call.get("alpha", 1)
    if alpha != 1:
        left = binary("mul", left, number(alpha, dtype))
    return _result(binary("sub", right, left), call)


def _div(call: Call) -> Value:
    mode = call.get("rounding_mode")
    if call.kind == "floor_divide":
        mode = "floor"
    if mode is None:
        left, right, _ = _sides(call, call.dtype)
        return binary("div", left, right)
    left, right, dtype = _sides(call)
    if is_float(dtype):
        function = _floor_quotient if mode == "floor" else lambda a, b: _trunc(a / b)
        return _result(elementwise(function, left, right, name=f"div_{mode}"), call)
    if mode == "trunc":
        return _result(binary("div", left, right), call)
    if not isinstance(left, Value):
        left, right = _tensors(left, right, dtype)
    rest = binary("mod", left, right)
    return _result(binary("div", binary("sub", left, rest), right), call)


def _fmod(a: Scalar, b: Scalar) -> Scalar:
    rest = a.call("abs") % b.call("abs")
    return where(a < 0, -rest, rest)


def _floor_quotient(a: Scalar, b: Scalar) -> Scalar:
    """Python's ``//`` of floats: exact where the rounded quotient is not."""
    rest = _fmod(a, b)
    quotient = (a - rest) / b
    apart = ((b < 0) & (rest > 0)) | ((b > 0) & (rest < 0))
    quotient = where(apart, quotient - 1, quotient)
    floor = quotient.call("floor")
    floor = where(quotient - floor > 0.5, floor + 1, floor)
    floor = where(quotient.equals(0), (a / b) * 0, floor)
    return where(b.equals(0), a / b, floor)


def _remainder(call: Call) -> Value:
    left, right, _ = _sides(call)
    return _result(binary("mod" if call.kind == "remainder" else "fmod", left, right), call)


def _pow(call: Call) -> Value:
    left, right, dtype = _sides(call, call.dtype)
    if not is_float(dtype):
        return _whole_power(left, right, dtype)
    if not isinstance(call.arguments["exponent"], Value):
        special = _POWERS.get(float(call.arguments["exponent"]))
        if special is not None:
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
    return binary(_COMPARISONS[call.kind], left, right)


_COMPARISONS = {
    **{it: it for it in ("eq", "ne", "lt", "le", "gt", "ge")},
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "not_equal": "ne",
}


def _logical(call: Call) -> Value:
    left, right, _ = _sides(call, "bool")
    return binary(call.kind.removeprefix("logical_"), left, right)


def _logical_not(call: Call) -> Value:
    return unary("not", as_type(call.x, "bool"))


_BITS = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}
_BITS |= {f"__{it}__": it for it in ("and", "or", "xor")}


def _bitwise(call: Call) -> Value:
    left, right, dtype = _sides(call)
    op = _BITS[call.kind]
    return binary(op if dtype == "bool" else f"bit_{op}", left, right)


def _bitwise_not(call: Call) -> Value:
    return unary("not" if call.x.dtype == "bool" else "bit_not", call.x)


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


_LIBRARY = {"atan2": "atan2", "arctan2": "atan2", "hypot": "hypot", "nextafter": "next_after"}


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


def _copysign(call: Call) -> Value:
    left, right, _ = _sides(call, call.dtype)

    def function(a: Scalar, b: Scalar) -> Scalar:
        size = a.call("abs")
        # The sign of a zero is that of its reciprocal.
        return where((b < 0) | (b.equals(0) & (1 / b < 0)), -size, size)

    return elementwise(function, left, right, name="copysign")


def _where(call: Call) -> Value:
    condition = as_type(call["condition"], "bool")
    yes, no = call["self"], call["other"]
    dtype = call.dtype
    yes, no = (operand(it, dtype) for it in (yes, no))
    return select(condition, *_tensors(yes, no, dtype))


def _masked_fill(call: Call) -> Value:
    value = operand(call["value"], call.dtype)
    return select(as_type(call["mask"], "bool"), value, as_type(call.x, call.dtype))


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


def _addcmul(call: Call) -> Value:
    """``self + value * tensor1 * tensor2``, or with a quotient of them."""
    dtype, value = call.dtype, number(call.get("value", 1), call.dtype)
    x, one, other = (operand(call[it], dtype) for it in ("self", "tensor1", "tensor2"))
    divides = call.kind == "addcdiv"
    return elementwise(
        lambda a, b, c: a + (b * value / c if divides else b * value * c),
        x,
        one,
        other,
        name=call.kind,
    )


def _lerp(call: Call) -> Value:
    start, end = (as_type(call[it], call.dtype) for it in ("self", "end"))
    weight = operand(call["weight"], call.dtype)

    def function(a: Scalar, b: Scalar, w: Scalar) -> Scalar:
        near = (w < 0.5) & (w > -0.5)
        return where(near, a + w * (b - a), b - (b - a) * (1 - w))

    return elementwise(function, start, end, weight, name="lerp")


def _rrelu(call: Call) -> Value:
    """In evaluation: the slope is between those from which training draws."""
    slope = (call["lower"] + call["upper"]) / 2
    return elementwise(lambda x: where(x < 0, x * slope, x), call.x, name="rrelu")


ELEMENTWISE: Mapping[str, Operator] = {
    **dict.fromkeys((*_FUNCTIONS, *_WHOLE), _function),
    **dict.fromkeys(_NAMED, _named),
    **{
        it: _function if name in _FUNCTIONS else _named
        for it, name in _FUNCTION_NAMES.items()
        if name in _FUNCTIONS or name in _NAMED
    },
    **dict.fromkeys(("add", "sub", "subtract", "mul", "maximum", "minimum"), _arithmetic),
    **dict.fromkeys(("div", "floor_divide"), _div),
    **dict.fromkeys(("remainder", "fmod"), _remainder),
    **dict.fromkeys(_COMPARISONS, _compared),
    **dict.fromkeys((f"logical_{it}" for it in ("and", "or", "xor")), _logical),
    **dict.fromkeys(_BITS, _bitwise),
    **dict.fromkeys(_SHIFTS, _shift),
    **dict.fromkeys(_LIBRARY, _of_library),
    **dict.fromkeys(("fmax", "fmin"), _ignoring_nan),
    **dict.fromkeys(("addcmul", "addcdiv"), _addcmul),
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max", "clip"), _clamp),
    **dict.fromkeys(("prelu", "_prelu_kernel"), _prelu),
    "log_sigmoid_forward": _log_sigmoid_forward,
    "round": _round,
    "isnan": _is_nan,
    "isinf": _is_inf,
    "isfinite": _is_finite,
    "nan_to_num": _nan_to_num,
    "rsub": _rsub,
    "pow": _pow,
    "logical_not": _logical_not,
    "bitwise_not": _bitwise_not,
    "copysign": _copysign,
    "where": _where,
    "masked_fill": _masked_fill,
    "lerp": _lerp,
    "rrelu": _rrelu,
}
