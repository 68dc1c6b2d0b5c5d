"""Reshapes of tensors that are stored in another order, without moving an element."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from autotune.ir.rewrites.permuted import Order, inverse

__all__ = ["grouped_order", "reshaped_order"]


def reshaped_order(
    before: Sequence[int], after: Sequence[int], order: Order
) -> tuple[tuple[int, ...], Order] | None:
    """A reshape of a permuted tensor as a reshape of what is stored.

    Args:
        before: Shape in the order of the model.
        after: What it is reshaped to.
        order: By axis of the model, the axis of what is stored.

    Returns:
        The shape of what is stored afterwards, and its order; None where elements would have to
        move: the reshape joins axes that do not lie together.
    """
    groups = _groups(before, after)
    places = []
    for axes, _ in groups:
        long = [order[axis] for axis in axes if before[axis] != 1]
        # Axes of length one lie anywhere; those between two others do not part them.
        first, last = min(long, default=0), max(long, default=0)
        between = {order.index(place) for place in range(first, last + 1)}
        parted = any(axis not in axes and before[axis] != 1 for axis in between)
        if long and (parted or long != sorted(long)):
            return None
        places.append(first if long else min((order[axis] for axis in axes), default=len(order)))
    ranked = sorted(range(len(groups)), key=lambda group: (places[group], group))
    stored = [axis for group in ranked for axis in groups[group][1]]
    return tuple(after[axis] for axis in stored), inverse(tuple(stored))


def grouped_order(
    before: Sequence[int], after: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...], Order]:
    """An order in which a reshape moves nothing, and which leaves channels last.

    Args:
        before: Shape in the order of the model.
        after: What it is reshaped to; its second axis is that of the channels.

    Returns:
        The axes in the order in which they are to be stored before, the shape of what is stored
        afterwards, and its order.
    """
    groups = sorted(_groups(before, after), key=lambda group: 1 in group[1])
    stored = [axis for _, axes in groups for axis in axes]
    shape = tuple(after[axis] for axis in stored)
    return tuple(axis for axes, _ in groups for axis in axes), shape, inverse(tuple(stored))


def _groups(
    before: Sequence[int], after: Sequence[int]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Axes of one shape with those of another that they become: smallest groups, in order."""
    found = []
    i = j = 0
    while i < len(before) or j < len(after):
        left, right = [], []
        if i < len(before):
            left, i = [i], i + 1
        if j < len(after) and not (left and before[left[0]] == 1 != after[j]):
            right, j = [j], j + 1
        size = [_product(before, left), _product(after, right)]
        while size[0] != size[1]:
            if size[0] < size[1]:
                left, i = [*left, i], i + 1
            else:
                right, j = [*right, j], j + 1
            size = [_product(before, left), _product(after, right)]
        found.append((tuple(left), tuple(right)))
    return found


def _product(shape: Sequence[int], axes: Sequence[int]) -> int:
    return prod(shape[axis] for axis in axes)
