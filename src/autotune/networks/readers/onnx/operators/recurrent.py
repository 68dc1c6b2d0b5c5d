"""Recurrent operators: loops of one step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen

from autotune.errors import UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.networks.graph import (
    Scalar,
    Value,
    binary,
    cast,
    clamp,
    concat,
    constant,
    elementwise,
    matmul,
    reshape,
    slice_axis,
    split,
    transpose,
    unsqueeze,
)
from autotune.networks.readers.forms import Step, repeated, vector
from autotune.networks.readers.onnx.call import Call, Operator
from autotune.networks.readers.onnx.operators.elementwise import ACTIVATIONS

__all__ = ["RECURRENT", "recurrent"]

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}

Function = Callable[[Value], Value]
Product = Callable[[Value, Value, int, int], Value]
"""Of rows and the weights ``[k, n]`` of an input of the operator, by its place and direction."""


def _of_floats(rows: Value, weights: Value, position: int, direction: int) -> Value:
    return matmul(rows, weights)


def _functions(call: Call, direction: int) -> list[Function]:
    """The activations of a direction, with their parameters."""
    per = len(_DEFAULTS[call.kind])
    directions = len(_DIRECTIONS[call.attribute("direction")])
    names = list(call.attribute("activations") or _DEFAULTS[call.kind] * directions)
    alphas, betas = (iter(call.attribute(f"activation_{it}") or ()) for it in ("alpha", "beta"))
    found: list[Function] = []
    for name in names:
        known = {key.lower(): key for key in ACTIVATIONS}
        if name.lower() not in known:
            raise UnsupportedWorkload(
                f"no activation {name!r}; there are {', '.join(ACTIVATIONS)}"
            )
        key = known[name.lower()]
        parameters = {}
        if key in ("Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu"):
            parameters = {"alpha": next(alphas, None)}
        if key in ("Affine", "ScaledTanh", "HardSigmoid"):
            parameters["beta"] = next(betas, None)
        found.append(_activation(key, {k: v for k, v in parameters.items() if v is not None}))
    return found[direction * per : (direction + 1) * per]


def _activation(key: str, parameters: Mapping[str, Any]) -> Function:
    def function(x: Scalar) -> Scalar:
        return ACTIVATIONS[key](x, **parameters)

    return lambda x: elementwise(function, x, name=key.lower())


@frozen(eq=False)
class _Cell:
    """A direction of a recurrent operator.

    Attributes:
        functions: Its activations.
        clip: The largest amount that they are given; 0 for any.
        hidden: Width of its state.
        product: Of the state and its weights.
    """

    functions: Sequence[Function]
    clip: float
    hidden: int
    product: Callable[[Value, Value], Value]

    def within(self, x: Value) -> Value:
        """At most as large as is allowed."""
        return clamp(x, -self.clip, self.clip) if self.clip else x

    def call(self, number: int, x: Value) -> Value:
        """An activation of what is at most as large as is allowed."""
        return self.functions[number](self.within(x))


def _rnn(cell: _Cell) -> Step:
    def step(states: Sequence[Value], x: Value, fixed: Sequence[Value]) -> list[Value]:
        return [cell.call(0, binary("add", x, cell.product(states[0], fixed[0])))]

    return step


def _gru(cell: _Cell, reset_after: bool) -> Step:
    def step(states: Sequence[Value], x: Value, fixed: Sequence[Value]) -> list[Value]:
        hidden, (gate_weights, weights, bias) = states[0], fixed[:3]
        h = cell.hidden
        x_gates, x_new = split(x, [2 * h, h], 1)
        gates = cell.call(0, binary("add", x_gates, cell.product(hidden, gate_weights)))
        update, reset = split(gates, [h, h], 1)
        if reset_after:
            inner = binary("mul", reset, binary("add", cell.product(hidden, weights), bias))
        else:
            inner = binary("add", cell.product(binary("mul", reset, hidden), weights), bias)
        new = cell.call(1, binary("add", x_new, inner))
        return [elementwise(lambda z, n, old: (1 - z) * n + z * old, update, new, hidden)]

    return step


def _lstm(cell: _Cell, coupled: bool) -> Step:
    def step(states: Sequence[Value], x: Value, fixed: Sequence[Value]) -> list[Value]:
        (hidden, memory), (weights, *peepholes) = states, fixed
        parts = split(binary("add", x, cell.product(hidden, weights)), [cell.hidden] * 4, 1)

        def gate(part: Value, seen: Value, number: int) -> Value:
            if peepholes:
                part = binary("add", part, binary("mul", seen, peepholes[number]))
            return cell.call(0, part)

        taken = gate(parts[0], memory, 0)
        kept = binary("sub", 1, taken) if coupled else gate(parts[2], memory, 2)
        new = cell.call(1, parts[3])
        memory = elementwise(lambda f, c, i, n: f * c + i * n, kept, memory, taken, new)
        shown = gate(parts[1], memory, 1)
        return [binary("mul", shown, cell.call(2, memory)), memory]

    return step


def _direction(
    call: Call,
    x: Value,
    number: int,
    starts: Sequence[Value],
    mask: Value | None,
    product: Product,
) -> tuple[Value, list[Value]]:
    """All hidden states of one direction ``[time, batch, hidden]``, and its last states."""
    gates, h = _GATES[call.kind], call.attribute("hidden_size") or call[2].shape[2]
    w, r = (_of(call[at], number) for at in (1, 2))
    bias = None if call.get(3) is None else _of(call[3], number)
    none = constant(np.zeros(gates * h, element_type(x.dtype).dtype), x.dtype)
    w_bias, r_bias = (none, none) if bias is None else split(bias, [gates * h] * 2, 0)
    cell = _Cell(
        _functions(call, number),
        call.attribute("clip") or 0.0,
        h,
        lambda rows, weights: product(rows, weights, 2, number),
    )
    weights = transpose(r)
    fixed = [weights]
    if call.kind == "GRU":
        fixed = [*split(weights, [2 * h, h], 1), slice_axis(r_bias, 0, 2 * h, None)]
        w_bias = concat(
            [
                binary("add", *(slice_axis(it, 0, 0, 2 * h) for it in (w_bias, r_bias))),
                slice_axis(w_bias, 0, 2 * h, None),
            ],
            0,
        )
        step = _gru(cell, bool(call.attribute("linear_before_reset")))
    else:
        w_bias = binary("add", w_bias, r_bias)
        step = _rnn(cell)
    if call.kind == "LSTM":
        step = _lstm(cell, bool(call.attribute("input_forget")))
        if call.get(7) is not None:
            fixed += split(_of(call[7], number), [h] * 3, 0)
    inputs = binary("add", product(x, transpose(w), 1, number), w_bias)
    reverse = _DIRECTIONS[call.attribute("direction")][number]
    return repeated(step, inputs, starts, fixed, reverse, mask)


def _of(value: Value, direction: int) -> Value:
    """The part of a direction."""
    return reshape(slice_axis(value, 0, direction, direction + 1), value.shape[1:])


def recurrent(call: Call, product: Product = _of_floats) -> list[Value]:
    """The hidden states of a recurrent operator of ONNX, and the last states.

    Args:
        call: The operator.
        product: How it multiplies with its weights.
    """
    x, batch_first = call[0], bool(call.attribute("layout"))
    x = transpose(x, (1, 0, 2)) if batch_first else x
    directions = len(_DIRECTIONS[call.attribute("direction")])
    hidden = call.attribute("hidden_size") or call[2].shape[2]
    time, batch = x.shape[:2]
    mask = None
    if call.get(4) is not None:
        lengths = reshape(cast(call[4], "int64"), (1, batch, 1))
        mask = binary("lt", vector(np.arange(time).reshape(time, 1, 1)), lengths)
        if mask.constant is not None and mask.constant.all():
            mask = None
    zeros = constant(np.zeros((directions, batch, hidden), element_type(x.dtype).dtype), x.dtype)
    starts = []
    for position in (5, 6)[: 2 if call.kind == "LSTM" else 1]:
        given = call.get(position)
        if given is not None and batch_first:
            given = transpose(given, (1, 0, 2))
        starts.append(zeros if given is None else given)
    shown, last = [], []
    for number in range(directions):
        own = [_of(it, number) for it in starts]
        y, states = _direction(call, x, number, own, mask, product)
        shown.append(unsqueeze(y, [1]))
        last.append([unsqueeze(it, [0]) for it in states])
    found = [concat(shown, 1), *(concat(parts, 0) for parts in zip(*last, strict=True))]
    if batch_first:
        return [transpose(found[0], (2, 0, 1, 3)), *(transpose(it, (1, 0, 2)) for it in found[1:])]
    return found


RECURRENT: Mapping[str, Operator] = dict.fromkeys(_GATES, recurrent)
