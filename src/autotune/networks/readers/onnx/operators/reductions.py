"""Reductions, softmax and the like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from autotune.errors import UnsupportedWorkload
from autotune.networks.graph import (
    Value,
    arg,
    binary,
    cast,
    constant,
    elementwise,
    log_softmax,
    log_sum_exp,
    mean,
    one_hot,
    reduce,
    reshape,
    scan,
    softmax,
    unary,
    where,
)
from autotune.networks.readers.onnx.call import Call, Operator
from autotune.networks.readers.onnx.operators.elementwise import is_float

__all__ = ["REDUCTIONS"]

Axes = list[int] | None


def _sum_of(function: Callable[[Value], Value], x: Value, axes: Axes, keep: bool) -> Value:
    return reduce("add", function(x), axes, keep)


def _square(x: Value) -> Value:
    return binary("mul", x, x)


def _mean(x: Value, axes: Axes, keep: bool) -> Value:
    if is_float(x):
        return mean(x, axes, keep)
    return cast(mean(cast(x, "float64"), axes, keep), x.dtype)


def _extremum(op: str, x: Value, axes: Axes, keep: bool) -> Value:
    if x.dtype == "bool":
        found = reduce(op, cast(x, "uint8"), axes, keep)
        return elementwise(lambda it: it.differs(0), found, dtype="bool")
    return reduce(op, x, axes, keep)


def _through_floats(
    function: Callable[[Value, Axes, bool], Value], x: Value, axes: Axes, keep: bool
) -> Value:
    """A function of floats, of integers rounded towards zero."""
    if is_float(x):
        return function(x, axes, keep)
    return cast(function(cast(x, "float64"), axes, keep), x.dtype)


def _norm(x: Value, axes: Axes, keep: bool) -> Value:
    wide = cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x
    return cast(unary("sqrt", _sum_of(_square, wide, axes, keep)), x.dtype)


def _log_sum(x: Value, axes: Axes, keep: bool) -> Value:
    wide = cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x
    return cast(unary("log", reduce("add", wide, axes, keep)), x.dtype)


def _sum_square(x: Value, axes: Axes, keep: bool) -> Value:
    wide = cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x
    return cast(_sum_of(_square, wide, axes, keep), x.dtype)


def _absolute(x: Value) -> Value:
    return x if x.dtype.startswith("uint") else unary("abs", x)


_REDUCTIONS: Mapping[str, Callable[[Value, Axes, bool], Value]] = {
    "ReduceSum": lambda x, axes, keep: reduce("add", x, axes, keep),
    "ReduceProd": lambda x, axes, keep: reduce("mul", x, axes, keep),
    "ReduceMax": lambda x, axes, keep: _extremum("max", x, axes, keep),
    "ReduceMin": lambda x, axes, keep: _extremum("min", x, axes, keep),
    "ReduceMean": _mean,
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


REDUCTIONS: Mapping[str, Operator] = {
    **dict.fromkeys(_REDUCTIONS, _reduce),
    "ArgMax": _arg,
    "ArgMin": _arg,
    "Softmax": lambda call: _rows(softmax, call),
    "LogSoftmax": lambda call: _rows(log_softmax, call),
    "Hardmax": lambda call: _rows(_hardmax, call),
    "CumSum": lambda call: _scan("add", call),
    "CumProd": lambda call: _scan("mul", call),
    "LpNormalization": _lp_normalization,
}
