"""Jobs of measuring processes, and their replies: of workers here and of machines elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from autotune.process.channel import Message

__all__ = ["NOWHERE", "REPLY_KINDS", "Job", "Place", "Position", "Reply"]

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
