"""Complex numbers as pairs of real ones.

What moves elements moves both parts; sums, products and polar forms are said in terms of them, and
Fourier transforms are products with a matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import evolve, frozen

from autotune.errors import UnsupportedWorkload
from autotune.networks.graph import (
    Value,
    binary,
    broadcast,
    concat,
    constant,
    elementwise,
    flip,
    matmul,
    mean,
    reduce,
    reshape,
    slice_axis,
    stack,
    transpose,
    unary,
)
from autotune.networks.graph.elementwise import common_shape
from autotune.networks.readers.forms import as_type, is_float
from autotune.networks.readers.torch.call import Call, Item, Operator, Result
from autotune.networks.readers.torch.operators.shapes import INDEXING, SHAPES, filled

__all__ = ["Pair", "complex_operator", "is_complex"]

_PARTS = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}


@frozen(eq=False)
class Pair:
    """A complex tensor.

    Attributes:
        real: Its real parts.
        imaginary: Its imaginary parts, of the same shape and type.
    """

    real: Value
    imaginary: Value

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of each part."""
        return self.real.shape

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return self.real.rank


def is_complex(call: Call) -> bool:
    """Tell if a call reads or gives complex numbers."""
    gives = any(it is not None and it.dtype in _PARTS for it in call.results)
    return gives or any(isinstance(it, Pair) for it in _leaves(list(call.arguments.values())))


