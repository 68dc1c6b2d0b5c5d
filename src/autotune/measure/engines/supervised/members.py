"""Supervisors as their engine knows them."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define, field

from autotune.measure.engines.fingerprint import Fingerprint
from autotune.measure.engines.interface import Machine
from autotune.measure.engines.supervised.cluster import Node, Supervised
from autotune.measure.engines.supervised.supervisor import SupervisorSetup
from autotune.process.channel import Message, encode

__all__ = ["Member"]


@define(eq=False)
class Member:
    """A supervisor, and those that have taken its place since.

    Attributes:
        name: Of the machine.
        node: Where it is.
        setup: What it is made for.
        handle: The supervisor; None while there is none.
        epoch: Names this supervisor among all of the engine.
        base: Incarnation of its first timing process.
        status: What it said last of its workers.
        jobs: What it has before it: the number of each job, and when it is given up.
        heard: When it said something last.
        drift: See :class:`Machine`.
        failures: How many supervisors in a row have ended before they were ready.
        rests_until: When the next one may be started.
    """

    name: str
    node: Node
    setup: SupervisorSetup
    handle: Supervised | None = None
    epoch: int = 0
    base: int = 0
    status: Message = field(factory=dict)
    jobs: dict[int, float] = field(factory=dict)
    heard: float = 0.0
    drift: float = 1.0
    failures: int = 0
    rests_until: float = 0.0
    _sequence: int = 0

    @property
    def is_ready(self) -> bool:
        """True if it takes jobs."""
        return self.handle is not None and bool(self.status.get("ready"))

    @property
    def group(self) -> str:
        """Names what it shares with others."""
        host = str(self.status.get("group", self.name))
        # GPUs of one host time at the same time; builds of that host disturb neither of them.
        return f"{host} {self.name}" if self.setup.times and self.setup.device else host

    @property
    def generation(self) -> int:
        """Number of times that the first process of this supervisor has been replaced."""
        return int(self.status.get("generation", 0))

    @property
    def incarnation(self) -> int:
        """See :class:`Machine`."""
        return self.base + self.generation

    @property
    def fingerprint(self) -> Fingerprint | None:
        """Of what times."""
        found = self.status.get("fingerprint")
        return Fingerprint(**found) if found else None

    def begin(self, handle: Supervised, epoch: int, now: float) -> None:
        """Have another supervisor from now on."""
        self.base += self.generation + 1 if self.epoch else 0
        self.handle, self.epoch, self.heard = handle, epoch, now
        self.status, self._sequence, self.drift = {}, 0, 1.0

    def send(self, message: Message, contents: Mapping[str, object]) -> None:
        """Command something.

        Args:
            message: What to do.
            contents: What the cluster has for each artefact that it needs.
        """
        if self.handle is None:
            return
        command = {**message, "sequence": self._sequence, "artefacts": list(contents)}
        self._sequence += 1
        self.handle.send(encode(command), list(contents.values()))

    def machine(self) -> Machine:
        """Machine as which it takes part."""
        return Machine(
            self.name,
            frozenset(("time",) if self.setup.times else ("build",)),
            self.fingerprint,
            slots=self.setup.workers,
            lease_group=self.group,
            load=len(self.jobs),
            incarnation=self.incarnation,
            drift=self.drift,
        )
