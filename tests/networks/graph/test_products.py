from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from network_graphs import drawn, folded

from autotune.errors import InvalidValueError
from autotune.ir.workloads import batch_matmul, gemm
from autotune.networks.graph import constant, einsum, input_value, matmul, matmul_integer


@settings(max_examples=25)
@given(data=st.data())
@pytest.mark.parametrize("kinds", [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
def test_zero_points_are_subtracted_exactly(kinds: tuple[str, str], data: st.DataObject) -> None:
    """A number, or one for each row and column; products of 255 are not saturated."""
    rows, depth, columns = (data.draw(st.integers(1, 4)) for _ in range(3))
    left, right = drawn((2, rows, depth), kinds[0], rows), drawn((depth, columns), kinds[1], 7)
    p = drawn(data.draw(st.sampled_from([(), (rows,)])), kinds[0], 8)
    q = drawn(data.draw(st.sampled_from([(), (columns,)])), kinds[1], 9)
    (found,) = folded(matmul_integer, left, right, p, q)
    first = left.astype(np.int32) - (p[:, None] if p.ndim else p).astype(np.int32)
    np.testing.assert_array_equal(found, first @ (right.astype(np.int32) - q.astype(np.int32)))


def test_products_of_bytes_are_programs_of_bytes() -> None:
    """Sums of constants for zero points are known before anything runs."""
    x, w = input_value("x", (3, 4), "uint8"), constant(drawn((4, 5), "int8"))
    made = matmul_integer(x, w, constant(np.uint8(3)))
    assert made.node is not None and made.node.label == "sub"
    product, zero = made.node.operands
    assert zero.constant is not None and product.node is not None
    built = gemm(m=3, n=5, k=4, dtype="u8s8s32").with_constants("B")
    assert product.node.operation.digest == built.digest  # type: ignore[union-attr]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_matrices_are_the_workloads_of_their_builders(dtype: str) -> None:
    x, y = input_value("x", (3, 4), dtype), input_value("y", (4, 5), dtype)
    many = input_value("z", (2, 3, 4), dtype), input_value("w", (2, 4, 5), dtype)
    pairs = [
        (matmul(x, y), gemm(m=3, n=5, k=4, dtype=dtype)),
        (matmul(*many), batch_matmul(b=2, m=3, n=5, k=4, dtype=dtype)),
    ]
    for made, built in pairs:
        assert made.node is not None
        assert made.node.operation.digest == built.digest  # type: ignore[union-attr]


def test_shapes_have_to_fit() -> None:
    x = input_value("x", (3, 4), "float32")
    with pytest.raises(InvalidValueError, match="have no product"):
        matmul(x, x)
    with pytest.raises(InvalidValueError, match="'j' is 4"):
        einsum("ij,jk->ik", x, x)
