"""Which machine may time: one of each group at a time, and each only for a while.

Leases on the host's own processors also keep other processes from timing there.
"""

from __future__ import annotations

import time

from attrs import define, field

from autotune.process.stopwatch import Clock
from autotune.process.timing_lock import TimingLock

__all__ = ["LeaseTable"]


@define(eq=False)
class _Given:
    token: int
    machine: str
    seconds: float
    ends: float
    host: str
    locks: bool


@define
class LeaseTable:
    """The leases of one engine.

    Attributes:
        clock: Monotonic seconds.
        lock: On the processors of this host that are timed on; None where there are none.
    """

    clock: Clock = time.monotonic
    lock: TimingLock | None = None
    _last: int = 0
    _given: dict[str, _Given] = field(factory=dict)

    def acquire(self, group: str, machine: str, seconds: float, host: str = "") -> int | None:
        """A token for a machine of a group; None while another of the group is leased.

        With ``host``, on which builds would disturb it, and with a lock, also while another
        process of this host times.
        """
        held = self._given.get(group)
        if held is not None and self.clock() < held.ends:
            return None
        self._end(held)
        locks = bool(host) and self.lock is not None
        if self.lock is not None and locks and not self.lock.acquire():
            return None
        self._last += 1
        ends = self.clock() + seconds
        self._given[group] = _Given(self._last, machine, seconds, ends, host, locks)
        return self._last

    def holds(self, token: int) -> bool:
        """Return whether a token is valid still."""
        return any(it.token == token and self.clock() < it.ends for it in self._given.values())

    def is_timed(self, host: str) -> bool:
        """Return whether a machine is leased that builds on a host would disturb."""
        return any(it.host == host and self.clock() < it.ends for it in self._given.values())

    def renew(self, machine: str) -> bool:
        """Begin the seconds of a machine's lease anew; returns whether it has a valid one."""
        for given in self._given.values():
            if given.machine == machine and self.clock() < given.ends:
                given.ends = self.clock() + given.seconds
                return True
        return False

    def release(self, token: int) -> None:
        """Give back, if it is held still."""
        self._end(*(it for it in self._given.values() if it.token == token))

    def drop(self, machine: str) -> None:
        """End the lease of a machine that is gone."""
        self._end(*(it for it in self._given.values() if it.machine == machine))

    def clear(self) -> None:
        """End all leases, and wait for none."""
        self._end(*self._given.values())
        if self.lock is not None:
            self.lock.release()

    def tend(self) -> None:
        """Let others time once a lease has run out; called now and then."""
        self._end(*(it for it in self._given.values() if self.clock() >= it.ends))
        if self.lock is not None:
            self.lock.tend()

    def take_warnings(self) -> list[str]:
        """Return warnings of the host's other processes; each only once."""
        return self.lock.take_warnings() if self.lock is not None else []

    def _end(self, *ended: _Given | None) -> None:
        self._given = {group: it for group, it in self._given.items() if it not in ended}
        for given in ended:
            if given is not None and given.locks and self.lock is not None:
                self.lock.release()
