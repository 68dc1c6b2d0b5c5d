"""Convolutions as products of matrices compute what they did."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from autotune.sketches import ROWS, TERMS, Im2col, columns_name, im2col, weights_name

SMALL = st.integers(1, 3)


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
    assert product.points == workload.stage("Y").points
    inputs = random_inputs(workload, np.random.default_rng(0))
    (name,) = workload.outputs
    wanted, got = (reference_outputs(it, inputs)[name] for it in (workload, made))
    np.testing.assert_allclose(got.reshape(wanted.shape), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("workload", "stage", "message"),
    [
        (depthwise_conv2d(h=4, w=4, c=4), "Y", "'X' is no matrix of results and terms"),
        (softmax(m=2, n=4), "S", "it has no rows, no columns or no terms"),
        (gemm(m=2, n=2, k=2, dtype="float16"), "O", "it has no rows, no columns or no terms"),
    ],
    ids=("depthwise", "rows only", "no sum"),
)
def test_what_is_no_product_is_refused(workload: Workload, stage: str, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        im2col(workload, Im2col(stage))
