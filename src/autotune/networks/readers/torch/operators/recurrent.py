"""Recurrent operators: loops of one step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autotune.errors import UnsupportedWorkload
from autotune.networks.graph import (
    Value,
    binary,
    concat,
    elementwise,
    matmul,
    reshape,
    slice_axis,
    split,
    stack,
    transpose,
    unary,
)
from autotune.networks.readers.forms import Step, repeated
from autotune.networks.readers.torch.call import Call, Operator
from autotune.networks.readers.torch.operators.shapes import filled

__all__ = ["RECURRENT"]


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
        for number in range(directions):
            at = layer * directions + number
            own = [reshape(slice_axis(it, 0, at, at + 1), it.shape[1:]) for it in starts]
            parameters = call["params"][at * per : (at + 1) * per]
            y, states = _direction(call.kind, x, own, parameters, bool(number))
            shown.append(y)
            last.append(states)
        x = concat(shown, 2)
    x = transpose(x, (1, 0, 2)) if batch_first else x
    return [x, *(stack(parts, 0) for parts in zip(*last, strict=True))]


RECURRENT: Mapping[str, Operator] = dict.fromkeys(_STEPS, _recurrent)
