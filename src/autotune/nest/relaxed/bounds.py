"""Ranges of a sketch's parameters as real numbers."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.errors import InvalidValueError
from autotune.nest.relaxed.intervals import Interval, of_expression
from autotune.sketches import Factor, ProductEquals, Sketch

ParamBounds = Mapping[str, Interval]
"""Least and greatest value of every parameter by name."""


def param_bounds(sketch: Sketch) -> dict[str, Interval]:
    """Bounds of all parameters of ``sketch``.

    A factor without listed values reaches from 1 to the total of the products it is part of.

    Raises:
        InvalidValueError: a factor has no listed values and is part of no product whose total
            is bounded.
    """
    known: dict[str, Interval] = {}
    for param in sketch.params:
        if param.values:
            known[param.name] = (float(min(param.values)), float(max(param.values)))
    result = {}
    for param in sketch.params:
        if param.name in known:
            result[param.name] = known[param.name]
            continue
        totals = [
            of_expression(constraint.total, known)[1]
            for constraint in sketch.constraints
            if isinstance(constraint, ProductEquals) and param.name in constraint.factors
            if constraint.total.variables <= known.keys()
        ]
        if not isinstance(param, Factor) or not totals:
            raise InvalidValueError(
                f"parameter {param.name!r} of sketch {sketch.name!r} has neither values nor a "
                "product that it is a factor of"
            )
        result[param.name] = (1.0, min(totals))
    return result
