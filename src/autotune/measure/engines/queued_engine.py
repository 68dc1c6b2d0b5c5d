"""Parts that engines share: jobs that wait for replies, builds in order of priority, leases."""

from __future__ import annotations

import time
from abc import abstractmethod
from bisect import insort
from concurrent.futures import Future
from typing import Generic, Protocol, TypeVar

from attrs import define, evolve, field

from autotune.backends import Backend
from autotune.measure.engines.fingerprint import Fingerprint
from autotune.measure.engines.interface import Lease, MeasureEngine, RunnerContext
from autotune.measure.jobs import NOWHERE, REPLY_KINDS, Job, Place, Reply
from autotune.plugins.guarded_parts import create_held_part
from autotune.process.stopwatch import Clock
from autotune.process.timing_lock import TimingLock

__all__ = ["JobLedger", "QueuedEngine", "Timer"]

_POLL_SECONDS = 0.05
# How long builds of a host are held back after somebody has asked for a lease.
_WISH_SECONDS = 1.0


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

    @property
    def has_arrived(self) -> bool:
        """True if :meth:`deliver` has something to deliver."""
        return bool(self._arrived)

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


class Timer(Protocol):
    """Process that times as a machine of an engine.

    Attributes:
        name: Of the machine.
        drift: See :class:`~autotune.measure.engines.Machine`.
    """

    name: str
    drift: float

    @property
    def fingerprint(self) -> Fingerprint | None:
        """Fingerprint of the machine; None before it is known."""

    @property
    def place(self) -> Place:
        """See :class:`~autotune.measure.engines.Machine`."""

    @property
    def group(self) -> str:
        """Lease group of the machine."""

    @property
    def host(self) -> str:
        """Host on which builds of this engine would disturb it; "" for none."""


_Timer = TypeVar("_Timer", bound=Timer)


class QueuedEngine(MeasureEngine, Generic[_Timer]):
    """Engine whose builds wait in a queue, and whose time jobs go to one process each.

    Nothing builds on a host while there is a lease to time there: builds that have begun end
    first, and no other begins. No job is done again by itself.

    Args:
        context: Backend, threads and protocol.
    """

    def __init__(self, context: RunnerContext) -> None:
        self._context = context
        self._backend: Backend = create_held_part("backend", context.backend)
        self._ledger = JobLedger(self.name)
        self._leases = LeaseTable()
        # By priority and number.
        self._queue: list[tuple[int, int, Job]] = []
        self._wishes: dict[str, float] = {}

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """True if it has been started, and not closed since."""

    @abstractmethod
    def _timer(self, machine: str) -> _Timer | None:
        """The process that times as a machine, if that takes part."""

    @abstractmethod
    def _give_build(self, job: Job) -> bool:
        """Give a build to a process, unless none has room for it where building is allowed."""

    @abstractmethod
    def _give(self, timer: _Timer, job: Job) -> None:
        """Give a job to what times, as it is now."""

    @abstractmethod
    def _is_building(self, host: str) -> bool:
        """Return whether builds of a host have been given to a process."""

    @abstractmethod
    def _work(self, seconds: float) -> None:
        """Note the replies that have come; waits for something for so long, if it must."""

    @abstractmethod
    def _drop_jobs(self) -> None:
        """Have processes give up what they were given."""

    @abstractmethod
    def _end(self) -> None:
        """End what runs: it does not any more from here on."""

    @property
    def simulates(self) -> bool:
        return self._backend.simulated_times

    def submit(self, job: Job) -> Future[Reply]:
        number, future = self._ledger.open()
        job = evolve(job, number=number)
        timer = None if job.place is None else self._timer(str(job.place[0]))
        if self.is_running and job.place is None:
            insort(self._queue, (-job.priority, number, job))
            self._hand_out()
        elif timer is None or timer.place != job.place or not self._leases.renew(timer.name):
            self._ledger.answer(number, Reply("again", job.place or NOWHERE))
        else:
            self._give(timer, job)
        return future

    def poll(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self.is_running:
            self._leases.tend()
            self._hand_out()
            self._work(min(max(0.0, end - time.monotonic()), _POLL_SECONDS))
            if self._ledger.deliver() or time.monotonic() >= end:
                return
        self._ledger.deliver()

    def lease(self, machine: str, seconds: float) -> Lease | None:
        timer = self._timer(machine)
        if timer is None:
            return None
        if timer.host:
            self._wishes[timer.host] = time.monotonic()
            if self._is_building(timer.host):
                return None
        token = self._leases.acquire(timer.group, machine, seconds, timer.host)
        return None if token is None else Lease(self, machine, token)

    def holds_lease(self, lease: Lease) -> bool:
        return self._leases.holds(lease.token)

    def release_lease(self, lease: Lease) -> None:
        self._leases.release(lease.token)
        self._wishes.clear()

    def cancel(self) -> None:
        if self.is_running:
            self._drop_jobs()
        self._queue.clear()
        self._wishes.clear()
        self._ledger.give_back_all()

    def check_speed(self, machine: str) -> float | None:
        timer = self._timer(machine)
        fingerprint = None if timer is None else timer.fingerprint
        if timer is None or fingerprint is None or self.simulates:
            return None
        asked = self._ask_speed(timer)
        while not asked.done():
            self.poll(_POLL_SECONDS)
        seconds = asked.result().body.get("seconds")
        if seconds is None:
            return None
        timer.drift = float(seconds) / fingerprint.reference_seconds
        return float(seconds)

    def take_warnings(self) -> list[str]:
        return [*self._leases.take_warnings(), *self._ledger.take_warnings()]

    def close(self) -> None:
        if not self.is_running:
            return
        self._leases.clear()
        self._end()
        self._queue.clear()
        self._wishes.clear()
        self._ledger.give_back_all()

    def _ask_speed(self, timer: _Timer) -> Future[Reply]:
        """Have the reference program timed; whoever calls has a lease, or it is not needed."""
        number, future = self._ledger.open()
        run = {"run": self._context.protocol.deadlines["run"]}
        self._give(timer, Job({"op": "speed"}, run, timer.place, number=number))
        return future

    def _is_quiet(self, host: str) -> bool:
        """Return whether nothing may be built on a host now."""
        wished = self._wishes.get(host, float("-inf"))
        is_wanted = time.monotonic() - wished < _WISH_SECONDS
        return bool(host) and (is_wanted or self._leases.is_timed(host))

    def _hand_out(self) -> None:
        while self._queue and self._give_build(self._queue[0][2]):
            self._queue.pop(0)


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
