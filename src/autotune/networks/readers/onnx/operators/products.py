"""Products; those of floats that were bytes before they were dequantised are products of bytes.

Where ``x = s (a - p)`` and ``w = t (b - q)``, the product of both is ``s t`` times that of
``a - p`` and ``b - q``, which is exact in int32.

Fourier transforms are products with matrices, recurrent operators loops of one step of products.
"""

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
    determinant,
    einsum,
    elementwise,
    matmul,
    matmul_integer,
    pad,
    reshape,
    slice_axis,
    split,
    stack,
    take,
    transpose,
    unary,
    unsqueeze,
)
from autotune.networks.graph.making import computed_type
from autotune.networks.readers.forms import Step, repeated, vector
from autotune.networks.readers.onnx.call import Call, Dequantised, Operator
from autotune.networks.readers.onnx.model_file import dtype_of
from autotune.networks.readers.onnx.operators.arithmetic import ACTIVATIONS

__all__ = [
    "BYTES",
    "PRODUCTS",
    "byte_factors",
    "dequantised",
    "moving",
    "recurrent",
    "scaled_sums",
]


BYTES = ("int8", "uint8")


def dequantised(x: Value, scale: Value, zero: Value | None, dtype: str) -> Value:
    """``(x - zero) * scale``.

    Args:
        x: Integers.
        scale: Broadcasts to them.
        zero: Likewise; None for 0.
        dtype: Type of the result.
    """
    computed = computed_type(dtype)

    def number(it: Scalar, by: Scalar, *zeros: Scalar) -> Scalar:
        for zero in zeros:
            it = it.cast("int32") - zero.cast("int32")
        return it.cast(computed) * by.cast(computed)

    operands = (x, scale, *moving(zero))
    return elementwise(number, *operands, dtype=dtype, name="dequantize")


def moving(zero: Value | None) -> tuple[Value, ...]:
    """A zero point that is not 0."""
    is_none = zero is None or (zero.constant is not None and not zero.constant.any())
    return () if is_none or zero is None else (zero,)


def byte_factors(
    call: Call, x: Value, w: Value, axis: int
) -> tuple[Dequantised, Dequantised] | None:
    """The integers of two factors before they were dequantised; None where one of them was not.

    Args:
        call: The node.
        x: A factor that has one scale.
        w: One that has one scale, or one for each index of ``axis``.
        axis: An axis of ``w`` that the result has.
    """
    left, right = call.dequantised.get(x.key), call.dequantised.get(w.key)
    if left is None or right is None or left.scale.size > 1 or (left.zero and left.zero.size > 1):
        return None
    return (left, right) if right.scale.size == 1 or right.axis == axis % w.rank else None


def scaled_sums(total: Value, left: Dequantised, right: Dequantised, behind: int) -> Value:
    """Sums of products of bytes as the floats that they stand for.

    Args:
        total: The sums (int32).
        left: The factor with one scale.
        right: The other one.
        behind: How many axes of the sums are behind that of several scales.
    """
    scale = binary("mul", reshape(left.scale, ()), right.scale)
    column = () if scale.size == 1 else (-1, *[1] * behind)
    return binary("mul", cast(total, scale.dtype), reshape(scale, column))


def _matmul(call: Call) -> Value:
    pair = byte_factors(call, call[0], call[1], -1) if call[1].rank == 2 else None
    if pair is None:
        return matmul(call[0], call[1])
    a, b = pair
    return scaled_sums(matmul_integer(a.stored, b.stored, a.zero, b.zero), a, b, 0)


def _product(call: Call) -> Value:
    """The product of two matrices, each as it is or transposed."""

    def turned(value: Value, how: str) -> Value:
        return transpose(value) if call.attribute(how) else value

    pair = byte_factors(call, call[0], call[1], 0 if call.attribute("transB") else 1)
    if pair is None:
        return matmul(turned(call[0], "transA"), turned(call[1], "transB"))
    a, b = pair
    factors = turned(a.stored, "transA"), turned(b.stored, "transB")
    return scaled_sums(matmul_integer(*factors, a.zero, b.zero), a, b, 0)


def _gemm(call: Call) -> Value:
    found, alpha, beta = _product(call), call.attribute("alpha"), call.attribute("beta")
    if alpha != 1:
        found = binary("mul", found, alpha)
    c = call.get(2)
    if c is None or beta == 0:
        return found
    return binary("add", found, c if beta == 1 else binary("mul", c, beta))


