"""Reductions, softmax and the like, normalisations."""

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
    normalized,
    one_hot,
    reduce,
    reshape,
    scan,
    softmax,
    unary,
    variance,
    where,
)
from autotune.networks.readers.forms import (
    as_type,
    batch_affine,
    column,
    is_float,
    ordered,
    scaled,
    widened,
)
from autotune.networks.readers.onnx.call import Call, Operator

__all__ = ["NORMALISATION", "REDUCTIONS", "layer_norm"]

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


NORMALISATION: Mapping[str, Operator] = {
    "BatchNormalization": _batch,
    "InstanceNormalization": _instance,
    "LayerNormalization": _layer,
    "GroupNormalization": _group,
    "MeanVarianceNormalization": _mean_variance,
}
