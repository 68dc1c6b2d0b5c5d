"""Begin and end of loops of which only some iterations run: causal masks, windows on padding."""

from __future__ import annotations

from autotune.lower.concrete import ConcreteStatement
from autotune.lower.linear import Digits, Linear

__all__ = ["limits"]


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