def _fourier(x: Value, axis: int, length: int, onesided: bool, inverse: bool) -> Value:
    """The transform of pairs (or real numbers) in the last axis, along another one."""
    last = x.rank - 1
    order = [*(it for it in range(last) if it != axis), axis]
    if inverse and onesided:
        x = _mirrored(x, axis, length)
    have = x.shape[axis]
    if have > length:
        x = slice_axis(x, axis, 0, length)
    elif have < length:
        more = [length - have if it == axis else 0 for it in range(x.rank)]
        x = pad(x, [0] * x.rank, more)
    parts = [
        transpose(reshape(slice_axis(x, last, at, at + 1), x.shape[:-1]), order)
        for at in range(x.shape[-1])
    ]
    count = length // 2 + 1 if onesided and not inverse else length
    angle = 2 * np.pi * np.outer(np.arange(length), np.arange(count)) / length
    scale = 1 / length if inverse else 1.0
    cosine = constant(np.cos(angle) * scale, x.dtype)
    sine = constant(np.sin(angle) * (-scale if inverse else scale), x.dtype)
    real, imaginary = matmul(parts[0], cosine), unary("neg", matmul(parts[0], sine))
    if len(parts) == 2:
        real = binary("add", real, matmul(parts[1], sine))
        imaginary = binary("add", imaginary, matmul(parts[1], cosine))
    results = [real] if inverse and onesided else [real, imaginary]
    back = [order.index(it) for it in range(last)]
    return stack([transpose(it, back) for it in results], last)


def _mirrored(x: Value, axis: int, length: int) -> Value:
    """The whole spectrum of real numbers, of which the first half is there."""
    places = np.arange(length)
    mirrored = np.where(places < x.shape[axis], places, length - places)
    whole = take(x, vector(mirrored), axis)
    sign = np.where(places < x.shape[axis], 1.0, -1.0)
    column = constant(sign.reshape(-1, *[1] * (x.rank - 1 - axis)), x.dtype)
    real = slice_axis(whole, x.rank - 1, 0, 1)
    imaginary = binary("mul", slice_axis(whole, x.rank - 1, 1, 2), column)
    return concat([real, imaginary], x.rank - 1)


def _dft(call: Call) -> Value:
    x, onesided, inverse = call[0], bool(call.attribute("onesided")), call.attribute("inverse")
    axis = int(call.number(2, -2)) if call.since >= 20 else call.attribute("axis")
    axis %= x.rank
    known = x.shape[axis]
    default = 2 * (known - 1) if onesided and inverse else known
    length = int(call.number(1, default)) if call.get(1) is not None else default
    return _fourier(x, axis, length, onesided, bool(inverse))


def _stft(call: Call) -> Value:
    signal, step = call[0], int(call.number(1))
    window = call.get(2)
    length = int(call.number(3)) if call.get(3) is not None else call[2].shape[0]
    signal = signal if signal.rank == 3 else reshape(signal, (*signal.shape, 1))
    frames = (signal.shape[1] - length) // step + 1
    places = np.arange(frames)[:, None] * step + np.arange(length)
    found = take(signal, vector(places), 1)
    if window is not None:
        found = binary("mul", found, reshape(window, (-1, 1)))
    return _fourier(found, 2, length, bool(call.attribute("onesided")), False)


def _mel_weights(call: Call) -> Value:
    bins, length, rate, low, high = (call.number(position) for position in range(5))
    spectrum = length // 2 + 1

    def mel(hertz: float) -> float:
        return float(2595 * np.log10(1 + hertz / 700))

    points = np.arange(bins + 2) * ((mel(high) - mel(low)) / (bins + 2)) + mel(low)
    hertz = 700 * (np.power(10, points / 2595) - 1)
    places = ((length + 1) * hertz // rate).astype(np.int64)
    found = np.zeros((spectrum, bins))
    for number in range(bins):
        start, centre, end = places[number : number + 3]
        if centre == start:
            found[centre, number] = 1
        else:
            rising = np.arange(start, centre + 1)
            found[rising, number] = (rising - start) / (centre - start)
        falling = np.arange(centre, end)
        found[falling, number] = (end - falling) / max(1, end - centre)
    return constant(found, dtype_of(call.attribute("output_datatype")))


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


PRODUCTS: Mapping[str, Operator] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": lambda call: einsum(call.attribute("equation"), *call.tensors),
    "MatMulInteger": lambda call: matmul_integer(call[0], call[1], call.get(2), call.get(3)),
    "Det": lambda call: determinant(call[0]),
    "DFT": _dft,
    "STFT": _stft,
    "MelWeightMatrix": _mel_weights,
    **dict.fromkeys(_GATES, recurrent),
}
