"""Workloads on permuted tensors compute the same, in whatever orders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.ir.rewrites.permuted import Order, induced_orders, inverse, permuted
from autotune.ir.workloads import (
    Workload,
    attention,
    conv2d,
    conv3d,
    cumsum,
    depthwise_conv2d,
    gemm,
    reference_outputs,
    softmax,
)

WORKLOADS = (
    conv2d(n=2, h=5, w=4, ci=3, co=4, kh=3, kw=2, pad=1, bias=1, relu=1),
    conv3d(n=1, d=3, h=4, w=3, ci=2, co=3, kd=2, kh=2, kw=1, stride=2),
    depthwise_conv2d(n=1, h=6, w=5, c=4, kh=3, kw=3, pad=1),
    gemm(m=3, n=4, k=5),
    softmax(m=3, n=5),
    attention(h=2, n=4, d=3, causal=1),
    cumsum(m=3, n=5),
)


def check(workload: Workload, orders: dict[str, Order]) -> None:
    """Check that a workload computes the same on tensors that are stored in these orders."""
    rng = np.random.default_rng(0)
    inputs = {it.name: rng.standard_normal(it.shape).astype(np.float32) for it in workload.inputs}

    def stored(name: str, array: NDArray[Any]) -> NDArray[Any]:
        return array.transpose(inverse(orders[name])) if name in orders else array

    changed = permuted(workload, orders)
    given_stored = {name: stored(name, array) for name, array in inputs.items()}
    assert {it.name: it.shape for it in changed.inputs} == {
        name: array.shape for name, array in given_stored.items()
    }
    found = reference_outputs(changed, given_stored)
    for name, array in reference_outputs(workload, inputs).items():
        np.testing.assert_allclose(found[name], stored(name, array), rtol=1e-6, atol=1e-6)


@settings(max_examples=20)
@given(workload=st.sampled_from(WORKLOADS), data=st.data())
def test_every_tensor_can_be_stored_in_every_order(
    workload: Workload, data: st.DataObject
) -> None:
    orders = {
        name: tuple(data.draw(st.permutations(range(len(tensor.shape)))))
        for name, tensor in workload.tensors.items()
        if data.draw(st.booleans())
    }
    check(workload, orders)


@settings(max_examples=20)
@given(workload=st.sampled_from(WORKLOADS), data=st.data())
def test_orders_follow_from_that_of_an_input(workload: Workload, data: st.DataObject) -> None:
    tensor = workload.inputs[0]
    order = tuple(data.draw(st.permutations(range(len(tensor.shape)))))
    orders = induced_orders(workload, {tensor.name: order})
    if orders is not None:
        assert orders[tensor.name] == order
        check(workload, orders)


def test_a_convolution_of_channels_first_becomes_that_of_channels_last() -> None:
    workload = conv2d(n=1, h=5, w=6, ci=3, co=4, kh=3, kw=3, pad=1)
    image, kernel = workload.inputs[:2]
    names = [image.name, *(stage.name for stage in workload.stages)]
    first = permuted(workload, {**dict.fromkeys(names, (0, 2, 3, 1)), kernel.name: (2, 3, 1, 0)})
    assert first.digest != workload.digest
    orders = induced_orders(first, {image.name: (0, 3, 1, 2)})
    assert orders is not None
    assert permuted(first, orders).digest == workload.digest


def test_an_order_names_every_dimension() -> None:
    workload = gemm(m=3, n=4, k=5)
    for orders in ({workload.inputs[0].name: (0, 0)}, {"nothing": (0, 1)}):
        with pytest.raises(InvalidValueError, match="has no order"):
            permuted(workload, orders)
