"""DLPack beside numpy's own: capsules go both ways, and memory lives as long as anyone uses it."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from autotune.backends import dlpack
from autotune.errors import InvalidValueError

DTYPES = ("float32", "float16", "float64", "int8", "uint8", "int32", "int64", "bool")


class Given:
    """Memory of numpy's, given on as ours is."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CPU, 0

    def __dlpack__(self, **_: Any) -> Any:
        array = self.array
        return dlpack.capsule_of(
            array.ctypes.data, array.shape, str(array.dtype), (dlpack.CPU, 0), self
        )


@settings(max_examples=30, deadline=None)
@given(
    array=st.sampled_from(DTYPES).flatmap(
        lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, max_dims=4, min_side=0))
    ),
    flipped=st.booleans(),
)
def test_views_are_what_numpy_says(array: Any, flipped: bool) -> None:
    array = array.T if flipped else array
    view = dlpack.view_of(array)
    assert (view.shape, view.dtype, view.device) == (array.shape, str(array.dtype), (1, 0))
    assert view.contiguous == array.flags.c_contiguous
    assert view.pointer == array.ctypes.data or array.size == 0
    again = np.from_dlpack(Given(np.ascontiguousarray(array).reshape(array.shape)))
    np.testing.assert_array_equal(again, array)
    assert again.dtype == array.dtype


def test_memory_lives_until_the_last_user_is_gone() -> None:
    owner = Given(np.arange(6.0).reshape(2, 3))
    gone = weakref.ref(owner)
    taken = np.from_dlpack(owner)
    unused = owner.__dlpack__()
    del owner
    gc.collect()
    assert gone() is not None
    del unused
    gc.collect()
    assert gone() is not None
    np.testing.assert_array_equal(taken, np.arange(6.0).reshape(2, 3))
    del taken
    gc.collect()
    assert gone() is None
    assert not dlpack._given


def test_what_cannot_be_exchanged_is_one_error() -> None:
    assert dlpack.device_of(3) is None
    assert dlpack.device_of(np.ones(2)) == (dlpack.CPU, 0)
    with pytest.raises(InvalidValueError, match="type int cannot be read by DLPack"):
        dlpack.view_of(3)
    with pytest.raises(InvalidValueError, match="type code 5 with 1 lanes; known are: int, uint"):
        dlpack.view_of(np.ones(2, np.complex64))
