"""Parts of engines: jobs that wait for replies, and leases."""

from __future__ import annotations

import time
from concurrent.futures import Future

from attrs import define, field

from autotune.measure.jobs import REPLY_KINDS, Reply
from autotune.process.stopwatch import Clock
from autotune.process.timing_lock import TimingLock

__all__ = ["JobLedger", "LeaseTable"]


@define
class JobLedger:
    """Numbers jobs, and completes their futures once, in the order in which replies came.

    Attributes:
        name: Of the engine, for warnings.
    """

    name: str
    _last: int = 0
    _waiting: dict[int, Future[Reply]] = field(factory=dict)
    _arrived: dict[int, Reply] = field(factory=dict)
    _dropped: int = 0
    _told: int = 0

    def open(self) -> tuple[int, Future[Reply]]:
        """A number for a job, and the future of its reply."""
        self._last += 1
        future: Future[Reply] = Future()
        # A future that runs cannot be cancelled by others: every job gets a reply.
        future.set_running_or_notify_cancel()
        self._waiting[self._last] = future
        return self._last, future

    def answer(self, number: int, reply: Reply) -> None:
        """Note a reply; :meth:`deliver` gives it. A second one, or a late one, is dropped."""
        if reply.kind not in REPLY_KINDS:
            why = f"sent a reply of kind {reply.kind!r}; kinds: {', '.join(REPLY_KINDS)}"
            reply = Reply("died", reply.place, message=why)
        if number in self._waiting and number not in self._arrived:
            self._arrived[number] = reply
        else:
            self.drop()

    def drop(self) -> None:
        """Count an answer that cannot be assigned any more, as that of an ended process."""
        self._dropped += 1

    def deliver(self) -> int:
        """Complete the futures of what has arrived; returns how many."""
        delivered = 0
        while self._arrived:
            number = next(iter(self._arrived))
            self._waiting.pop(number).set_result(self._arrived.pop(number))
            delivered += 1
        return delivered

    def give_back_all(self) -> None:
        """Answer every open job with ``again``, and deliver that."""
        for number in self._waiting:
            self._arrived.setdefault(number, Reply("again"))
        self.deliver()

    def take_warnings(self) -> list[str]:
        """Return a line on answers that were dropped since the last call."""
        new, self._told = self._dropped - self._told, self._dropped
        if not new:
            return []
        what = "an answer that came" if new == 1 else f"{new} answers that came"
        return [f"runner {self.name!r} dropped {what} late or twice: nothing is counted double"]


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
    """Leases for timing: of each group a single machine has it, and each only for a while.

    Leases on the host's own processors also keep other processes from timing there.

    Attributes:
        clock: Monotonic seconds.
        lock: On the processors of this host that are timed on; None where there are none.
        here: This host.
    """

    clock: Clock = time.monotonic
    lock: TimingLock | None = None
    here: str = ""
    _last: int = 0
    _given: dict[str, _Given] = field(factory=dict)

    def acquire(self, group: str, machine: str, seconds: float, host: str = "") -> int | None:
        """A token for a machine of a group; None while another of the group is leased.

        Builds on ``host`` would disturb it. Where that is this host, and with a lock, also while
        another process of it times.
        """
        held = self._given.get(group)
        if held is not None and self.clock() < held.ends:
            return None
        self._end(held)
        locks = host == self.here and self.lock is not None
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
