"""Fourier transforms, as products with matrices, and what comes with them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from autotune.networks.graph import (
    Value,
    binary,
    concat,
    constant,
    matmul,
    pad,
    reshape,
    slice_axis,
    stack,
    take,
    transpose,
    unary,
)
from autotune.networks.readers.forms import vector
from autotune.networks.readers.onnx.call import Call, Operator
from autotune.networks.readers.onnx.tensors import dtype_of

__all__ = ["SIGNALS"]


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


SIGNALS: Mapping[str, Operator] = {
    "DFT": _dft,
    "STFT": _stft,
    "MelWeightMatrix": _mel_weights,
}
