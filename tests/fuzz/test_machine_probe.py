"""Wrong arguments for the probes of the machine."""

from __future__ import annotations

import pytest
from fuzzing import attempt

from autotune import _native as native

# None of these is an amount of work that a probe would begin.
NOT_SECONDS = (float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 60.5, 1e300, None, "1", [1.0])
NOT_COUNTS = (-(2**63) - 1, -1, 0, 2**34 + 1, 2**63, 2**64, None, "1", 1.5, [1])


@pytest.mark.parametrize("seconds", NOT_SECONDS)
def test_seconds(seconds: object) -> None:
    assert attempt(native.fma_rate, {"seconds": seconds}) is None
    assert attempt(native.read_bandwidth, {"bytes": 4096, "seconds": seconds}) is None
    peak = {"dtype": "float32", "threads": 1, "seconds": seconds}
    assert attempt(native.peak_rate, peak) is None
    stream = {"pattern": "read", "bytes": 4096, "threads": 1, "seconds": seconds}
    assert attempt(native.stream_bandwidth, stream) is None


@pytest.mark.parametrize("count", NOT_COUNTS)
def test_counts(count: object) -> None:
    assert attempt(native.read_bandwidth, {"bytes": count, "seconds": 1e-3}) is None
    peak = {"dtype": "float32", "threads": count, "seconds": 1e-3}
    assert attempt(native.peak_rate, peak) is None
    stream = {"pattern": "read", "bytes": 4096, "threads": 1, "seconds": 1e-3}
    assert attempt(native.stream_bandwidth, {**stream, "threads": count}) is None
    assert attempt(native.repeat_times, {"repeats": count, "work": 1}) is None
    assert attempt(native.repeat_times, {"repeats": 1, "work": count}) is None


def test_small_amounts_of_work() -> None:
    assert native.fma_rate(1e-3) > 0
    assert native.read_bandwidth(4096 + 8, 1e-3) > 0
    assert native.stream_bandwidth("triad", 4096, 2, 1e-3) > 0
    assert len(native.repeat_times(3, 1)) == 3
