"""Jobs of worker processes, and which of them each worker has before it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from attrs import define, field, frozen

from autotune.process.channel import Message
from autotune.process.worker_process import WorkerProcess

__all__ = ["MOST_AHEAD", "Job", "Place", "Reply", "Slot"]

# Jobs that a worker has before it: enough for as long as a search takes, few enough that one
# worker does not wait while another has work left.
MOST_AHEAD = 4

Place = tuple[int, int]
"""A worker as it is now: its position, and how often it has been replaced."""


@frozen
class Job:
    """A message for a worker: any, or the one at ``place``.

    Attributes:
        number: Names the job in its reply.
        message: What to do.
        deadlines: Seconds for each phase that the worker announces.
        place: Who has to do it; None for anybody.
    """

    number: int
    message: Message = field(repr=False)
    deadlines: Mapping[str, float]
    place: Place | None = None


@frozen
class Reply:
    """Answer to a job.

    Attributes:
        number: The job's number.
        kind: ``done``; ``failed`` (the worker refused, alive); ``died``; ``timeout``; ``lost``
            (the worker ended before it had begun this job, hence not because of it); ``again``
            (it ended because of something else).
        place: Where it was done.
        phase: The last phase the worker announced.
        seconds: How long that phase had lasted.
        body: The answer of ``done``.
        message: What went wrong.
    """

    number: int
    kind: str
    place: Place
    phase: str = ""
    seconds: float = 0.0
    body: Message = field(factory=dict)
    message: str = ""


@define
class Slot:
    """A position in the pool.

    Attributes:
        index: The position.
        process: Its worker.
        generation: How often it has been replaced.
        setup: Setup messages that the worker must get before jobs.
        jobs: Jobs that it was sent, the first of which it is doing.
        in_setup: Whether it has yet to answer a message of ``setup``.
        begun: Whether it has announced a phase of what it is doing.
        used: Whether it has been given a job.
        reserved: Whether it gets only jobs that are for it.
        timing: Whether it is also to have nothing else to do.
    """

    index: int
    process: WorkerProcess | None = None
    generation: int = 0
    setup: deque[Message] = field(factory=deque)
    jobs: deque[Job] = field(factory=deque)
    in_setup: bool = False
    begun: bool = False
    used: bool = False
    reserved: bool = False
    timing: bool = False
    phase: str = "start"
    since: float = 0.0
    deadline: float = 0.0
    start_failures: int = 0

    @property
    def place(self) -> Place:
        return self.index, self.generation

    @property
    def ready(self) -> bool:
        return self.process is not None and not self.setup and not self.in_setup

    @property
    def waiting(self) -> bool:
        """True if it owes an answer."""
        return self.in_setup or bool(self.jobs)