def _leaves(items: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for it in items:
        found += _leaves(it) if isinstance(it, list) else [it]
    return found


def complex_operator(name: str) -> Operator | None:
    """The operator on pairs; None where there is none."""
    if name in _RULES:
        return _RULES[name]
    if name in SHAPES or name in ("index", "index_select", "gather", "_unsafe_index"):
        return _moved
    return None


def _moved(call: Call) -> Item:
    """The same done to both parts."""
    function = {**INDEXING, **SHAPES}[call.kind]
    real, imaginary = (function(_part(call, number)) for number in (0, 1))
    if isinstance(real, list):
        return [Pair(*parts) for parts in zip(real, imaginary, strict=True)]
    return Pair(real, imaginary)


def _part(call: Call, number: int) -> Call:
    """A call on the real or the imaginary parts."""

    def chosen(item: Any) -> Any:
        if isinstance(item, Pair):
            return (item.real, item.imaginary)[number]
        if isinstance(item, list):
            return [chosen(it) for it in item]
        if isinstance(item, complex):
            return (item.real, item.imag)[number]
        return _PARTS.get(item, item) if isinstance(item, str) else item

    results = [it and Result(it.shape, _PARTS.get(it.dtype, it.dtype)) for it in call.results]
    arguments = {name: chosen(it) for name, it in call.arguments.items()}
    return evolve(call, arguments=arguments, results=tuple(results))


def _pair(item: Any, dtype: str) -> Pair:
    """A tensor or a number as a complex one, of parts of a type."""
    if isinstance(item, Pair):
        return Pair(as_type(item.real, dtype), as_type(item.imaginary, dtype))
    if isinstance(item, Value):
        return Pair(as_type(item, dtype), filled(item.shape, 0, dtype))
    known = complex(item)
    return Pair(filled((), known.real, dtype), filled((), known.imag, dtype))


def _sides(call: Call) -> tuple[Pair, Pair]:
    dtype = _PARTS[call.dtype]
    left, right = list(call.arguments.values())[:2]
    return _pair(left, dtype), _pair(right, dtype)


def _added(call: Call) -> Pair:
    one, other = _sides(call)
    if call.kind == "rsub":
        one, other = other, one
    alpha = call.get("alpha", 1)
    if isinstance(alpha, complex):
        raise UnsupportedWorkload("a factor that is a complex number is not supported")
    sign = -alpha if call.kind in ("sub", "rsub") else alpha
    return Pair(
        *(
            elementwise(lambda a, b: a + b * float(sign), a, b, name=call.kind)
            for a, b in ((one.real, other.real), (one.imaginary, other.imaginary))
        )
    )


def _product(one: Pair, other: Pair) -> Pair:
    parts = one.real, one.imaginary, other.real, other.imaginary
    return Pair(
        elementwise(lambda a, b, c, d: a * c - b * d, *parts, name="complex_mul"),
        elementwise(lambda a, b, c, d: a * d + b * c, *parts, name="complex_mul"),
    )


def _divided(call: Call) -> Pair:
    if call.get("rounding_mode") is not None:
        raise UnsupportedWorkload("quotients of complex numbers are not rounded")
    one, other = _sides(call)
    square = elementwise(lambda c, d: c * c + d * d, other.real, other.imaginary)
    found = _product(one, _conjugated(other))
    return Pair(binary("div", found.real, square), binary("div", found.imaginary, square))


def _conjugated(x: Pair) -> Pair:
    return Pair(x.real, unary("neg", x.imaginary))


def _from_parts(call: Call) -> Pair:
    real, imaginary = call["real"], call["imag"]
    shape = common_shape([real.shape, imaginary.shape])
    return Pair(broadcast(real, shape), broadcast(imaginary, shape))


def _polar(size: Value, angle: Value) -> Pair:
    return Pair(
        elementwise(lambda r, a: r * a.call("cos"), size, angle, name="polar"),
        elementwise(lambda r, a: r * a.call("sin"), size, angle, name="polar"),
    )


def _first(call: Call) -> Pair:
    found = next(iter(call.arguments.values()))
    return found if isinstance(found, Pair) else _pair(found, found.dtype)


def _viewed_as_complex(call: Call) -> Pair:
    x = call.x
    parts = (reshape(slice_axis(x, x.rank - 1, at, at + 1), x.shape[:-1]) for at in (0, 1))
    return Pair(*parts)


def _viewed_as_real(call: Call) -> Value:
    x = _first(call)
    return stack([x.real, x.imaginary], x.rank)


def _magnitude(call: Call) -> Value:
    x = _first(call)
    return elementwise(
        lambda a, b: (a * a + b * b).call("sqrt"), x.real, x.imaginary, name="magnitude"
    )


def _converted(call: Call) -> Item:
    """In another type, of which a real one takes the real parts."""
    x = _first(call)
    if call.dtype in _PARTS:
        return _pair(x, _PARTS[call.dtype])
    return as_type(x.real, call.dtype)


def _summed(call: Call) -> Pair:
    x, axes = _first(call), call.get("dim") or None
    keep = bool(call.get("keepdim", False))
    parts = (
        mean(it, axes, keep) if call.kind == "mean" else reduce("add", it, axes, keep)
        for it in (x.real, x.imaginary)
    )
    return Pair(*(reshape(it, call.shape) for it in parts))


def _matrices(call: Call) -> Pair:
    one, other = _sides(call)
    (a, b), (c, d) = (one.real, one.imaginary), (other.real, other.imaginary)
    return Pair(
        reshape(binary("sub", matmul(a, c), matmul(b, d)), call.shape),
        reshape(binary("add", matmul(a, d), matmul(b, c)), call.shape),
    )


# Fourier transforms.


def _transformed(x: Pair, axis: int, forward: bool, rows: slice = slice(None)) -> Pair:
    """A transform along an axis, and of its results some."""
    dtype, length = x.real.dtype, x.shape[axis]
    steps = np.arange(length)
    angle = 2 * np.pi * np.outer(steps, steps[rows]) / length * (-1 if forward else 1)
    cosines, sines = constant(np.cos(angle), dtype), constant(np.sin(angle), dtype)
    order = [*(at for at in range(x.rank) if at != axis), axis]
    real, imaginary = (transpose(it, order) for it in (x.real, x.imaginary))
    found = (
        binary("sub", matmul(real, cosines), matmul(imaginary, sines)),
        binary("add", matmul(real, sines), matmul(imaginary, cosines)),
    )
    return Pair(*(transpose(it, list(np.argsort(order))) for it in found))


def _normalised(x: Pair, normalization: int, count: int) -> Pair:
    if normalization == 0:
        return x
    factor = 1 / (math.sqrt(count) if normalization == 1 else count)
    return Pair(binary("mul", x.real, factor), binary("mul", x.imaginary, factor))


def _fourier(call: Call) -> Item:
    """Of complex numbers, of real ones to half of the results, or from such halves."""
    x = _first(call)
    if not is_float(x.real.dtype):
        raise UnsupportedWorkload("transforms of whole numbers are not supported")
    axes = [it % x.rank for it in call["dim"]]
    sizes = [x.shape[at] for at in axes]
    forward = bool(call.get("forward", call.kind == "_fft_r2c"))
    if call.kind == "_fft_c2r":
        for axis in axes[:-1]:
            x = _transformed(x, axis, False)
        x, sizes[-1] = _whole(x, axes[-1], call["last_dim_size"]), call["last_dim_size"]
        axes = axes[-1:]
    half = bool(call.get("onesided", False))
    for axis in reversed(axes):
        rows = slice(x.shape[axis] // 2 + 1) if half and axis == axes[-1] else slice(None)
        x = _transformed(x, axis, forward, rows)
    x = _normalised(x, call["normalization"], math.prod(sizes))
    return x.real if call.kind == "_fft_c2r" else x


def _whole(x: Pair, axis: int, length: int) -> Pair:
    """All results of a real tensor from the first half of them."""
    half = length // 2 + 1
    first = Pair(slice_axis(x.real, axis, 0, half), slice_axis(x.imaginary, axis, 0, half))
    rest = slice(1, length - half + 1)
    mirrored = (
        flip(slice_axis(it, axis, rest.start, rest.stop), [axis])
        for it in (first.real, unary("neg", first.imaginary))
    )
    real, imaginary = mirrored
    # What is real of a real tensor's sum, and of its alternating one, counts alone.
    ends = np.ones(half)
    ends[0] = 0
    if length % 2 == 0:
        ends[-1] = 0
    mask = constant(ends.reshape(-1, *[1] * (x.rank - 1 - axis)), x.real.dtype)
    return Pair(
        concat([first.real, real], axis),
        concat([binary("mul", first.imaginary, mask), imaginary], axis),
    )


def _on_pair(function: Callable[[Pair], Item]) -> Operator:
    return lambda call: function(_first(call))


_RULES: Mapping[str, Operator] = {
    "view_as_complex": _viewed_as_complex,
    "view_as_real": _viewed_as_real,
    "complex": _from_parts,
    "polar": lambda call: _polar(call["abs"], call["angle"]),
    "real": _on_pair(lambda x: x.real),
    "imag": _on_pair(lambda x: x.imaginary),
    "abs": _magnitude,
    "angle": _on_pair(lambda x: binary("atan2", x.imaginary, x.real)),
    **dict.fromkeys(("conj", "_conj", "conj_physical", "_conj_physical"), _on_pair(_conjugated)),
    "neg": _on_pair(lambda x: Pair(unary("neg", x.real), unary("neg", x.imaginary))),
    "exp": _on_pair(lambda x: _polar(unary("exp", x.real), x.imaginary)),
    **dict.fromkeys(("add", "sub", "rsub"), _added),
    "mul": lambda call: _product(*_sides(call)),
    "div": _divided,
    **dict.fromkeys(("to", "_to_copy", "type_as"), _converted),
    **dict.fromkeys(("sum", "mean"), _summed),
    **dict.fromkeys(("mm", "bmm", "matmul"), _matrices),
    **dict.fromkeys(("_fft_c2c", "_fft_r2c", "_fft_c2r"), _fourier),
}
