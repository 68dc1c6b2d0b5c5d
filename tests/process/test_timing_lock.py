"""Processes that time on the same processors take turns, however they end."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from other_timer import other_process
from process_facts import becomes_true

from autotune.process.timing_lock import BUSY_VARIABLE, TimingLock


@pytest.fixture(autouse=True)
def locks_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(BUSY_VARIABLE, raising=False)


class Seconds:
    """A clock that tests set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_one_process_at_a_time_times_on_a_processor(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = TimingLock((0, 1, 1), path=path)
    with other_process(path, "1,2") as other:
        assert lock.acquire() and lock.is_held
        assert not other.acquires()
        other.release()
        lock.release()
        assert not lock.is_held and other.acquires()
        assert not lock.acquire()
        other.process.kill()
        other.process.wait()
        # The kernel has released what the killed one had.
        assert becomes_true(lock.acquire)
        lock.release()


def test_other_processors_and_this_process_do_not_wait(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock, second = TimingLock((0,), path=path), TimingLock((0, 1), path=path)
    with other_process(path, "3") as other:
        assert other.acquires() and lock.acquire() and second.acquire() and lock.acquire()
    with other_process(path, "0") as other:
        lock.release()
        lock.release()
        assert not other.acquires()
        other.release()
        second.release()
        assert other.acquires()
    assert TimingLock(path=tmp_path / "none" / "lock").acquire()


def test_who_waits_comes_before_who_has_just_timed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = TimingLock((0,), path=path)
    with other_process(path, "0") as other:
        for _ in range(3):
            assert becomes_true(lock.acquire)
            other.wait()
            lock.release()
            # However soon this one asks again.
            assert not lock.acquire()
            assert other.has_waited()
            other.release()
            assert becomes_true(lock.acquire)
            lock.release()


def test_who_asks_no_longer_keeps_nobody_from_timing(tmp_path: Path) -> None:
    path, clock = tmp_path / "lock", Seconds()
    lock = TimingLock((0,), clock, path)
    with other_process(path, "0") as other, other_process(path, "0") as third:
        assert other.acquires()
        assert not lock.acquire()
        other.release()
        assert not third.acquires()
        clock.now = 2.0
        lock.tend()
        assert third.acquires()
        third.release()
        assert other.acquires()
        assert not lock.acquire()
        other.release()
        lock.release()
        assert third.acquires()


def test_a_process_that_is_stopped_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    path, clock = tmp_path / "lock", Seconds()
    lock = TimingLock((0,), clock, path)
    with other_process(path, "0") as other:
        assert other.acquires()
        os.kill(other.process.pid, signal.SIGSTOP)
        for now in (0.0, 4.0, 6.0, 299.0):
            clock.now = now
            assert not lock.acquire()
        assert lock.take_warnings() == [
            "another process of autotune times on CPU 0, too: they take turns "
            "(AUTOTUNE_ALLOW_BUSY_CPU=1 does not wait)"
        ]
        clock.now = 301.0
        assert lock.acquire()
        [warning] = lock.take_warnings()
        assert "has kept CPU 0 for 301 s: this one waits no longer" in warning
        lock.release()
        # Nor the next time.
        assert lock.acquire() and lock.take_warnings() == []
        lock.release()
    # It waits again once it has found the processor free.
    assert lock.acquire()
    lock.release()
    with other_process(path, "0") as other:
        assert other.acquires() and not lock.acquire()


def test_where_nothing_can_be_locked_one_warning_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "elsewhere"
    (tmp_path / "lock").symlink_to(target)
    lock = TimingLock((0,), path=tmp_path / "lock")
    assert lock.acquire() and lock.acquire()
    [warning] = lock.take_warnings()
    assert "CPUs cannot be locked" in warning and not target.exists()
    path = tmp_path / "other"
    with other_process(path, "0") as other:
        assert other.acquires()
        monkeypatch.setenv(BUSY_VARIABLE, "1")
        assert TimingLock((0,), path=path).acquire()
