"""Place for a server: the process that holds a session with one, replaced when it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from attrs import define, field

from autotune.measure.engines import EngineReply, Fingerprint
from autotune.measure.jobs import Job, Reply
from autotune.measure.pool import WorkerPool
from autotune.process.channel import Message
from autotune.process.errors import TimeIsOver, WorkerStartFailed
from autotune.process.private_folder import PrivateFolder, make_private_folder
from autotune_tvm.rpc.machine import RemoteMachine

__all__ = ["Numbered", "ServerSlot"]

_SENDING = ("task", "load")

Numbered = tuple[int, EngineReply]
"""A job's number, and its reply."""

MakePool = Callable[[PrivateFolder, Callable[[int], Message]], WorkerPool]


@define(eq=False)
class ServerSlot:
    """A machine of the runner ``rpc``.

    Attributes:
        name: Of the machine.
        make_pool: Makes a pool of one process, given a folder and what its first message holds.
        told: Setup messages, by task.
        pool: The process; None while there is none.
        folder: Of that process.
        machine: What the server said of itself; None until it has.
        fingerprint: Made from that.
        joining: The reply with the speed of its machine, while that is waited for.
        drift: Of the reference program.
        epoch: Incarnations of pools before this one.
        up: The incarnation that had a server last.
        jobs: Numbers of jobs that it owes an answer.
        gone: Why there is no process, or "".
        retry_at: When to try again, in monotonic seconds.
    """

    name: str
    make_pool: MakePool
    told: Mapping[str, list[Message]]
    pool: WorkerPool | None = None
    folder: PrivateFolder | None = None
    machine: RemoteMachine | None = None
    fingerprint: Fingerprint | None = None
    joining: Future[EngineReply] | None = None
    drift: float = 1.0
    epoch: int = 0
    up: int = -1
    jobs: set[int] = field(factory=set)
    gone: str = ""
    retry_at: float = 0.0

    def start(self) -> None:
        """Start the process, which asks for a server like the one before."""
        self.gone = ""
        self.folder = make_private_folder()
        pool = self.pool = self.make_pool(
            self.folder, lambda _index: {"expected": self._expected()}
        )
        for task, messages in self.told.items():
            for message in messages:
                pool.tell(task, message)
        pool.start()

    def _expected(self) -> Message | None:
        return None if self.machine is None else self.machine.to_json()

    @property
    def incarnation(self) -> int:
        """Number of times that the process has been replaced."""
        return self.epoch + (self.pool.place(0)[1] if self.pool is not None else 0)

    @property
    def is_up(self) -> bool:
        """True if its process, as it is now, has a server."""
        return self.pool is not None and self.up == self.incarnation

    @property
    def is_starting(self) -> bool:
        """True if its process has yet to get a server, or to say that it got none."""
        return self.pool is not None and not self.is_up

    def submit(self, number: int, message: Message, deadlines: Mapping[str, float]) -> None:
        """Have a job done by the process as it is now."""
        if self.pool is not None:
            self.jobs.add(number)
            self.pool.add([Job(number, message, deadlines, self.pool.place(0))])

    def poll(self) -> list[Numbered]:
        """Replies that have come; where no process can be started any more, ``again`` to all."""
        if self.pool is None:
            return []
        before = self.incarnation
        try:
            replies = self.pool.poll(0.0)
        except WorkerStartFailed as error:
            return self.end(_reason(error))
        self.jobs -= {reply.number for reply in replies}
        if self.incarnation == before and not self.is_up and self.pool.is_ready:
            self.up = before
            if self.fingerprint is None:
                self.machine = RemoteMachine.from_json(self.pool.versions["machine"])
        return [(reply.number, self._as_engine_reply(reply)) for reply in replies]

    def _as_engine_reply(self, reply: Reply) -> EngineReply:
        # Nothing of the program runs while it is sent: what ends then is the way to the server.
        is_lost = reply.kind in ("died", "timeout") and reply.phase in _SENDING
        return EngineReply(
            "lost" if is_lost else reply.kind,
            self.name,
            self.epoch + reply.place[1],
            reply.phase,
            reply.seconds,
            reply.body,
            reply.message,
        )

    def finish(self, seconds: float) -> None:
        """Wait for so long until the process is at nothing; replies are dropped.

        A server whose client is killed between a request and its answer serves no more.
        """
        end = time.monotonic() + seconds
        while self.pool is not None and (self.pool.awaited() or not self.pool.idle):
            left = end - time.monotonic()
            if left <= 0:
                return
            try:
                self.pool.poll(left)
            except (WorkerStartFailed, TimeIsOver):
                return

    def end(self, why: str) -> list[Numbered]:
        """End the process; the replies to what it was given."""
        incarnation = self.incarnation
        if self.pool is not None:
            self.pool.close()
            self.epoch = incarnation + 1
            self.pool = None
        if self.folder is not None:
            self.folder.remove()
            self.folder = None
        self.gone = why
        self.joining = None
        given, self.jobs = sorted(self.jobs), set()
        return [(number, EngineReply("again", self.name, incarnation)) for number in given]

    def try_later(self, seconds: float) -> None:
        """Do not try again before so many seconds have passed."""
        self.retry_at = time.monotonic() + seconds


def _reason(error: BaseException) -> str:
    """Reason that a process gave, without the names of classes that only we know."""
    text: Any = str(error)
    for sign in ("TrackerError: ", "ProgramFailed: ", "ServerLost: "):
        text = text.rpartition(sign)[2]
    return str(text)
