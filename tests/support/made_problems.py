"""Small constraint problems for hypothesis: every relation, every kind of operand."""

from __future__ import annotations

from hypothesis import strategies as st

from autotune.ir.expressions import IntExpr, const, maximum, var
from autotune.spaces.problems import (
    AtLeast,
    AtMost,
    Clause,
    Constraint,
    ConstraintProblem,
    Divides,
    Domain,
    Equal,
    IntRange,
    Member,
    NotEqual,
    Product,
    Select,
    Sum,
    Table,
    Variable,
)

NAMES = ("a", "b", "c", "d")
_POSITIVE = st.lists(st.integers(1, 12), min_size=1, max_size=6, unique=True).map(tuple)
_ANY = st.lists(st.integers(-3, 12), min_size=1, max_size=5, unique=True).map(tuple)
_INTERVALS = st.tuples(st.integers(-1, 3), st.integers(0, 5)).map(
    lambda ends: IntRange(ends[0], ends[0] + ends[1])
)


@st.composite
def operands(draw: st.DrawFn) -> IntExpr:
    """A variable, a constant or a small expression."""
    kind = draw(st.sampled_from(("var", "var", "var", "const", "mul", "add", "max")))
    first, second = (var(draw(st.sampled_from(NAMES))) for _ in range(2))
    if kind == "const":
        return const(draw(st.integers(0, 12)))
    if kind == "mul":
        return first * second
    if kind == "add":
        return first * draw(st.integers(1, 3)) + second - draw(st.integers(0, 2))
    return maximum(first, second) if kind == "max" else first


@st.composite
def constraints(draw: st.DrawFn) -> Constraint:
    """Any relation over ``NAMES``."""
    kind = draw(st.sampled_from(("product", "sum", "member", "select", "divides", "table", "or")))
    if kind == "product" and draw(st.booleans()):
        # As splits are: variables, each once.
        total, *factors = draw(st.permutations([var(name) for name in NAMES]))
        count = draw(st.integers(1, 3))
        constant = draw(st.sampled_from((1, 1, 2)))
        return Product(total, (*factors[:count], const(constant)))
    some = tuple(draw(st.lists(operands(), min_size=1, max_size=3)))
    if kind == "product":
        return Product(draw(operands()), some)
    if kind == "sum":
        return Sum(draw(operands()), some)
    if kind == "select":
        return Select(draw(operands()), draw(operands()), some)
    if kind == "table":
        columns = tuple(draw(st.permutations(NAMES))[: draw(st.integers(1, 3))])
        row = st.tuples(*(st.integers(-1, 6) for _ in columns))
        return Table(columns, tuple(draw(st.lists(row, min_size=1, max_size=12))))
    if kind == "or":
        return Clause(tuple(draw(st.lists(literals(), min_size=1, max_size=3))))
    return draw(literals())


@st.composite
def literals(
    draw: st.DrawFn,
) -> Equal | NotEqual | AtMost | AtLeast | Member | Divides:
    """A relation that may stand in a clause."""
    kind = draw(st.sampled_from((Equal, NotEqual, AtMost, AtLeast, Divides, Member)))
    if kind is Member:
        return Member(draw(operands()), tuple(draw(st.lists(st.integers(0, 12), max_size=4))))
    return kind(draw(operands()), draw(operands()))


@st.composite
def made_problems(draw: st.DrawFn) -> ConstraintProblem:
    """Four variables and up to four constraints."""
    variables = []
    for name in NAMES:
        domain: Domain = draw(st.one_of(_POSITIVE, _POSITIVE, _ANY, _INTERVALS))
        kind = draw(st.sampled_from(("parameter", "parameter", "extent", "memory", "derived")))
        variables.append(Variable(name, domain, kind))
    chosen = draw(st.lists(constraints(), max_size=4))
    return ConstraintProblem("made", tuple(variables), tuple(chosen))
