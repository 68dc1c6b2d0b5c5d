"""Factors and terms that constants of products take up."""

from __future__ import annotations

import pytest
from random_graphs import check_equal, labels, weights

from autotune.networks import graph as ops
from autotune.networks.graph import Graph, Value, Window, input_value
from autotune.networks.passes.fold_scales import fold_scales
from autotune.networks.passes.views import views

X = input_value("x", (1, 4, 6, 6), "float32")
ROWS = input_value("r", (3, 4), "float32")


def _folded(*outputs: Value) -> list[str]:
    named = {f"out{number}": value for number, value in enumerate(outputs)}
    return labels(check_equal(Graph((X, ROWS), named), views, fold_scales))


def _convolved(groups: int = 1) -> Value:
    kernel = weights(8, 4 // groups, 3, 3)
    return ops.convolution(X, kernel, Window.of([3, 3], low=[1, 1]), groups)


def _normed(x: Value) -> Value:
    factor, term = weights(8, 1, 1, seed=1), weights(1, 8, 1, 1, seed=2)
    return ops.elementwise(lambda it, by, more: it * by + more, x, factor, term, name="norm")


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_batch_norm_goes_into_weights(groups: int) -> None:
    found = [it for it in _folded(ops.clamp(_normed(_convolved(groups)), 0)) if it != "reshape"]
    assert found == ["convolution", "add", "clamp"]


def test_terms_before_a_factor_are_multiplied() -> None:
    y = ops.binary("add", _convolved(), weights(8, 1, 1, seed=3))
    assert _folded(_normed(_normed(y))) == ["convolution", "add"]
    scaled = ops.binary("div", ops.binary("sub", 2.0, ops.unary("neg", y)), 4.0)
    assert _folded(scaled) == ["convolution", "add"]


def test_columns_of_a_matrix_are_scaled() -> None:
    y = ops.binary("mul", ops.matmul(ROWS, weights(4, 5)), weights(5, seed=1))
    assert _folded(y) == ["matmul"]


def test_what_differs_along_other_axes_stays() -> None:
    y = ops.matmul(ROWS, weights(4, 5))
    assert _folded(ops.binary("mul", y, weights(3, 1))) == ["matmul", "mul"]
    assert _folded(ops.binary("mul", y, weights(3, 5))) == ["matmul", "mul"]


def test_what_is_read_elsewhere_stays() -> None:
    y = ops.matmul(ROWS, weights(4, 5))
    assert _folded(ops.binary("mul", y, 2.0), y) == ["matmul", "mul"]
    assert _folded(ops.binary("mul", y, ops.unary("tanh", y))) == ["matmul", "tanh", "mul"]


def test_products_of_what_is_no_constant_stay() -> None:
    y = ops.matmul(ROWS, ops.transpose(ROWS))
    assert _folded(ops.binary("mul", y, 2.0)) == ["transpose", "matmul", "mul"]


def test_what_is_not_finite_stays() -> None:
    y = ops.binary("mul", ops.matmul(ROWS, weights(4, 5)), float("inf"))
    assert _folded(y) == ["matmul", "mul"]
