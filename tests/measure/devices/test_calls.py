"""Loading and warming up of programs, and the sets of arrays that calls rotate between."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from autotune.backends import CudaProgram, DeviceBuffer
from autotune.measure.devices.calls import DeviceCall, is_warm
from autotune.measure.devices.worker import rotation
from autotune.runtime.device import Device
from autotune.targets import CudaError

MIB = 1 << 20


def test_a_device_is_warm_when_calls_get_no_faster() -> None:
    rising = [2e-3, 1.8e-3, 1.5e-3, 1.2e-3]
    assert not is_warm(rising, sum(rising))
    steady = [*rising, 1.0e-3, 1.0e-3, 1.001e-3, 0.999e-3]
    assert is_warm(steady, sum(steady))
    # Too short to tell.
    assert not is_warm([1e-5] * 10, 1e-4)
    assert not is_warm([1.0] * 3, 3.0)


@given(st.lists(st.floats(1e-6, 1e-2), min_size=4, max_size=20))
def test_what_still_falls_by_more_than_a_hundredth_is_not_warm(times: list[float]) -> None:
    falling = list(np.minimum.accumulate(times) * 0.9 ** np.arange(len(times)))
    assert not is_warm(falling, 1.0)


@given(st.integers(1, 1 << 32), st.integers(0, 1 << 30), st.integers(0, 1 << 37))
def test_a_rotation_exceeds_the_cache_where_memory_allows(io: int, cache: int, free: int) -> None:
    count = rotation(io, cache, free)
    assert 1 <= count <= 4096
    assert count.bit_count() == 1, "graphs of calls go through them in few turns"
    if count > 1:
        assert count * io <= 0.4 * free
    affordable = int(0.4 * free) // io
    if affordable >= 4096 and 2048 * io > 3 * cache + io:
        # What others leave of the cache between two calls on one set is nothing of that set.
        assert (count - 1) * io >= 3 * cache


def test_one_set_is_enough_for_arrays_that_fit_no_cache() -> None:
    assert rotation(500 * MIB, 50 * MIB, 80 << 30) == 2
    assert rotation(64 * MIB, 50 * MIB, 100 * MIB) == 1
    # Three times the cache of an H100 is 1,536 sets of 100 KiB.
    assert rotation(100 << 10, 50 * MIB, 80 << 30) == 2048


@define(eq=False)
class FullDriver:
    """A driver of a device with memory for one array."""

    held: list[Any] = field(factory=list)

    def current(self, context: int) -> nullcontext[None]:
        return nullcontext()

    def load_module(self, cubin: bytes) -> bytes:
        self.held.append(cubin)
        return cubin

    def allocate(self, size: int) -> int:
        if len(self.held) > 1:
            raise CudaError("cuMemAlloc", 2, "out of memory")
        self.held.append(4096)
        return 4096

    def fill(self, pointer: int, byte: int, size: int) -> None:
        """Guard zones are not looked at."""

    def memory(self) -> tuple[int, int]:
        return 0, 1 << 20

    def free(self, held: Any) -> None:
        self.held.remove(held)

    unload_module = free


def device_of(driver: Any) -> Device:
    what: Any = None
    return Device(driver, what, context=1, stream=2, recorder=3, events=(1, 2))


def test_what_a_program_has_before_memory_runs_out_is_freed() -> None:
    arrays = tuple(DeviceBuffer(name, 1 << 20, True) for name in ("first", "second"))
    driver = FullDriver()
    with pytest.raises(CudaError, match="1048576 bytes for 'second' on a device with 0 of"):
        DeviceCall.load(device_of(driver), CudaProgram(b"code", (), arrays), [{}])
    gc.collect()
    assert not driver.held


@define(eq=False)
class Recorder:
    """A driver and a program's kernels, that note what is done in which order.

    Graphs are the names of the sets that their calls are on.
    """

    seconds: float
    launched: list[str] = field(factory=list)
    graphs: list[str] = field(factory=list)
    _recording: list[str] | None = field(default=None, init=False)

    def parameters(self, pointers: dict[str, str]) -> str:
        return pointers["A"]

    def launch(self, parameters: str, stream: int) -> None:
        (self.launched if self._recording is None else self._recording).append(parameters)

    def record(self, event: int, stream: int) -> None:
        self.launched.append(("begin", "end")[event - 1])

    def seconds_between(self, begin: int, end: int) -> float:
        return self.seconds

    def begin_capture(self, stream: int) -> None:
        self._recording = []

    def end_capture(self, stream: int) -> str:
        found, self._recording = "".join(self._recording or ()), None
        return found

    def upload_graph(self, graph: str, stream: int) -> None:
        self.graphs.append(graph)

    def launch_graph(self, graph: str, stream: int) -> None:
        self.launched.append(graph)

    def synchronize(self, stream: int) -> None:
        """Nothing is on its way."""


def call_on(sets: str, seconds: float) -> tuple[DeviceCall, Any]:
    """A call on sets of arrays with these names, and what notes its launches."""
    recorder: Any = Recorder(seconds)
    arrays: Any = [{"A": SimpleNamespace(pointer=name)} for name in sets]
    return DeviceCall(device_of(recorder), recorder, arrays, []), recorder


def test_long_calls_rotate_between_sets_of_arrays_too() -> None:
    call, recorder = call_on("abc", 0.5)
    assert call.run() == 0.5
    assert [call.time(1) for _ in range(4)] == [0.5] * 4
    assert recorder.launched == [
        *("begin", "a", "end", "begin", "b", "end", "begin", "c", "end"),
        *("begin", "a", "end", "begin", "b", "end"),
    ]
    assert not recorder.graphs


def test_the_device_is_at_work_when_a_sample_begins() -> None:
    call, recorder = call_on("a", 0.5)
    assert call.time(5) == 0.5 / 5
    assert recorder.launched == ["aaaaa", "begin", "aaaaa", "end"]
    recorder.launched.clear()
    assert call.time(100) == 0.5 / 128
    assert recorder.launched == [64 * "a", "begin", 64 * "a", 64 * "a", "end"]
    assert recorder.graphs == ["aaaaa", 64 * "a"]


def test_a_short_call_that_is_a_sample_by_itself_is_not_launched_from_here() -> None:
    """Launching takes a hundredth of a call of a millisecond, and is no part of several calls."""
    call, recorder = call_on("a", 1e-3)
    call.run()
    recorder.launched.clear()
    assert call.time(1) == 1e-3
    assert recorder.launched == ["a", "begin", "a", "end"]


@pytest.mark.parametrize("number", [1, 3, 4, 10, 64, 100])
def test_no_set_has_its_turn_again_before_all_others_had(number: int) -> None:
    """Otherwise it is in the cache still: of few calls a sample, all were on the same sets."""
    names = "abcdefghijklmnopqrstuvwxyzABCDEF"
    call, recorder = call_on(names, 1e-3)
    call.run()
    recorder.launched.clear()
    for _ in range(6):
        call.time(number)
    order = "".join(it for it in recorder.launched if it not in ("begin", "end"))
    assert order == (names * len(order))[1 : len(order) + 1]
    assert len(recorder.graphs) <= len(names)
