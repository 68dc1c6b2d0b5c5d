"""Jobs with an addressee: each reply of a pool goes to the caller that posted the job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from attrs import evolve

from autotune.measure.pool import Job, Place, Reply, WorkerPool
from autotune.process.channel import Message

__all__ = ["Dispatcher", "OnReply"]

OnReply = Callable[[Reply], None]


class Dispatcher:
    """Numbers the jobs of a pool, and keeps observers from doing harm.

    A worker that ends while it asks observers takes candidates with it that are not to blame:
    their jobs are answered with ``again``, and nothing is observed from then on.

    Args:
        pool: The workers.
        observers: Names of what observes candidates.
    """

    def __init__(self, pool: WorkerPool, observers: Sequence[str] = ()) -> None:
        self.pool = pool
        self._observers = observers
        self._observing = bool(observers)
        self._last = 0
        self._waiting: dict[int, tuple[OnReply, bool]] = {}
        self._warnings: dict[str, bool] = {}

    def post(
        self,
        message: Message,
        deadlines: Mapping[str, float],
        on_reply: OnReply,
        place: Place | None = None,
    ) -> None:
        """Have a job done; ``on_reply`` is called from :meth:`pump` or :meth:`ask`."""
        self._last += 1
        self._waiting[self._last] = on_reply, self._observing
        asked = {**message, "observe": self._observing}
        self.pool.add([Job(self._last, asked, deadlines, place)])

    def ask(self, message: Message, deadlines: Mapping[str, float], place: Place) -> Reply:
        """Have a job done by the worker at ``place``, and wait for its reply."""
        replies: list[Reply] = []
        self.post(message, deadlines, replies.append, place)
        while not replies:
            self.pump()
        return replies[0]

    def pump(self, seconds: float | None = None) -> None:
        """Hand out jobs and deliver replies, once.

        Args:
            seconds: How long to wait for replies; by default until something may have happened.
        """
        replies = self.pool.poll() if seconds is None else self.pool.poll(seconds)
        for reply in replies:
            on_reply, observed = self._waiting.pop(reply.number, (None, False))
            for warning in reply.body.get("warnings", ()):
                self._warnings.setdefault(warning, False)
            if reply.phase == "observe" and reply.kind in ("died", "timeout"):
                self._stop_observing(reply)
                reply = evolve(reply, kind="lost")
            if reply.kind == "lost" and observed and not self._observing:
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
        self.pool.forget_queue()
        while not self.pool.idle:
            self.pump()

    def cancel(self) -> None:
        """Forget every job; workers that were at one are replaced."""
        self._waiting.clear()
        self.pool.cancel()

    def take_warnings(self) -> list[str]:
        """What a person should know; each only once."""
        new = [warning for warning, taken in self._warnings.items() if not taken]
        self._warnings.update(dict.fromkeys(new, True))
        return new

    def _stop_observing(self, reply: Reply) -> None:
        # Other workers may already observe: their answers add nothing.
        if self._observing:
            self._observing = False
            names = ", ".join(self._observers)
            self._warnings[
                f"a worker was lost while it asked observers ({names}): {reply.message}; "
                "nothing is observed from here on"
            ] = False
