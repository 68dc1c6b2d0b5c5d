"""Bounds of indices hold everywhere, and simpler indices are the same."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from random_indices import AXES, quasi_affine

from autotune.ir.expressions import (
    Binary,
    Gather,
    IntExpr,
    Load,
    ScalarExpr,
    Unary,
    const,
    index_bounds,
    is_speculatable,
    less,
    maximum,
    minimum,
    select,
    simplify_index,
    var,
)
from autotune.ir.expressions.integer import evaluate

i, j = var("i"), var("j")
EXTENTS = st.fixed_dictionaries(dict.fromkeys(AXES, st.integers(1, 5)))


def indices() -> st.SearchStrategy[IntExpr]:
    """Index expressions of every kind."""
    parts = quasi_affine()
    return st.one_of(
        parts,
        st.builds(minimum, parts, parts),
        st.builds(maximum, parts, parts),
        st.builds(less, parts, parts),
        st.builds(lambda left, right: left * right, parts, parts),
        st.builds(lambda a, b, c: select(less(a, b), b, c), parts, parts, parts),
    )


@given(index=indices(), extents=EXTENTS)
def test_bounds_hold_and_simpler_indices_are_the_same(
    index: IntExpr, extents: dict[str, int]
) -> None:
    low, high = index_bounds(index, extents)
    simple = simplify_index(index, extents)
    for point in itertools.product(*(range(extents[axis]) for axis in AXES)):
        at = dict(zip(AXES, point, strict=True))
        value = evaluate(index, at)
        assert low <= value <= high
        assert evaluate(simple, at) == value


def test_bounds_are_reached_where_no_axis_occurs_twice() -> None:
    extents = {"i": 5, "j": 7}
    assert index_bounds(i * 3 - j * 2 + 1, extents) == (-11, 13)
    assert index_bounds((i - 3) // 2, extents) == (-2, 0)
    assert index_bounds((i + 8) % 16, extents) == (8, 12)
    assert index_bounds((i + 8) % 10, extents) == (0, 9)
    assert index_bounds(minimum(maximum(i, const(2)), j), extents) == (0, 4)
    assert index_bounds(less(i, j) * 4, extents) == (0, 4)


def test_indices_of_reshapes_become_affine() -> None:
    extents = {"i": 12, "j": 64}
    assert simplify_index((i * 64 + j) // 64, extents) == i
    assert simplify_index((i * 64 + j) % 64, extents) == j
    assert simplify_index((j // 64 + i) % 12, extents) == i
    assert simplify_index((i * 64 + j) // 16 % 4, extents) == j // 16
    assert simplify_index((i * 6 + j) // 4, extents) == (i * 6 + j) // 4


def test_what_may_be_evaluated_where_it_is_not_asked_for() -> None:
    extents, shapes = {"i": 4, "j": 3}, {"A": (6,), "I": (4,)}

    def is_safe(body: ScalarExpr) -> bool:
        return is_speculatable(body, extents, shapes)

    assert is_safe(Unary("exp", Load("A", (i + j,))))
    assert not is_safe(Unary("exp", Load("A", (i + j + 1,))))
    assert not is_safe(Load("A", (i - j,)))
    assert not is_safe(Binary("div", Load("A", (i,)), Load("A", (j,))))
    assert not is_safe(Gather("A", (Load("I", (i,)),)))
