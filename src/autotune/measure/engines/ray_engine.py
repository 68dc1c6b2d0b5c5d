"""The engine ``ray``: the machines of a Ray cluster."""

from __future__ import annotations

import importlib.util
import os
import select
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence

from attrs import asdict, define, field, frozen

from autotune.errors import InvalidValueError, one_line
from autotune.measure.engines.interface import RunnerContext
from autotune.measure.engines.supervised import Node, OnEvent, SupervisedEngine
from autotune.measure.engines.supervisor import SupervisorSetup
from autotune.plugins.installing import install_extra
from autotune.plugins.options import option, read_options
from autotune.process.channel import ATTACHMENTS, Message
from autotune.process.errors import WorkerStartFailed
from autotune.process.private_folder import PrivateFolder, make_private_folder
from autotune.process.processes import ready
from autotune.process.worker_process import WorkerDied, WorkerProcess

__all__ = ["RayCluster", "RayOptions", "make_ray_engine"]


@frozen
class RayOptions:
    """Options of the runner ``ray``.

    Attributes:
        address: ``auto`` for the cluster that runs on this machine, or ``HOST:PORT`` of its head.
        num_workers: Most machines that time; 0 for all.
        builders: Processes that build on each node; 0 for one per processor that it offers.
        silence: Seconds after which a machine that sends nothing is given up.
    """

    address: str = option("auto")
    num_workers: int = option(0, low=0, high=100_000)
    builders: int = option(0, low=0, high=256)
    silence: float = option(30.0, low=2.0, high=86_400.0)


def make_ray_engine(context: RunnerContext) -> SupervisedEngine:
    """The runner ``ray`` of a run.

    Raises:
        InvalidValueError: an option is unknown or has no such value.
    """
    options = read_options("runner 'ray'", RayOptions, context.options)
    return SupervisedEngine(
        context,
        RayCluster(check_address(options.address)),
        builders=options.builders,
        timers=options.num_workers,
        silence=options.silence,
    )


_MODULE = "autotune.measure.engines.ray_process"
_STALE_SECONDS = 60.0
_REACH_SECONDS, _JOIN_SECONDS, _LEAVE_SECONDS = 5.0, 45.0, 10.0
_POLL_SECONDS = 0.05
_PIECE_BYTES = 8 << 20
_AUTO = "auto"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def check_address(address: str) -> str:
    """An address that Ray can be given.

    Raises:
        InvalidValueError: it is neither ``auto`` nor ``HOST:PORT``.
    """
    host, _, port = address.rpartition(":")
    is_pair = bool(host) and "/" not in host and port.isdigit() and 0 < int(port) < 1 << 16
    if address != _AUTO and not is_pair:
        raise InvalidValueError(
            f"the address of a Ray cluster is {_AUTO!r}, for one that runs on this machine, or "
            f"HOST:PORT of its head, such as '127.0.0.1:6379', not {address!r}"
        )
    return address


@define(eq=False)
class _Content:
    """Content that can be sent any number of times; travels to Ray's driver before the first."""

    number: int
    content: bytes | None


@define(eq=False)
class _Link:
    """The process that is a driver of Ray, and a thread that hears what it says.

    Attributes:
        process: The process.
        folder: Of its temporary files.
        nodes: As it said last.
        seen: When.
        unreachable: Why it could not say so since.
        gone: How the process ended; "" as long as it runs.
        listeners: Who is told what an actor says, by number.
        dropped: Numbers of contents that nobody needs any more.
    """

    process: WorkerProcess
    folder: PrivateFolder
    nodes: list[Node] = field(factory=list)
    seen: float = 0.0
    unreachable: str = ""
    gone: str = ""
    listeners: dict[int, OnEvent] = field(factory=dict)
    dropped: deque[int] = field(factory=deque)
    numbers: int = 0
    is_over: bool = False
    thread: threading.Thread | None = None
    # The thread that hears of the end closes what the other writes to.
    _using: threading.Lock = field(factory=threading.Lock)

    def start(self) -> None:
        """Hear what it says from now on."""
        self.thread = threading.Thread(target=self._hear, name="ray", daemon=True)
        self.thread.start()

    def next_number(self) -> int:
        """Return a number that names something new."""
        self.numbers += 1
        return self.numbers

    def send(self, message: Mapping[str, object], attachments: Sequence[bytes] = ()) -> None:
        """Have the process do something, unless it has ended."""
        dropped = [self.dropped.popleft() for _ in range(len(self.dropped))]
        whole: Message = {**message, "dropped": dropped}
        if attachments:
            whole[ATTACHMENTS] = list(attachments)
        try:
            with self._using:
                self.process.send(whole)
        except WorkerDied as error:
            self.gone = self.gone or str(error)

    def put(self, content: _Content) -> None:
        """Have Ray keep a content, unless it does already: in pieces, as messages are limited."""
        data, content.content = content.content, None
        if data is None:
            return
        for begin in range(0, len(data) or 1, _PIECE_BYTES):
            piece = data[begin : begin + _PIECE_BYTES]
            is_last = begin + _PIECE_BYTES >= len(data)
            self.send({"do": "put", "content": content.number, "is_last": is_last}, [piece])

    def end(self) -> None:
        """Leave the cluster."""
        if self.thread is not None:
            if self.seen:
                self.send({"do": "leave"})
                self.thread.join(_LEAVE_SECONDS)
            self.is_over = True
            self.thread.join()
        self.process.end()
        self.folder.remove()

    def _hear(self) -> None:
        while not self.is_over:
            ready(self.process.fileno(), select.POLLIN, _POLL_SECONDS)
            try:
                with self._using:
                    messages = self.process.receive()
            except WorkerDied as error:
                self.gone = self.gone or str(error)
                return
            for message in messages:
                self._take(message)

    def _take(self, message: Message) -> None:
        if "failed" in message:
            self.gone = self.gone or str(message["failed"])
            return
        said = message["done"]
        if "nodes" in said:
            self.nodes, self.seen = [Node(**it) for it in said["nodes"]], time.monotonic()
        elif "unreachable" in said:
            self.unreachable = said["unreachable"]
        else:
            listener = self.listeners.get(said["actor"])
            if listener is not None:
                listener(message[ATTACHMENTS][0], said["end"])


