"""Flushed arrays are really cold: they take longer to read, and nothing is lost."""

from __future__ import annotations

import ctypes
import os
import threading

import numpy as np
import pytest
from process_facts import becomes_true

from autotune import _native
from autotune.backends import NativeCall, aligned_empty, time_native_call
from autotune.backends.backend import Array
from autotune.errors import InvalidValueError
from autotune.measure.worker import CacheFlusher
from autotune.targets import Cache

USABLE = sorted(os.sched_getaffinity(0))
SMALL = [Cache(1, 32 << 10, shared=False), Cache(2, 256 << 10, shared=False)]
KIND = [np.float32, np.float64, np.float16, np.int8, np.int64, np.bool_]


def reading(first: Array, second: Array) -> NativeCall:
    """A call that reads two equal arrays and does nothing else."""
    address = ctypes.cast(ctypes.CDLL(None).memcmp, ctypes.c_void_p).value
    assert address is not None
    return NativeCall(
        address, (first.ctypes.data, second.ctypes.data, first.nbytes), keeps=(first, second)
    )


def test_what_is_flushed_comes_from_memory() -> None:
    """The fastest of many: nothing that disturbs makes a reading faster."""
    arrays = [aligned_empty((16 << 10,), np.float64) for _ in range(2)]
    for array in arrays:
        array.fill(1.0)
    call = reading(arrays[0], arrays[1])
    flusher = CacheFlusher(USABLE[:1], SMALL)
    warm = min(time_native_call(call, 1) for _ in range(100))
    cold = []
    for _ in range(30):
        flusher.flush(arrays)
        cold.append(time_native_call(call, 1))
    assert min(cold) > 1.5 * warm


@pytest.mark.parametrize("kind", KIND)
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (1000,), (257, 129)])
def test_contents_stay(kind: type, shape: tuple[int, ...]) -> None:
    array = np.asarray(np.random.default_rng(0).integers(0, 2, shape)).astype(kind)
    before = array.copy()
    CacheFlusher(USABLE, SMALL).flush([array, array])
    np.testing.assert_array_equal(array, before)


def test_what_another_core_has_just_written_is_kept() -> None:
    array = np.zeros(1 << 20, np.uint8)
    flusher = CacheFlusher(USABLE, SMALL)
    end = threading.Event()

    def write() -> None:
        while not end.is_set():
            array[:] += 1

    writer = threading.Thread(target=write)
    writer.start()
    for _ in range(20):
        flusher.flush([array])
    end.set()
    writer.join()
    assert (array == array[0]).all()


@pytest.mark.parametrize(
    ("cpus", "caches", "buffer"),
    [
        ([0], [(1, 32, False), (2, 1024, False), (3, 8192, True)], 16384),
        ([0, 1], [(1, 32, False), (2, 1024, False)], 4096),
        ([0, 1, 1, 0], [(1, 32, False), (2, 1024, False)], 4096),
        ([0], [(3, 480 * 1024, True)], 128 * 1024),
        (range(200), [(2, 2048, False)], 128 * 1024),
        ([0], [], 4),
    ],
)
def test_the_buffer_is_twice_the_caches_up_to_a_bound(
    cpus: list[int], caches: list[tuple[int, int, bool]], buffer: int
) -> None:
    levels = [Cache(level, kib << 10, shared) for level, kib, shared in caches]
    flusher = CacheFlusher(cpus, levels)
    assert flusher.buffer_bytes == buffer << 10


def test_each_cpu_reads_twice_its_own_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, list[int], int]] = []
    monkeypatch.setattr(
        _native,
        "stream_memory",
        lambda buffer, cpus, each: asked.append((len(buffer), cpus, each)),
    )
    CacheFlusher([1, 0], [*SMALL, Cache(3, 8 << 20, shared=True)]).flush([])
    assert asked == [(16 << 20, [0, 1], 512 << 10)]


def test_this_machine() -> None:
    flusher = CacheFlusher(USABLE)
    assert 32 << 10 <= flusher.buffer_bytes <= 128 << 20
    flusher.flush([])


def test_cpus_that_may_not_be_used_do_no_harm() -> None:
    CacheFlusher([100_000, 1000, -1], SMALL).flush([np.ones(10)])


def test_no_threads_are_left_and_none_is_moved() -> None:
    flusher = CacheFlusher(USABLE, SMALL)
    before = set(os.listdir("/proc/self/task"))
    flusher.flush([])
    # Listed for a moment after the end.
    assert becomes_true(lambda: set(os.listdir("/proc/self/task")) <= before)
    assert sorted(os.sched_getaffinity(0)) == USABLE


def test_no_cpu_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="no CPU at all"):
        CacheFlusher([])


def test_an_array_with_holes_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="not contiguous"):
        CacheFlusher(USABLE, SMALL).flush([np.ones((4, 4))[:, ::2]])


@pytest.mark.parametrize(("size", "cpus"), [(0, [0]), (64, [])])
def test_the_native_part_checks_too(size: int, cpus: list[int]) -> None:
    with pytest.raises(ValueError, match="a buffer and a CPU"):
        _native.stream_memory(np.ones(size, np.uint8), cpus, 64)


@pytest.mark.parametrize("size", [1, 63, 64, 65, 4096 + 1])
def test_every_part_of_a_buffer_can_be_read(size: int) -> None:
    """Also with more readers than lines, and with more asked for than there is."""
    for least in (0, 1, size, 1 << 40):
        _native.stream_memory(np.ones(size, np.uint8), [0] * 5, least)
    _native.flush_memory(np.ones(size, np.uint8)[1:])
