"""Operators that compute each element by itself, or of all along axes.

Those are reductions, softmax, running sums, what chooses elements by their order, normalisations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from autotune.errors import UnsupportedWorkload
from autotune.networks.graph import (
    Scalar,
    Value,
    arg,
    binary,
    broadcast,
    cast,
    constant,
    elementwise,
    log_softmax,
    log_sum_exp,
    maximum,
    mean,
    minimum,
    normalized,
    reduce,
    reshape,
    scan,
    select,
    slice_axis,
    softmax,
    take,
    take_along,
    top_k,
    unary,
    unsqueeze,
    variance,
    where,
)
from autotune.networks.graph.making import computed_type
from autotune.networks.readers.forms import (
    as_type,
    batch_affine,
    celu,
    column,
    gelu,
    gelu_tanh,
    is_float,
    ordered,
    scaled,
    softplus,
    vector,
    widened,
)
from autotune.networks.readers.torch.call import Call, Operator, number, operand, promoted
from autotune.networks.readers.torch.operators.shapes import filled

__all__ = ["ARITHMETIC"]


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


def _axes(call: Call) -> list[int] | None:
    """The axes that are reduced, which primitives of torch call otherwise; of a number none."""
    name = next((it for it in ("dim", "dims") if it in call.arguments), None)
    found = None if name is None else call.axes(name)
    return found if call.x.rank else []


def _keeps(call: Call) -> bool:
    return bool(call.get("keepdim", False))


def _reduced(combiner: str, call: Call) -> Value:
    x = as_type(call.x, call.dtype)
    return _shaped(reduce(combiner, x, _axes(call), _keeps(call)), call)


def _shaped(found: Value, call: Call) -> Value:
    return reshape(found, call.shape)


def _mean(call: Call) -> Value:
    x = as_type(call.x, call.dtype)
    if x.size == 0:
        return filled(call.shape, math.nan, call.dtype)
    return _shaped(mean(x, _axes(call), _keeps(call)), call)


def _extremum(op: str, call: Call) -> Value:
    """The largest or smallest element, of truths as of whole numbers."""
    x = call.x
    found = reduce(op, ordered(x), _axes(call), _keeps(call))
    return _shaped(as_type(found, x.dtype), call)


def _max(call: Call) -> Value | list[Value]:
    """Three operators: of two tensors, of one along an axis with places, or of all of one."""
    if "other" in call.arguments:
        dtype = promoted(call["self"], call["other"])
        left, right = (operand(call[it], dtype) for it in ("self", "other"))
        if dtype == "bool":
            return binary("or" if call.kind == "max" else "and", left, right)
        return binary(call.kind, left, right)
    if "dim" not in call.arguments:
        return _extremum(call.kind, call)
    x, axis = call.x, call.axis()
    if not x.rank:
        return [x, vector(0)]
    places = arg(call.kind, x, axis)
    values = take_along(x, places, axis)
    return [_shaped(values, call), _shaped(places, call)]


def _arg(call: Call) -> Value:
    x, op = call.x, call.kind[3:]
    if not x.rank:
        return _shaped(vector(0), call)
    if call["dim"] is None:
        return _shaped(arg(op, reshape(x, (-1,)), 0), call)
    return _shaped(arg(op, x, call.axis()), call)


def _any(call: Call) -> Value:
    op = "max" if call.kind == "any" else "min"
    truths = as_type(as_type(call.x, "bool"), "uint8")
    return _shaped(as_type(reduce(op, truths, _axes(call), _keeps(call)), call.dtype), call)


def _variance(call: Call) -> Value:
    """By whatever the overload says of its correction; also of torch's primitive."""
    x = widened(call.x)
    axes = _axes(call)
    correction = call.get("correction", 1)
    if "unbiased" in call.arguments:
        correction = int(call["unbiased"])
    count = prod(x.shape if axes is None else [x.shape[at] for at in axes])
    if count == 0:
        return filled(call.shape, math.nan, call.dtype)
    found = variance(x, axes, correction=correction if count > correction else 0)
    if count <= correction:
        # As torch divides: by 0, and never by less.
        found = elementwise(lambda it: it * count / (it * 0), found)
    return cast(reshape(found, call.shape), call.dtype)


def _norm(call: Call) -> Value:
    """The root of the sum of powers, or the largest or smallest amount, or a count."""
    p = call.get("ord", call.get("p", 2))
    size = unary("abs", as_type(call.x, computed_type(call.dtype)))
    return _shaped(cast(_norm_of(size, p, _axes(call), _keeps(call)), call.dtype), call)


def _norm_of(size: Value, p: float, axes: Sequence[int] | None, keep: bool) -> Value:
    """The norm of amounts."""
    if size.size == 0 and p in (math.inf, -math.inf):
        raise UnsupportedWorkload("the largest amount of nothing is not supported")
    if p in (math.inf, -math.inf):
        return reduce("max" if p > 0 else "min", size, axes, keep)
    if p == 0:
        ones = elementwise(lambda it: it.differs(0), size, dtype="bool")
        return reduce("add", cast(ones, size.dtype), axes, keep)
    if p == 1:
        return reduce("add", size, axes, keep)
    if p == 2:
        return unary("sqrt", reduce("add", binary("mul", size, size), axes, keep))
    powers = reduce("add", binary("pow", size, float(p)), axes, keep)
    return binary("pow", powers, 1 / p)