@define(eq=False)
class _Handle:
    """An actor."""

    link: _Link
    number: int

    def send(self, command: bytes, contents: Sequence[object]) -> None:
        those = [it for it in contents if isinstance(it, _Content)]
        for it in those:
            self.link.put(it)
        numbers = [it.number for it in those]
        self.link.send({"do": "send", "actor": self.number, "contents": numbers}, [command])

    def kill(self) -> None:
        self.link.listeners.pop(self.number, None)
        self.link.send({"do": "kill", "actor": self.number})


class RayCluster:
    """A Ray cluster that runs already. None is started here.

    Args:
        address: ``auto`` or ``HOST:PORT``.
    """

    name = "ray"
    is_here = False

    def __init__(self, address: str = _AUTO) -> None:
        self._address = check_address(address)
        self._link: _Link | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the driver of Ray; None while there is none."""
        return None if self._link is None else self._link.process.pid

    def connect(self) -> None:
        """See :class:`~autotune.measure.engines.supervised.Cluster`."""
        if importlib.util.find_spec("ray") is None:
            raise WorkerStartFailed(
                f"runner 'ray' needs Ray, which is not installed: run {install_extra('ray')}"
            )
        host = self._address.rpartition(":")[0].strip("[]")
        if host:
            self._reach(host)
        link = self._start(host)
        try:
            self._join(link)
        except BaseException:
            link.end()
            raise
        self._link = link

    def _reach(self, host: str) -> None:
        """Ray waits for minutes where nothing listens."""
        port = int(self._address.rpartition(":")[2])
        try:
            socket.create_connection((host, port), _REACH_SECONDS).close()
        except OSError as error:
            raise WorkerStartFailed(
                f"no Ray cluster answers at {self._address!r} (--ray-address): "
                f"{error.strerror or error}"
            ) from error

    def _start(self, host: str) -> _Link:
        environment = {"RAY_USAGE_STATS_ENABLED": "0"}
        if host in _LOOPBACK:
            # Otherwise Ray takes this for the address of the network.
            environment["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        own = {name: text for name, text in environment.items() if name not in os.environ}
        options = {"address": self._address, "temporary": os.environ.get("TMPDIR", "/tmp")}
        folder = make_private_folder()
        try:
            # Ray maps more than it uses: no limit of its own.
            process = WorkerProcess(_MODULE, options, 1, own, 0, folder.path / "ray")
        except BaseException:
            folder.remove()
            raise
        link = _Link(process, folder)
        link.start()
        return link

    def _join(self, link: _Link) -> None:
        end = time.monotonic() + _JOIN_SECONDS
        while not link.seen:
            if link.gone or time.monotonic() > end:
                why = one_line(link.gone, 300) or f"it does not answer within {_JOIN_SECONDS:g} s"
                raise WorkerStartFailed(
                    f"there is no Ray cluster at {self._address!r} that can be joined: {why}; "
                    "start one with `ray start --head --node-ip-address=127.0.0.1`, or name "
                    "another one with --ray-address HOST:PORT"
                )
            time.sleep(_POLL_SECONDS)

    def nodes(self) -> Sequence[Node]:
        """See :class:`~autotune.measure.engines.supervised.Cluster`."""
        link = self._link
        if link is None:
            return []
        if link.gone:
            raise WorkerStartFailed(
                f"the Ray cluster at {self._address!r} is gone, or what Ray has running on this "
                f"machine (Ray's driver: {one_line(link.gone.splitlines()[0], 200)}); the same "
                "command continues the run when it is back"
            )
        if time.monotonic() - link.seen > _STALE_SECONDS:
            why = f": {link.unreachable}" if link.unreachable else ""
            raise WorkerStartFailed(
                f"the head of the Ray cluster at {self._address!r} has said nothing for "
                f"{_STALE_SECONDS:g} s{one_line(why, 200)}; the same command continues the run "
                "when it is back"
            )
        return link.nodes

    def supervise(
        self, node: Node, setup: SupervisorSetup, cpus: int, gpus: int, on_event: OnEvent
    ) -> _Handle:
        """See :class:`~autotune.measure.engines.supervised.Cluster`."""
        link = self._connected
        number = link.next_number()
        link.listeners[number] = on_event
        where = node.name.rpartition("/")[2]
        asked = {"actor": number, "node": where, "cpus": cpus, "gpus": gpus}
        link.send({"do": "supervise", "setup": asdict(setup), **asked})
        return _Handle(link, number)

    def put(self, content: bytes) -> object:
        """See :class:`~autotune.measure.engines.supervised.Cluster`."""
        link = self._connected
        found = _Content(link.next_number(), content)
        weakref.finalize(found, link.dropped.append, found.number).atexit = False
        return found

    def close(self) -> None:
        """See :class:`~autotune.measure.engines.supervised.Cluster`."""
        link, self._link = self._link, None
        if link is not None:
            link.end()

    @property
    def _connected(self) -> _Link:
        if self._link is None:
            raise WorkerStartFailed("the Ray cluster has not been joined, or was left")
        return self._link
