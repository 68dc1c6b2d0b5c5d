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
from autotune.measure.engines.fingerprint import Fingerprint
from autotune.measure.protocol import MeasureProtocol
from autotune.plugins import Context
from autotune.process.channel import Message
from autotune.targets import Target

__all__ = [
    "REPLY_KINDS",
    "EngineJob",
    "EngineReply",
    "Lease",
    "Machine",
    "MeasureEngine",
    "Role",
    "RunnerContext",
]

Role = Literal["build", "time"]

REPLY_KINDS = ("done", "failed", "died", "timeout", "lost", "again")
"""As of :class:`autotune.measure.jobs.Reply`: ``failed`` is a refusal of a process that lives on,
``died`` and ``timeout`` are the job's own fault, ``lost`` may be, and ``again`` is not."""

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


@frozen
class EngineJob:
    """A message for a worker, as :mod:`autotune.measure.worker` takes it.

    A ``build`` job goes to any machine that builds. Its message is ``build`` with ``export`` true,
    and the body of its reply names an artefact, which is then in the host's store.

    A ``time`` job is bound to a machine and an incarnation of it. Its message is ``run``,
    ``sample`` or ``forget``; ``run`` names in ``artefact`` the program to load.

    Attributes:
        kind: Which of both.
        message: What to do; ``task`` names the task that was told before.
        deadlines: Seconds for each phase that the worker may announce; the first one is that of
            the beginning. Enforced from outside of the process.
        artefacts: Digests that the job needs; the engine copies each to a host once.
        machine: Name of the machine; None for any that builds.
        incarnation: See :class:`Machine`; one that has ended gives the reply ``again``.
        priority: Higher ones are handed out first; equal ones in order of submission.
    """

    kind: Role
    message: Message = field(repr=False)
    deadlines: Mapping[str, float]
    artefacts: tuple[str, ...] = ()
    machine: str | None = None
    incarnation: int = 0
    priority: int = 0


@frozen
class EngineReply:
    """Answer to a job.

    Attributes:
        kind: One of :data:`REPLY_KINDS`.
        machine: Where; "" if it was given to none.
        incarnation: Of the process there.
        phase: The last phase that was announced.
        seconds: How long that had lasted.
        body: The answer of ``done``.
        message: What went wrong.
    """

    kind: str
    machine: str = ""
    incarnation: int = 0
    phase: str = ""
    seconds: float = 0.0
    body: Message = field(factory=dict)
    message: str = ""


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
    def submit(self, job: EngineJob) -> Future[EngineReply]:
        """Have a job done. The future gets a reply whatever becomes of it, and never raises.

        A time job without a valid lease on its machine gets the reply ``again``.
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
