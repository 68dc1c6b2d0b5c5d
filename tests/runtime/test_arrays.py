"""Arrays of networks, with those of bfloat16, which numpy alone does not have."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from autotune.errors import InvalidValueError
from autotune.networks import NetworkTensor
from autotune.runtime.arrays import (
    aligned_inputs,
    as_numpy,
    converter_to,
    numpy_type,
    random_examples,
    read_array,
    write_array,
)

HALVES = NetworkTensor("x", (3, 4), "bfloat16")


@pytest.mark.needs("ml_dtypes")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "int64", "bool"])
def test_arrays_are_made_checked_and_kept_in_files(dtype: str, tmp_path: Path) -> None:
    tensor = NetworkTensor("x", (3, 4), dtype)
    (array,) = random_examples([tensor])
    assert str(array.dtype) == dtype and len(np.unique(array.astype(float))) > 1
    (given,) = aligned_inputs([tensor], [array])
    assert given.ctypes.data % 64 == 0
    path = write_array(str(tmp_path / "x"), array)
    found = read_array(path)
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found.view(np.uint8), array.view(np.uint8))


def test_bytes_in_the_other_order_are_the_same_numbers() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    swapped = array.astype(array.dtype.newbyteorder("S"))
    (given,) = aligned_inputs([NetworkTensor("x", (3, 4), "float32")], [swapped])
    np.testing.assert_array_equal(given, array)
    assert given.dtype.isnative


def test_several_arrays_are_not_stacked_into_one() -> None:
    with pytest.raises(InvalidValueError, match="a list of 2 arrays; give each by itself"):
        as_numpy([np.zeros(3), np.ones(3)])


@pytest.mark.needs("ml_dtypes")
def test_bits_are_no_numbers_of_bfloat16() -> None:
    with pytest.raises(InvalidValueError, match=r"'x' is uint16\[3, 4\]; .* takes bfloat16"):
        aligned_inputs([HALVES], [np.zeros((3, 4), np.uint16)])


def test_what_numpy_lacks_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(InvalidValueError, match="pip install ml_dtypes"):
        numpy_type("bfloat16")
    assert numpy_type("float32") == np.float32


def test_outputs_of_types_that_dlpack_lacks_are_copied() -> None:
    class Tensor:
        """Tensor of a compiler, of a type that numpy has not."""

        def __dlpack__(self, **_: object) -> object:
            raise BufferError("bfloat16")

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def numpy(self) -> object:
            return np.arange(3)

    assert converter_to(np.zeros(1))(Tensor()).tolist() == [0, 1, 2]
    assert as_numpy(np.float32(2)).shape == ()
