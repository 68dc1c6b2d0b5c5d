"""Normalisations, in evaluation and in training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.networks.graph import (
    Value,
    binary,
    cast,
    elementwise,
    mean,
    normalized,
    reshape,
    unary,
    variance,
)
from autotune.networks.readers.torch.call import Call, Operator
from autotune.networks.readers.torch.operators.operands import scalar_rows, wide
from autotune.networks.readers.torch.operators.shapes import filled

__all__ = ["NORMALISATION"]


def _widened(x: Value) -> Value:
    return cast(x, wide(x.dtype))


def _affine(
    x: Value,
    centre: Value,
    spread: Value,
    parameters: Sequence[Value | None],
    epsilon: float,
) -> Value:
    """``(x - centre) / sqrt(spread + epsilon) * scale + bias`` as one product and one sum."""
    kind = wide(x.dtype)
    centre, spread = (scalar_rows(cast(it, kind), x.rank) for it in (centre, spread))
    scale, bias = (
        filled(spread.shape, default, kind) if it is None else scalar_rows(cast(it, kind), x.rank)
        for it, default in zip(parameters, (1, 0), strict=True)
    )
    factor = elementwise(lambda s, v: s / (v + epsilon).call("sqrt"), scale, spread)
    offset = elementwise(lambda b, c, f: b - c * f, bias, centre, factor)
    found = elementwise(
        lambda it, by, more: it * by + more, _widened(x), factor, offset, name="batch_norm"
    )
    return cast(found, x.dtype)


def _batch_norm(call: Call) -> Value | list[Value]:
    """Of all forms: with the statistics of the batch, or with running ones.

    Results are the tensor, mean and inverse deviation that were used, and of some forms the new
    running statistics; of ``batch_norm`` itself the tensor only.
    """
    x, momentum = call.x, call.get("momentum", 0.1)
    running = call.get("running_mean"), call.get("running_var")
    parameters = call.get("weight"), call.get("bias")
    epsilon = call["eps"]
    trains = call.get("training", call.get("train", "no_training" not in call.kind))
    if "with_update" in call.kind:
        trains = True
    if not trains and running[0] is not None and running[1] is not None:
        found = _affine(x, running[0], running[1], parameters, epsilon)
        if call.kind == "batch_norm":
            return found
        nothing = filled((0,), 0, wide(x.dtype))
        return [found, nothing, nothing, *(it for it in running if it is not None)]
    axes = [0, *range(2, x.rank)]
    whole = _widened(x)
    centre = mean(whole, axes, keepdims=False)
    spread = variance(whole, axes, keepdims=False)
    found = _affine(x, centre, spread, parameters, epsilon)
    if call.kind == "batch_norm":
        return found
    inverse = elementwise(lambda it: (it + epsilon).call("rsqrt"), spread)
    count = x.size // max(1, x.shape[1])
    unbiased = binary("mul", spread, count / max(1, count - 1))
    saved = [
        cast(it, wanted.dtype)
        for it, wanted in zip((centre, inverse), call.results[1:], strict=False)
        if wanted is not None
    ]
    kept = [
        _moved(old, new, momentum)
        for old, new in zip(running, (centre, unbiased), strict=True)
        if old is not None
    ]
    return [found, *saved, *kept]


def _moved(old: Value, new: Value, momentum: float) -> Value:
    """Running statistics after a batch."""
    found = elementwise(
        lambda a, b: a * (1 - momentum) + b * momentum, _widened(old), cast(new, wide(old.dtype))
    )
    return cast(found, old.dtype)


def _functional_batch_norm(call: Call) -> list[Value]:
    """As of torch's functional forms: also the running statistics, as they are afterwards."""
    found = _batch_norm(call)
    assert isinstance(found, list)
    if "with_update" in call.kind:
        # What it keeps for the gradient is nothing here.
        return [*found[:3], filled((0,), 0, "uint8"), *found[3:]]
    return found


def _scaled(x: Value, scale: Value | None, bias: Value | None, dtype: str) -> Value:
    if scale is not None:
        x = binary("mul", x, cast(scale, x.dtype))
    if bias is not None:
        x = binary("add", x, cast(bias, x.dtype))
    return cast(x, dtype)


def _layer_norm(call: Call) -> Value | list[Value]:
    x, epsilon = call.x, call["eps"]
    axes = list(range(x.rank - len(call["normalized_shape"]), x.rank))
    if x.size == 0:
        found = x
    else:
        found = _scaled(
            normalized(x, axes, epsilon), call.get("weight"), call.get("bias"), x.dtype
        )
    if call.kind == "layer_norm":
        return found
    return [found, *_statistics(call, x, axes, epsilon)]


def _statistics(call: Call, x: Value, axes: Sequence[int], epsilon: float) -> list[Value]:
    """The mean and inverse deviation that torch returns beside a normalised tensor."""
    wanted = [it for it in call.results[1:] if it is not None]
    if x.size == 0:
        return [filled(it.shape, 0, it.dtype) for it in wanted]
    whole = _widened(x)
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
            None if call.get(it) is None else scalar_rows(call[it], x.rank)
            for it in ("weight", "bias")
        ]
        found = _scaled(
            reshape(normalized(apart, [2], epsilon), x.shape), rows[0], rows[1], x.dtype
        )
    if call.kind == "group_norm":
        return found
    return [found, *_statistics(call, apart, [2], epsilon)]


NORMALISATION: Mapping[str, Operator] = {
    **dict.fromkeys(
        (
            "batch_norm",
            "native_batch_norm",
            "_native_batch_norm_legit",
            "_native_batch_norm_legit_no_training",
        ),
        _batch_norm,
    ),
    **dict.fromkeys(
        ("_native_batch_norm_legit_functional", "_batch_norm_with_update_functional"),
        _functional_batch_norm,
    ),
    **dict.fromkeys(("layer_norm", "native_layer_norm"), _layer_norm),
    **dict.fromkeys(("group_norm", "native_group_norm"), _group_norm),
}
