"""The pool of threads that parallel loops run on."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from autotune import _native

_TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 3)
_LAUNCH = ctypes.CFUNCTYPE(None, ctypes.c_void_p, _TASK, ctypes.c_void_p, ctypes.c_int64)


def _run(pool: _native.ThreadPool, count: int) -> dict[int, tuple[range, set[int]]]:
    """By thread: its iterations, and the CPUs that it may use."""
    seen: dict[int, tuple[range, set[int]]] = {}

    def task(_: int, begin: int, end: int, thread: int) -> None:
        seen[thread] = range(begin, end), os.sched_getaffinity(0)

    _LAUNCH(_native.launcher())(pool.address, _TASK(task), None, count)
    return seen


@contextmanager
def _caller_on(cpu: int) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def test_iterations_are_run_once_each_in_equal_parts() -> None:
    seen = _run(_native.ThreadPool(3), 8)
    assert sorted(step for steps, _ in seen.values() for step in steps) == list(range(8))
    assert {len(steps) for steps, _ in seen.values()} <= {2, 3}


def test_who_finds_the_pool_busy_runs_all_iterations() -> None:
    pool, inner = _native.ThreadPool(2), dict[int, dict[int, tuple[range, set[int]]]]()

    def task(_: int, begin: int, end: int, thread: int) -> None:
        inner[thread] = _run(pool, 5)

    _LAUNCH(_native.launcher())(pool.address, _TASK(task), None, 2)
    assert len(inner) == 2
    assert all(list(seen) == [0] and seen[0][0] == range(5) for seen in inner.values())


def test_a_loop_of_no_iterations_calls_nobody() -> None:
    assert _run(_native.ThreadPool(2), 0) == {}


@pytest.mark.needs("2 CPUs")
def test_threads_leave_the_cpu_that_their_caller_is_on() -> None:
    cpus = sorted(os.sched_getaffinity(0))
    pool = _native.ThreadPool(2)
    for own in (cpus[1], cpus[0], cpus[0], cpus[1]):
        with _caller_on(own):
            _, allowed = _run(pool, 2)[1]
        assert len(allowed) == 1 and own not in allowed, "a CPU of its own, beside the caller's"


def test_threads_are_not_bound_where_there_are_not_enough_cpus() -> None:
    cpus = sorted(os.sched_getaffinity(0))
    _, allowed = _run(_native.ThreadPool(len(cpus) + 1), len(cpus) + 1)[1]
    assert allowed == set(cpus)
