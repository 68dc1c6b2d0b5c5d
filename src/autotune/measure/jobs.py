"""Jobs of measuring processes, and their replies: of workers here and of machines elsewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from itertools import count
from typing import TypeVar

from attrs import define, evolve, field, frozen

from autotune.process.channel import Message

__all__ = [
    "NOWHERE",
    "REPLY_KINDS",
    "Dispatcher",
    "Job",
    "JobPool",
    "OnReply",
    "Place",
    "Position",
    "Reply",
    "Steps",
]

Position = int | str
"""Number of a worker in its pool, or name of a machine of an engine."""

Place = tuple[Position, int]
"""Process as it is now: its position, and how often it has been replaced."""

NOWHERE: Place = ("", 0)
"""Place of what no process was given."""

REPLY_KINDS = ("done", "failed", "died", "timeout", "lost", "again")
"""Kinds of replies. ``failed`` is a refusal of a process that lives on; ``died`` and ``timeout``
are the job's own fault; ``lost`` may be, as the process ended before it had begun the job;
``again`` is not, as it ended because of something else."""


@frozen
class Job:
    """A message for a process, as :mod:`autotune.measure.worker` takes it.

    Attributes:
        message: What to do; ``task`` names the task that was told before.
        deadlines: Seconds for each phase that the process may announce; the first one is that of
            the beginning. Enforced from outside of the process.
        place: Who has to do it; None for any that builds. A process that has been replaced gives
            the reply ``again``.
        artefacts: Digests that the job needs; an engine copies each to a host once.
        priority: An engine hands out higher ones first, equal ones in order of submission.
        number: Names the job in its reply; an engine gives it another one.
    """

    message: Message = field(repr=False)
    deadlines: Mapping[str, float]
    place: Place | None = None
    artefacts: tuple[str, ...] = ()
    priority: int = 0
    number: int = 0


@frozen
class Reply:
    """Answer to a job.

    Attributes:
        kind: One of :data:`REPLY_KINDS`.
        place: Where it was done.
        phase: The last phase that was announced.
        seconds: How long that had lasted.
        body: The answer of ``done``.
        message: What went wrong.
        number: The job's number.
    """

    kind: str
    place: Place = NOWHERE
    phase: str = ""
    seconds: float = 0.0
    body: Message = field(factory=dict)
    message: str = ""
    number: int = 0


OnReply = Callable[[Reply], None]

_Found = TypeVar("_Found")

Steps = Generator[Job, Reply, _Found]
"""Jobs one after the other, each of which depends on the replies to those before."""


class JobPool(ABC):
    """Does jobs, and answers each once.

    :class:`~autotune.measure.pool.WorkerPool` has processes of this machine;
    :class:`~autotune.measure.workers.EnginePool` has the machines of an engine.
    """

    @property
    @abstractmethod
    def versions(self) -> Message:
        """``backend_version`` and ``compiler_version``, once something is ready."""

    @property
    @abstractmethod
    def idle(self) -> bool:
        """True if no job is being done or waits, and every reply has been given."""

    @property
    @abstractmethod
    def is_quiet(self) -> bool:
        """True if those that are reserved for timing have nothing to do."""

    @property
    def device_place(self) -> Place | None:
        """The process that owns a device, as it is now; None where there is none."""
        return None

    @property
    def lanes(self) -> list[Position]:
        """Positions that time at the same time, as they are of different, equal machines.

        Baselines and winners take turns on the first. Empty where all positions are of one
        machine.
        """
        return []

    def place_at(self, position: Position) -> Place | None:
        """The place of one of :attr:`lanes` as it is now; None where the machine is gone."""
        return None

    def try_lease(self, position: Position) -> bool:
        """Reserve one of :attr:`lanes` for timing, and no other; whether that is possible now."""
        return False

    def end_lease(self, position: Position) -> None:
        """Let one of :attr:`lanes` do other things."""
        return None

    @abstractmethod
    def start(self) -> None:
        """Start them, and return at once."""

    @abstractmethod
    def tell(self, task: str, message: Message, *, replace: bool = False) -> None:
        """Tell all of them, now and later, something that jobs of a task refer to."""

    @abstractmethod
    def release(self, task: str) -> None:
        """Have all of them forget a task."""

    @abstractmethod
    def wait_ready(self) -> None:
        """Wait until they are ready for jobs, or busy with some.

        Raises:
            WorkerStartFailed: they cannot be brought up; says why.
            TimeIsOver: there is no time left to wait.
        """

    @abstractmethod
    def holds(self, place: Place) -> bool:
        """Return whether what was held in memory at a place is there still."""

    @abstractmethod
    def pids(self) -> Mapping[int, int]:
        """Process ids of those that run on this machine, by position."""

    @abstractmethod
    def reserve(self, timing: Collection[Position], later: Collection[Position] = ()) -> None:
        """Give those at these positions, and no others, only jobs that are for them."""

    @abstractmethod
    def add(self, jobs: Sequence[Job]) -> None:
        """Have jobs done."""

    @abstractmethod
    def poll(self, seconds: float = ...) -> list[Reply]:
        """Hand out jobs, and return the replies that have come.

        Raises:
            TimeIsOver: there is no time left to wait.
        """

    @abstractmethod
    def forget_queue(self) -> list[int]:
        """Forget the jobs that have not begun; returns their numbers."""

    @abstractmethod
    def cancel(self) -> None:
        """Forget every job."""

    def take_warnings(self) -> list[str]:
        """Return what a person should know beside what jobs said; each message only once."""
        return []

    @abstractmethod
    def close(self) -> None:
        """End all that was started."""


@define(eq=False)
class Dispatcher:
    """Numbers the jobs of a pool, and keeps observers from doing harm.

    A worker that ends while it asks observers takes candidates with it that are not to blame:
    their jobs are answered with ``again``, and nothing is observed from then on.

    Attributes:
        pool: The workers.
        observers: Names of what observes candidates; none once a worker was lost to them.
        task: Whose jobs these are, where the workers serve several tasks.
    """

    pool: JobPool
    observers: list[str] = field(factory=list)
    task: str = ""
    _numbers: Iterator[int] = field(factory=lambda: count(1))
    # Who waits for which job, and whether that is observed.
    _waiting: dict[int, tuple[OnReply, bool]] = field(factory=dict)
    # What a person should know, and whether that was taken.
    _warnings: dict[str, bool] = field(factory=dict)

    def of_task(self, task: str) -> Dispatcher:
        """A dispatcher of the same workers, whose jobs are those of a task."""
        return evolve(self, task=task)

    def release(self) -> None:
        """Have the workers forget the task of this dispatcher."""
        self.pool.release(self.task)

    def post(
        self,
        message: Message,
        deadlines: Mapping[str, float],
        on_reply: OnReply,
        place: Place | None = None,
    ) -> None:
        """Have a job done; ``on_reply`` is called from :meth:`pump`."""
        number, is_observed = next(self._numbers), bool(self.observers)
        self._waiting[number] = on_reply, is_observed
        asked = {**message, "task": self.task, "observe": is_observed}
        self.pool.add([Job(asked, deadlines, place, number=number)])

    def carry_out(self, steps: Steps[_Found]) -> _Found:
        """Have jobs done one after the other; returns what their steps return."""
        replies: list[Reply] = []
        try:
            job = next(steps)
            while True:
                self.post(job.message, job.deadlines, replies.append, job.place)
                while not replies:
                    self.pump()
                if replies[0].kind != "done":
                    self.settle_down()
                job = steps.send(replies.pop())
        except StopIteration as end:
            found: _Found = end.value
            return found

    def pump(self, seconds: float | None = None) -> None:
        """Hand out jobs and deliver replies, of all tasks, once.

        Args:
            seconds: How long to wait for replies; by default until something may have happened.
        """
        replies = self.pool.poll() if seconds is None else self.pool.poll(seconds)
        for reply in replies:
            self._deliver(reply)

    def _deliver(self, reply: Reply) -> None:
        on_reply, observed = self._waiting.pop(reply.number, (None, False))
        for warning in reply.body.get("warnings", ()):
            self._warnings.setdefault(warning, False)
        if reply.phase == "observe" and reply.kind in ("died", "timeout"):
            self._stop_observing(reply)
            reply = evolve(reply, kind="lost")
        if reply.kind == "lost" and observed and not self.observers:
            reply = evolve(reply, kind="again")
        if on_reply is not None:
            on_reply(reply)

    def settle_down(self) -> None:
        """Wait until the workers that time have nothing else to do, and new ones are up."""
        while not self.pool.is_quiet:
            self.pump()
        # A worker that was replaced imports its compiler first: that would disturb.
        self.pool.wait_ready()

    def drain(self) -> None:
        """Drop the jobs that have not begun, and wait for the others."""
        for number in self.pool.forget_queue():
            self._deliver(_again(number))
        while not self.pool.idle:
            self.pump()

    def cancel(self) -> None:
        """Forget every job; workers that were at one are replaced.

        What waits for one, of whichever task, gets the reply that it has to be done again.
        """
        self.pool.cancel()
        for number in list(self._waiting):
            self._deliver(_again(number))

    def take_warnings(self) -> list[str]:
        """Return what a person should know; each message only once, whichever task asks."""
        new = [warning for warning, taken in self._warnings.items() if not taken]
        self._warnings.update(dict.fromkeys(new, True))
        return new

    def _stop_observing(self, reply: Reply) -> None:
        # Other workers may already observe: their answers add nothing.
        if self.observers:
            names = ", ".join(self.observers)
            self.observers.clear()
            self._warnings[
                f"a worker was lost while it asked observers ({names}): {reply.message}; "
                "nothing is observed from here on"
            ] = False


def _again(number: int) -> Reply:
    """The reply to a job that nobody does any more."""
    return Reply("again", number=number)
