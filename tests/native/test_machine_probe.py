from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from autotune import _native as native
from autotune.targets import detect_cpu


def test_fma_rate_is_what_the_instruction_set_allows() -> None:
    lanes = {"avx512f": 16, "fma": 8, "sse2": 4}[native.fma_instruction_set()]
    assert lanes <= detect_cpu().lanes("float32")
    cycles = native.fma_rate(0.05) / (2 * lanes)
    # Multiply-adds per second: two units at 6 GHz at most, a crowded machine at least.
    assert 1e8 < cycles < 1.2e10


def test_a_small_buffer_is_read_faster_than_a_large_one() -> None:
    small = native.read_bandwidth(16 << 10, 0.05)
    large = native.read_bandwidth(64 << 20, 0.05)
    assert 1e8 < large < small < 1e12


def test_repeat_times_grow_with_the_work() -> None:
    short, long = native.repeat_times(20, 10_000), native.repeat_times(20, 100_000)
    assert len(short) == 20 and all(seconds > 0 for seconds in short)
    assert 5 < min(long) / min(short) < 20


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: native.fma_rate(0.0), "seconds must be in"),
        (lambda: native.fma_rate(float("nan")), "seconds must be in"),
        (lambda: native.read_bandwidth(100, 0.1), "bytes must be from"),
        (lambda: native.read_bandwidth(1 << 40, 0.1), "bytes must be from"),
        (lambda: native.read_bandwidth(4096, -1.0), "seconds must be in"),
        (lambda: native.repeat_times(0, 1), "repeats must be from"),
        (lambda: native.repeat_times(1, 0), "work must be from"),
    ],
)
def test_bad_values(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_other_threads_run_meanwhile() -> None:
    # A busy machine may keep this thread from running for as long as a probe takes.
    assert any(_runs_beside_a_probe() for _ in range(10)), "probes hold the interpreter's lock"


def _runs_beside_a_probe() -> bool:
    """Tell whether this thread runs well after a probe began and well before it ends."""
    times: list[float] = []

    def probe() -> None:
        times.append(time.perf_counter())
        native.fma_rate(0.3)
        times.append(time.perf_counter())

    ticks = []
    thread = threading.Thread(target=probe)
    thread.start()
    while thread.is_alive():
        ticks.append(time.perf_counter())
        time.sleep(0.01)
    begin, end = times
    return any(begin + 0.1 < tick < end - 0.1 for tick in ticks)
