"""Reductions over axes, and what is made of them.

Sums of halves are float32. A long reduction is one of blocks, and another one of what they gave:
whatever the order of a program is, ``2**25`` ones are 33,554,432.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotune.errors import InvalidValueError
from autotune.ir.element_types import element_type
from autotune.ir.expressions import (
    Binary,
    Constant,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    const,
    substitute,
    var,
)
from autotune.ir.workloads import Axis, Stage, Tensor
from autotune.networks.graph.elementwise import binary, cast, elementwise, unary
from autotune.networks.graph.graph import Value, constant
from autotune.networks.graph.making import (
    HALVES,
    load,
    normal_axes,
    normal_axis,
    program,
    rounded,
    widened,
)
from autotune.networks.graph.movement import reshape
from autotune.networks.graph.scalars import Scalar, scalar_constant, where

__all__ = [
    "LONGEST",
    "arg",
    "log_softmax",
    "log_sum_exp",
    "mean",
    "normalized",
    "reduce",
    "softmax",
    "variance",
]

LONGEST = 1 << 14
"""Numbers that are added one to the other; more are added in blocks."""

_COMBINERS = ("add", "mul", "max", "min")


def reduce(
    combiner: str,
    x: Value,
    axes: Sequence[int] | None = None,
    keepdims: bool = True,
    dtype: str | None = None,
) -> Value:
    """Combined over axes.

    Args:
        combiner: ``add``, ``mul``, ``max`` or ``min``.
        x: A tensor.
        axes: Which; all by default.
        keepdims: Whether they stay, with extent 1.
        dtype: Type of the result; that of ``x`` by default. What is computed is of that type, and
            float32 where it is a half.

    Raises:
        InvalidValueError: there is no such combiner, or nothing to take the largest of.
    """
    if combiner not in _COMBINERS:
        raise InvalidValueError(f"no combiner {combiner!r}; there are {', '.join(_COMBINERS)}")
    over, wanted = normal_axes(axes, x.rank), dtype or x.dtype
    if x.size == 0 or not over:
        return _of_nothing(combiner, x, over, keepdims, wanted)
    computed = "float32" if wanted in HALVES else wanted

    def stages(given: Sequence[Tensor]) -> list[Stage]:
        names = [f"{'k' if at in over else 'i'}{at}" for at in range(x.rank)]
        element = Scalar(widened(load(given[0], [var(it) for it in names]), x.dtype), _wide(x))
        inner = [Axis(names[at], x.shape[at], "reduce") for at in over]
        outer = [Axis(name, x.shape[at]) for at, name in enumerate(names) if at not in over]
        body = element.cast(computed).body
        return rounded(_blocked(combiner, outer, inner, body, computed), wanted)

    found = program(combiner, [x], stages)
    if not keepdims:
        return found
    return reshape(found, [1 if at in over else extent for at, extent in enumerate(x.shape)])


def _wide(x: Value) -> str:
    return "float32" if x.dtype in HALVES else x.dtype


def _of_nothing(combiner: str, x: Value, over: Sequence[int], keepdims: bool, dtype: str) -> Value:
    if not over:
        return cast(x, dtype)
    kept = [extent for at, extent in enumerate(x.shape) if at not in over]
    shape = [1 if at in over else extent for at, extent in enumerate(x.shape)]
    probe = Stage(Tensor("y", (), dtype), (), Constant(0, dtype), combiner)
    element = element_type(dtype)
    identity = np.full(shape if keepdims else kept, probe.identity())
    return constant(
        element.stored(identity.astype(np.float64 if element.is_float else None)), dtype
    )


def _blocked(
    combiner: str, outer: Sequence[Axis], inner: Sequence[Axis], body: ScalarExpr, dtype: str
) -> list[Stage]:
    """The stages of a reduction: one, or where it is long one more for blocks of it."""
    length, floats = math.prod(axis.extent for axis in inner), element_type(dtype).is_float
    shape = tuple(axis.extent for axis in outer)
    if length <= LONGEST or combiner in ("max", "min") or not floats:
        return [Stage(Tensor("y", shape, dtype), (*outer, *inner), body, combiner)]
    first, blocks, body = _halved(inner, body, combiner, dtype)
    block_shape = tuple(axis.extent for axis in (*outer, *blocks))
    axes = (*outer, *blocks, *first)
    partial = Stage(Tensor("p", block_shape, dtype), axes, body, combiner)
    element = Load("p", tuple(var(axis.name) for axis in (*outer, *blocks)))
    again = tuple(Axis(axis.name, axis.extent, "reduce") for axis in blocks)
    return [partial, Stage(Tensor("y", shape, dtype), (*outer, *again), element, combiner)]


def _halved(
    inner: Sequence[Axis], body: ScalarExpr, combiner: str, dtype: str
) -> tuple[list[Axis], list[Axis], ScalarExpr]:
    """Axes to reduce within a block, axes of blocks, and the body over both.

    Blocks are the last axes, about the root of all there is in each; an axis too long is cut.
    """
    total = math.prod(axis.extent for axis in inner)
    root = max(1 << (total.bit_length() + 1) // 2, total // LONGEST)
    first: list[Axis] = []
    length = 1
    for axis in reversed(inner):
        if length * axis.extent > root:
            break
        first.insert(0, axis)
        length *= axis.extent
    rest = list(inner[: len(inner) - len(first)])
    if not rest or length * 64 >= root:
        return first, [Axis(axis.name, axis.extent) for axis in rest], body
    cut = rest.pop()
    part = root // length
    count = -(-cut.extent // part)
    place = var(f"{cut.name}o") * part + var(f"{cut.name}n")
    body = substitute(body, {cut.name: place})
    if count * part > cut.extent:
        there = Binary("lt", IndexValue(place), IndexValue(const(cut.extent)))
        body = Select(there, body, Constant(_IDENTITIES[combiner], dtype))
    inside = [Axis(f"{cut.name}n", part, "reduce"), *first]
    blocks = [Axis(axis.name, axis.extent) for axis in rest]
    return inside, [*blocks, Axis(f"{cut.name}o", count)], body


_IDENTITIES = {"add": 0.0, "mul": 1.0}


def mean(x: Value, axes: Sequence[int] | None = None, keepdims: bool = True) -> Value:
    """The mean over axes; of halves in float32, rounded at the end."""
    total = reduce("add", x, axes, keepdims, _wide(x))
    return cast(binary("div", total, _count(x, axes)), x.dtype)


def _count(x: Value, axes: Sequence[int] | None) -> int:
    return math.prod(x.shape[axis] for axis in normal_axes(axes, x.rank))


def variance(
    x: Value, axes: Sequence[int] | None = None, keepdims: bool = True, correction: int = 0
) -> Value:
    """The mean square of the difference from the mean, over a count less ``correction``."""
    wide = cast(x, _wide(x))
    apart = binary("sub", wide, mean(wide, axes))
    total = reduce("add", binary("mul", apart, apart), axes, keepdims)
    return cast(binary("div", total, _count(x, axes) - correction), x.dtype)


def normalized(x: Value, axes: Sequence[int], epsilon: float) -> Value:
    """Less the mean, divided by the root of the variance and ``epsilon``; float32 of halves."""
    wide = cast(x, _wide(x))
    apart = binary("sub", wide, mean(wide, axes))
    spread = mean(binary("mul", apart, apart), axes)
    return elementwise(
        lambda left, right: left * (right + epsilon).call("rsqrt"), apart, spread, name="normalize"
    )


def softmax(x: Value, axis: int) -> Value:
    """``exp(x - max) / sum(exp(x - max))`` along an axis."""
    return _over_rows("softmax", x, axis)


def log_softmax(x: Value, axis: int) -> Value:
    """``x - max - log(sum(exp(x - max)))`` along an axis."""
    return _over_rows("log_softmax", x, axis)


def _over_rows(name: str, x: Value, axis: int) -> Value:
    """Softmax or its logarithm, in the stages that the builder of workloads has."""
    axis, dtype = normal_axis(axis, x.rank), _wide(x)
    rows = [Axis(f"i{at}", extent) for at, extent in enumerate(x.shape) if at != axis]
    whole = [Axis(f"i{at}", extent) for at, extent in enumerate(x.shape)]
    along = [Axis("k", x.shape[axis], "reduce")]
    here = [var(it.name) for it in whole]
    reduced = [*here[:axis], var("k"), *here[axis + 1 :]]
    row = tuple(var(it.name) for it in rows)
    row_shape = tuple(it.extent for it in rows)

    def stages(given: Sequence[Tensor]) -> list[Stage]:
        def element(places: Sequence[IntExpr]) -> Scalar:
            return Scalar(widened(load(given[0], places), x.dtype), dtype)

        def scalar(tensor: str, places: Sequence[IntExpr]) -> Scalar:
            return Scalar(Load(tensor, tuple(places)), dtype)

        largest = Stage(
            Tensor("m", row_shape, dtype), (*rows, *along), element(reduced).body, "max"
        )
        if name == "softmax":
            grown = (element(here) - scalar("m", row)).call("exp")
            result = scalar("e", here) / scalar("s", row)
            middle = [Stage(Tensor("e", x.shape, dtype), tuple(whole), grown.body)]
            added = scalar("e", reduced)
        else:
            added = (element(reduced) - scalar("m", row)).call("exp")
            result = element(here) - scalar("m", row) - scalar("s", row).call("log")
            middle = []
        total = Stage(Tensor("s", row_shape, dtype), (*rows, *along), added.body, "add")
        body = result.cast(x.dtype).body
        return [largest, *middle, total, Stage(Tensor("y", x.shape, x.dtype), tuple(whole), body)]

    return program(name, [x], stages)


def log_sum_exp(x: Value, axes: Sequence[int] | None = None, keepdims: bool = True) -> Value:
    """``log(sum(exp(x)))`` over axes, which does not overflow."""
    wide = cast(x, _wide(x))
    largest = reduce("max", wide, axes)
    # Where the largest is infinite, nothing is subtracted: infinities have no difference.
    finite = elementwise(lambda it: where((it - it).equals(0), it, 0), largest)
    grown = unary("exp", binary("sub", wide, finite))
    found = binary("add", unary("log", reduce("add", grown, axes)), finite)
    over = normal_axes(axes, x.rank)
    shape = [it for at, it in enumerate(found.shape) if keepdims or at not in over]
    return cast(reshape(found, shape), x.dtype)


def arg(op: str, x: Value, axis: int, keepdims: bool = True, last: bool = False) -> Value:
    """The index (int64) of the largest or smallest element along an axis, NaN before all others.

    Args:
        op: ``max`` or ``min``.
        x: A tensor.
        axis: The axis.
        keepdims: Whether it stays, with extent 1.
        last: Whether of equal elements it is the last one; the first one by default.
    """
    axis = normal_axis(axis, x.rank)
    if x.dtype == "bool":
        x = cast(x, "uint8")
    kept = tuple(extent for at, extent in enumerate(x.shape) if at != axis)
    rows = tuple(Axis(f"i{at}", extent) for at, extent in enumerate(x.shape) if at != axis)
    places = [var("k") if at == axis else var(f"i{at}") for at in range(x.rank)]
    axes = (*rows, Axis("k", x.shape[axis], "reduce"))

    def stages(given: Sequence[Tensor]) -> list[Stage]:
        element = Scalar(load(given[0], places), x.dtype)
        best = Scalar(Load("m", tuple(var(it.name) for it in rows)), x.dtype)
        chosen = element.equals(best)
        if element.is_float:
            chosen = chosen | element.differs(element)
        beyond = scalar_constant(-1 if last else x.shape[axis], "int64")
        index = where(chosen, Scalar(IndexValue(var("k")), "int64"), beyond)
        return [
            Stage(Tensor("m", kept, x.dtype), axes, element.body, op),
            Stage(Tensor("y", kept, "int64"), axes, index.body, "max" if last else "min"),
        ]

    found = program(f"arg{op}", [x], stages)
    return reshape(found, [*kept[:axis], 1, *kept[axis:]]) if keepdims else found
