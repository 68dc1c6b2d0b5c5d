"""Transport of messages between the host and supervisors, and the set of nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from attrs import frozen

from autotune.measure.engines.supervised.supervisor import SupervisorSetup

__all__ = ["Cluster", "Node", "OnEvent", "Supervised"]

OnEvent = Callable[[bytes, str], None]
"""Called on any thread with what :meth:`Supervisor.take` gave, or with why nothing more comes."""


@frozen
class Node:
    """A node that takes part now.

    Attributes:
        name: Unique, and the same as long as it takes part.
        cpus: Processors that it offers.
        gpus: GPUs that it offers.
        gpu_model: What they are; "" where that is not known.
    """

    name: str
    cpus: int
    gpus: int = 0
    gpu_model: str = ""


class Supervised(Protocol):
    """The host's handle of one supervisor."""

    def send(self, command: bytes, contents: Sequence[object]) -> None:
        """See :meth:`Supervisor.accept`; contents are what :meth:`Cluster.put` gave."""

    def kill(self) -> None:
        """End it with all that it has started. It is not waited for."""


class Cluster(Protocol):
    """Nodes, and what starts supervisors there. No supervisor is started or asked again."""

    name: str

    def connect(self) -> None:
        """Join.

        Raises:
            WorkerStartFailed: there is no such cluster; says what was tried.
        """

    def nodes(self) -> Sequence[Node]:
        """Nodes that take part now; returns at once.

        Raises:
            WorkerStartFailed: the cluster is gone.
        """

    def supervise(
        self, node: Node, setup: SupervisorSetup, cpus: int, gpus: int, on_event: OnEvent
    ) -> Supervised:
        """Start a supervisor on a node, and return at once.

        Args:
            node: Where.
            setup: What it is made for.
            cpus: Processors that nothing else of the cluster gets meanwhile.
            gpus: GPUs, likewise.
            on_event: Told what happens, at least every few seconds.
        """

    def put(self, content: bytes) -> object:
        """Have a content ready to be sent any number of times."""

    def close(self) -> None:
        """Leave."""
