"""Operators that compute each element by itself, reduce axes, or normalise what is along them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import Any

import numpy as np

from autotune.errors import UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.networks.graph import (
    Scalar,
    Value,
    arg,
    binary,
    cast,
    constant,
    elementwise,
    log_softmax,
    log_sum_exp,
    maximum,
    mean,
    minimum,
    normalized,
    one_hot,
    reduce,
    reshape,
    scan,
    select,
    softmax,
    unary,
    variance,
    where,
)
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
    widened,
)
from autotune.networks.readers.onnx.call import Call, Item, Operator
from autotune.networks.readers.onnx.model_file import dtype_of

__all__ = ["ACTIVATIONS", "ARITHMETIC", "layer_norm"]


_BROADCASTS_SINCE = 7


def _elu(x: Scalar, alpha: float = 1.0) -> Scalar:
    return where(x < 0, (x.call("exp") - 1) * alpha, x)


def _selu(
    x: Scalar, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102
) -> Scalar:
    return where(x > 0, x, (x.call("exp") - 1) * alpha) * gamma


def _hard_sigmoid(x: Scalar, alpha: float = 0.2, beta: float = 0.5) -> Scalar:
    return minimum(maximum(x * alpha + beta, 0), 1)


def _sign(x: Scalar) -> Scalar:
    positive = where(x > 0, 1, x)
    return positive if x.dtype.startswith("uint") else where(x < 0, -1, positive)


ACTIVATIONS: Mapping[str, Callable[..., Scalar]] = {
    "Relu": lambda x: maximum(x, 0),
    "Tanh": lambda x: x.call("tanh"),
    "Sigmoid": lambda x: x.call("sigmoid"),
    "Affine": lambda x, alpha=1.0, beta=0.0: x * alpha + beta,
    "LeakyRelu": lambda x, alpha=0.01: where(x < 0, x * alpha, x),
    "ThresholdedRelu": lambda x, alpha=1.0: where(x > alpha, x, 0),
    "ScaledTanh": lambda x, alpha=1.0, beta=1.0: (x * beta).call("tanh") * alpha,
    "HardSigmoid": _hard_sigmoid,
    "Elu": _elu,
    "Softsign": lambda x: x / (x.call("abs") + 1),
    "Softplus": softplus,
}
"""Functions that recurrent operators name, of an element and their parameters."""

_FUNCTIONS: Mapping[str, Callable[..., Scalar]] = {
    **ACTIVATIONS,
    "Selu": _selu,
    "Celu": celu,
    "HardSwish": lambda x: x * _hard_sigmoid(x, 1 / 6, 0.5),
    "Mish": lambda x: x * softplus(x).call("tanh"),
    "Swish": lambda x, alpha=1.0: x * (x * alpha).call("sigmoid"),
    "Reciprocal": lambda x: 1 / x,
    "Sign": _sign,
}

_UNARY = {
    **{name: name.lower() for name in ("Abs", "Neg", "Exp", "Log", "Sqrt", "Sin", "Cos", "Erf")},
    **{name: name.lower() for name in ("Floor", "Ceil", "Round", "Not", "Tan", "Sinh", "Cosh")},
    **{f"A{name}": f"a{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "BitwiseNot": "bit_not",
}

_BINARY = {
    **{name: name.lower() for name in ("Add", "Sub", "Mul", "Div", "And", "Or", "Xor")},
    "Greater": "gt",
    "GreaterOrEqual": "ge",
    "Less": "lt",
    "LessOrEqual": "le",
    "Equal": "eq",
    "BitwiseAnd": "bit_and",
    "BitwiseOr": "bit_or",
    "BitwiseXor": "bit_xor",
}


def _function(call: Call) -> Value:
    parameters = {it: call.attribute(it) for it in call.attributes if it in _PARAMETERS}
    return elementwise(
        lambda x: _FUNCTIONS[call.kind](x, **parameters), call[0], name=call.kind.lower()
    )


_PARAMETERS = ("alpha", "beta", "gamma")


def _unary(call: Call) -> Value:
    if call.kind in ("Abs", "Floor", "Ceil", "Round") and call[0].dtype.startswith("uint"):
        return call[0]
    return unary(_UNARY[call.kind], call[0])


def _sides(call: Call) -> tuple[Value, Value]:
    """Two operands; in old versions the second one may lie at an axis of the first one."""
    left, right = call[0], call[1]
    if call.since >= _BROADCASTS_SINCE or "axis" not in call.attributes:
        return left, right
    behind = left.rank - call.attribute("axis") % max(left.rank, 1) - right.rank
    return left, reshape(right, (*right.shape, *[1] * max(0, behind)))


def _binary(call: Call) -> Value:
    left, right = _sides(call)
    op = _BINARY[call.kind]
    if op in ("eq", "lt", "le", "gt", "ge") and left.dtype == "bool":
        left, right = cast(left, "uint8"), cast(right, "uint8")
    return binary(op, left, right)


def _pow(call: Call) -> Value:
    base, exponent = _sides(call)
    if is_float(base.dtype):
        return binary("pow", base, cast(exponent, base.dtype))
    if is_float(exponent.dtype):
        found = binary("pow", cast(base, "float64"), cast(exponent, "float64"))
        return cast(found, base.dtype)

    def whole(x: Scalar, y: Scalar) -> Scalar:
        return where(y < 0, where(x.equals(1), x, 0), x.binary("pow", maximum(y, 0)))

    return elementwise(whole, base, cast(exponent, base.dtype), name="pow")


def _bit_shift(call: Call) -> Value:
    return binary(f"shift_{call.attribute('direction').lower()}", call[0], call[1])


def _variadic(op: str, call: Call) -> Value:
    found = functools.reduce(partial(binary, op), call.tensors)
    return binary("div", found, len(call.inputs)) if call.kind == "Mean" else found


def _clip(call: Call) -> Value:
    x = call[0]
    low = call.attribute("min", call.get(1))
    high = call.attribute("max", call.get(2))
    if low is not None:
        x = binary("max", x, low)
    return x if high is None else binary("min", x, high)


def _prelu(call: Call) -> Value:
    x, slope = call[0], call[1]
    if call.since < _BROADCASTS_SINCE and slope.rank == 1 and slope.size > 1:
        slope = reshape(slope, (slope.size, *[1] * (x.rank - 2)))
    return elementwise(lambda it, by: where(it < 0, it * by, it), x, slope, name="prelu")


def _shrink(call: Call) -> Value:
    bias, bound = call.attribute("bias"), call.attribute("lambd")

    def shrunk(x: Scalar) -> Scalar:
        return where(x < -bound, x + bias, where(x > bound, x - bias, 0))

    if not is_float(call[0].dtype):
        found = elementwise(shrunk, cast(call[0], "float64"))
        return cast(found, call[0].dtype)
    return elementwise(shrunk, call[0], name="shrink")


def _gelu_call(call: Call) -> Value:
    function = gelu_tanh if call.attribute("approximate") == "tanh" else gelu
    return elementwise(function, call[0], name="gelu")


def _is_nan(call: Call) -> Value:
    return elementwise(lambda x: x.differs(x), call[0], dtype="bool", name="is_nan")


def _is_inf(call: Call) -> Value:
    negative, positive = call.attribute("detect_negative"), call.attribute("detect_positive")

    def infinite(x: Scalar) -> Scalar:
        found = x.equals(math.inf) if positive else x.differs(x)
        # NaN is no infinity: where none is looked for, nothing is found.
        found = found if positive else found & x.equals(0)
        return found | x.equals(-math.inf) if negative else found

    return elementwise(infinite, call[0], dtype="bool", name="is_inf")


def _bit_cast(call: Call) -> Value:
    x, dtype = call[0], dtype_of(call.attribute("to"))
    if dtype == x.dtype:
        return x
    return _reinterpreted(x, dtype)


def _reinterpreted(x: Value, dtype: str) -> Value:
    """The same bits as another type."""
    if element_type(dtype).bytes != element_type(x.dtype).bytes:
        raise UnsupportedWorkload(f"the bits of {x.dtype} are not those of {dtype}")
    if x.constant is None and not (is_float(x.dtype) or is_float(dtype)):
        # Integers of one width wrap around.
        return cast(x, dtype)
    if x.constant is None:
        raise UnsupportedWorkload(
            f"the bits of {x.dtype} that is not known while the model is read are not supported"
        )
    bits = np.ascontiguousarray(x.constant).view(element_type(dtype).dtype)
    return Value(x.shape, dtype, "", bits.reshape(x.shape))


def _dropout(call: Call) -> list[Item]:
    trains = call.get(2) is not None and bool(call.number(2))
    trains = trains or call.attribute("is_test") == 0 and call.since < _BROADCASTS_SINCE
    ratio = call.number(1, 0.5) if trains and call.since >= 12 else call.attribute("ratio", 0.5)
    if trains and ratio:
        raise UnsupportedWorkload("it draws random numbers in training, which is not supported")
    mask_type = "bool" if call.since >= 10 else call[0].dtype
    kept = np.ones(call[0].shape, element_type(mask_type).dtype)
    return [call[0], constant(kept, mask_type)]


def _random(call: Call) -> Any:
    raise UnsupportedWorkload(f"{call.kind} draws random numbers, which is not supported")


_RANDOM = (
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
)


Axes = list[int] | None


def _sum_of(function: Callable[[Value], Value], x: Value, axes: Axes, keep: bool) -> Value:
    return reduce("add", function(x), axes, keep)


def _square(x: Value) -> Value:
    return binary("mul", x, x)


def _extremum(op: str, x: Value, axes: Axes, keep: bool) -> Value:
    return as_type(reduce(op, ordered(x), axes, keep), x.dtype)


def _through_floats(
    function: Callable[[Value, Axes, bool], Value], x: Value, axes: Axes, keep: bool
) -> Value:
    """A function of floats, of integers rounded towards zero."""
    if is_float(x.dtype):
        return function(x, axes, keep)
    return cast(function(cast(x, "float64"), axes, keep), x.dtype)


def _norm(x: Value, axes: Axes, keep: bool) -> Value:
    return cast(unary("sqrt", _sum_of(_square, widened(x), axes, keep)), x.dtype)


def _log_sum(x: Value, axes: Axes, keep: bool) -> Value:
    return cast(unary("log", reduce("add", widened(x), axes, keep)), x.dtype)


def _sum_square(x: Value, axes: Axes, keep: bool) -> Value:
    return cast(_sum_of(_square, widened(x), axes, keep), x.dtype)


def _absolute(x: Value) -> Value:
    return x if x.dtype.startswith("uint") else unary("abs", x)


_REDUCTIONS: Mapping[str, Callable[[Value, Axes, bool], Value]] = {
    "ReduceSum": lambda x, axes, keep: reduce("add", x, axes, keep),
    "ReduceProd": lambda x, axes, keep: reduce("mul", x, axes, keep),
    "ReduceMax": lambda x, axes, keep: _extremum("max", x, axes, keep),
    "ReduceMin": lambda x, axes, keep: _extremum("min", x, axes, keep),
    "ReduceMean": lambda x, axes, keep: _through_floats(mean, x, axes, keep),
    "ReduceL1": lambda x, axes, keep: _sum_of(_absolute, x, axes, keep),
    "ReduceL2": lambda x, axes, keep: _through_floats(_norm, x, axes, keep),
    "ReduceSumSquare": _sum_square,
    "ReduceLogSum": lambda x, axes, keep: _through_floats(_log_sum, x, axes, keep),
    "ReduceLogSumExp": lambda x, axes, keep: _through_floats(_log_sum_exp, x, axes, keep),
}


def _log_sum_exp(x: Value, axes: Axes, keep: bool) -> Value:
    return (
        unary("log", reduce("add", x, axes, keep)) if x.size == 0 else log_sum_exp(x, axes, keep)
    )


def _reduce(call: Call) -> Value:
    axes = call.listed("axes", 1)
    if not axes:
        axes = [] if call.attribute("noop_with_empty_axes") else None
    return _REDUCTIONS[call.kind](call[0], axes, bool(call.attribute("keepdims", 1)))


def _arg(call: Call) -> Value:
    keep, last = bool(call.attribute("keepdims")), bool(call.attribute("select_last_index"))
    return arg(call.kind[3:].lower(), call[0], call.attribute("axis"), keep, last)


def _rows(function: Callable[[Value, int], Value], call: Call) -> Value:
    """Along an axis; in versions before 13 along it and all behind it."""
    x, axis = call[0], call.attribute("axis")
    if x.size == 0 or x.rank == 0:
        return x if x.size == 0 else reshape(function(reshape(x, (1,)), 0), ())
    if call.since >= 13:
        return function(x, axis)
    flat = reshape(x, (prod(x.shape[: axis % x.rank]), -1))
    return reshape(function(flat, 1), x.shape)


def _hardmax(x: Value, axis: int) -> Value:
    places = arg("max", x, axis, keepdims=False)
    off, on = constant(0, x.dtype), constant(1, x.dtype)
    return one_hot(places, x.shape[axis], off, on, axis)


def _scan(combiner: str, call: Call) -> Value:
    exclusive, reverse = bool(call.attribute("exclusive")), bool(call.attribute("reverse"))
    return scan(combiner, call[0], call.number(1), exclusive, reverse)


def _lp_normalization(call: Call) -> Value:
    x, axis, p = call[0], call.attribute("axis"), call.attribute("p")
    if p not in (1, 2):
        raise UnsupportedWorkload(f"p is 1 or 2, not {p}")
    norm = _REDUCTIONS[f"ReduceL{p}"](x, [axis], True)
    return elementwise(
        lambda it, by: where(by.equals(0), 0, it / by), x, norm, name="lp_normalization"
    )


def _along_channels(x: Value, rank: int) -> Value:
    """Shape a number for each channel so that it broadcasts."""
    return column(widened(x), rank)


def _batch(call: Call) -> list[Value]:
    x = call[0]
    scale, bias = call[1], call[2]
    trains = call.attribute("training_mode") or (call.since < 14 and call.wants(1))
    old = call[3], call[4]
    if not trains:
        return [batch_affine(x, old[0], old[1], scale, bias, call.attribute("epsilon"))]
    axes = [0, *range(2, x.rank)]
    wide, momentum = widened(x), call.attribute("momentum")
    own = mean(wide, axes, keepdims=False), variance(wide, axes, keepdims=False)
    y = batch_affine(x, own[0], own[1], scale, bias, call.attribute("epsilon"))
    running = [
        elementwise(
            lambda before, now: before * momentum + now * (1 - momentum), widened(kept), found
        )
        for kept, found in zip(old, own, strict=True)
    ]
    saved = [*own, *own]
    return [y, *(cast(it, kept.dtype) for it, kept in zip(running, old, strict=True)), *saved[:2]]


def _instance(call: Call) -> Value:
    x = call[0]
    found = normalized(x, list(range(2, x.rank)), call.attribute("epsilon"))
    scale, bias = (_along_channels(call[at], x.rank) for at in (1, 2))
    return scaled(found, scale, bias, x.dtype)


def layer_norm(
    x: Value, scale: Value | None, bias: Value | None, epsilon: float, axis: int = -1
) -> Value:
    """Rows behind an axis with the mean 0 and the variance 1, scaled and moved."""
    axes = list(range(axis % x.rank, x.rank))
    return scaled(normalized(x, axes, epsilon), scale, bias, x.dtype)


def _layer(call: Call) -> list[Value]:
    x, epsilon = call[0], call.attribute("epsilon")
    axes = list(range(call.attribute("axis") % x.rank, x.rank))
    found = [layer_norm(x, call.get(1), call.get(2), epsilon, axes[0])]
    if not (call.wants(1) or call.wants(2)):
        return found
    wide = widened(x)
    spread = binary("add", variance(wide, axes), epsilon)
    return [*found, mean(wide, axes), unary("rsqrt", spread)]


def _group(call: Call) -> Value:
    x, groups = call[0], call.attribute("num_groups")
    apart = reshape(x, (x.shape[0], groups, -1))
    found = normalized(apart, [2], call.attribute("epsilon"))
    if call[1].size == groups and call.since < 21:
        scale, bias = (_along_channels(call[at], 3) for at in (1, 2))
        return reshape(scaled(found, scale, bias, x.dtype), x.shape)
    scale, bias = (_along_channels(call[at], x.rank) for at in (1, 2))
    return scaled(reshape(found, x.shape), scale, bias, x.dtype)


def _mean_variance(call: Call) -> Value:
    x = call[0]
    axes = call.attribute("axes") or [0, 2, 3]
    wide = widened(x)
    apart = binary("sub", wide, mean(wide, axes))
    spread = unary("sqrt", mean(binary("mul", apart, apart), axes))
    return cast(binary("div", apart, binary("add", spread, 1e-9)), x.dtype)


ARITHMETIC: Mapping[str, Operator] = {
    **dict.fromkeys((it for it in _FUNCTIONS if it not in ("Affine", "ScaledTanh")), _function),
    **dict.fromkeys(_UNARY, _unary),
    **dict.fromkeys(_BINARY, _binary),
    **dict.fromkeys(_RANDOM, _random),
    "Pow": _pow,
    "Mod": lambda call: binary("fmod" if call.attribute("fmod") else "mod", call[0], call[1]),
    "BitShift": _bit_shift,
    "Sum": partial(_variadic, "add"),
    "Mean": partial(_variadic, "add"),
    "Max": partial(_variadic, "max"),
    "Min": partial(_variadic, "min"),
    "Where": lambda call: select(call[0], call[1], call[2]),
    "Clip": _clip,
    "PRelu": _prelu,
    "Shrink": _shrink,
    "Gelu": _gelu_call,
    "IsNaN": _is_nan,
    "IsInf": _is_inf,
    "Cast": lambda call: as_type(call[0], dtype_of(call.attribute("to"))),
    "BitCast": _bit_cast,
    "Identity": lambda call: call.inputs[0],
    "Dropout": _dropout,
    **dict.fromkeys(_REDUCTIONS, _reduce),
    "ArgMax": _arg,
    "ArgMin": _arg,
    "Softmax": lambda call: _rows(softmax, call),
    "LogSoftmax": lambda call: _rows(log_softmax, call),
    "Hardmax": lambda call: _rows(_hardmax, call),
    "CumSum": lambda call: _scan("add", call),
    "CumProd": lambda call: _scan("mul", call),
    "LpNormalization": _lp_normalization,
    "BatchNormalization": _batch,
    "InstanceNormalization": _instance,
    "LayerNormalization": _layer,
    "GroupNormalization": _group,
    "MeanVarianceNormalization": _mean_variance,
}
