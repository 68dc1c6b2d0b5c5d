"""Arrays between pages that nobody may touch."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.backends import ALIGNMENT
from autotune.process.fork_server_process import worker_environment
from autotune.testing.programs import guarded_empty

TOUCH = """
import ctypes, sys
from autotune.testing.programs import guarded_empty
at_end, offset, write = map(int, sys.argv[1:])
array = guarded_empty((25, 32), "float32", at_end=bool(at_end))
byte = ctypes.c_char.from_address(array.ctypes.data + offset)
if write:
    byte.value = b"x"
byte.value
"""
BYTES = 25 * 32 * 4


@given(
    st.lists(st.integers(0, 40), max_size=3),
    st.sampled_from(["float64", "float16", "bool"]),
    st.booleans(),
)
def test_they_are_aligned_writable_arrays(shape: list[int], dtype: str, at_end: bool) -> None:
    array = guarded_empty(shape, dtype, at_end=at_end)
    assert (array.shape, array.dtype.name) == (tuple(shape), dtype)
    assert array.ctypes.data % ALIGNMENT == 0
    assert array.flags.c_contiguous and not array.any()
    array[...] = 1
    assert (array == 1).all()


@pytest.mark.parametrize(
    ("at_end", "offset", "write", "survives"),
    [
        (1, BYTES - 1, 1, True),
        (1, BYTES, 0, False),
        (0, 0, 1, True),
        (0, -1, 1, False),
    ],
)
def test_whoever_strays_is_ended(at_end: int, offset: int, write: int, survives: bool) -> None:
    process = subprocess.run(
        [sys.executable, "-c", TOUCH, *map(str, (at_end, offset, write))],
        capture_output=True,
        env=worker_environment(1, {}),
        check=False,
    )
    assert process.returncode == (0 if survives else -signal.SIGSEGV), process.stderr
