"""Calling and timing compiled functions; the C library's stand in for programs."""

from __future__ import annotations

import ctypes
import os
import select
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from autotune.backends import NativeCall, NativeCallFailed, sample_native_call, time_native_call
from autotune.errors import InvalidValueError

LIBC = ctypes.CDLL(None)
WORD = ctypes.c_uint64


def libc(name: str, *arguments: int) -> NativeCall:
    """A call of a function of the C library."""
    address = ctypes.cast(getattr(LIBC, name), ctypes.c_void_p).value
    assert address is not None
    return NativeCall(address, arguments, keeps=LIBC)


def python_call(
    function: Callable[..., int], *arguments: int, explain: Callable[[], str] | None = None
) -> NativeCall:
    """A call back into Python, which takes the interpreter's lock each time."""
    kind = ctypes.CFUNCTYPE(ctypes.c_int, *[WORD] * len(arguments))
    compiled = kind(function)
    address = ctypes.cast(compiled, ctypes.c_void_p).value
    assert address is not None
    return NativeCall(address, arguments, keeps=compiled, explain=explain)


@pytest.mark.parametrize(("number", "samples"), [(1, 1), (3, 1), (1, 4), (5, 3)])
def test_every_call_is_timed_and_no_other_is_made(number: int, samples: int) -> None:
    calls = []

    def function() -> int:
        calls.append(time.perf_counter())
        return 0

    seconds = sample_native_call(python_call(function), number, samples)
    assert len(calls) == number * samples
    assert seconds.shape == (samples,)
    assert (seconds > 0).all()


@pytest.mark.parametrize("count", range(7))
def test_arguments_arrive_in_order(count: int) -> None:
    given = [1, -1, (1 << 64) - 2, 0, -(1 << 63), 77][:count]
    seen: list[tuple[int, ...]] = []

    def function(*words: int) -> int:
        seen.append(words)
        return 0

    time_native_call(python_call(function, *given), 2)
    assert seen == [tuple(word % (1 << 64) for word in given)] * 2


def test_a_sample_is_the_time_of_one_call() -> None:
    """Sleeping takes at least as long as asked for, on any machine."""
    begin = time.perf_counter()
    seconds = sample_native_call(libc("usleep", 3000), 4, 2)
    elapsed = time.perf_counter() - begin
    assert (seconds >= 0.003).all()
    assert 4 * seconds.sum() <= elapsed


def test_a_function_really_works_on_the_memory_it_is_given() -> None:
    ours, theirs = np.arange(1000), np.arange(1000)
    compare = libc("memcmp", ours.ctypes.data, theirs.ctypes.data, ours.nbytes)
    time_native_call(compare, 10)
    theirs[-1] += 1
    with pytest.raises(NativeCallFailed):
        time_native_call(compare, 10)


def test_a_failed_call_is_the_last_one() -> None:
    results = iter([0, 0, 0, 42, 0, 0])
    call = python_call(lambda: next(results), explain=lambda: "the fourth is bad")
    with pytest.raises(NativeCallFailed, match=r"returned 42: the fourth is bad$"):
        sample_native_call(call, 2, 3)
    assert list(results) == [0, 0]


def test_a_failed_call_needs_no_explanation() -> None:
    with pytest.raises(NativeCallFailed, match=r"returned -5$"):
        time_native_call(python_call(lambda: -5), 1)


def test_other_threads_go_on_meanwhile() -> None:
    """The function waits for what only another Python thread does; else it would give up."""
    read_end, write_end = os.pipe()
    # poll() returns how many descriptors can be read: a "failure", which ends the loop.
    descriptor = np.array([read_end, select.POLLIN], dtype=np.int32)
    writer = threading.Timer(0.01, os.write, (write_end, b"x"))
    writer.start()
    try:
        with pytest.raises(NativeCallFailed, match="returned 1"):
            time_native_call(libc("poll", descriptor.ctypes.data, 1, 30_000), 1)
    finally:
        writer.join()
        os.close(read_end)
        os.close(write_end)


@pytest.mark.parametrize(
    ("address", "arguments", "message"),
    [
        (0, (), "from 1 to"),
        (-4, (), "from 1 to"),
        (1 << 64, (), "from 1 to"),
        (4096, tuple(range(7)), "at most 6 arguments, not 7"),
        (4096, (1 << 64,), "18446744073709551616"),
        (4096, (-(1 << 63) - 1,), "whole number"),
        (4096, (1.5,), "whole number"),
    ],
)
def test_what_is_no_call_is_refused(
    address: int, arguments: tuple[int, ...], message: str
) -> None:
    with pytest.raises(InvalidValueError, match=message):
        NativeCall(address, arguments)


@pytest.mark.parametrize(("number", "samples"), [(0, 1), (1, 0), (10**9 + 1, 1), (1, 10**7 + 1)])
def test_counts_out_of_range_are_refused(number: int, samples: int) -> None:
    with pytest.raises(InvalidValueError, match="must be from 1 to"):
        sample_native_call(libc("getpid"), number, samples)
