"""Reductions, softmax, running sums, what chooses elements by their order, and normalisations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from math import prod

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
    column,
    is_float,
    ordered,
    scaled,
    vector,
    widened,
)
from autotune.networks.readers.torch.call import Call, Operator, operand, promoted
from autotune.networks.readers.torch.operators.shapes import filled

__all__ = ["NORMALISATION", "REDUCTIONS"]


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


REDUCTIONS: Mapping[str, Operator] = {
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
}


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


NORMALISATION: Mapping[str, Operator] = {
    **dict.fromkeys(
        ("batch_norm", "native_batch_norm", "_native_batch_norm_legit_no_training"), _batch_norm
    ),
    **dict.fromkeys(("layer_norm", "native_layer_norm"), _layer_norm),
    **dict.fromkeys(("group_norm", "native_group_norm"), _group_norm),
}