def _distances(call: Call) -> Value:
    """Norms of the differences of all rows of two tensors, or of the pairs of one."""
    if call.kind == "_pdist_forward":
        x = call.x
        one, other = (vector(it) for it in np.triu_indices(x.shape[0], 1))
        if call.shape == (0,):
            return filled(call.shape, 0, call.dtype)
        pairs = take(x, one, 0), take(x, other, 0)
    else:
        left, right = call["x1"], call["x2"]
        pairs = unsqueeze(left, [left.rank - 1]), unsqueeze(right, [right.rank - 2])
    if pairs[0].shape[-1] == 0:
        return filled(call.shape, 0, call.dtype)
    apart = elementwise(lambda a, b: (a - b).call("abs"), *pairs, name="distance")
    return _shaped(_norm_of(apart, call["p"], [apart.rank - 1], False), call)


def _log_sum_exp(call: Call) -> Value:
    x = as_type(call.x, call.dtype)
    if x.size == 0:
        return filled(call.shape, -math.inf, call.dtype)
    return _shaped(log_sum_exp(x, _axes(call), _keeps(call)), call)


def _rows(call: Call) -> Value:
    """Softmax or its logarithm along an axis, in the type that torch says."""
    x = as_type(call.x, call.dtype)
    if x.size == 0:
        return x
    function = log_softmax if "log" in call.kind else softmax
    if not x.rank:
        return reshape(function(reshape(x, (1,)), 0), ())
    return function(x, call.axis())


def _scan(combiner: str, call: Call) -> Value:
    x = as_type(call.x, call.dtype)
    return scan(combiner, x, call.axis()) if x.rank and x.size else x


def _running_extremum(op: str, call: Call) -> list[Value]:
    """Running extremes, and where each was last met."""
    x = call.x
    if not x.rank:
        return [x, vector(0)]
    axis = call.axis()
    if x.size == 0:
        return [x, vector(np.zeros(x.shape))]
    numbers = ordered(x)
    found = scan(op, numbers, axis)
    steps = vector(np.arange(x.shape[axis]).reshape(-1, *[1] * (x.rank - 1 - axis)))

    def met(it: Scalar, best: Scalar) -> Scalar:
        same = it.equals(best)
        return same | it.differs(it) if it.is_float else same

    here = select(elementwise(met, numbers, found, dtype="bool"), broadcast(steps, x.shape), 0)
    return [as_type(found, x.dtype), scan("max", here, axis)]


def _log_cumulative(call: Call) -> Value:
    """The logarithm of running sums of ``exp``, less the largest element of all."""
    x = call.x
    if not x.rank or not x.size:
        return x
    axis, kind = call.axis(), computed_type(x.dtype)
    largest = scan("max", cast(x, kind), axis)
    length = x.shape[axis]
    whole = unsqueeze(cast(x, kind), [axis])
    apart = binary("sub", whole, unsqueeze(_finite(largest), [axis + 1]))
    kept = np.tril(np.ones((length, length), bool))
    kept = kept.reshape(length, length, *[1] * (x.rank - 1 - axis))
    grown = select(constant(kept), unary("exp", apart), 0)
    total = reduce("add", grown, [axis + 1], keepdims=False)
    return cast(binary("add", unary("log", total), _finite(largest)), x.dtype)


def _finite(x: Value) -> Value:
    return elementwise(lambda it: where((it - it).equals(0), it, 0), x)


def _sorted(call: Call) -> list[Value]:
    x = call.x
    descending = bool(call.get("descending", False))
    if not x.rank:
        return [x, vector(0)]
    axis = call.get("dim", -1) % x.rank
    values, places = top_k(ordered(x), x.shape[axis], axis, descending)
    return [as_type(values, x.dtype), places]


def _top_k(call: Call) -> list[Value]:
    x = call.x
    if not x.rank:
        return [_shaped(x, call), _shaped(vector(0), call)]
    values, places = top_k(ordered(x), call["k"], call.axis(), bool(call["largest"]))
    return [as_type(values, x.dtype), places]


def _kth(call: Call) -> list[Value]:
    x = call.x
    if not x.rank:
        return [x, vector(0)]
    axis, k = call.axis(), call["k"]
    values, places = top_k(ordered(x), k, axis, False)
    found = [slice_axis(it, axis, k - 1, k) for it in (as_type(values, x.dtype), places)]
    return [_shaped(it, call) for it in found]


