"""Operations that choose elements by what they are: sorting, places, boxes; the host runs them.

How many elements are chosen is known when the program runs only, unless operands are constants.
Results are then as long as there is room for, and another one says how many are valid.
"""

from __future__ import annotations

import numpy as np

from autotune.errors import InvalidValueError
from autotune.networks.graph.graph import Value, constant
from autotune.networks.graph.making import host, normal_axis
from autotune.networks.graph.movement import reshape, slice_axis

__all__ = ["determinant", "non_max_suppression", "nonzero", "sort", "top_k", "unique"]


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
