"""The machine's side: isolated workers, and a thread that carries jobs to them and replies back.

All that goes in and out are messages as bytes, which whatever lies between may carry.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, SimpleQueue

from attrs import asdict, define, evolve, field, frozen

from autotune.measure.engines.artefacts import ArtefactStore
from autotune.measure.engines.fingerprint import Fingerprint, host_fingerprint
from autotune.measure.jobs import Job, Reply
from autotune.measure.pool import WorkerPool
from autotune.plugins.guarded_parts import create_held_part
from autotune.process.channel import ATTACHMENTS, Decoder, Message, encode
from autotune.process.child import describe
from autotune.process.private_folder import PrivateFolder, make_private_folder

__all__ = [
    "RayActor",
    "Supervisor",
    "SupervisorSetup",
    "decoded",
    "host_identity",
]

# While workers are at something, and nothing of theirs wakes the thread that waits for commands.
_BUSY_SECONDS, _IDLE_SECONDS = 0.01, 0.1
_VERSIONS = ("backend_version", "compiler_version")


@frozen
class SupervisorSetup:
    """Settings that a supervisor is made for.

    Attributes:
        backend: Name of the backend.
        threads: Threads that a program may use.
        protocol: Identity of the measuring protocol.
        deadlines: Seconds of its phases.
        workers: How many processes; one that times.
        times: Whether they time, and compile nothing; otherwise they build.
        memory_bytes: Memory that each may allocate; None allows most of the machine's.
        device: Model of a GPU that programs run on; "" for the CPU.
        store: Folder of the host's artefacts, where that is this machine's, too; "" elsewhere.
    """

    backend: str
    threads: int
    protocol: str
    deadlines: dict[str, float]
    workers: int
    times: bool
    memory_bytes: int | None = None
    device: str = ""
    store: str = ""


def decoded(data: bytes) -> Message:
    """The one message that the bytes hold.

    Raises:
        NotAMessage: they hold none.
        ValueError: they hold another number of messages than one.
    """
    [message] = Decoder().feed(data)
    return message


@define
class _Files:
    """Artefacts that jobs and tasks of this machine need still."""

    store: ArtefactStore
    of_tasks: dict[str, set[str]] = field(factory=dict)
    of_jobs: dict[int, set[str]] = field(factory=dict)
    # Programs whose files are gone, and the jobs that may have built the same meanwhile.
    _taken: dict[str, tuple[bytes, set[int]]] = field(factory=dict)

    def end_job(self, number: int, artefact: str | None) -> bytes | None:
        """Forget a job; returns the content of the program that it has built, if any.

        Jobs that are done at the same time may build the same program, of which there is one file.

        Raises:
            DamagedArtefact: its file is not what the job has written.
        """
        content = None
        if artefact in self._taken and not self.store.has(artefact):
            content, _ = self._taken[artefact]
        elif artefact is not None:
            content = self.store.content(artefact)
        self.drop(self.of_jobs.pop(number, set()) | ({artefact} if artefact else set()))
        if artefact is not None and content is not None:
            self._taken[artefact] = content, set(self.of_jobs)
        for digest, (_, jobs) in list(self._taken.items()):
            jobs &= self.of_jobs.keys()
            if not jobs:
                del self._taken[digest]
        return content

    def drop(self, digests: set[str]) -> None:
        """Delete those that nothing else needs."""
        needed = set[str]().union(*self.of_tasks.values(), *self.of_jobs.values())
        for digest in digests - needed:
            self.store.remove(digest)


Notify = Callable[["Supervisor"], None]


class Supervisor:
    """Workers of one device or of one host's builds, on a thread of their own.

    They die with this process: the kernel ends them when the thread is gone.

    Args:
        setup: What it is made for.
        notify: Called with it, on the thread, whenever there is something to take.
    """

    def __init__(self, setup: SupervisorSetup, notify: Notify) -> None:
        self._setup = setup
        self._notify = notify
        self._commands: SimpleQueue[Message] = SimpleQueue()
        self._early: dict[int, Message] = {}
        self._next = 0
        self._lock = threading.Lock()
        self._replies: list[tuple[Message, bytes | None]] = []
        self._status: Message = {"ready": False}
        self._is_news = False
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="supervisor", daemon=True)
        self._thread.start()

    def send(self, command: bytes, contents: Sequence[object]) -> None:
        """Have a command done; commands are done in the order of their numbers.

        Args:
            command: A message with ``do`` and ``sequence``.
            contents: Of the artefacts that it names, in the same order.
        """
        message = decoded(command)
        message["contents"] = contents
        with self._lock:
            self._early[message["sequence"]] = message
            while self._next in self._early:
                self._commands.put(self._early.pop(self._next))
                self._next += 1

    def take(self) -> bytes:
        """Return what has happened since the last call: the state of the workers, and replies."""
        with self._lock:
            replies, self._replies = self._replies, []
            self._is_news = False
            status = dict(self._status)
        contents = [content for _, content in replies if content is not None]
        event: Message = {"status": status, "replies": [reply for reply, _ in replies]}
        if contents:
            event[ATTACHMENTS] = contents
        return encode(event)

    @property
    def has_news(self) -> bool:
        """True if something has happened since the last :meth:`take`."""
        return self._is_news

    def kill(self) -> None:
        """Have the workers end, and wait for nothing."""
        self._closing = True

    def close(self) -> None:
        """End the workers, and wait for that."""
        self.kill()
        self._thread.join()

    def _serve(self) -> None:
        try:
            with ExitStack() as ending:
                folder = make_private_folder()
                ending.callback(folder.remove)
                artefacts = Path(self._setup.store or folder.path / "artefacts")
                artefacts.mkdir(exist_ok=True)
                self._files = _Files(ArtefactStore(artefacts))
                self._pool = self._make_pool(folder)
                ending.callback(self._pool.close)
                self._loop()
        except Exception as error:  # the host decides what it means
            self._say({"ready": False, "failure": self._why(error)})

    def _why(self, error: Exception) -> str:
        """Reason that its workers cannot be brought up."""
        return describe(error)

    def _make_pool(self, folder: PrivateFolder) -> WorkerPool:
        """The workers, not started; their files go to a folder."""
        setup = self._setup
        backend = create_held_part("backend", setup.backend)
        hello = {"artefacts": str(self._files.store.folder), "only_times": setup.times}
        return WorkerPool(
            setup.backend,
            setup.threads,
            backend.worker_environment(setup.threads),
            workers=setup.workers,
            deadlines=setup.deadlines,
            memory_bytes=setup.memory_bytes,
            folder=folder,
            hello=lambda _index: hello,
        )

    def _loop(self) -> None:
        pool = self._pool
        pool.start()
        self._say(self._status)
        while not self._closing:
            self._obey(_IDLE_SECONDS if pool.idle and pool.is_ready else 0.0)
            for reply in pool.poll(_BUSY_SECONDS):
                self._take_reply(reply)
            self._look()

    def _obey(self, seconds: float) -> None:
        """Do what has been commanded; waits for a command where there is none."""
        while True:
            try:
                command = self._commands.get(timeout=seconds) if seconds else None
                command = command or self._commands.get_nowait()
            except Empty:
                return
            seconds = 0.0
            try:
                self._do(command)
            except Exception as error:  # this job or task, and no other
                number, place = command.get("number"), self._pool.place(0)
                if number is not None:
                    why = describe(error)
                    self._take_reply(Reply("failed", place, message=why, number=number))

    def _do(self, command: Message) -> None:
        pool, files = self._pool, self._files
        digests = command.get("artefacts", [])
        kept = {
            digest
            for digest, content in zip(digests, command["contents"], strict=True)
            if files.store.receive(digest, content)
        }
        what = command["do"]
        if what == "tell":
            task = command["task"]
            old = files.of_tasks.pop(task, set()) if command["replace"] else set()
            files.of_tasks.setdefault(task, set()).update(kept)
            files.drop(old)
            pool.tell(task, command["message"], replace=command["replace"])
        elif what == "release":
            pool.release(command["task"])
            files.drop(files.of_tasks.pop(command["task"], set()))
        elif what == "cancel":
            pool.cancel()
            jobs, files.of_jobs = files.of_jobs, {}
            files.drop(set[str]().union(*jobs.values()))
        else:
            number, generation = command["number"], command["generation"]
            files.of_jobs[number] = kept
            place = None if generation is None else (0, generation)
            pool.add([Job(command["message"], command["deadlines"], place, number=number)])

    def _take_reply(self, reply: Reply) -> None:
        """Pass on a reply, with the program that was built where the host's store is not here."""
        content = None
        if not self._setup.store:
            content = self._files.end_job(reply.number, reply.body.get("artefact"))
        message = {
            "number": reply.number,
            "kind": reply.kind,
            "generation": reply.place[1],
            "phase": reply.phase,
            "seconds": reply.seconds,
            "body": reply.body,
            "message": reply.message,
            "has_content": content is not None,
        }
        with self._lock:
            self._replies.append((message, content))
            self._is_news = True
        self._look()
        self._notify(self)

    def _look(self) -> None:
        """Notice when workers are ready, or others than before."""
        before, pool = self._status, self._pool
        if before.get("ready"):
            if before["generation"] != pool.place(0)[1]:
                self._say({**before, **self._processes})
        elif pool.is_ready:
            self._say(self._facts())

    @property
    def _processes(self) -> Message:
        """The state of the processes as they are now."""
        pool = self._pool
        return {"generation": pool.place(0)[1], "pids": list(pool.pids().values())}

    def _facts(self) -> Message:
        group, fingerprint = self._identity()
        versions = self._pool.versions
        return {
            "ready": True,
            **self._processes,
            "supervisor": os.getpid(),
            "niceness": os.getpriority(os.PRIO_PROCESS, 0),
            "group": group,
            "fingerprint": asdict(fingerprint) if self._setup.times else None,
            "versions": {name: versions.get(name, "") for name in _VERSIONS},
        }

    def _identity(self) -> tuple[str, Fingerprint]:
        """Host of what times or builds, and its fingerprint but for the speed."""
        setup, versions = self._setup, self._pool.versions
        compiler = " ".join(str(versions.get(name, "")) for name in _VERSIONS)
        found = host_fingerprint(setup.threads, compiler, setup.protocol, 0.0)
        if setup.device:
            found = evolve(found, device=f"{setup.device}, {found.device}")
        return host_identity(), found

    def _say(self, status: Message) -> None:
        with self._lock:
            self._status = status
            self._is_news = True
        self._notify(self)


