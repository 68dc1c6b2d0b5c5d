"""The engine ``local``: supervisors in this process, of builders and of what times."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from attrs import frozen

from autotune.measure.engines.interface import RunnerContext
from autotune.measure.engines.supervised import Node, OnEvent, SupervisedEngine
from autotune.measure.engines.supervisor import Notify, Supervisor, SupervisorSetup
from autotune.measure.pinning import timing_cpus
from autotune.plugins.options import option, read_options
from autotune.process.memory import affordable_workers
from autotune.process.timing_lock import TimingLock

__all__ = ["LocalEngine", "LocalOptions", "ThisMachine"]

_WORKER_BYTES = 1 << 30


@frozen
class LocalOptions:
    """Options of the runner ``local``.

    Attributes:
        builders: Processes that build, apart from the one that times; 0 builds and times in one
            process, which is the usual way on one machine.
    """

    builders: int = option(0, low=0, high=256)


class ThisMachine:
    """A cluster of one node, which is this machine: supervisors are threads of this process."""

    name = "local"
    is_here = True

    def __init__(self) -> None:
        self._node = Node(socket.gethostname() or "this-machine", len(os.sched_getaffinity(0)))
        self._supervisors: list[Supervisor] = []

    def connect(self) -> None:
        """See :class:`~autotune.measure.engines.supervised.Cluster`."""

    def nodes(self) -> Sequence[Node]:
        """See :class:`~autotune.measure.engines.supervised.Cluster`."""
        return [self._node]

    def supervise(
        self, node: Node, setup: SupervisorSetup, cpus: int, gpus: int, on_event: OnEvent
    ) -> Supervisor:
        """See :class:`~autotune.measure.engines.supervised.Cluster`."""
        made = self._make_supervisor(node, setup, lambda it: on_event(it.take(), ""))
        self._supervisors.append(made)
        return made

    def put(self, content: bytes) -> object:
        """See :class:`~autotune.measure.engines.supervised.Cluster`."""
        return content

    def close(self) -> None:
        """Wait for the end of all that was started."""
        supervisors, self._supervisors = self._supervisors, []
        for supervisor in supervisors:
            supervisor.close()

    def _make_supervisor(self, node: Node, setup: SupervisorSetup, notify: Notify) -> Supervisor:
        return Supervisor(setup, notify)


class LocalEngine(SupervisedEngine):
    """Local machine behind the contract of engines.

    Args:
        context: Backend, threads, protocol and options.

    Raises:
        InvalidValueError: an option is unknown or has no such value.
    """

    def __init__(self, context: RunnerContext) -> None:
        options = read_options("runner 'local'", LocalOptions, context.options)
        cpus = len(os.sched_getaffinity(0))
        builders = options.builders or affordable_workers(cpus, _WORKER_BYTES)
        super().__init__(context, ThisMachine(), builders=builders)
        self._leases.lock = TimingLock(() if self.simulates else timing_cpus(context.threads)[0])

    @property
    def on_this_machine(self) -> bool:
        return True
