"""Normalisations."""

from __future__ import annotations

from collections.abc import Mapping

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
from autotune.networks.readers.onnx.call import Call, Operator

__all__ = ["NORMALISATION", "layer_norm"]


def _wide(x: Value) -> Value:
    return cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x


def _along_channels(x: Value, rank: int) -> Value:
    """Shape a number for each channel so that it broadcasts."""
    return reshape(_wide(x), (-1, *[1] * max(0, rank - 2)))


def _batch(call: Call) -> list[Value]:
    x = call[0]
    scale, bias = (_along_channels(call[at], x.rank) for at in (1, 2))
    trains = call.attribute("training_mode") or (call.since < 14 and call.wants(1))
    old = call[3], call[4]
    if not trains:
        return [_affine(x, old[0], old[1], scale, bias, call.attribute("epsilon"))]
    axes = [0, *range(2, x.rank)]
    wide, momentum = _wide(x), call.attribute("momentum")
    own = mean(wide, axes, keepdims=False), variance(wide, axes, keepdims=False)
    y = _affine(x, own[0], own[1], scale, bias, call.attribute("epsilon"))
    running = [
        elementwise(
            lambda before, now: before * momentum + now * (1 - momentum), _wide(kept), found
        )
        for kept, found in zip(old, own, strict=True)
    ]
    saved = [*own, *own]
    return [y, *(cast(it, kept.dtype) for it, kept in zip(running, old, strict=True)), *saved[:2]]


def _affine(
    x: Value, centre: Value, spread: Value, scale: Value, bias: Value, epsilon: float
) -> Value:
    """``(x - centre) / sqrt(spread + epsilon) * scale + bias`` as one product and one sum."""
    spread, centre = _along_channels(spread, x.rank), _along_channels(centre, x.rank)
    factor = elementwise(lambda s, v: s / (v + epsilon).call("sqrt"), scale, spread)
    offset = elementwise(lambda b, c, f: b - c * f, bias, centre, factor)
    found = elementwise(
        lambda it, by, more: it * by + more, _wide(x), factor, offset, name="batch_norm"
    )
    return cast(found, x.dtype)


def _scaled(x: Value, scale: Value | None, bias: Value | None, dtype: str) -> Value:
    if scale is not None:
        x = binary("mul", x, cast(scale, x.dtype))
    if bias is not None:
        x = binary("add", x, cast(bias, x.dtype))
    return cast(x, dtype)


def _instance(call: Call) -> Value:
    x = call[0]
    found = normalized(x, list(range(2, x.rank)), call.attribute("epsilon"))
    scale, bias = (_along_channels(call[at], x.rank) for at in (1, 2))
    return _scaled(found, scale, bias, x.dtype)


def layer_norm(
    x: Value, scale: Value | None, bias: Value | None, epsilon: float, axis: int = -1
) -> Value:
    """Rows behind an axis with the mean 0 and the variance 1, scaled and moved."""
    axes = list(range(axis % x.rank, x.rank))
    return _scaled(normalized(x, axes, epsilon), scale, bias, x.dtype)


def _layer(call: Call) -> list[Value]:
    x, epsilon = call[0], call.attribute("epsilon")
    axes = list(range(call.attribute("axis") % x.rank, x.rank))
    found = [layer_norm(x, call.get(1), call.get(2), epsilon, axes[0])]
    if not (call.wants(1) or call.wants(2)):
        return found
    wide = _wide(x)
    spread = binary("add", variance(wide, axes), epsilon)
    return [*found, mean(wide, axes), unary("rsqrt", spread)]


def _group(call: Call) -> Value:
    x, groups = call[0], call.attribute("num_groups")
    apart = reshape(x, (x.shape[0], groups, -1))
    found = normalized(apart, [2], call.attribute("epsilon"))
    if call[1].size == groups and call.since < 21:
        scale, bias = (_along_channels(call[at], 3) for at in (1, 2))
        return reshape(_scaled(found, scale, bias, x.dtype), x.shape)
    scale, bias = (_along_channels(call[at], x.rank) for at in (1, 2))
    return _scaled(reshape(found, x.shape), scale, bias, x.dtype)


def _mean_variance(call: Call) -> Value:
    x = call[0]
    axes = call.attribute("axes") or [0, 2, 3]
    wide = _wide(x)
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
