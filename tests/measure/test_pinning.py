"""CPUs that are chosen for timing, and threads that really stay on them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune import _native
from autotune.errors import InvalidValueError
from autotune.measure.pinning import pinned, quiet_neighbour_matters, timing_cpus

USABLE = sorted(os.sched_getaffinity(0))
NO_CPU = 1000  # more than any machine has that runs these tests


def topology(root: Path, siblings: list[str]) -> None:
    """Files as the kernel shows them: the hardware threads of each CPU's core."""
    for cpu, text in enumerate(siblings):
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(text + "\n")


@pytest.fixture
def eight(tmp_path: Path) -> Path:
    """Four cores of two hardware threads, numbered as Intel's servers are."""
    topology(tmp_path, ["0,4", "1,5", "2,6", "3,7"] * 2)
    return tmp_path


@pytest.mark.parametrize(
    ("threads", "affinity", "chosen", "rest"),
    [
        (1, range(8), (0,), (1, 2, 3, 5, 6, 7)),
        (2, range(8), (0, 1), (2, 3, 6, 7)),
        (4, range(8), (0, 1, 2, 3), ()),
        (6, range(8), (0, 1, 2, 3, 4, 5), ()),
        (9, range(8), (0, 1, 2, 3, 4, 5, 6, 7, 0), ()),
        (2, {3, 7, 4}, (3, 4), ()),
        (1, {3, 7, 4}, (3,), (4,)),
        (3, {3, 7, 4}, (3, 4, 7), ()),
        (1, {5}, (5,), ()),
    ],
)
def test_each_thread_gets_a_core_of_its_own(
    eight: Path, threads: int, affinity: set[int], chosen: tuple[int, ...], rest: tuple[int, ...]
) -> None:
    assert timing_cpus(threads, affinity=affinity, root=eight) == (chosen, rest)


def test_a_cpu_of_which_nothing_is_known_is_a_core(tmp_path: Path) -> None:
    assert timing_cpus(2, affinity=range(4), root=tmp_path) == ((0, 1), (2, 3))


@given(
    threads=st.integers(1, 12),
    affinity=st.sets(st.integers(0, 63), min_size=1, max_size=12),
)
def test_what_is_left_shares_no_core(threads: int, affinity: set[int]) -> None:
    chosen, rest = timing_cpus(threads, affinity=affinity, root=Path("/nowhere"))
    assert len(chosen) == threads
    assert len(set(chosen)) == min(threads, len(affinity))
    assert set(chosen) | set(rest) == affinity
    assert not set(chosen) & set(rest)


@pytest.mark.parametrize(("threads", "affinity"), [(0, {0}), (-1, {0}), (1, set())])
def test_nothing_to_choose_is_refused(threads: int, affinity: set[int]) -> None:
    with pytest.raises(InvalidValueError, match="a thread and a CPU at least"):
        timing_cpus(threads, affinity=affinity)


@contextmanager
def sleeping_threads(count: int) -> Iterator[list[int]]:
    """Threads that wait, by their numbers in the order of their start."""
    end = threading.Event()
    threads = [threading.Thread(target=end.wait) for _ in range(count)]
    numbers = []
    for thread in threads:
        thread.start()
        assert thread.native_id is not None
        numbers.append(thread.native_id)
    try:
        yield numbers
    finally:
        end.set()
        for thread in threads:
            thread.join()


def all_threads() -> dict[int, set[int]]:
    """CPUs on which every thread of this process may run."""
    found = {}
    for name in os.listdir("/proc/self/task"):
        # A thread is listed for a moment after it was joined.
        with suppress(ProcessLookupError):
            found[int(name)] = os.sched_getaffinity(int(name))
    return found


def assert_nothing_moved(before: dict[int, set[int]]) -> None:
    after = all_threads()
    assert threading.get_native_id() in after
    # One that has just ended may still be listed, although it was not before it began.
    assert {thread: before.get(thread, set(USABLE)) for thread in after} == after


