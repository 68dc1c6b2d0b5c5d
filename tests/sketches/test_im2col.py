"""Convolutions as products of matrices compute what they did."""

from __future__ import annotations

import numpy as np
import pytest
from convolutions import convolution
from hypothesis import assume, given
from hypothesis import strategies as st
from written import written

from autotune.errors import InvalidValueError
from autotune.ir.workloads import (
    Workload,
    conv2d,
    depthwise_conv2d,
    gemm,
    random_inputs,
    reference_outputs,
    softmax,
)
from autotune.sketches import (
    COLUMNS,
    GROUPS,
    ROWS,
    TERMS,
    Im2col,
    columns_name,
    im2col,
    weights_name,
)

SMALL = st.integers(1, 3)


def product_of(rows: str, index: str) -> Workload:
    """Sums of products of ``X`` at an index of rows and terms, and of weights."""
    product = f"Y[{rows}:4, j:8; k:4] += X[{index}] * W[j, k]"
    return written("X[8], W[8, 4]", product, name="product")


def strided_back() -> Workload:
    return product_of("i", "(i + k) // 2")


def named_rows() -> Workload:
    return product_of("rows", "rows + k")


@given(
    n=SMALL,
    h=st.integers(3, 6),
    ci=SMALL,
    co=SMALL,
    kh=SMALL,
    kw=SMALL,
    stride=SMALL,
    pad=st.integers(0, 1),
    dilation=st.just(1),
    bias=st.integers(0, 1),
    relu=st.integers(0, 1),
)
def test_a_product_of_matrices_has_the_results_of_the_convolution(**shape: int) -> None:
    workload = conv2d(w=5, **shape)
    made = im2col(workload, Im2col("Y"))
    product = made.stage("Y")
    assert [axis.name for axis in product.axes] == [ROWS, "co", TERMS]
    assert product.reads == (columns_name("Y"), weights_name("Y"))
    check_results(workload, made)


def check_results(workload: Workload, made: Workload) -> None:
    """The product has as many points as the convolution, and its results in the same order."""
    assert made.stage("Y").points == workload.stage("Y").points
    inputs = random_inputs(workload, np.random.default_rng(0))
    (name,) = workload.outputs
    wanted, got = (reference_outputs(it, inputs)[name] for it in (workload, made))
    np.testing.assert_allclose(got.reshape(wanted.shape), wanted, rtol=1e-5, atol=1e-6)


@given(
    n=SMALL,
    h=st.integers(3, 6),
    groups=SMALL,
    ci=SMALL,
    co=SMALL,
    kernel=SMALL,
    stride=SMALL,
    pad=st.integers(0, 1),
    bias=st.integers(0, 1),
    last=st.integers(0, 1),
)
def test_so_have_those_of_channels_first_and_of_groups(
    groups: int, ci: int, co: int, **shape: int
) -> None:
    """Groups of one channel are left to rules of depthwise convolutions."""
    assume(groups == 1 or co > 1)
    channels = {"ci": groups * ci, "co": groups * co, "groups": groups}
    workload = convolution(w=5, dtype="float32", **channels, **shape)
    made = im2col(workload, Im2col("Y"))
    names = [axis.name for axis in made.stage("Y").axes]
    grouped = [GROUPS] if groups > 1 else []
    if shape["last"]:
        assert names == [ROWS, *grouped, "co", TERMS]
    else:
        images = ["n"] if shape["n"] > 1 else []
        assert names == [*images, *grouped, ROWS, COLUMNS, TERMS]
    check_results(workload, made)


def test_rows_of_matrices_are_neighbours_in_memory() -> None:
    wanted = {0: ((TERMS, COLUMNS), (ROWS, TERMS)), 1: ((ROWS, TERMS), (TERMS, "co"))}
    for last, matrices in wanted.items():
        made = im2col(convolution(h=6, w=5, ci=4, co=8, last=last), Im2col("Y"))
        names = columns_name("Y"), weights_name("Y")
        found = tuple(tuple(axis.name for axis in made.stage(name).axes) for name in names)
        assert found == matrices


@pytest.mark.parametrize(
    ("workload", "stage", "message"),
    [
        (depthwise_conv2d(h=4, w=4, c=4), "Y", "it has no rows, no columns or no terms"),
        (
            convolution(h=4, w=4, ci=4, co=4, groups=4),
            "Y",
            "it has no rows, no columns or no terms",
        ),
        (strided_back(), "Y", "'X' is read at quotients or remainders"),
        (named_rows(), "Y", "stage 'Y' has an axis 'rows' already"),
        (softmax(m=2, n=4), "S", "it has no rows, no columns or no terms"),
        (gemm(m=2, n=2, k=2, dtype="float16"), "O", "it has no rows, no columns or no terms"),
    ],
    ids=("depthwise", "groups of one", "fractional stride", "names", "rows only", "no sum"),
)
def test_what_is_no_product_is_refused(workload: Workload, stage: str, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        im2col(workload, Im2col(stage))
