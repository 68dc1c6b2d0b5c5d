"""Iterations of loops that run, and those in which no vector needs a mask.

Only some run under causal masks and of windows on padding. Leading ones in which no vector needs a
mask stand by themselves:

    for i < 4: under a mask, A[i*8 : +8]  ->  for i < 3: A[i*8 : +8]; under a mask, A[24 : +8]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from autotune.ir.expressions.scalar import walk
from autotune.lower.concrete import ConcreteStatement
from autotune.lower.conditions import Below, comparison
from autotune.lower.linear import Digits, Linear
from autotune.lower.places import Place

__all__ = ["limits", "unmasked_iterations"]


def limits(statement: ConcreteStatement, depth: int, digits: Digits) -> tuple[Linear, Linear]:
    """First iteration of the loop at ``depth``, and the one behind its last.

    A point is at ``scale * own + stride * other``; an iteration runs if its least position is at
    most ``offset`` and its greatest at least ``least``. Both are linear in the loop's counter,
    so that what runs is an interval.
    """
    loop = statement.loops[depth]
    bound, end = loop.bound, Linear((), loop.extent)
    if bound is None:
        return Linear(), end

    def at_end(form: Linear, last: bool) -> Linear:
        """The form in the first or the last iteration of the loops further inside."""
        constant, kept = form.constant, []
        for name, value in form.terms:
            if statement.depth(name, digits) > depth:
                constant += value * digits.ranges[name][int(last)]
            else:
                kept.append((name, value))
        return Linear(tuple(kept), constant)

    own, other = statement.axes[loop.axes[0]], statement.axes.get(bound.axis, Linear())
    # A loop of one iteration has no digit: whether it runs is then the same for every step.
    step = own.coefficient(loop.name) * bound.scale or 1
    falls = bound.stride < 0
    lowest = at_end(own, False).without(loop.name) * bound.scale
    lowest = lowest + at_end(other, falls) * bound.stride
    room = digits.resolved(lowest * -1 + bound.offset)
    end = digits.smaller(digits.quotient(room, step) + 1, end)
    if bound.least is None:
        return Linear(), end
    highest = at_end(own, True).without(loop.name) * bound.scale
    highest = highest + at_end(other, not falls) * bound.stride
    missing = digits.resolved(highest * -1 + bound.least)
    return digits.larger(digits.quotient(missing + (step - 1), step), Linear()), end


def unmasked_iterations(
    statement: ConcreteStatement, loop: str, places: Mapping[str, Place], digits: Digits
) -> int | None:
    """First iterations of a loop that decide a mask which further ones need; None if none do."""
    found = [
        decided
        for below in _conditions(statement, places, digits)
        if (decided := _decided_iterations(below, statement, loop, digits)) > 0
    ]
    return min(found, default=None)


def _conditions(
    statement: ConcreteStatement, places: Mapping[str, Place], digits: Digits
) -> Iterator[Below]:
    """The comparisons of lanes: guards, ends of arrays that are written, choices."""
    axes = dict(statement.axes)
    for axis, extent in statement.guards.items():
        yield Below(axes.get(axis, Linear()) - extent)
    place = places[statement.write.buffer]
    if place.kind == "argument":
        for form, extent in zip(statement.write.forms, place.shape, strict=True):
            yield Below(digits.of_form(form, axes) - extent)
    for node in walk(statement.body) if statement.body is not None else ():
        found = comparison(node, axes, digits)
        if found is not None:
            yield found


def _decided_iterations(
    below: Below, statement: ConcreteStatement, loop: str, digits: Digits
) -> int:
    """The number of first iterations that decide what is a mask in later ones; 0 if none do."""
    form, lane = digits.resolved(below.form), statement.lane
    if lane is None or not digits.depends(form, lane) or not digits.is_apart(form, loop):
        return 0
    step = form.coefficient(loop)
    if step == 0 or below.decided(digits) is not None:
        return 0
    if below.without(lane, statement.loops[-1].extent, digits) is not None:
        return 0
    low, high = digits.bounds(form.without(loop))
    count = (-1 - high) // step + 1 if step > 0 else low // -step + 1
    return max(0, count)
