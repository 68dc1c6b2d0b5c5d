from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from random_indices import AXES, quasi_affine

from autotune.ir.expressions import AffineForm, IntExpr, const, index_form, maximum, minimum, var
from autotune.ir.expressions.affine import unknown_form
from autotune.ir.expressions.integer import evaluate
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


def statement_over(loops: list[tuple[str, int]], *indices: IntExpr) -> tuple[Statement, Access]:
    """A statement in loops of constant extents around a read of ``X``, which bounds nothing."""
    made = tuple(
        Loop(f"{axis}.{level}", const(extent), ((axis, const(extent)),))
        for level, (axis, extent) in enumerate(loops)
    )
    forms = tuple(index_form(index) for index in indices)
    access = Access("X", forms, tuple(const(10**6) for _ in indices))
    return Statement("Y", "Y", "compute", made, (access,)), access


@given(quasi_affine(), st.tuples(*[st.integers(1, 6)] * 3))
def test_the_region_of_any_index_holds_what_is_touched(
    index: IntExpr, extents: tuple[int, ...]
) -> None:
    """By all loops; and of the first iteration by those inside."""
    statement, access = statement_over(list(zip(AXES, extents, strict=True)), index)
    for depth in range(len(AXES) + 1):
        inside = [range(e) if d >= depth else range(1) for d, e in enumerate(extents)]
        points = itertools.product(*inside)
        values = [evaluate(index, dict(zip(AXES, at, strict=True))) for at in points]
        (region,) = statement.region(access, depth)
        assert region.value is not None and region.value >= max(values) - min(values) + 1


@given(st.integers(0, 9), st.integers(1, 9), st.integers(1, 12), st.integers(1, 6))
def test_regions_of_quotients_and_remainders_are_exact(
    begin: int, divisor: int, extent: int, inner: int
) -> None:
    """Quotients anywhere, remainders as hulls of runs."""
    top = var("i") * inner + var("j") + begin
    statement, access = statement_over(
        [("i", extent), ("j", inner)], top // divisor, top % divisor
    )
    for depth, count in ((0, extent * inner), (1, inner), (2, 1)):
        run = range(begin, begin + count)
        wraps = begin // divisor != run[-1] // divisor
        quotients = len({at // divisor for at in run})
        remainders = divisor if wraps else count
        assert [item.value for item in statement.region(access, depth)] == [quotients, remainders]


def test_data_may_point_anywhere_once_for_each_point() -> None:
    statement, _ = statement_over([("i", 4), ("j", 8)])
    form = unknown_form("I[i]", frozenset("i"))
    access = Access("T", (form, AffineForm({"j": 1}, 0)), (const(3), const(8)))
    assert statement.region(access, 0) == (const(3), const(8))
    assert statement.region(access, 1) == (const(1), const(8))
    assert statement.region(access, 2) == (const(1), const(1))
