"""Jobs of an engine that wait for their replies: each gets one."""

from __future__ import annotations

from concurrent.futures import Future

from attrs import define, field

from autotune.measure.engines.interface import REPLY_KINDS, EngineReply

__all__ = ["JobLedger"]


@define
class JobLedger:
    """Numbers jobs, and completes their futures once, in the order in which replies came.

    Attributes:
        name: Of the engine, for warnings.
    """

    name: str
    _last: int = 0
    _waiting: dict[int, Future[EngineReply]] = field(factory=dict)
    _arrived: list[tuple[int, EngineReply]] = field(factory=list)
    _dropped: int = 0
    _told: int = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def open(self) -> tuple[int, Future[EngineReply]]:
        """A number for a job, and the future of its reply."""
        self._last += 1
        future: Future[EngineReply] = Future()
        # A future that runs cannot be cancelled by others: every job gets a reply.
        future.set_running_or_notify_cancel()
        self._waiting[self._last] = future
        return self._last, future

    def is_open(self, number: int) -> bool:
        """Return whether a job waits for its reply still."""
        return number in self._waiting

    def answer(self, number: int, reply: EngineReply) -> None:
        """Note a reply; :meth:`deliver` gives it. A second one, or a late one, is dropped."""
        if reply.kind not in REPLY_KINDS:
            reply = EngineReply(
                "died",
                reply.machine,
                reply.incarnation,
                message=f"sent a reply of kind {reply.kind!r}; kinds: {', '.join(REPLY_KINDS)}",
            )
        if number in self._waiting and all(known != number for known, _ in self._arrived):
            self._arrived.append((number, reply))
        else:
            self._dropped += 1

    def drop(self) -> None:
        """Count an answer that cannot be assigned any more, as that of an ended process."""
        self._dropped += 1

    def deliver(self) -> int:
        """Complete the futures of what has arrived; returns how many."""
        delivered = 0
        while self._arrived:
            number, reply = self._arrived.pop(0)
            self._waiting.pop(number).set_result(reply)
            delivered += 1
        return delivered

    def give_back_all(self) -> None:
        """Answer every open job with ``again``, and deliver that."""
        for number in list(self._waiting):
            if all(known != number for known, _ in self._arrived):
                self._arrived.append((number, EngineReply("again")))
        self.deliver()

    def take_warnings(self) -> list[str]:
        """Return a line on answers that were dropped since the last call."""
        new, self._told = self._dropped - self._told, self._dropped
        if not new:
            return []
        what = "an answer that came" if new == 1 else f"{new} answers that came"
        return [f"runner {self.name!r} dropped {what} late or twice: nothing is counted double"]
