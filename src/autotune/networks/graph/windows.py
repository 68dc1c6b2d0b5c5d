"""Sums of products: of matrices, of any indices, of windows; and windows that are reduced.

Tensors with windows are ``[n, c, *image]``. Margins are stages of the same workload; groups are an
axis of their own, so that every index is a sum of multiples of axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from attrs import field, frozen

from autotune.errors import InvalidValueError
from autotune.ir.element_types import element_type
from autotune.ir.expressions import (
    Binary,
    Cast,
    Gather,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    const,
    var,
)
from autotune.ir.workloads import Axis, Stage, Tensor
from autotune.networks.graph.elementwise import (
    Number,
    Scalar,
    binary,
    cast,
    common_shape,
    elementwise,
    scalar_constant,
    where,
)
from autotune.networks.graph.graph import Value, constant
from autotune.networks.graph.making import (
    HALVES,
    axis_names,
    computed_type,
    load,
    program,
    rounded,
    spatial,
    widened,
)
from autotune.networks.graph.movement import broadcast, flip, pad, padded, reshape, transpose
from autotune.networks.graph.reductions import reduce

__all__ = [
    "Window",
    "contract",
    "convolution",
    "convolution_integer",
    "einsum",
    "matmul",
    "matmul_integer",
    "resample",
    "spread",
    "transposed_convolution",
    "window_arg",
    "window_reduce",
]


def contract(
    name: str, left: Value, right: Value, letters: tuple[str, str, str], dtype: str | None = None
) -> Value:
    """The sum of products over the letters that are not in the result.

    Args:
        name: Name of the workload.
        left: A tensor.
        right: Another one.
        letters: A letter for each axis of the left one, of the right one, and of the result. An
            extent of 1 goes with any other.
        dtype: Type of the result; that of ``left`` by default. Halves are added up in float32.

    Raises:
        InvalidValueError: extents of a letter differ, or a letter is in the result alone.
    """
    extents = _extents(((letters[0], left), (letters[1], right)))
    if set(letters[2]) - set(extents):
        raise InvalidValueError(f"{letters[2]!r} has letters that no operand has")
    summed = [it for it in extents if it not in letters[2]]
    wanted = dtype or left.dtype
    total = computed_type(wanted)
    shape = tuple(extents[it] for it in letters[2])
    if 0 in extents.values():
        zeros = np.zeros(shape, element_type(wanted).dtype)
        return constant(zeros, wanted)

    names = {it: f"i{at}" for at, it in enumerate(letters[2])}
    names |= {it: f"k{at}" for at, it in enumerate(summed)}

    def element(tensor: Tensor, places: str) -> ScalarExpr:
        indices = [
            const(0) if extent < extents[letter] else var(names[letter])
            for letter, extent in zip(places, tensor.shape, strict=True)
        ]
        found = load(tensor, indices)
        return found if tensor.dtype == total else Cast(total, found)

    def stages(given: Sequence[Tensor]) -> list[Stage]:
        axes = [Axis(names[it], extents[it]) for it in letters[2]]
        axes += [Axis(names[it], extents[it], "reduce") for it in summed]
        body = Binary("mul", element(given[0], letters[0]), element(given[1], letters[1]))
        combiner = "add" if summed else None
        stage = Stage(Tensor("y", shape, total), tuple(axes), body, combiner)
        return rounded([stage], wanted)

    return program(name, [left, right], stages)


def _extents(operands: Sequence[tuple[str, Value]]) -> dict[str, int]:
    """The extent of each letter, in the order in which letters occur."""
    extents: dict[str, int] = {}
    for letters, value in operands:
        if len(letters) != value.rank:
            raise InvalidValueError(f"{letters!r} does not name the axes of {value!r}")
        for letter, extent in zip(letters, value.shape, strict=True):
            known = extents.get(letter, 1)
            if known != extent and 1 not in (known, extent):
                raise InvalidValueError(f"{letter!r} is {known}, and in {value!r} {extent}")
            extents[letter] = extent if known == 1 else known
    return extents


def matmul(left: Value, right: Value, dtype: str | None = None) -> Value:
    """The product of matrices in the last two axes, as numpy's: vectors are rows or columns.

    Args:
        left: ``[..., m, k]``, or ``[k]``.
        right: ``[..., k, n]``, or ``[k]``; the other axes broadcast.
        dtype: Type of the result; that of ``left`` by default.

    Raises:
        InvalidValueError: the shapes do not fit.
    """
    if left.rank == 0 or right.rank == 0:
        raise InvalidValueError(f"{left!r} and {right!r} are no matrices")
    if left.shape[-1] != right.shape[max(0, right.rank - 2)]:
        raise InvalidValueError(f"{left!r} and {right!r} have no product")
    outer = [value.shape[:-2] for value in (left, right)]
    batch = common_shape(outer)
    names = [chr(ord("A") + at) for at in range(len(batch))]
    first = [*names[len(batch) - len(outer[0]) :], *(["i"] if left.rank > 1 else []), "k"]
    second = [*names[len(batch) - len(outer[1]) :], "k", *(["j"] if right.rank > 1 else [])]
    result = [*names, *(["i"] if left.rank > 1 else []), *(["j"] if right.rank > 1 else [])]
    if left.rank > 2 >= right.rank and left.size:
        # Rows of all matrices are rows of one: the form that everything is tuned for.
        found = matmul(reshape(left, (-1, left.shape[-1])), right, dtype)
        return reshape(found, (*left.shape[:-1], *right.shape[1:]))
    letters = "".join(first), "".join(second), "".join(result)
    return contract("matmul", left, right, letters, dtype)


def matmul_integer(
    left: Value, right: Value, left_zero: Value | None = None, right_zero: Value | None = None
) -> Value:
    """The product (int32) of matrices of bytes less their zero points.

    The product is that of the bytes, and zero points are subtracted from it: ``(a - p)(b - q) =
    ab - p sum(b) - q sum(a) + kpq``, where of constants all but the first is known.

    Args:
        left: ``[..., m, k]`` of bytes.
        right: ``[..., k, n]`` of bytes.
        left_zero: A number, or one for each row: ``[m]`` or ``[..., m, 1]``.
        right_zero: A number, or one for each column: ``[n]`` or ``[..., 1, n]``.
    """
    found = matmul(left, right, "int32")
    p = _zero(left_zero, column=True) if left.rank > 1 else _zero(left_zero, column=False)
    q = _zero(right_zero, column=False)
    if p is not None:
        sums = reduce("add", cast(right, "int32"), [max(0, right.rank - 2)], right.rank > 1)
        found = binary("sub", found, binary("mul", p, sums))
    if q is not None:
        sums = reduce("add", cast(left, "int32"), [-1], left.rank > 1)
        found = binary("sub", found, binary("mul", sums, q))
    if p is not None and q is not None:
        found = binary("add", found, binary("mul", binary("mul", p, q), left.shape[-1]))
    return found


def _zero(value: Value | None, column: bool) -> Value | None:
    """A zero point as int32 that broadcasts; None where it is 0."""
    wide = _nonzero(value)
    if wide is None:
        return None
    if wide.size == 1:
        return reshape(wide, ())
    return reshape(wide, (-1, 1)) if column and wide.rank == 1 else wide


def einsum(equation: str, *operands: Value, dtype: str | None = None) -> Value:
    """Einstein's sum, as numpy's ``einsum``; ``...`` stands for axes that broadcast.

    Operands are combined from the first to the last, two at a time.

    Raises:
        InvalidValueError: the equation does not fit the operands.
    """
    terms, result = _terms(equation, operands)
    values = list(operands)
    if len(terms) != len(values):
        raise InvalidValueError(f"{equation!r} is not of {len(values)} operands")
    pairs = [_diagonal(value, term) for value, term in zip(values, terms, strict=True)]
    value, term = pairs[0]
    for number, (other, letters) in enumerate(pairs[1:], start=1):
        needed = {*result, *(it for _, later in pairs[number + 1 :] for it in later)}
        kept = "".join(it for it in dict.fromkeys(term + letters) if it in needed)
        if number == len(pairs) - 1:
            kept = result
        value = contract("einsum", value, other, (term, letters, kept), dtype)
        term = kept
    left_out = [at for at, letter in enumerate(term) if letter not in result]
    if left_out:
        value = reduce("add", value, left_out, False, dtype)
        term = "".join(it for it in term if it in result)
    return transpose(value, [term.index(it) for it in result])


def _terms(equation: str, operands: Sequence[Value]) -> tuple[list[str], str]:
    """Letters of each operand and of the result, with capitals nobody uses for ``...``."""
    left, arrow, result = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    free = [chr(code) for code in range(0x100, 0x180)]
    longest = max(
        (
            value.rank - len(term.replace("...", ""))
            for term, value in zip(terms, operands, strict=False)
            if "..." in term
        ),
        default=0,
    )

    def spelt(term: str, rank: int) -> str:
        count = rank - len(term.replace("...", ""))
        return term.replace("...", "".join(free[longest - count : longest]))

    spelled = [spelt(term, value.rank) for term, value in zip(terms, operands, strict=False)]
    if not arrow:
        every = "".join(spelled)
        single = sorted({it for it in every if every.count(it) == 1 and it not in free})
        return spelled, "".join(free[:longest]) + "".join(single)
    return spelled, result.replace("...", "".join(free[:longest]))


def _diagonal(value: Value, letters: str) -> tuple[Value, str]:
    """A tensor whose axes have different letters: of equal ones the diagonal."""
    if len(set(letters)) == len(letters):
        return value, letters
    kept = "".join(dict.fromkeys(letters))
    extents = _extents([(letters, value)])
    shape = tuple(extents[it] for it in kept)

    def stages(given: Sequence[Tensor]) -> list[Stage]:
        body = load(given[0], [var(f"i{kept.index(it)}") for it in letters])
        return [Stage(Tensor("y", shape, value.dtype), spatial(shape), body)]

    return program("diagonal", [value], stages), kept


def _whole(values: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(int, values))


@frozen
class Window:
    """A window that moves over an image.

    Attributes:
        kernel: Its extents.
        strides: Steps between its places.
        low: Widths of the margins before the image; negative ones cut off.
        high: Widths of the margins behind it.
        dilations: Steps between its elements.

    Raises:
        InvalidValueError: not as many numbers as axes, or one out of range.
    """

    kernel: tuple[int, ...] = field(converter=_whole)
    strides: tuple[int, ...] = field(converter=_whole)
    low: tuple[int, ...] = field(converter=_whole)
    high: tuple[int, ...] = field(converter=_whole)
    dilations: tuple[int, ...] = field(converter=_whole)

    def __attrs_post_init__(self) -> None:
        parts = (self.kernel, self.strides, self.low, self.high, self.dilations)
        if len({len(part) for part in parts}) > 1:
            raise InvalidValueError(f"{self} has not as many numbers everywhere")
        if min((*self.kernel, *self.strides, *self.dilations), default=1) < 1:
            raise InvalidValueError(f"{self} has an extent or a step below 1")

    @staticmethod
    def of(
        kernel: Sequence[int],
        strides: Sequence[int] | None = None,
        low: Sequence[int] | None = None,
        high: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
    ) -> Window:
        """A window; its steps are 1 and its margins 0 unless given, ``high`` is as ``low``."""
        ones, none = [1] * len(kernel), [0] * len(kernel)
        before = none if low is None else low
        after = before if high is None else high
        return Window(kernel, strides or ones, before, after, dilations or ones)

    def places(self, image: Sequence[int]) -> tuple[int, ...]:
        """Number of places along each axis of an image.

        Raises:
            InvalidValueError: it does not fit.
        """
        found = []
        for axis, extent in enumerate(image):
            reach = (self.kernel[axis] - 1) * self.dilations[axis] + 1
            room = extent + self.low[axis] + self.high[axis] - reach
            if room < 0:
                raise InvalidValueError(
                    f"a window that spans {reach} does not fit {extent} with margins of "
                    f"{self.low[axis]} and {self.high[axis]}"
                )
            found.append(room // self.strides[axis] + 1)
        return tuple(found)

    def indices(self) -> list[IntExpr]:
        """Index of an element of a place in the image with its margins: of axes o and k."""
        steps = zip(self.strides, self.dilations, strict=True)
        return [
            var(f"o{at}") * stride + var(f"k{at}") * dilation
            for at, (stride, dilation) in enumerate(steps)
        ]


def _image(tensor: Tensor, window: Window, value: Number) -> tuple[list[Stage], str]:
    """Stages that surround an image with its margins, and what they make."""
    before, after = (0, 0, *window.low), (0, 0, *window.high)
    skipped = len(tensor.shape) - len(before)
    if not any(before + after):
        return [], tensor.name
    wide = [0] * skipped
    return [padded(tensor, (*wide, *before), (*wide, *after), value, "p")], "p"


def _cut(x: Value, window: Window) -> tuple[Value, Window]:
    """An image and a window without negative margins, which cut it before."""
    if min((*window.low, *window.high), default=0) >= 0:
        return x, window
    rest = x.rank - len(window.low)
    low, high = ([0] * rest + [min(0, it) for it in part] for part in (window.low, window.high))
    kept = ([max(0, it) for it in part] for part in (window.low, window.high))
    before, after = kept
    return pad(x, low, high), Window(
        window.kernel, window.strides, before, after, window.dilations
    )


def convolution(
    x: Value, w: Value, window: Window, groups: int = 1, dtype: str | None = None
) -> Value:
    """The sum of products of a window of an image with weights, over the channels of a group.

    Args:
        x: ``[n, groups * ci, *image]``.
        w: ``[groups * co, ci, *kernel]``.
        window: The window.
        groups: Parts of the channels that do not mix.
        dtype: Type of the result; that of ``x`` by default. Halves are added up in float32.

    Returns:
        ``[n, groups * co, *places]``.

    Raises:
        InvalidValueError: the shapes do not fit.
    """
    channels = w.shape[1] * groups
    if x.rank != w.rank or x.shape[1] != channels or w.shape[0] % groups:
        raise InvalidValueError(f"{w!r} are no weights of {groups} groups for {x!r}")
    if w.shape[2:] != window.kernel:
        raise InvalidValueError(f"{w!r} are no weights of a window of {list(window.kernel)}")
    x, window = _cut(x, window)
    places, wanted = window.places(x.shape[2:]), dtype or x.dtype
    if x.size == 0 or w.size == 0:
        shape = (x.shape[0], w.shape[0], *places)
        return constant(np.zeros(shape, element_type(wanted).dtype), wanted)
    return _grouped(x, w, window, places, groups, wanted)


def _grouped(
    x: Value, w: Value, window: Window, places: Sequence[int], groups: int, dtype: str
) -> Value:
    """A convolution; of several groups, which are an axis, axes of one channel are left out."""
    apart = [Axis("g", groups)] if groups > 1 else []
    outer, inner = Axis("co", w.shape[0] // groups), Axis("ci", w.shape[1], "reduce")
    made, added = ([it] if it.extent > 1 or not apart else [] for it in (outer, inner))
    batch, moving, within = Axis("n", x.shape[0]), _moving(places), _within(window)
    read, weights = [batch, *apart, *added], [*apart, *made, *added, *within]
    x = reshape(x, [*(it.extent for it in read), *x.shape[2:]])
    w = reshape(w, [it.extent for it in weights])
    indices = (
        [*(var(it.name) for it in read), *window.indices()],
        [var(it.name) for it in weights],
    )
    axes = [batch, *apart, *made, *moving, *added, *within]
    found = _summed("convolution", x, w, window, axes, indices, dtype)
    return reshape(found, (x.shape[0], groups * outer.extent, *places))


def _moving(places: Sequence[int]) -> list[Axis]:
    return [Axis(f"o{at}", extent) for at, extent in enumerate(places)]


def _within(window: Window) -> list[Axis]:
    return [Axis(f"k{at}", extent, "reduce") for at, extent in enumerate(window.kernel)]


def _summed(
    name: str,
    x: Value,
    w: Value,
    window: Window,
    axes: Sequence[Axis],
    indices: tuple[Sequence[IntExpr], Sequence[IntExpr]],
    dtype: str,
) -> Value:
    """The sum of products of an image with its margins and of weights."""
    total = computed_type(dtype)
    shape = tuple(axis.extent for axis in axes if axis.kind == "spatial")

    def stages(given: Sequence[Tensor]) -> list[Stage]:
        margins, source = _image(given[0], window, 0)
        factors: list[ScalarExpr] = []
        for tensor, places in ((source, indices[0]), (given[1].name, indices[1])):
            element = Load(tensor, tuple(places))
            kind = x.dtype if tensor == source else w.dtype
            factors.append(element if kind == total else Cast(total, element))
        body = Binary("mul", *factors)
        stage = Stage(Tensor("y", shape, total), tuple(axes), body, "add")
        return rounded([*margins, stage], dtype)

    return program(name, [x, w], stages)


def convolution_integer(
    x: Value,
    w: Value,
    window: Window,
    groups: int = 1,
    x_zero: Value | None = None,
    w_zero: Value | None = None,
) -> Value:
    """A convolution (int32) of bytes less their zero points; margins are zero points.

    Args:
        x: As of :func:`convolution`.
        w: Weights.
        window: The window.
        groups: Parts of the channels.
        x_zero: One number.
        w_zero: One number, or one for each channel of the result.
    """
    rank = len(window.kernel)
    margins = [0, 0, *window.low], [0, 0, *window.high]
    if x_zero is not None:
        x = pad(x, *margins, value=reshape(x_zero, ()))
        none = [0] * rank
        window = Window(window.kernel, window.strides, none, none, window.dilations)
    found = convolution(x, w, window, groups, "int32")
    wide = cast(w, "int32")
    p, q = _nonzero(x_zero), _nonzero(w_zero)
    if p is not None:
        sums = reshape(reduce("add", wide, range(1, w.rank), False), (-1, *[1] * rank))
        found = binary("sub", found, binary("mul", reshape(p, ()), sums))
    if q is not None:
        sums = _window_sums(x, window, groups, w.shape[0] // groups)
        q = reshape(q, () if q.size == 1 else (-1, *[1] * rank))
        found = binary("sub", found, binary("mul", sums, q))
    if p is not None and q is not None:
        both = binary("mul", reshape(p, ()), binary("mul", q, prod(w.shape[1:])))
        found = binary("add", found, both)
    return found


def _window_sums(x: Value, window: Window, groups: int, times: int) -> Value:
    """Sums (int32) of what each window reads of a group, so many times if there are several.

    Channels are added up first: all results of a group have the same sum.
    """
    apart = reshape(cast(x, "int32"), (x.shape[0], groups, -1, *x.shape[2:]))
    sums = window_reduce("add", reduce("add", apart, [2], False), window)
    if groups == 1 or times == 1:
        return sums
    n, _, *places = sums.shape
    each = broadcast(reshape(sums, (n, groups, 1, *places)), (n, groups, times, *places))
    return reshape(each, (n, groups * times, *places))


def _nonzero(value: Value | None) -> Value | None:
    """A zero point as int32; None where it is 0."""
    if value is None or (value.constant is not None and not value.constant.any()):
        return None
    return cast(value, "int32")


def transposed_convolution(
    x: Value,
    w: Value,
    window: Window,
    groups: int = 1,
    more: Sequence[int] | None = None,
    dtype: str | None = None,
) -> Value:
    """The transpose of a convolution of this window: from its result back to its image.

    Args:
        x: ``[n, groups * ci, *places]``.
        w: ``[groups * ci, co, *kernel]``.
        window: The window of the convolution; its margins are cut off.
        groups: Parts of the channels that do not mix.
        more: Further elements of the image behind each axis; 0 by default.
        dtype: Type of the result; that of ``x`` by default.

    Returns:
        ``[n, groups * co, *image]``.

    Raises:
        InvalidValueError: the shapes do not fit.
    """
    rank = len(window.kernel)
    if x.rank != w.rank or x.shape[1] != w.shape[0] or w.shape[0] % groups:
        raise InvalidValueError(f"{w!r} are no weights of {groups} groups for {x!r}")
    inner, outer = w.shape[0] // groups, w.shape[1]
    turned = reshape(flip(w, range(2, w.rank)), (groups, inner, outer, *window.kernel))
    order = (0, 2, 1, *range(3, rank + 3))
    turned = reshape(transpose(turned, order), (groups * outer, inner, *window.kernel))
    reach = [(k - 1) * d for k, d in zip(window.kernel, window.dilations, strict=True)]
    extra = more or [0] * rank
    low = [it - cut for it, cut in zip(reach, window.low, strict=True)]
    high = [it - cut + behind for it, cut, behind in zip(reach, window.high, extra, strict=True)]
    apart = spread(x, window.strides)
    return convolution(
        apart, turned, Window.of(window.kernel, None, low, high, window.dilations), groups, dtype
    )


def spread(x: Value, strides: Sequence[int]) -> Value:
    """An image with zeros between its elements, ``strides - 1`` of them along each axis."""
    if all(stride == 1 for stride in strides) or x.size == 0:
        return x
    steps = (1, 1, *strides)
    shape = tuple((extent - 1) * step + 1 for extent, step in zip(x.shape, steps, strict=True))
    names = axis_names(x.rank)

    def stages(given: Sequence[Tensor]) -> list[Stage]:
        body: ScalarExpr = load(
            given[0], [var(it) // step for it, step in zip(names, steps, strict=True)]
        )
        for axis, step in zip(names, steps, strict=True):
            if step > 1:
                rest = Binary("eq", IndexValue(var(axis) % step), IndexValue(const(0)))
                body = Select(rest, body, scalar_constant(0, x.dtype).body)
        axes = tuple(Axis(it, extent) for it, extent in zip(names, shape, strict=True))
        return [Stage(Tensor("y", shape, x.dtype), axes, body)]

    return program("spread", [x], stages)


def window_reduce(combiner: str, x: Value, window: Window, dtype: str | None = None) -> Value:
    """The elements of each place of a window, combined; margins take no part.

    Args:
        combiner: ``add``, ``mul``, ``max`` or ``min``.
        x: ``[n, c, *image]``.
        window: The window.
        dtype: Type of the result; that of ``x`` by default. Halves are added up in float32.
    """
    x, window = _cut(x, window)
    places, wanted = window.places(x.shape[2:]), dtype or x.dtype
    total = "float32" if wanted in HALVES and combiner in ("add", "mul") else wanted
    axes = [Axis("n", x.shape[0]), Axis("c", x.shape[1]), *_moving(places), *_within(window)]
    shape = (*x.shape[:2], *places)
    identity = Stage(Tensor("y", (), x.dtype), (), Load("x", ()), combiner).identity()

    def stages(given: Sequence[Tensor]) -> list[Stage]:
        margins, source = _image(given[0], window, identity)
        body: ScalarExpr = Load(source, (var("n"), var("c"), *window.indices()))
        body = body if x.dtype == total else Cast(total, body)
        stage = Stage(Tensor("y", shape, total), tuple(axes), body, combiner)
        return rounded([*margins, stage], wanted)

    return program("window", [x], stages)


def window_arg(x: Value, window: Window, last_nan: bool = False) -> Value:
    """The place (int64, flat in the image) of the first largest element of each place of a window.

    NaN is before all others, the first or with ``last_nan`` the last one. Margins are never
    chosen.
    """
    image = x.shape[2:]
    places = window.places(image)
    axes = [Axis("n", x.shape[0]), Axis("c", x.shape[1]), *_moving(places), *_within(window)]
    shape = (*x.shape[:2], *places)
    here = [it - low for it, low in zip(window.indices(), window.low, strict=True)]
    inside = _inside(here, image)
    flat: IntExpr = const(0)
    for index, extent in zip(here, image, strict=True):
        flat = flat * extent + index
    lowest = Stage(Tensor("y", (), x.dtype), (), Load("x", ()), "max").identity()

    def stages(given: Sequence[Tensor]) -> list[Stage]:
        element = Scalar(load(given[0], [var("n"), var("c"), *here]), x.dtype)
        row = tuple(var(axis.name) for axis in axes if axis.kind == "spatial")
        best = Scalar(Load("m", row), x.dtype)
        chosen = element.equals(best)
        if element.is_float:
            chosen = chosen | element.differs(element)
        beyond = scalar_constant(prod(image), "int64")
        place = Scalar(IndexValue(flat), "int64")
        if last_nan and element.is_float:
            # Below all others, and falling: the least one is the last.
            place = where(element.differs(element), -1 - place, place)
        index = where(chosen, place, beyond)
        value = element
        if inside is not None:
            value = where(inside, element, lowest)
            index = where(inside, index, beyond)
        return [
            Stage(Tensor("m", shape, x.dtype), tuple(axes), value.body, "max"),
            Stage(Tensor("y", shape, "int64"), tuple(axes), index.body, "min"),
        ]

    found = program("window_arg", [x], stages)
    if not last_nan or not element_type(x.dtype).is_float:
        return found
    return elementwise(lambda it: where(it < 0, -1 - it, it), found, name="window_arg")


def _inside(indices: Sequence[IntExpr], image: Sequence[int]) -> Scalar | None:
    """Tell if an element is in the image and not in its margins."""
    found: Scalar | None = None
    for index, extent in zip(indices, image, strict=True):
        for op, bound in (("ge", 0), ("lt", extent)):
            condition = Binary(op, IndexValue(index), IndexValue(const(bound)))
            term = Scalar(condition, "bool")
            found = term if found is None else found & term
    return found


def resample(x: Value, axis: int, places: np.ndarray, weights: np.ndarray) -> Value:
    """Along an axis weighted sums of elements.

    Args:
        x: A tensor of floats.
        axis: The axis.
        places: ``[length, taps]``: which elements, in range.
        weights: ``[length, taps]``: how much of each.
    """
    length, taps = places.shape
    axis = axis % x.rank
    shape = (*x.shape[:axis], length, *x.shape[axis + 1 :])
    total = computed_type(x.dtype)
    names = axis_names(x.rank)
    here = [var(names[axis]), var("t")]
    where_read = constant(np.asarray(places, np.int64))
    shares = constant(np.asarray(weights, np.float64), total)

    def stages(given: Sequence[Tensor]) -> list[Stage]:
        chosen: list[ScalarExpr] = [IndexValue(var(it)) for it in names]
        chosen[axis] = load(given[1], here)
        element = widened(Gather(given[0].name, tuple(chosen)), x.dtype)
        body = Binary("mul", element, load(given[2], here))
        axes = [Axis(it, extent) for it, extent in zip(names, shape, strict=True)]
        axes.append(Axis("t", taps, "reduce"))
        return rounded([Stage(Tensor("y", shape, total), tuple(axes), body, "add")], x.dtype)

    return program("resample", [x, where_read, shares], stages)
