"""An engine without processes: machines answer as they are told to, and misbehave on request."""

from __future__ import annotations

import hashlib
import heapq
import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from itertools import count
from typing import Any

from attrs import evolve

from autotune.measure.engines import (
    ArtefactStore,
    Fingerprint,
    Job,
    Lease,
    LeaseTable,
    Machine,
    MeasureEngine,
    Place,
    Reply,
)
from autotune.measure.engines.ledger import JobLedger

Answer = tuple[float, Reply]
"""Seconds after which a reply comes, and the reply."""

Mischief = Callable[["ScriptedEngine", Job, Reply], Sequence[Answer]]


def fingerprint(device: str = "toy", seconds: float = 1e-3) -> Fingerprint:
    """The fingerprint of a machine that exists in tests only."""
    return Fingerprint(device, 1, "", "toy 1", "warm-3", seconds)


def machine(name: str, made: Fingerprint | None = None, **others: Any) -> Machine:
    """A machine that builds and times, which shares nothing with others."""
    roles = frozenset(("build", "time"))
    return Machine(name, roles, made or fingerprint(), lease_group=name, **others)


class ScriptedEngine(MeasureEngine):
    """Answers by a function of the candidate.

    Args:
        machines: Those that take part.
        latency: Seconds of a candidate, from its JSON form (None is the untuned program).
        seconds: How long each time job takes by the clock of this process.
        mischief: Asked for each job with its honest answer; returns what arrives instead.
    """

    name = "scripted"

    def __init__(
        self,
        machines: Sequence[Machine],
        latency: Callable[[Any], float],
        *,
        seconds: float = 0.0,
        mischief: Callable[[ScriptedEngine, Job, Reply], Sequence[Answer]] | None = None,
        simulates: bool = True,
    ) -> None:
        self.present = {it.name: it for it in machines}
        self.timed_on: list[str] = []
        self.speeds: dict[str, float] = {}
        self._simulates = simulates
        self._latency = latency
        self._seconds = seconds
        self._mischief = mischief or (lambda _engine, _job, reply: [(0.0, reply)])
        self._ledger = JobLedger(self.name)
        self.leases = LeaseTable()
        self._held: dict[Place, dict[int, float]] = {}
        self._due: list[tuple[float, int, int, Reply]] = []
        self._order = count()
        self._store: ArtefactStore | None = None

    @property
    def simulates(self) -> bool:
        return self._simulates

    @property
    def versions(self) -> Mapping[str, str]:
        return {"backend_version": "1", "compiler_version": "toy 1"}

    def start(self, artefacts: ArtefactStore) -> None:
        self._store = artefacts

    def machines(self) -> Sequence[Machine]:
        return [self.present[name] for name in sorted(self.present)] if self._store else []

    def restart(self, name: str) -> None:
        """Replace the process that times on a machine."""
        was = self.present[name]
        self.present[name] = evolve(was, incarnation=was.incarnation + 1)

    def leave(self, name: str) -> None:
        """Take a machine away."""
        del self.present[name]
        self.leases.drop(name)

    def tell(
        self, task: str, message: Any, artefacts: Sequence[str] = (), *, replace: bool = False
    ) -> None:
        assert self._store is not None and all(self._store.has(it) for it in artefacts)

    def release(self, task: str) -> None:
        """Nothing is kept."""

    def submit(self, job: Job) -> Future[Reply]:
        number, future = self._ledger.open()
        honest = self._answer(job)
        wait = self._seconds if job.place is not None and honest.kind == "done" else 0.0
        for delay, reply in self._mischief(self, job, honest):
            due = time.monotonic() + wait + delay
            heapq.heappush(self._due, (due, next(self._order), number, reply))
        return future

    def _answer(self, job: Job) -> Reply:
        message, store = job.message, self._store
        if store is None:
            return Reply("again")
        if job.place is None:
            text = json.dumps(message["candidate"], sort_keys=True)
            digest = hashlib.sha256(text.encode()).hexdigest()[:16]
            body = {
                "artefact": store.add_bytes(text.encode()),
                "lowered": digest,
                "binary": digest,
                "timings": {"build": 0.001},
                "span": [0.0, 0.001],
                "readings": {},
                "warnings": [],
            }
            return Reply("done", body=body)
        there = self.present.get(str(job.place[0]))
        if there is None or there.place != job.place or not self.leases.renew(there.name):
            return Reply("again", job.place)
        held = self._held.setdefault(there.place, {})
        if message["op"] == "forget":
            return Reply("done", there.place)
        if message["op"] == "run":
            candidate = json.loads(store.content(message["artefact"]))
            held[message["number"]] = self._latency(candidate)
        self.timed_on.append(there.name)
        if message["number"] not in held:
            why = f"program {message['number']} is not held"
            return Reply("failed", there.place, message=why)
        seconds = held[message["number"]]
        body = {"samples": [seconds] * message.get("count", 3), "calls": 1}
        if message["op"] == "run":
            body |= {"timings": {"build": 0.001, "run": 0.001}, "readings": {}, "warnings": []}
        return Reply("done", there.place, body=body)

    def poll(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while True:
            while self._due and self._due[0][0] <= time.monotonic():
                _, _, number, reply = heapq.heappop(self._due)
                self._ledger.answer(number, reply)
            if self._ledger.deliver() or time.monotonic() >= end:
                return
            time.sleep(min(0.001, max(0.0, end - time.monotonic())))

    def lease(self, machine: str, seconds: float) -> Lease | None:
        there = self.present.get(machine)
        if there is None:
            return None
        token = self.leases.acquire(there.lease_group, machine, seconds)
        return None if token is None else Lease(self, machine, token)

    def holds_lease(self, lease: Lease) -> bool:
        return self.leases.holds(lease.token)

    def release_lease(self, lease: Lease) -> None:
        self.leases.release(lease.token)

    def cancel(self) -> None:
        self._due.clear()
        self._ledger.give_back_all()

    def check_speed(self, machine: str) -> float | None:
        return self.speeds.get(machine)

    def take_warnings(self) -> list[str]:
        return self._ledger.take_warnings()

    def close(self) -> None:
        self._store = None
        self.cancel()
