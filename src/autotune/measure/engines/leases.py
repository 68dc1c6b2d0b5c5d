"""Which machine may time: one of each group at a time, and each only for a while."""

from __future__ import annotations

import time

from attrs import define, field

from autotune.process.stopwatch import Clock

__all__ = ["LeaseTable"]


@define
class _Given:
    token: int
    machine: str
    seconds: float
    ends: float


@define
class LeaseTable:
    """The leases of one engine.

    Attributes:
        clock: Monotonic seconds.
    """

    clock: Clock = time.monotonic
    _last: int = 0
    _given: dict[str, _Given] = field(factory=dict)

    def acquire(self, group: str, machine: str, seconds: float) -> int | None:
        """A token for a machine of a group; None while another of the group is leased."""
        held = self._given.get(group)
        if held is not None and self.clock() < held.ends:
            return None
        self._last += 1
        self._given[group] = _Given(self._last, machine, seconds, self.clock() + seconds)
        return self._last

    def holds(self, token: int) -> bool:
        """Whether a token is valid still."""
        return any(it.token == token and self.clock() < it.ends for it in self._given.values())

    def renew(self, machine: str) -> bool:
        """Begin the seconds of a machine's lease anew; returns whether it has a valid one."""
        for given in self._given.values():
            if given.machine == machine and self.clock() < given.ends:
                given.ends = self.clock() + given.seconds
                return True
        return False

    def release(self, token: int) -> None:
        """Give back, if it is held still."""
        self._given = {group: it for group, it in self._given.items() if it.token != token}

    def drop(self, machine: str) -> None:
        """End the lease of a machine that is gone."""
        self._given = {group: it for group, it in self._given.items() if it.machine != machine}
