"""Sketches of parameters and constraints alone, for tests of what reads only those."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hypothesis import assume
from hypothesis import strategies as st

from autotune.ir.expressions import IntExpr, const, less, maximum, minimum, select, var
from autotune.ir.workloads import gemm
from autotune.sketches import (
    AtLeast,
    AtMost,
    Categorical,
    Constraint,
    Factor,
    OneOf,
    Ordinal,
    Param,
    ProductEquals,
    Sketch,
)

WORKLOAD = gemm(m=2, n=2, k=2)

# Extents of a padded product, a plain one, an ordinal and a categorical parameter.
_TOTALS = st.integers(1, 24)
_VARIABLES = ("a0", "a1", "b0", "b1", "o", "c")
_KINDS = ("add", "sub", "mul", "max", "min", "div", "mod", "less", "select")


def sketch_of(params: Sequence[Param], constraints: Sequence[Constraint]) -> Sketch:
    """A sketch without steps."""
    return Sketch("made", WORKLOAD, tuple(params), tuple(constraints), ())


@st.composite
def _flat_expressions(draw: st.DrawFn) -> IntExpr:
    """A sum or a product of many parameters, which a join sees in parts."""
    names = draw(st.lists(st.sampled_from(_VARIABLES), min_size=3, max_size=6, unique=True))
    terms = [var(name) * draw(st.integers(1, 3)) + draw(st.integers(0, 1)) for name in names]
    if draw(st.booleans()):
        return sum(terms, const(0))
    return math.prod(terms, start=const(1))


@st.composite
def made_expressions(draw: st.DrawFn) -> IntExpr:
    """Every operation over a few parameters, increasing or not; divisors are positive."""
    names = draw(st.lists(st.sampled_from(_VARIABLES), min_size=1, max_size=4))
    result = const(draw(st.integers(0, 2)))
    if draw(st.booleans()):
        result = draw(_flat_expressions())
    for name in names:
        kind = draw(st.sampled_from(_KINDS))
        factor = var(name) * draw(st.integers(1, 3))
        if kind == "add":
            result = result + factor
        elif kind == "sub":
            result = factor - result
        elif kind == "mul":
            result = maximum(result, 1) * factor
        elif kind == "max":
            result = maximum(result, factor)
        elif kind == "min":
            result = minimum(result, factor)
        elif kind == "div":
            result = (result + factor) // maximum(var(name), 1)
        elif kind == "mod":
            result = (result + 7) % (factor + 1)
        elif kind == "less":
            result = less(result, factor)
        else:
            result = select(less(result, factor), factor, result + 1)
    assume(result.variables)
    return result


@st.composite
def made_constraints(draw: st.DrawFn) -> Constraint:
    """A relation over the parameters of :func:`made_sketches`."""
    expression, limit = draw(made_expressions()), draw(st.integers(-4, 40))
    kind = draw(st.sampled_from(("most", "least", "one")))
    if kind == "most":
        return AtMost(expression, limit, "test")
    if kind == "least":
        return AtLeast(expression, min(limit, 9), "test", hard=False)
    if draw(st.booleans()):
        return OneOf(expression % 5, (0, 1, limit % 5), "test")
    return OneOf(expression, (1, limit, 2, 6, 12), "test")


@st.composite
def made_sketches(draw: st.DrawFn) -> Sketch:
    """A few dozen to a few thousand configurations, of which some are feasible."""
    extents = tuple(sorted(draw(st.sets(_TOTALS, min_size=1, max_size=3))))
    last = draw(st.none() | st.sets(st.integers(1, 4), min_size=1).map(sorted).map(tuple))
    values = draw(st.sets(st.integers(0, 16), min_size=1, max_size=3))
    params: list[Param] = [
        Ordinal("pa", extents),
        Factor("a0"),
        Factor("a1"),
        Factor("b0"),
        Factor("b1", last),
        Ordinal("o", tuple(sorted(values))),
        Categorical("c", ("x", "y")),
    ]
    constraints: list[Constraint] = [
        ProductEquals(("a0", "a1"), var("pa")),
        ProductEquals(("b0", "b1"), const(draw(_TOTALS))),
        *draw(st.lists(made_constraints(), max_size=3)),
    ]
    return sketch_of(draw(st.permutations(params)), constraints)
