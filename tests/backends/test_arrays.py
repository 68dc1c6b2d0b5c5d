"""Arrays that programs are bound to."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.backends import (
    ALIGNMENT,
    BuildRequest,
    aligned_copy,
    aligned_empty,
    bind_copies,
    check_arguments,
    poison_array,
)
from autotune.backends.backend import Array
from autotune.errors import InvalidValueError
from autotune.ir.workloads import gemm, random_inputs, reference_outputs
from autotune.targets import Target
from autotune.testing.reference_backend import ReferenceBackend

PRODUCT = gemm(m=4, n=8, k=2)
DTYPES = ("float32", "float64", "float16", "int8", "uint8", "int32", "bool")


@given(st.lists(st.integers(1, 5), max_size=4), st.sampled_from(DTYPES))
def test_empty_arrays_are_aligned_and_of_the_shape(shape: list[int], dtype: str) -> None:
    array = aligned_empty(shape, dtype)
    assert (array.shape, array.dtype.name) == (tuple(shape), dtype)
    assert array.ctypes.data % ALIGNMENT == 0
    assert array.flags.c_contiguous
    array[...] = 1
    assert (array == 1).all()


def test_copies_are_in_row_major_order_and_writable() -> None:
    given = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    given.flags.writeable = False
    copy = aligned_copy(given)
    np.testing.assert_array_equal(copy, given)
    assert copy.flags.c_contiguous
    assert copy.flags.writeable
    assert not np.shares_memory(copy, given)


def arguments() -> tuple[list[Array], list[Array]]:
    tensors = PRODUCT.tensors
    inputs = [aligned_empty(tensor.shape, tensor.dtype) for tensor in PRODUCT.inputs]
    return inputs, [aligned_empty(tensors[name].shape, "float32") for name in PRODUCT.outputs]


def shifted(array: Array) -> Array:
    longer = aligned_empty((array.size + 1,), array.dtype)
    return longer[1:].reshape(array.shape)


def read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


WRONG: tuple[tuple[str, Callable[[Array], Array], str], ...] = (
    ("input", lambda array: array[:-1], r"input 'A' is float32 of shape \(4, 2\), got float32 of"),
    ("input", lambda array: aligned_copy(array.astype("float64")), "got float64"),
    ("input", lambda array: array[::-1], "input 'A' is not contiguous"),
    ("input", shifted, "input 'A' begins at address 0x.*no multiple of 64"),
    ("output", shifted, "output 'C' begins at address"),
    ("output", read_only, "output 'C' cannot be written to"),
)


@pytest.mark.parametrize(("role", "change", "message"), WRONG)
def test_wrong_arguments(role: str, change: Callable[[Array], Array], message: str) -> None:
    inputs, outputs = arguments()
    arrays = inputs if role == "input" else outputs
    arrays[0] = change(arrays[0])
    with pytest.raises(InvalidValueError, match=message):
        check_arguments(PRODUCT, inputs, outputs)


def test_missing_arguments() -> None:
    inputs, outputs = arguments()
    with pytest.raises(InvalidValueError, match="'gemm' has 2 inputs, got 1"):
        check_arguments(PRODUCT, inputs[1:], outputs)
    with pytest.raises(InvalidValueError, match="'gemm' has 1 outputs, got 0"):
        check_arguments(PRODUCT, inputs, [])


@pytest.mark.parametrize("dtype", DTYPES)
def test_poison(dtype: str) -> None:
    array = aligned_empty((3,), dtype)
    array[...] = 0
    poison_array(array)
    worst = {"int8": -128, "uint8": 255, "int32": -(2**31), "bool": True}
    expected = worst.get(dtype, np.nan)
    np.testing.assert_array_equal(array, np.full(3, expected, dtype))


def test_bound_copies_do_not_depend_on_the_given_arrays() -> None:
    inputs = random_inputs(PRODUCT, np.random.default_rng(0))
    right = reference_outputs(PRODUCT, inputs)["C"]
    request = BuildRequest(PRODUCT, None, None, Target("cpu", "test"), 1)
    given = [np.asfortranarray(array) for array in inputs.values()]
    call = bind_copies(ReferenceBackend().build(request), PRODUCT, given)
    for array in given:
        array[...] = 0
    call.run()
    np.testing.assert_array_equal(call.outputs()[0], right)