def host_identity(root: Path = Path("/")) -> str:
    """The same for all processes of one machine, in containers of it, too."""
    try:
        return (root / "proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


# How often it says that it is there, and how long it waits for a host that asks for nothing.
_HEARTBEAT_SECONDS = 1.0
_ABANDONED_SECONDS = 600.0


class RayActor:
    """The supervisor of one machine, as an actor.

    Args:
        setup: Its :class:`SupervisorSetup` as an object of JSON.
    """

    def __init__(self, setup: str) -> None:
        # Ray has its processes give way to all others of the machine, which would be timed, too.
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, 0)
        self._asked = time.monotonic()
        self._news: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._supervisor = Supervisor(SupervisorSetup(**json.loads(setup)), self._wake)
        threading.Thread(target=self._end_when_abandoned, daemon=True).start()

    async def accept(self, command: bytes, *contents: bytes) -> None:
        """See :meth:`Supervisor.send`."""
        self._supervisor.send(command, contents)

    async def events(self) -> bytes:
        """See :meth:`Supervisor.take`; waits for something to happen, but not for long."""
        self._asked = time.monotonic()
        if self._news is None:
            self._loop, self._news = asyncio.get_running_loop(), asyncio.Event()
        if not self._supervisor.has_news:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._news.wait(), _HEARTBEAT_SECONDS)
        self._news.clear()
        return self._supervisor.take()

    def _wake(self, _supervisor: Supervisor) -> None:
        if self._loop is not None and self._news is not None:
            self._loop.call_soon_threadsafe(self._news.set)

    def _end_when_abandoned(self) -> None:
        """End the process when no host asks any more, as one that was cut off from the cluster."""
        while time.monotonic() - self._asked < _ABANDONED_SECONDS:
            time.sleep(_HEARTBEAT_SECONDS)
        os._exit(0)
