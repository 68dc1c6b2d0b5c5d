"""Operators that compute each element by itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial, reduce
from typing import Any

import numpy as np

from autotune.errors import UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.networks.graph import (
    Scalar,
    Value,
    binary,
    cast,
    constant,
    elementwise,
    maximum,
    minimum,
    reshape,
    select,
    unary,
    where,
)
from autotune.networks.readers.forms import as_type, celu, gelu, gelu_tanh, is_float, softplus
from autotune.networks.readers.onnx.call import Call, Item, Operator
from autotune.networks.readers.onnx.tensors import dtype_of

__all__ = ["ACTIVATIONS", "ELEMENTWISE"]

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
    found = reduce(partial(binary, op), call.tensors)
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

ELEMENTWISE: Mapping[str, Operator] = {
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
}