def test_every_thread_is_pinned_and_let_go_again() -> None:
    with sleeping_threads(3) as numbers:
        before = all_threads()
        with pinned(USABLE[:1]) as failure:
            assert failure is None
            assert set(all_threads()) >= {*numbers, threading.get_native_id()}
            assert all(cpus == {USABLE[0]} for cpus in all_threads().values())
        assert_nothing_moved(before)


@pytest.mark.needs("2 CPUs")
def test_other_threads_share_the_cpus_that_the_caller_leaves() -> None:
    first, second = USABLE[:2]
    with sleeping_threads(3) as numbers:
        with pinned([first, second]):
            found = all_threads()
            assert found[threading.get_native_id()] == {first}
            assert all(found[number] == {second} for number in numbers)
        with pinned([first, second, first]):
            found = all_threads()
            assert found[threading.get_native_id()] == {first}
            places = [found[number] for number in numbers]
            assert places in ([{first}, {second}, {first}], [{second}, {first}, {second}])


def test_threads_are_let_go_after_an_error() -> None:
    before = all_threads()
    with pytest.raises(KeyError), pinned(USABLE[:1]):
        raise KeyError
    assert_nothing_moved(before)


def test_a_thread_that_starts_inside_is_not_left_pinned() -> None:
    with pinned(USABLE[:1]):
        started = sleeping_threads(1)
        numbers = started.__enter__()
    assert os.sched_getaffinity(numbers[0]) == set(USABLE)
    started.__exit__(None, None, None)


def test_a_thread_that_ends_inside_does_no_harm() -> None:
    before = all_threads()
    threads = sleeping_threads(1)
    threads.__enter__()
    with pinned(USABLE[:1]) as failure:
        threads.__exit__(None, None, None)
    assert failure is None
    assert_nothing_moved(before)


def test_a_cpu_that_may_not_be_used_is_said_and_does_no_harm() -> None:
    before = all_threads()
    with pinned([NO_CPU]) as failure:
        assert failure == f"cannot pin a thread to CPU {NO_CPU}: Invalid argument"
        assert_nothing_moved(before)


def test_no_cpu_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="no CPU at all"), pinned([]):
        raise AssertionError("not reached")


@pytest.mark.needs("2 CPUs")
def test_a_neighbour_is_tried() -> None:
    before = all_threads()
    alone, beside = _native.neighbour_rates(*USABLE[:2], 0.05)
    assert alone > 1e8
    assert beside >= 0  # 0: they never ran at the same time
    assert_nothing_moved(before)


@pytest.mark.parametrize(
    ("tries", "matters"),
    [
        ([(100.0, 97.0)], False),
        ([(100.0, 55.0)] * 5, True),
        # Others disturbed the first tries, then they did not.
        ([(100.0, 0.0), (60.0, 50.0), (98.0, 96.0)], False),
        # Never seen at work at the same time.
        ([(100.0, 0.0)] * 5, True),
        # One try in which the CPU was slow alone shows nothing: the best counts.
        ([(100.0, 50.0), (55.0, 54.0), (54.0, 55.0), (99.0, 52.0), (98.0, 53.0)], True),
    ],
)
def test_an_effect_has_to_persist(
    tries: list[tuple[float, float]], matters: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter(tries)
    monkeypatch.setattr(_native, "neighbour_rates", lambda *_: next(left))
    assert quiet_neighbour_matters(0, 1) is matters
    assert not list(left)


def test_an_unknown_neighbour_counts_as_one_that_disturbs() -> None:
    assert quiet_neighbour_matters(USABLE[0], NO_CPU, 0.001)
    assert quiet_neighbour_matters(NO_CPU, USABLE[0], 0.001)


@pytest.mark.parametrize(("cpu", "other", "seconds"), [(0, 0, 0.1), (0, 1, 0.0), (0, 1, 61)])
def test_what_is_no_neighbour_is_refused(cpu: int, other: int, seconds: float) -> None:
    with pytest.raises(InvalidValueError, match="two CPUs and up to 60 seconds"):
        quiet_neighbour_matters(cpu, other, seconds)


@pytest.mark.parametrize("cpus", [(-1, 0), (0, 0), (0, 1 << 20)])
def test_the_native_probe_checks_too(cpus: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="must differ and be from 0"):
        _native.neighbour_rates(*cpus, 0.001)
