from __future__ import annotations

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from autotune.ir.expressions import IntExpr, const, var
from autotune.ir.expressions.integer import evaluate
from autotune.nest.quantities import distinct

TERMS = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 6)), max_size=4)


def enumerated(terms: list[tuple[int, int]]) -> int:
    """Count the values that the index takes, by running through all of them."""
    points = itertools.product(*(range(reach) for _, reach in terms))
    steps = [step for step, _ in terms]
    return len({sum(s * at for s, at in zip(steps, point, strict=True)) for point in points})


def counted(terms: list[tuple[int, int]]) -> int:
    found = distinct([(const(step), const(reach)) for step, reach in terms]).value
    assert found is not None
    return found


@given(TERMS)
def test_never_fewer_than_are_touched_and_never_more_than_the_hull(
    terms: list[tuple[int, int]],
) -> None:
    steps = [step for step, reach in terms if reach > 1]
    common = math.gcd(*steps) if steps else 1
    hull = 1 + sum(step * (reach - 1) for step, reach in terms) // common
    points = math.prod(reach for _, reach in terms)
    assert enumerated(terms) <= counted(terms) <= min(hull, points)


@given(TERMS)
def test_two_moving_terms_are_exact(terms: list[tuple[int, int]]) -> None:
    assert counted(terms[:2]) == enumerated(terms[:2])


@given(st.data())
def test_runs_that_continue_or_leave_gaps_are_exact(data: st.DataObject) -> None:
    """Each step is either within the run so far, or past everything so far."""
    terms: list[tuple[int, int]] = []
    run, hull = 1, 1
    for _ in range(data.draw(st.integers(1, 4))):
        contiguous = run == hull and data.draw(st.booleans())
        step = data.draw(st.integers(1, run) if contiguous else st.integers(hull, 2 * hull + 3))
        if terms and step < terms[-1][0]:
            continue
        reach = data.draw(st.integers(2, 4))
        terms.append((step, reach))
        hull += step * (reach - 1)
        run = hull if step <= run and contiguous else run
    assert counted(terms) == enumerated(terms)


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.data())
def test_a_copied_window_is_exact(
    stride: int, inner: int, taps: int, outer: int, data: st.DataObject
) -> None:
    """A hull of ``inner`` windows of ``taps``, whose corner moves with both outer loops."""
    more = data.draw(st.integers(1, 3))
    hull = stride * (inner - 1) + taps
    names = {"a": stride * inner, "b": taps, "h": hull, "t": outer, "k": more}
    terms: list[tuple[IntExpr, IntExpr]] = [
        (const(1), var("h")),
        (var("a"), var("t")),
        (var("b"), var("k")),
    ]
    numbers = [(1, hull), (stride * inner, outer), (taps, more)]
    assert evaluate(distinct(terms), names) == enumerated(numbers)