def _median(call: Call) -> Value | list[Value]:
    """The lower one of two in the middle; NaN where there is one."""
    whole = "dim" not in call.arguments
    x = reshape(call.x, (-1,)) if whole or not call.x.rank else call.x
    axis = 0 if whole else call.axis()
    ignores = call.kind == "nanmedian"
    if x.shape[axis] == 0:
        raise UnsupportedWorkload("the median of nothing is not supported")
    values, places = top_k(x, x.shape[axis], axis, False)
    middle = vector(np.full([1] * x.rank, (x.shape[axis] - 1) // 2))
    if is_float(x.dtype):
        numbers = elementwise(lambda it: it.equals(it), x, dtype="bool")
        count = reduce("add", cast(numbers, "int64"), [axis])
        last = x.shape[axis] - 1
        if ignores:
            middle = elementwise(lambda it: _half(it), count)
        else:
            # NaN is sorted behind all numbers: the first one follows them.
            middle = select(binary("eq", count, last + 1), broadcast(middle, count.shape), count)
    shape = tuple(1 if at == axis else extent for at, extent in enumerate(x.shape))
    middle = broadcast(middle, shape)
    found = [_shaped(take_along(it, middle, axis), call) for it in (values, places)]
    return found[0] if whole else found


def _half(count: Scalar) -> Scalar:
    return maximum(count - 1, 0) / 2


def _batch_norm(call: Call) -> Value | list[Value]:
    """With running statistics; what the batch's own make of it, torch says."""
    x, running = call.x, (call.get("running_mean"), call.get("running_var"))
    if call.get("training", False) or running[0] is None or running[1] is None:
        return NotImplemented  # type: ignore[no-any-return]
    kind = computed_type(x.dtype)
    scale, bias = (
        filled(running[0].shape, default, kind) if call.get(it) is None else call[it]
        for it, default in (("weight", 1), ("bias", 0))
    )
    found = batch_affine(x, *running, scale, bias, call["eps"])
    if call.kind == "batch_norm":
        return found
    kinds = [kind if it is None else it.dtype for it in call.results[1:]]
    return [found, *(filled((0,), 0, it) for it in kinds)]


def _layer_norm(call: Call) -> Value | list[Value]:
    x, epsilon = call.x, call["eps"]
    axes = list(range(x.rank - len(call["normalized_shape"]), x.rank))
    if x.size == 0:
        found = x
    else:
        found = scaled(normalized(x, axes, epsilon), call.get("weight"), call.get("bias"), x.dtype)
    if call.kind == "layer_norm":
        return found
    return [found, *_statistics(call, x, axes, epsilon)]


def _statistics(call: Call, x: Value, axes: Sequence[int], epsilon: float) -> list[Value]:
    """The mean and inverse deviation that torch returns beside a normalised tensor."""
    wanted = [it for it in call.results[1:] if it is not None]
    if x.size == 0:
        return [filled(it.shape, 0, it.dtype) for it in wanted]
    whole = widened(x)
    inverse = unary("rsqrt", binary("add", variance(whole, axes), epsilon))
    found = mean(whole, axes), inverse
    return [
        reshape(cast(it, kind.dtype), kind.shape) for it, kind in zip(found, wanted, strict=True)
    ]


def _group_norm(call: Call) -> Value | list[Value]:
    x, epsilon = call.x, call["eps"]
    groups = call.get("num_groups", call.get("group"))
    apart = reshape(x, (x.shape[0], groups, -1)) if x.size else x
    found = x
    if x.size:
        rows = [
            None if call.get(it) is None else column(call[it], x.rank) for it in ("weight", "bias")
        ]
        found = scaled(
            reshape(normalized(apart, [2], epsilon), x.shape), rows[0], rows[1], x.dtype
        )
    if call.kind == "group_norm":
        return found
    return [found, *_statistics(call, apart, [2], epsilon)]


ARITHMETIC: Mapping[str, Operator] = {
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
    "sum": partial(_reduced, "add"),
    "prod": partial(_reduced, "mul"),
    "mean": _mean,
    "amax": partial(_extremum, "max"),
    "amin": partial(_extremum, "min"),
    **dict.fromkeys(("max", "min"), _max),
    **dict.fromkeys(("argmax", "argmin"), _arg),
    **dict.fromkeys(("any", "all"), _any),
    "var": _variance,
    **dict.fromkeys(("linalg_vector_norm", "norm"), _norm),
    **dict.fromkeys(("_cdist_forward", "_pdist_forward"), _distances),
    "logsumexp": _log_sum_exp,
    **dict.fromkeys(
        (
            "softmax",
            "_softmax",
            "log_softmax",
            "_log_softmax",
            "special_softmax",
            "special_log_softmax",
        ),
        _rows,
    ),
    "cumsum": partial(_scan, "add"),
    "cumprod": partial(_scan, "mul"),
    "cummax": partial(_running_extremum, "max"),
    "cummin": partial(_running_extremum, "min"),
    "logcumsumexp": _log_cumulative,
    "sort": _sorted,
    "argsort": lambda call: _sorted(call)[1],
    "topk": _top_k,
    "kthvalue": _kth,
    **dict.fromkeys(("median", "nanmedian"), _median),
    **dict.fromkeys(
        ("batch_norm", "native_batch_norm", "_native_batch_norm_legit_no_training"), _batch_norm
    ),
    **dict.fromkeys(("layer_norm", "native_layer_norm"), _layer_norm),
    **dict.fromkeys(("group_norm", "native_group_norm"), _group_norm),
}
