"""Interface of a dispatcher to those that do its jobs, wherever they are."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from autotune.measure.jobs import Job, Place, Reply
from autotune.process.channel import Message

__all__ = ["JobPool"]


class JobPool(Protocol):
    """Does jobs, and answers each once.

    :class:`~autotune.measure.pool.WorkerPool` has processes of this machine;
    :class:`~autotune.measure.engines.EnginePool` has the machines of an engine.
    """

    @property
    def versions(self) -> Message:
        """``backend_version`` and ``compiler_version``, once something is ready."""

    @property
    def idle(self) -> bool:
        """True if no job is being done or waits, and every reply has been given."""

    @property
    def is_quiet(self) -> bool:
        """True if those that are reserved for timing have nothing to do."""

    @property
    def device_place(self) -> Place | None:
        """The process that owns a device, as it is now; None where there is none."""

    @property
    def lanes(self) -> list[int]:
        """Positions that time at the same time, as they are of different, equal machines.

        Baselines and winners take turns on the first. Empty where all positions are of one
        machine.
        """

    def place_at(self, position: int) -> Place | None:
        """The place of one of :attr:`lanes` as it is now; None where the machine is gone."""

    def try_lease(self, position: int) -> bool:
        """Reserve one of :attr:`lanes` for timing, and no other; whether that is possible now."""

    def end_lease(self, position: int) -> None:
        """Let one of :attr:`lanes` do other things."""

    def tell(self, task: str, message: Message, *, replace: bool = False) -> None:
        """Tell all of them, now and later, something that jobs of a task refer to."""

    def release(self, task: str) -> None:
        """Have all of them forget a task."""

    def wait_ready(self) -> None:
        """Wait until they are ready for jobs, or busy with some.

        Raises:
            WorkerStartFailed: they cannot be brought up; says why.
            TimeIsOver: there is no time left to wait.
        """

    def holds(self, place: Place) -> bool:
        """Return whether what was held in memory at a place is there still."""

    def pids(self) -> Mapping[int, int]:
        """Process ids of those that run on this machine, by position."""

    def reserve(self, timing: Collection[int], later: Collection[int] = ()) -> None:
        """Give those at these positions, and no others, only jobs that are for them."""

    def add(self, jobs: Sequence[Job]) -> None:
        """Have jobs done."""

    def poll(self, seconds: float = ...) -> list[Reply]:
        """Hand out jobs, and return the replies that have come.

        Raises:
            TimeIsOver: there is no time left to wait.
        """

    def forget_queue(self) -> list[int]:
        """Forget the jobs that have not begun; returns their numbers."""

    def cancel(self) -> None:
        """Forget every job."""

    def close(self) -> None:
        """End all that was started."""
