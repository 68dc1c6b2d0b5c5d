"""Operations along axes: reductions, running sums and loops, and the choice of elements.

Sums of halves are float32. A long reduction is one of blocks, and another one of what they gave:
whatever the order of a program is, ``2**25`` ones are 33,554,432.

How many elements a selection chooses is known when the program runs only, unless operands are
constants. Results are then as long as there is room for, and another one says how many are valid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

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
from autotune.networks.graph.elementwise import (
    Scalar,
    binary,
    cast,
    elementwise,
    scalar_constant,
    unary,
    where,
)
from autotune.networks.graph.graph import Graph, Loop, Value, constant, input_value
from autotune.networks.graph.making import (
    compute,
    computed_type,
    host,
    load,
    normal_axes,
    normal_axis,
    program,
    rounded,
    widened,
)
from autotune.networks.graph.movement import flip, reshape, slice_axis

__all__ = [
    "LONGEST",
    "arg",
    "determinant",
    "log_softmax",
    "log_sum_exp",
    "loop",
    "mean",
    "non_max_suppression",
    "nonzero",
    "normalized",
    "reduce",
    "scan",
    "softmax",
    "sort",
    "top_k",
    "unique",
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
    computed = computed_type(wanted)

    def stages(given: Sequence[Tensor]) -> list[Stage]:
        names = [f"{'k' if at in over else 'i'}{at}" for at in range(x.rank)]
        element = Scalar(
            widened(load(given[0], [var(it) for it in names]), x.dtype), computed_type(x.dtype)
        )
        inner = [Axis(names[at], x.shape[at], "reduce") for at in over]
        outer = [Axis(name, x.shape[at]) for at, name in enumerate(names) if at not in over]
        body = element.cast(computed).body
        return rounded(_blocked(combiner, outer, inner, body, computed), wanted)

    found = program(combiner, [x], stages)
    if not keepdims:
        return found
    return reshape(found, [1 if at in over else extent for at, extent in enumerate(x.shape)])


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
    total = reduce("add", x, axes, keepdims, computed_type(x.dtype))
    return cast(binary("div", total, _count(x, axes)), x.dtype)


def _count(x: Value, axes: Sequence[int] | None) -> int:
    return math.prod(x.shape[axis] for axis in normal_axes(axes, x.rank))


def variance(
    x: Value, axes: Sequence[int] | None = None, keepdims: bool = True, correction: int = 0
) -> Value:
    """The mean square of the difference from the mean, over a count less ``correction``."""
    wide = cast(x, computed_type(x.dtype))
    apart = binary("sub", wide, mean(wide, axes))
    total = reduce("add", binary("mul", apart, apart), axes, keepdims)
    return cast(binary("div", total, _count(x, axes) - correction), x.dtype)


def normalized(x: Value, axes: Sequence[int], epsilon: float) -> Value:
    """Less the mean, divided by the root of the variance and ``epsilon``; float32 of halves."""
    wide = cast(x, computed_type(x.dtype))
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
    axis, dtype = normal_axis(axis, x.rank), computed_type(x.dtype)
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
    wide = cast(x, computed_type(x.dtype))
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


Step = Callable[
    [Sequence[Value], Sequence[Value], Sequence[Value]], tuple[Sequence[Value], Sequence[Value]]
]
"""From states, slices and what every step reads whole to the next states and what is kept."""


def scan(
    combiner: str, x: Value, axis: int, exclusive: bool = False, reverse: bool = False
) -> Value:
    """Each element combined with all before it along an axis.

    Args:
        combiner: ``add``, ``mul``, ``max`` or ``min``.
        x: A tensor; halves are added up in float32.
        axis: The axis.
        exclusive: Whether an element itself is left out.
        reverse: Whether it is all behind it.
    """
    axis = normal_axis(axis, x.rank)
    if reverse:
        return flip(scan(combiner, flip(x, [axis]), axis, exclusive), [axis])
    total = computed_type(x.dtype)
    kinds = ["scan" if at == axis else "spatial" for at in range(x.rank)]
    axes = tuple(
        Axis(f"i{at}", extent, kind)
        for at, (extent, kind) in enumerate(zip(x.shape, kinds, strict=True))
    )
    here: list[IntExpr] = [var(it.name) for it in axes]
    identity = Stage(Tensor("y", (), total), (), scalar_constant(0, total).body, combiner)

    def stages(given: Sequence[Tensor]) -> list[Stage]:
        if exclusive:
            before = [*here[:axis], here[axis] - 1, *here[axis + 1 :]]
            there = Binary("ge", IndexValue(here[axis]), IndexValue(const(1)))
            body: ScalarExpr = Select(
                there,
                widened(load(given[0], before), x.dtype),
                scalar_constant(identity.identity(), total).body,
            )
        else:
            body = widened(load(given[0], here), x.dtype)
        stage = Stage(Tensor("y", x.shape, total), axes, body, combiner)
        return rounded([stage], x.dtype)

    return program("scan", [x], stages)


def loop(
    step: Step,
    trips: int,
    states: Sequence[Value],
    slices: Sequence[Value] = (),
    fixed: Sequence[Value] = (),
    reverse: Sequence[bool] = (),
    kept_reverse: Sequence[bool] = (),
) -> tuple[list[Value], list[Value]]:
    """A step that runs ``trips`` times, on the states that it left.

    Args:
        step: Builds one step from values that stand for its operands. What it reads beside them
            has to be constant.
        trips: How often.
        states: The first states.
        slices: Read a slice at a time along their first axis, which is as long as ``trips``.
        fixed: Read whole by every step; a step is given those that are constant as they are.
        reverse: By slice, whether it is read from its end; no by default.
        kept_reverse: By what is kept, whether it is filled from its end; no by default.

    Returns:
        The last states, and what is kept of all steps, stacked along a first axis.

    Raises:
        InvalidValueError: nothing runs, a slice is not as long, or a state changes its shape.
    """
    if trips < 1:
        raise InvalidValueError(f"a loop runs at least once, not {trips} times")
    for value in slices:
        if value.shape[:1] != (trips,):
            raise InvalidValueError(f"{value!r} has no {trips} slices")
    read = [it for it in fixed if it.constant is None]
    groups = [
        [input_value(f"state{at}", it.shape, it.dtype) for at, it in enumerate(states)],
        [input_value(f"slice{at}", it.shape[1:], it.dtype) for at, it in enumerate(slices)],
        [input_value(f"fixed{at}", it.shape, it.dtype) for at, it in enumerate(read)],
    ]
    waiting = iter(groups[2])
    known = [next(waiting) if it.constant is None else it for it in fixed]
    after, kept = step(groups[0], groups[1], known)
    for old, new in zip(states, after, strict=True):
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            raise InvalidValueError(f"a state of a loop is {old!r}, and {new!r} after a step")
    outputs = {f"out{at}": it for at, it in enumerate((*after, *kept))}
    body = Graph(tuple(it for group in groups for it in group), outputs)
    operation = Loop(
        body,
        trips,
        len(states),
        len(slices),
        tuple(reverse) or (False,) * len(slices),
        tuple(kept_reverse) or (False,) * len(kept),
    )
    results = [(it.shape, it.dtype) for it in after]
    results += [((trips, *it.shape), it.dtype) for it in kept]
    found = list(compute(operation, [*states, *slices, *read], results))
    return found[: len(states)], found[len(states) :]


def sort(x: Value, axis: int = -1, descending: bool = False) -> tuple[Value, Value]:
    """Sorted along an axis, and the indices (int64); equal elements keep their order.

    NaN is the largest number.
    """
    return top_k(x, x.shape[axis], axis, descending)


def top_k(x: Value, k: int, axis: int = -1, largest: bool = True) -> tuple[Value, Value]:
    """The ``k`` largest or smallest elements along an axis in order, and their indices (int64).

    Raises:
        InvalidValueError: there are no ``k`` elements.
    """
    axis = normal_axis(axis, x.rank)
    if not 0 <= k <= x.shape[axis]:
        raise InvalidValueError(f"axis {axis} of {x!r} has no {k} elements")
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    results = [(shape, x.dtype), (shape, "int64")]
    values, places = host("sort", [x], results, axis=axis, descending=largest, count=k)
    return values, places


def nonzero(x: Value) -> tuple[Value, Value]:
    """Places ``[count, rank]`` (int64) of elements that are not 0, and how many there are.

    Of what is no constant there is room for all elements: places behind the last are -1.
    """
    places, count = host(
        "nonzero", [x], [((x.size, x.rank), "int64"), ((), "int64")], bound=x.size
    )
    return _shortened(places, count), count


def _shortened(places: Value, count: Value) -> Value:
    if count.constant is None or places.constant is None:
        return places
    return slice_axis(places, 0, 0, int(count.constant))


def unique(
    x: Value, axis: int | None = None, is_sorted: bool = True
) -> tuple[Value, Value, Value, Value, Value]:
    """Different elements, or slices along an axis.

    Args:
        x: A tensor.
        axis: The axis; None for the elements of all axes, in order.
        is_sorted: Whether they are sorted, or in the order in which they occur first.

    Returns:
        The elements, where each is first, which one each element of ``x`` is, how often each
        occurs, and how many there are. Of what is no constant, there is room for all.
    """
    if axis is None:
        x, axis = reshape(x, (-1,)), 0
    axis = normal_axis(axis, x.rank)
    length = ((x.shape[axis],), "int64")
    results = [(x.shape, x.dtype), length, length, length, ((), "int64")]
    values, first, inverse, counts, found = host(
        "unique", [x], results, axis=axis, sorted=is_sorted
    )
    if found.constant is not None:
        end = int(found.constant)
        values, first = slice_axis(values, axis, 0, end), slice_axis(first, 0, 0, end)
        counts = slice_axis(counts, 0, 0, end)
    return values, first, inverse, counts, found


def non_max_suppression(
    boxes: Value,
    scores: Value,
    most: int,
    overlap: float,
    score: float = -np.inf,
    centred: bool = False,
) -> tuple[Value, Value]:
    """Boxes of each class that no better one of it overlaps too much.

    Args:
        boxes: ``[batch, boxes, 4]``: two corners, or with ``centred`` a centre and sizes.
        scores: ``[batch, classes, boxes]``.
        most: How many of a class there are at most.
        overlap: The share of a union beyond which two boxes are one.
        score: Boxes of no higher score are left out.
        centred: How boxes are written.

    Returns:
        ``[count, 3]`` (int64) of batch, class and box, and how many there are. Of what is no
        constant, there is room for the most: what is behind the last is -1.
    """
    batch, kinds, count = scores.shape
    bound = batch * kinds * min(most, count)
    if bound == 0:
        return constant(np.zeros((0, 3), np.int64)), constant(np.zeros((), np.int64))
    places, found = host(
        "non_max_suppression",
        [boxes, scores],
        [((bound, 3), "int64"), ((), "int64")],
        most=most,
        overlap=overlap,
        score=score,
        centred=centred,
        bound=bound,
    )
    return _shortened(places, found), found


def determinant(x: Value) -> Value:
    """Of the matrices in the last two axes."""
    return host("determinant", [x], [(x.shape[:-2], x.dtype)])[0]
