"""Products of matrices, attention, and recurrent operators, which are loops of one step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autotune.errors import UnsupportedWorkload
from autotune.networks.graph import (
    Value,
    binary,
    broadcast,
    cast,
    concat,
    constant,
    einsum,
    elementwise,
    matmul,
    reduce,
    reshape,
    select,
    slice_axis,
    softmax,
    split,
    stack,
    transpose,
    unary,
)
from autotune.networks.graph.making import computed_type
from autotune.networks.readers.forms import Step, is_float, repeated
from autotune.networks.readers.torch.call import Call, Operator, number
from autotune.networks.readers.torch.operators.shapes import filled

__all__ = ["PRODUCTS"]


def _product(left: Value, right: Value) -> Value:
    if left.dtype == "bool":
        found = matmul(cast(left, "uint8"), cast(right, "uint8"), "int32")
        return elementwise(lambda it: it.differs(0), found, dtype="bool")
    return matmul(left, right)


def _matmul(call: Call) -> Value:
    left, right = list(call.arguments.values())[:2]
    return reshape(_product(left, right), call.shape)


def _scaled(x: Value, factor: float) -> Value:
    return x if factor == 1 else binary("mul", x, number(factor, x.dtype))


def _added(call: Call, left: Value, right: Value) -> Value:
    """A product added to what is there, each times a number."""
    alpha, beta = call.get("alpha", 1), call.get("beta", 1)
    dtype = call.dtype
    # Halves are rounded once, when the sum is known.
    total = (
        computed_type(dtype) if is_float(dtype) and (alpha != 1 or beta not in (0, 1)) else dtype
    )
    found = _scaled(matmul(left, right, total), alpha)
    if beta != 0:
        found = binary("add", found, _scaled(cast(call["self"], total), beta))
    return reshape(cast(found, dtype), call.shape)


def _addmm(call: Call) -> Value:
    left, right = list(call.arguments.values())[1:3]
    if left.dtype == "bool":
        raise UnsupportedWorkload("products of truths are not supported")
    return _added(call, left, right)


def _addbmm(call: Call) -> Value:
    left, right = call["batch1"], call["batch2"]
    b, n, k = left.shape
    rows = reshape(transpose(left, (1, 0, 2)), (n, b * k))
    return _added(call, rows, reshape(right, (b * k, right.shape[2])))


def _linear(call: Call) -> Value:
    x, weight, bias = call.x, call["weight"], call.get("bias")
    found = matmul(x, transpose(weight) if weight.rank == 2 else weight)
    found = found if bias is None else binary("add", found, bias)
    return reshape(found, call.shape)


def _trilinear(call: Call) -> Value:
    """The sum of products of three tensors, each without some of the axes."""
    parts = [call[f"i{number}"] for number in (1, 2, 3)]
    missing = [call[f"expand{number}"] for number in (1, 2, 3)]
    rank = parts[0].rank + len(missing[0])
    letters = [chr(ord("a") + at) for at in range(rank)]
    terms = ["".join(letters[at] for at in range(rank) if at not in it) for it in missing]
    kept = "".join(it for at, it in enumerate(letters) if at not in call["sumdim"])
    return reshape(einsum(f"{','.join(terms)}->{kept}", *parts), call.shape)


def _attention(call: Call) -> Any:
    """``softmax(q k' scale + mask) v``; rows that a mask leaves nothing of are 0.

    Of what kernels give beside it, such as sums of exponentials, nothing is computed.
    """
    q, k, v = (call[it] for it in ("query", "key", "value"))
    mask = call.get("attn_mask", call.get("attn_bias"))
    if k.rank > 2 and k.shape[-3] != q.shape[-3]:
        repeats = q.shape[-3] // k.shape[-3]
        k, v = (_repeated(it, repeats) for it in (k, v))
    scale = call.get("scale") or 1 / math.sqrt(q.shape[-1])
    total = computed_type(q.dtype)
    order = [*range(k.rank - 2), k.rank - 1, k.rank - 2]
    scores = binary("mul", matmul(q, transpose(k, order), total), float(scale))
    if call.get("is_causal", False):
        rows, columns = (np.arange(extent) for extent in scores.shape[-2:])
        seen = constant(columns[None, :] <= rows[:, None])
        scores = select(seen, scores, -math.inf)
    if mask is not None:
        if mask.dtype == "bool":
            scores = select(mask, scores, -math.inf)
        else:
            scores = binary("add", scores, cast(mask, total))
    shares = softmax(scores, -1)
    if mask is not None and not _leaves_some(mask):
        nothing = elementwise(
            lambda it: it.equals(-math.inf), reduce("max", scores, [-1]), dtype="bool"
        )
        shares = select(nothing, 0, shares)
    found = reshape(matmul(cast(shares, q.dtype), v), call.shape)
    return found if call.kind == "scaled_dot_product_attention" else [found]


def _leaves_some(mask: Value) -> bool:
    """Tell if a mask is known to leave something of every row."""
    if mask.constant is None:
        return False
    if mask.dtype == "bool":
        return bool(mask.constant.any(-1).all())
    if mask.dtype == "bfloat16":
        # The bits of minus infinity.
        return bool((mask.constant != 0xFF80).any(-1).all())
    return bool((mask.constant != -np.inf).any(-1).all())


def _repeated(x: Value, repeats: int) -> Value:
    """Heads that several queries share, once for each."""
    shape = (*x.shape[:-3], x.shape[-3], repeats, *x.shape[-2:])
    apart = broadcast(reshape(x, (*x.shape[:-2], 1, *x.shape[-2:])), shape)
    return reshape(apart, (*x.shape[:-3], x.shape[-3] * repeats, *x.shape[-2:]))


def _relu(x: Value) -> Value:
    return binary("max", x, 0)


def _rnn(activation: Callable[[Value], Value]) -> Step:
    def step(states: Sequence[Value], x: Value, fixed: Sequence[Value]) -> list[Value]:
        weights, bias = fixed
        inner = binary("add", matmul(states[0], weights), bias)
        return [activation(binary("add", x, inner))]

    return step


def _gru(states: Sequence[Value], x: Value, fixed: Sequence[Value]) -> list[Value]:
    (hidden,), (weights, bias) = states, fixed
    inner = split(binary("add", matmul(hidden, weights), bias), [hidden.shape[1]] * 3, 1)
    outer = split(x, [hidden.shape[1]] * 3, 1)
    reset = unary("sigmoid", binary("add", outer[0], inner[0]))
    update = unary("sigmoid", binary("add", outer[1], inner[1]))
    new = unary("tanh", binary("add", outer[2], binary("mul", reset, inner[2])))
    return [elementwise(lambda z, n, old: n + z * (old - n), update, new, hidden)]


def _lstm(states: Sequence[Value], x: Value, fixed: Sequence[Value]) -> list[Value]:
    hidden, memory = states
    weights, bias, *projection = fixed
    whole = binary("add", x, binary("add", matmul(hidden, weights), bias))
    taken, kept, new, shown = split(whole, [memory.shape[1]] * 4, 1)
    memory = elementwise(
        lambda i, f, g, c: f.call("sigmoid") * c + i.call("sigmoid") * g.call("tanh"),
        taken,
        kept,
        new,
        memory,
    )
    hidden = elementwise(lambda o, c: o.call("sigmoid") * c.call("tanh"), shown, memory)
    return [matmul(hidden, projection[0]) if projection else hidden, memory]


_STEPS: Mapping[str, tuple[int, Step]] = {
    "lstm": (2, _lstm),
    "gru": (1, _gru),
    "rnn_tanh": (1, _rnn(lambda x: unary("tanh", x))),
    "rnn_relu": (1, _rnn(_relu)),
}


def _direction(
    kind: str, x: Value, starts: Sequence[Value], parameters: Sequence[Value], backwards: bool
) -> tuple[Value, list[Value]]:
    """All hidden states ``[time, batch, hidden]`` of a direction, and its last states."""
    w, r, *rest = parameters
    gates = r.shape[0]
    none = filled((gates,), 0, x.dtype)
    has_bias = len(rest) >= 2
    w_bias, r_bias = rest[:2] if has_bias else (none, none)
    projection = rest[2:] if has_bias else rest
    fixed = [transpose(r), r_bias, *(transpose(it) for it in projection)]
    inputs = binary("add", matmul(x, transpose(w)), w_bias)
    return repeated(_STEPS[kind][1], inputs, starts, fixed, backwards)


def _recurrent(call: Call) -> list[Value]:
    """Layers of one or two directions."""
    if "batch_first" not in call.arguments:
        raise UnsupportedWorkload("sequences of different lengths are not supported")
    x, batch_first = call["input"], bool(call["batch_first"])
    count, _ = _STEPS[call.kind]
    starts = call["hx"] if count == 2 else [call["hx"]]
    x = transpose(x, (1, 0, 2)) if batch_first else x
    directions = 2 if call["bidirectional"] else 1
    layers = call["num_layers"]
    per = len(call["params"]) // (layers * directions)
    last: list[list[Value]] = []
    for layer in range(layers):
        shown = []
        for direction in range(directions):
            at = layer * directions + direction
            own = [reshape(slice_axis(it, 0, at, at + 1), it.shape[1:]) for it in starts]
            parameters = call["params"][at * per : (at + 1) * per]
            y, states = _direction(call.kind, x, own, parameters, bool(direction))
            shown.append(y)
            last.append(states)
        x = concat(shown, 2)
    x = transpose(x, (1, 0, 2)) if batch_first else x
    return [x, *(stack(parts, 0) for parts in zip(*last, strict=True))]


PRODUCTS: Mapping[str, Operator] = {
    **dict.fromkeys(("matmul", "mm", "bmm", "mv", "dot", "vdot"), _matmul),
    **dict.fromkeys(("addmm", "addmv", "baddbmm"), _addmm),
    "addbmm": _addbmm,
    "linear": _linear,
    "einsum": lambda call: reshape(einsum(call["equation"], *call["tensors"]), call.shape),
    "_trilinear": _trilinear,
    **dict.fromkeys(
        (
            "scaled_dot_product_attention",
            "_scaled_dot_product_cudnn_attention",
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_flash_attention_for_cpu",
        ),
        _attention,
    ),
    **dict.fromkeys(_STEPS, _recurrent),
}
