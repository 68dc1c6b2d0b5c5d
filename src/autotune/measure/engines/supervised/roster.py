"""Which supervisors there are to be, by the nodes that take part."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from autotune.measure.engines.supervised.cluster import Cluster, Node, OnEvent, Supervised
from autotune.measure.engines.supervised.members import Member
from autotune.measure.engines.supervised.supervisor import SupervisorSetup
from autotune.plugins import Context
from autotune.process.errors import WorkerStartFailed

__all__ = ["Roster"]

_MOST_FAILURES = 3
_REST_SECONDS = 1.0


class Roster:
    """The supervisors of an engine: on each node one that builds, and one per device that times.

    Args:
        context: Backend, threads, target and protocol.
        cluster: Starts supervisors.
        builders: Processes that build on each node; 0 for one per processor that it offers.
        timers: Most that time; 0 for all.
    """

    def __init__(self, context: Context, cluster: Cluster, *, builders: int, timers: int) -> None:
        self._context = context
        self._cluster = cluster
        self._builders = builders
        self._timers = timers
        self._members: dict[str, Member] = {}
        self._warnings: dict[str, bool] = {}

    @property
    def members(self) -> list[Member]:
        """All of them, by name."""
        return [self._members[name] for name in sorted(self._members)]

    def of_machine(self, name: str) -> Member | None:
        """The one that is ready as a machine of this name."""
        found = self._members.get(name)
        return found if found is not None and found.is_ready else None

    def of_epoch(self, epoch: int) -> Member | None:
        """The one whose supervisor is this one still."""
        alive = (it for it in self._members.values() if it.handle is not None)
        return next((it for it in alive if it.epoch == epoch), None)

    def builders_on(self, host: str) -> list[Member]:
        """Builders on a host."""
        mine = (it for it in self.members if not it.setup.times)
        return [it for it in mine if it.is_ready and it.status["group"] == host]

    def gone(self, nodes: Sequence[Node]) -> list[Member]:
        """Supervisors whose node takes part no more."""
        names = {node.name for node in nodes}
        return [it for it in self.members if it.node.name not in names]

    def wanting(self, nodes: Sequence[Node], now: float) -> list[Member]:
        """Places that have no supervisor and are to get one now, on new nodes, too.

        Raises:
            WorkerStartFailed: none is left that could be started again.
        """
        for node in sorted(nodes, key=lambda it: it.name):
            self._admit(node)
        members = self.members
        if nodes and not members:
            self._warn(
                f"no node of {self._cluster.name!r} offers a processor or a GPU so far; nodes: "
                f"{', '.join(sorted(it.name for it in nodes))}"
            )
        if members and all(it.failures >= _MOST_FAILURES for it in members):
            raise WorkerStartFailed("; ".join(self._warnings))
        return [
            it
            for it in members
            if it.handle is None and it.failures < _MOST_FAILURES and now >= it.rests_until
        ]

    def start(self, member: Member, on_event: OnEvent) -> Supervised:
        """Start a supervisor for a member."""
        times = member.setup.times
        gpus = 1 if times and member.setup.device else 0
        # What times owns all processors of its node, so that nothing else is run or timed there;
        # builds take none from it, as they are held back meanwhile.
        cpus = member.node.cpus if times and not gpus else 0
        return self._cluster.supervise(member.node, member.setup, cpus, gpus, on_event)

    def take_in(self, member: Member) -> None:
        """Note that a supervisor is ready."""
        member.failures = 0
        niceness = member.status["niceness"]
        mine = os.getpriority(os.PRIO_PROCESS, 0)
        if member.setup.times and niceness > mine:
            self._warn(
                f"machine {member.name!r} gives way to others while it times (niceness "
                f"{niceness}, here {mine}): start its node with RAY_worker_niceness=0 in the "
                "environment"
            )

    def note_waiting(self, member: Member, seconds: float) -> None:
        """Say that a supervisor has not begun for so long: it waits for what it is to own."""
        what = "GPU" if member.setup.device else "processors"
        self._warn(
            f"machine {member.name!r} has not started for {seconds:g} s: it waits for the {what} "
            "of its node, which another run or another user of the cluster has"
        )

    def end(self, member: Member, why: str) -> None:
        """Do without a supervisor that is gone or not to be reached."""
        if member.handle is None:
            return
        member.handle.kill()
        member.handle = None
        member.rests_until = time.monotonic() + _REST_SECONDS
        if not member.status.get("ready"):
            member.failures += 1
        what = "is given up" if member.failures >= _MOST_FAILURES else "is lost"
        self._warn(f"machine {member.name!r} {what}: {why.strip().splitlines()[-1][:300]}")

    def forget(self, member: Member) -> None:
        """Do without a node that has left."""
        self._members.pop(member.name, None)

    def end_all(self) -> None:
        """End every supervisor."""
        for member in self._members.values():
            if member.handle is not None:
                member.handle.kill()
        self._members.clear()

    def take_warnings(self) -> list[str]:
        """Return a line on each supervisor that was lost."""
        new = [message for message, taken in self._warnings.items() if not taken]
        self._warnings.update(dict.fromkeys(new, True))
        return new

    def _admit(self, node: Node) -> None:
        """Have members for a node, unless it offers nothing, as the head of a cluster may."""
        if not node.cpus and not node.gpus:
            return
        builds = f"{node.name} (builds)"
        if builds not in self._members:
            count = self._builders or max(1, node.cpus)
            self._members[builds] = Member(builds, node, self._setup(count, times=False))
        if self._context.target.kind == "cuda":
            model = node.gpu_model or "GPU"
            for number in range(node.gpus):
                self._admit_timer(f"{node.name} gpu {number}", node, model)
        elif node.cpus >= self._context.threads:
            self._admit_timer(node.name, node, "")
        else:
            self._warn(
                f"machine {node.name!r} only builds: it offers {node.cpus} processors, and "
                f"programs use {self._context.threads}"
            )

    def _admit_timer(self, name: str, node: Node, device: str) -> None:
        timers = sum(it.setup.times for it in self._members.values())
        if name not in self._members and not (self._timers and timers >= self._timers):
            self._members[name] = Member(name, node, self._setup(1, times=True, device=device))

    def _setup(self, workers: int, *, times: bool, device: str = "") -> SupervisorSetup:
        context = self._context
        return SupervisorSetup(
            backend=context.backend,
            threads=context.threads,
            protocol=context.protocol.identity,
            deadlines=dict(context.protocol.deadlines),
            workers=workers,
            times=times,
            memory_bytes=context.protocol.memory_bytes,
            device=device,
        )

    def _warn(self, message: str) -> None:
        self._warnings.setdefault(message, False)
