"""Leases of one engine, and of other processes of the host."""

from __future__ import annotations

from pathlib import Path

import pytest
from other_timer import other_process

from autotune.measure.engines import LeaseTable
from autotune.process.timing_lock import BUSY_VARIABLE, TimingLock


class Seconds:
    """A clock that tests set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def locks_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(BUSY_VARIABLE, raising=False)


def test_a_lease_on_this_host_keeps_other_processes_from_timing(tmp_path: Path) -> None:
    path, clock = tmp_path / "lock", Seconds()
    leases = LeaseTable(clock, TimingLock((0,), clock, path), "this")
    with other_process(path, "0") as other:
        token = leases.acquire("here", "one", 10.0, "this")
        assert token is not None and not other.acquires()
        other.release()
        # A machine elsewhere has nothing to do with it.
        elsewhere = leases.acquire("there", "two", 10.0)
        assert elsewhere is not None
        leases.release(token)
        assert other.acquires()
        assert leases.holds(elsewhere)
        assert leases.acquire("here", "one", 10.0, "this") is None
        other.release()
        assert leases.acquire("here", "one", 10.0, "this") is not None
        leases.clear()
        assert other.acquires() and not leases.holds(elsewhere)


@pytest.mark.promise("a lease whose holder is silent", "it runs out, and others may time")
def test_a_lease_that_has_run_out_lets_other_processes_time(tmp_path: Path) -> None:
    path, clock = tmp_path / "lock", Seconds()
    leases = LeaseTable(clock, TimingLock((0,), clock, path), "this")
    with other_process(path, "0") as other:
        first = leases.acquire("here", "one", 10.0, "this")
        clock.now = 9.0
        assert leases.renew("one")
        clock.now = 18.0
        leases.tend()
        assert not other.acquires()
        other.release()
        clock.now = 20.0
        leases.tend()
        assert other.acquires() and first is not None and not leases.holds(first)
