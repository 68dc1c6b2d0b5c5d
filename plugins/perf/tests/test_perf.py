"""Counters of the kernel and the processor, counted for real."""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from autotune_perf.perf import (
    Count,
    Event,
    EventUnavailable,
    PerfObserver,
    ThreadCounters,
)
from needs import skip_here
from python_processes import run_python

PAGE = mmap.PAGESIZE
PAGE_FAULTS = Event(1, 2, user_only=True)
MIGRATIONS = Event(1, 4, user_only=False)


def touch(pages: int) -> None:
    """Causes one page fault per page: memory that was never used is there page by page."""
    with mmap.mmap(-1, pages * PAGE) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(pages):
            memory[page * PAGE] = 1


def observed(work: Callable[[], object], calls: int = 1) -> dict[str, float | None]:
    """Readings of some work."""
    observer = PerfObserver()
    observer.check()
    observer.before_run()
    work()
    observer.after_run()
    return dict(observer.readings(calls))


def known(value: float | None) -> float:
    assert value is not None
    return value


def test_page_faults() -> None:
    few = known(observed(lambda: touch(1))["page_faults_per_call"])
    many = known(observed(lambda: touch(2000))["page_faults_per_call"])
    assert 2000 <= many < 2000 + few + 500
    assert known(observed(lambda: touch(2000), calls=10)["page_faults_per_call"]) < many / 5


def test_context_switches() -> None:
    def switch() -> None:
        for _ in range(50):
            time.sleep(1e-3)

    assert known(observed(switch)["context_switches_per_call"]) >= 50


def test_cpu_seconds_are_those_of_all_threads() -> None:
    def burn() -> None:
        begin = time.thread_time()
        while time.thread_time() < begin + 0.1:
            pass

    def burn_twice() -> None:
        thread = threading.Thread(target=burn)
        thread.start()
        burn()
        thread.join()

    assert known(observed(burn_twice)["cpu_seconds_per_call"]) >= 0.18
    # To be kept from a CPU at a bad moment may cost once, and waiting costs nothing ever.
    asleep = (observed(lambda: time.sleep(0.1))["cpu_seconds_per_call"] for _ in range(10))
    assert any(known(seconds) < 0.05 for seconds in asleep)


def test_a_build_has_readings_of_its_own() -> None:
    observer = PerfObserver()
    observer.check()
    observer.before_build()
    touch(2000)
    observer.after_build()
    readings = observer.build_readings()
    assert known(readings["build_page_faults"]) >= 2000
    assert known(readings["build_cpu_seconds"]) > 0


def counters(event: Event, *threads: int) -> ThreadCounters:
    try:
        return ThreadCounters([event], threads)
    except EventUnavailable as error:
        skip_here(str(error))


def total(made: ThreadCounters) -> int:
    try:
        return sum(count.value for (counts,) in [made.read()] for count in counts)
    finally:
        made.close()


def test_counters_count_between_start_and_stop_only() -> None:
    made = counters(PAGE_FAULTS, 0)
    touch(500)
    made.start()
    touch(1000)
    made.stop()
    touch(500)
    assert 1000 <= total(made) < 1400


def test_threads_that_exist_are_counted_and_so_are_those_they_start() -> None:
    """Count threads of a pool that was there before anything was observed."""
    begin, end = threading.Event(), threading.Event()

    def pool_thread() -> None:
        begin.wait()
        touch(1000)
        inner = threading.Thread(target=touch, args=(2000,))
        inner.start()
        inner.join()
        end.set()

    thread = threading.Thread(target=pool_thread)
    thread.start()
    assert thread.native_id is not None
    made = counters(PAGE_FAULTS, thread.native_id)
    made.start()
    begin.set()
    end.wait()
    made.stop()
    thread.join()
    touch(4000)
    assert 3000 <= total(made) < 3900


def test_threads_that_have_ended_are_left_out() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    assert thread.native_id is not None
    while os.path.exists(f"/proc/self/task/{thread.native_id}"):
        time.sleep(1e-3)  # it has done its work, and the kernel has yet to take it away
    made = counters(PAGE_FAULTS, 0, thread.native_id)
    ((count,),) = made.read()
    made.close()
    assert count == Count(0, 0, 0)


@pytest.mark.needs("2 CPUs")
def test_migrations() -> None:
    usable = sorted(os.sched_getaffinity(0))
    made = counters(MIGRATIONS, 0)
    try:
        made.start()
        for turn in range(20):
            os.sched_setaffinity(0, {usable[turn % 2]})
        made.stop()
    finally:
        os.sched_setaffinity(0, usable)
    assert total(made) >= 19


def test_no_file_stays_open() -> None:
    observer = PerfObserver()
    observer.check()
    before = len(os.listdir("/proc/self/fd"))
    for turn in range(20):
        observer.before_run()
        observer.after_run()
        if turn % 2:  # the program of the other half failed
            observer.readings(1)
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_event_that_does_not_exist_says_why() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(EventUnavailable, match="^perf_event_open: E[A-Z]+, "):
        ThreadCounters([Event(1, 999, user_only=True)], [0])
    with pytest.raises(EventUnavailable):
        ThreadCounters([PAGE_FAULTS, Event(1, 999, user_only=True)], [0])
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("count", "scaled"),
    [
        (Count(100, 10, 10), 100.0),
        (Count(100, 10, 5), 200.0),
        (Count(0, 0, 0), 0.0),
        (Count(0, 10, 0), None),
        (Count(3, 7, 7), 3.0),
    ],
)
def test_counters_that_take_turns_are_extrapolated(count: Count, scaled: float | None) -> None:
    assert count.scaled == scaled


def test_absent_counters_are_said_to_be_absent_and_others_count() -> None:
    observer = PerfObserver()
    found = observer.check()
    readings = observed(lambda: sum(range(1_000_000)))
    hardware = ["cycles_per_call", "instructions_per_call", "branches_per_call"]
    for name in hardware:
        if name in found.absent:
            assert readings[name] is None
        else:
            # An interpreted addition takes a few instructions at least.
            assert known(readings[name]) > 1_000_000
    if "cycles_per_call" in found.absent:
        assert "no hardware counters here" in found.reason
        assert "; software counters only" in found.reason


WITHOUT_PERMISSION = """
import os
from autotune_perf.perf import PerfObserver

os.setgid(65534)
os.setuid(65534)
found = PerfObserver().check()
print(*found.reads)
print(found.reason)
"""


@pytest.mark.needs("root")
def test_without_permission_to_count_in_the_kernel() -> None:
    """A counter that may not see the kernel shows no migration, ever: it must not be used."""
    level = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())
    reads, reason = run_python("-c", WITHOUT_PERMISSION).splitlines()
    assert "page_faults_per_call" in reads and "context_switches_per_call" in reads
    assert ("cpu_migrations_per_call" in reads) == (level < 2)
    if level >= 2:
        assert f"perf_event_paranoid is {level}" in reason
