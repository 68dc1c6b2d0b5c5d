"""A cluster whose nodes are threads of this process, with faults on the way that tests ask for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from attrs import define, field

from autotune.measure.engines.supervised import Node, OnEvent
from autotune.measure.engines.supervisor import Supervisor, SupervisorSetup

Fault = Callable[[bytes], Sequence[bytes]]
"""Function from an event to what arrives of it: nothing, the same twice, or another one."""


def unchanged(data: bytes) -> Sequence[bytes]:
    """Every event arrives once."""
    return [data]


@define(eq=False)
class ThreadHandle:
    """A supervisor in this process."""

    cluster: ThreadCluster
    node: Node
    setup: SupervisorSetup
    on_event: OnEvent
    news: threading.Event = field(factory=threading.Event)
    is_over: bool = False
    is_dead: bool = False
    frozen: threading.Event = field(factory=threading.Event)
    supervisor: Supervisor = field(init=False)
    # Held while an event is on its way: none is once it is frozen or dead.
    _carrying: threading.Lock = field(factory=threading.Lock)

    def __attrs_post_init__(self) -> None:
        self.supervisor = Supervisor(self.setup, lambda _: self.news.set())
        threading.Thread(target=self._carry, daemon=True).start()

    def send(self, command: bytes, contents: Sequence[object]) -> None:
        if not self.is_over:
            self.supervisor.send(command, contents)

    def kill(self) -> None:
        if not self.is_over:
            self.is_over = True
            threading.Thread(target=self.supervisor.close, daemon=True).start()

    def freeze(self) -> None:
        """Keep what it has to say from now on."""
        with self._carrying:
            self.frozen.set()

    def die(self, why: str = "the actor died") -> None:
        """End as a process that was killed, which says nothing more."""
        with self._carrying:
            self.is_dead = True
        self.kill()
        self.on_event(b"", why)

    def _carry(self) -> None:
        while not self.is_over:
            self.news.wait(0.5)
            self.news.clear()
            while self.frozen.is_set():
                self.news.wait(0.05)
            with self._carrying:
                if self.frozen.is_set() or self.is_dead:
                    continue
                for arrived in self.cluster.fault(self.supervisor.take()):
                    self.on_event(arrived, "")


class ThreadCluster:
    """Nodes that tests add and remove.

    Args:
        names: Of the first nodes.
    """

    name = "threads"
    is_here = False

    def __init__(self, names: Sequence[str] = ("one",)) -> None:
        self.present = [Node(name, 1) for name in names]
        self.handles: list[ThreadHandle] = []
        self.fault: Fault = unchanged
        self.supervisor_of: Callable[[SupervisorSetup], SupervisorSetup] = lambda setup: setup

    def connect(self) -> None:
        """Do nothing: there is nothing to join."""

    def nodes(self) -> Sequence[Node]:
        return list(self.present)

    def supervise(
        self, node: Node, setup: SupervisorSetup, cpus: int, gpus: int, on_event: OnEvent
    ) -> ThreadHandle:
        handle = ThreadHandle(self, node, self.supervisor_of(setup), on_event)
        self.handles.append(handle)
        return handle

    def put(self, content: bytes) -> object:
        return content

    def close(self) -> None:
        for handle in self.handles:
            handle.kill()
            handle.frozen.clear()
            handle.supervisor._thread.join(30)

    def living(self, *, times: bool) -> list[ThreadHandle]:
        """Supervisors that have not been killed."""
        return [it for it in self.handles if it.setup.times == times and not it.is_over]
