from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from renamed_workloads import respelled

from autotune.ir.workloads import (
    Workload,
    WorkloadForm,
    conv2d,
    dense,
    depthwise_conv2d,
    gemm,
    softmax,
    structure_of,
    without_numbers,
)

EXTENTS = st.integers(1, 512)


def distance(one: Workload, other: Workload) -> float | None:
    return WorkloadForm.of(one).distance(WorkloadForm.of(other))


def test_numbers_are_left_out_and_digits_of_names_are_not() -> None:
    assert without_numbers("2*a1 + a4, 'float32' (1, 64) -0.5e-3 t2.p0") == (
        "#*a1 + a4, 'float32' (#, #) # t2.p0"
    )


@given(st.tuples(EXTENTS, EXTENTS, EXTENTS), st.tuples(EXTENTS, EXTENTS, EXTENTS))
def test_shapes_are_as_far_apart_as_their_logarithms(
    one: tuple[int, int, int], other: tuple[int, int, int]
) -> None:
    a, b = (gemm(**dict(zip("mnk", shape, strict=True))) for shape in (one, other))
    assert structure_of(a) == structure_of(b)
    expected = sum(abs(math.log(x / y)) for x, y in zip(one, other, strict=True))
    assert distance(a, b) == pytest.approx(expected)
    assert distance(a, b) == distance(b, a)
    assert (distance(a, b) == 0.0) == (a.digest == b.digest)


def test_names_do_not_matter() -> None:
    workload = conv2d(h=14, w=14, ci=32, co=64, pad=1, bias=1, relu=1)
    other = respelled(workload, 3)
    assert other.spelling != workload.spelling
    assert structure_of(other) == structure_of(workload)
    assert distance(other, workload) == 0.0


def test_another_stride_is_another_structure_and_still_near() -> None:
    one = conv2d(h=28, w=28, ci=64, co=64, pad=1)
    strided = conv2d(h=56, w=56, ci=64, co=64, stride=2, pad=1)
    wider = conv2d(h=28, w=28, ci=64, co=128, pad=1)
    assert structure_of(one) == structure_of(wider) != structure_of(strided)
    near, far = distance(one, wider), distance(one, strided)
    assert near is not None and far is not None and 0 < near < far


@pytest.mark.parametrize(
    "other",
    [
        dense(m=64, n=64, k=64, bias=1),
        softmax(m=64, n=64),
        depthwise_conv2d(h=14, w=14, c=32),
        gemm(m=64, n=64, k=64, dtype="int8"),
    ],
    ids=lambda workload: workload.name,
)
def test_what_no_schedule_fits_is_at_no_distance(other: Workload) -> None:
    assert distance(gemm(m=64, n=64, k=64), other) is None


def test_programs_that_are_not_described_are_like_none_but_themselves() -> None:
    one, other = (Workload(name, (), (), (), external=name) for name in ("one", "other"))
    assert distance(one, one) == 0.0 and distance(one, other) is None
    assert structure_of(one) == ""
