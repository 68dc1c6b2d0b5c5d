from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from autotune.ir.expressions import AffineForm, const, maximum, minimum, var
from autotune.nest import Access, Buffer, Loop, Statement
from autotune.nest.loop_nest import clipped_hull, hull, is_axis

COEFFICIENTS = st.integers(-6, 6).filter(bool)
FORMS = st.builds(
    AffineForm, st.dictionaries(st.sampled_from("abc"), COEFFICIENTS, max_size=3), st.just(2)
)
REACH = st.fixed_dictionaries({axis: st.integers(1, 9) for axis in "abc"})


def touched(form: AffineForm, reach: dict[str, int]) -> set[int]:
    """Every value of the index, by enumeration."""
    axes = list(form.coefficients)
    points = itertools.product(*(range(reach[axis]) for axis in axes))
    return {
        form.constant
        + sum(form.coefficients[axis] * at for axis, at in zip(axes, point, strict=True))
        for point in points
    }


@given(FORMS, REACH)
def test_the_hull_spans_what_is_touched(form: AffineForm, reach: dict[str, int]) -> None:
    values = touched(form, reach)
    extent = hull(form, {axis: const(value) for axis, value in reach.items()})
    assert extent.value == max(values) - min(values) + 1


def test_a_window_by_example() -> None:
    form = AffineForm({"t": 2, "k": 1}, 0)
    reach = {"t": var("T"), "k": const(3)}
    assert hull(form, reach) == 2 * var("T") + 1
    assert hull(form, {"t": const(4), "k": const(1)}) == const(7)


def test_an_axis_alone_is_not_clipped() -> None:
    reach = {"i": var("I"), "k": const(3)}
    assert is_axis(AffineForm({"i": 1}, 0))
    assert not is_axis(AffineForm({"i": 2}, 0)) and not is_axis(AffineForm({"i": 1}, 1))
    assert clipped_hull(AffineForm({"i": 1}, 0), reach, const(7)) == var("I")
    assert clipped_hull(AffineForm({}, 3), reach, const(7)) == const(1)
    window = AffineForm({"i": 1, "k": 1}, 0)
    assert clipped_hull(window, reach, const(7)) == minimum(var("I") + 2, 7)


def test_trips_reach_and_region_of_a_statement() -> None:
    p, q, r = var("p"), var("q"), var("r")
    loops = (
        Loop("i.0*j.0", p * r, (("i", p), ("j", r)), "parallel"),
        Loop("i.1", q, (("i", q),)),
        Loop("k.0", const(8), (("k", const(8)),)),
    )
    access = Access(
        "X", (AffineForm({"i": 2, "k": 1}, 0), AffineForm({"j": 1}, 0)), (const(99), r)
    )
    statement = Statement("C", "C", "compute", loops, (access,))
    assert statement.axes == ("i", "j", "k")
    trips = [statement.trips(depth) for depth in range(4)]
    assert trips == [const(1), p * r, p * q * r, 8 * p * q * r]
    assert [statement.reach("i", depth) for depth in range(3)] == [p * q, q, const(1)]
    assert statement.region(access, 0) == (minimum(2 * p * q + 6, 99), r)
    assert statement.region(access, 1) == (minimum(2 * q + 6, 99), const(1))
    assert statement.region(access, 3) == (minimum(1, 99), const(1)) == (const(1), const(1))


def test_the_size_of_a_buffer() -> None:
    buffer = Buffer("C.tile", (var("p"), const(16)), "float64", 2)
    assert buffer.elements == 16 * var("p") and buffer.bytes == 128 * var("p")
    assert maximum(buffer.elements, 16 * var("p")) == buffer.elements
