"""The contract of engines: machines that build and time, wherever they are.

A race is held by the host, which asks one machine for samples; an engine carries jobs there and
replies back. Everything is called on the host's thread, and futures are completed inside
:meth:`MeasureEngine.poll` only, so that one order of replies gives one run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Literal, TypeVar

from attrs import define, field, frozen

from autotune.measure.engines.artefacts import ArtefactStore
from autotune.measure.engines.fingerprint import SPEED_TOLERANCE, Fingerprint
from autotune.measure.jobs import Job, Place, Reply
from autotune.measure.protocol import MeasureProtocol
from autotune.plugins import Context
from autotune.process.channel import Message
from autotune.targets import Target

__all__ = [
    "Lease",
    "Machine",
    "MeasureEngine",
    "Role",
    "RunnerContext",
    "builders_of",
    "choose_fingerprint",
    "equal_machines",
]

Role = Literal["build", "time"]

_Self = TypeVar("_Self", bound="MeasureEngine")


@frozen
class Machine:
    """A machine as it is now.

    Attributes:
        name: Unique in the engine, and the same as long as the machine takes part.
        roles: What it does.
        fingerprint: Of a machine that times; None of one that only builds.
        slots: Jobs of role ``build`` that it does at the same time.
        lease_group: Machines of one group share what they run on, and one timing lease.
        load: Jobs that it has before it.
        incarnation: Of a machine that times: how often its timing process has been replaced.
            What an earlier one held in memory is gone.
        drift: Of a machine that times: what the reference program took last, over what it took
            when the machine joined.
    """

    name: str
    roles: frozenset[Role]
    fingerprint: Fingerprint | None = None
    slots: int = 1
    lease_group: str = ""
    load: int = 0
    incarnation: int = 0
    drift: float = 1.0

    @property
    def place(self) -> Place:
        """Process that times there, as it is now."""
        return self.name, self.incarnation


@define(eq=False)
class Lease:
    """The right to time on one machine, which no other of its group has meanwhile.

    A context manager: leaving it gives the right back.

    Attributes:
        engine: What gave it.
        machine: Name of the machine.
        token: Names this lease among all that the engine has given.
    """

    engine: MeasureEngine
    machine: str
    token: int

    @property
    def is_valid(self) -> bool:
        """True if it has neither been given back nor run out."""
        return self.engine.holds_lease(self)

    def release(self) -> None:
        """Give it back; again, or when it has run out, it does nothing."""
        self.engine.release_lease(self)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()


@frozen(eq=False, kw_only=True)
class RunnerContext(Context):
    """The context of a runner, which is an engine.

    Attributes:
        backend: Name of the backend.
        target: What programs are made for.
        threads: That programs run on.
        protocol: How to measure.
        observers: Names of observers.
    """

    backend: str
    target: Target
    threads: int = 1
    protocol: MeasureProtocol = field(factory=MeasureProtocol)
    observers: tuple[str, ...] = ()


class MeasureEngine(ABC):
    """Carries jobs to machines. A context manager: leaving it closes it.

    Every job gets exactly one reply. What comes twice, late, or from an incarnation that has
    ended is dropped and told once by :meth:`take_warnings`. An engine never repeats a job by
    itself: a candidate that ends a process must not be run again silently.

    A setup message of a task reaches a process before any job of that task does. In it, inputs
    and outputs are digests of artefacts.
    """

    name: str

    @property
    def on_this_machine(self) -> bool:
        """True if programs are timed on the machine of the host, whose rates then bound them."""
        return False

    @property
    @abstractmethod
    def simulates(self) -> bool:
        """True if the backend gives times that no clock has shown."""

    @abstractmethod
    def start(self, artefacts: ArtefactStore) -> None:
        """Begin to bring machines up, and return at once. Calling it again does nothing.

        Args:
            artefacts: The host's store: what jobs need is there, and what builds make gets there.
        """

    @abstractmethod
    def machines(self) -> Sequence[Machine]:
        """Machines that take part now and are ready, by name: may change at every :meth:`poll`."""

    @abstractmethod
    def tell(
        self, task: str, message: Message, artefacts: Sequence[str] = (), *, replace: bool = False
    ) -> None:
        """Tell all processes, now and later ones, something that jobs of a task refer to.

        Args:
            task: Names the task.
            message: What to tell.
            artefacts: Digests that it refers to.
            replace: Drop the earlier messages of the task.
        """

    @abstractmethod
    def release(self, task: str) -> None:
        """Have all processes forget a task, and tell later ones nothing of it."""

    @abstractmethod
    def submit(self, job: Job) -> Future[Reply]:
        """Have a job done. The future gets a reply whatever becomes of it, and never raises.

        One without a place is ``build`` with ``export`` true, and goes to any machine that builds;
        the body of its reply names an artefact, which is then in the host's store. One with the
        place of a machine is ``run``, ``sample`` or ``forget``; ``run`` names in ``artefact`` the
        program to load. Without a valid lease on that machine it gets the reply ``again``.
        """

    @abstractmethod
    def poll(self, seconds: float) -> None:
        """Take in what has happened, and complete futures.

        Args:
            seconds: How long to wait for something to happen; 0 returns at once.

        Raises:
            WorkerStartFailed: no machine can be brought up any more; says why.
        """

    @abstractmethod
    def lease(self, machine: str, seconds: float) -> Lease | None:
        """The right to time on a machine for so many seconds.

        None where its group has been leased, or there is no such machine. Every time job under a
        lease renews it.
        """

    @abstractmethod
    def holds_lease(self, lease: Lease) -> bool:
        """See :attr:`Lease.is_valid`."""

    @abstractmethod
    def release_lease(self, lease: Lease) -> None:
        """See :meth:`Lease.release`."""

    @abstractmethod
    def cancel(self) -> None:
        """Forget every job, each with the reply ``again``; processes that were at one end."""

    @abstractmethod
    def check_speed(self, machine: str) -> float | None:
        """Time the reference program now, under a lease on the machine that the caller has.

        Returns:
            Seconds, which also update :attr:`Machine.drift`; None where the machine is gone or
            times are simulated.
        """

    @property
    @abstractmethod
    def versions(self) -> Mapping[str, str]:
        """``backend_version`` and ``compiler_version`` of machines that build, once one is up."""

    def take_warnings(self) -> list[str]:
        """Return what a person should know; each message only once."""
        return []

    @abstractmethod
    def close(self) -> None:
        """End all that was started. Calling it again does nothing."""

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def choose_fingerprint(machines: Sequence[Machine]) -> Fingerprint | None:
    """The fingerprint of most machines that can time at the same time; None without any.

    Of equally frequent ones that of the first name, so that the choice does not depend on the
    order in which machines join.
    """
    timers = sorted((it for it in machines if _times(it)), key=lambda it: it.name)
    best: tuple[int, Fingerprint] | None = None
    for machine in timers:
        if machine.fingerprint is None:
            continue
        alike = equal_machines(machine.fingerprint, timers)
        if best is None or len(alike) > best[0]:
            best = len(alike), machine.fingerprint
    return None if best is None else best[1]


def equal_machines(fingerprint: Fingerprint, machines: Sequence[Machine]) -> list[Machine]:
    """Machines that may share a race, by name: one of each lease group, the first.

    Those that share what they run on would only wait for one another. One whose speed has drifted
    comes after the others of its group.
    """
    found: dict[str, Machine] = {}
    for machine in sorted(machines, key=lambda it: (_has_drifted(it), it.name)):
        if _times(machine) and machine.fingerprint and machine.fingerprint.equals(fingerprint):
            found.setdefault(machine.lease_group or machine.name, machine)
    return sorted(found.values(), key=lambda it: (_has_drifted(it), it.name))


def builders_of(machines: Sequence[Machine]) -> int:
    """Number of simultaneous builds of all machines."""
    return sum(machine.slots for machine in machines if "build" in machine.roles)


def _times(machine: Machine) -> bool:
    return "time" in machine.roles and machine.fingerprint is not None


def _has_drifted(machine: Machine) -> bool:
    return abs(machine.drift - 1) > SPEED_TOLERANCE
