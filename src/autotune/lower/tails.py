"""Leading iterations of loops in which no vector needs a mask.

for i < 4: under a mask, A[i*8 : +8]  ->  for i < 3: A[i*8 : +8]; under a mask, A[24 : +8]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from autotune.ir.expressions.scalar import walk
from autotune.lower.concrete import ConcreteStatement
from autotune.lower.conditions import Below, comparison
from autotune.lower.linear import Digits, Linear
from autotune.lower.places import Place

__all__ = ["unmasked_iterations"]


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
    """What lanes are compared by: guards, ends of arrays that are written, choices."""
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
    """How many first iterations decide what is a mask in later ones; 0 if none do."""
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
