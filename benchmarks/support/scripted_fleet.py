"""Races on machines that only wait: how much faster are several of them than one?

Part of ``fleet.py``. The engine is scripted: a job takes the time that it would take on a machine,
and the samples that come back have noise, and a drift that differs from machine to machine. All
else is the product: the measurer, its lanes and races, and the artefacts.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from autotune.measure import Collecting, LocalMeasurer, MeasureProtocol, SharedWorkers
from autotune.measure.engines import (
    ArtefactStore,
    Fingerprint,
    Job,
    Lease,
    LeaseTable,
    Machine,
    MeasureEngine,
    Reply,
)
from autotune.measure.engines.ledger import JobLedger
from autotune.measure.workers import EngineWorkers, WorkerSetup
from autotune.search.search import Window
from autotune.sketches import Candidate
from autotune.store.records import Outcome
from autotune.targets import Target
from autotune.testing.reference_backend import REFERENCE_BACKEND
from autotune.testing.toy_space import ToySpace

# Seconds of jobs, as of small operators on CPUs: loading and checking a program, a turn, a build.
CHECK, TURN, BUILD = 0.06, 0.012, 0.02
NOISE, DRIFT = 0.004, 0.05
# Of the logarithm of the latency: a tenth of all candidates is within 15 % of the best.
SPREAD = 0.5
# Per machine, so that the end, when some have nothing left, is as small a part of all.
CANDIDATES, QUICK_CANDIDATES = 60, 40
ROUND = 16


@dataclass
class Raced:
    """A fleet's throughput.

    Attributes:
        machines: How many time.
        candidates: How many have an outcome.
        seconds: Wall seconds that they took.
        best: True seconds of the one found best, over those of the best of all.
    """

    machines: int
    candidates: int
    seconds: float
    best: float

    @property
    def throughput(self) -> float:
        """Candidates a second."""
        return self.candidates / self.seconds


@dataclass
class WaitingEngine(MeasureEngine):
    """Machines that answer when the time of a job is over, one job at a time each."""

    machine_names: Sequence[str]
    latencies: Mapping[str, float]
    name = "waiting"
    _ledger: JobLedger = field(default_factory=lambda: JobLedger("waiting"))
    _leases: LeaseTable = field(default_factory=LeaseTable)
    _held: dict[tuple[str, int], float] = field(default_factory=dict)
    _free: dict[str, float] = field(default_factory=dict)
    _due: list[tuple[float, int, int, Reply]] = field(default_factory=list)
    _order: Any = field(default_factory=count)
    _rng: Any = field(default_factory=lambda: np.random.default_rng(0))
    _store: ArtefactStore | None = None

    @property
    def simulates(self) -> bool:
        return True

    @property
    def versions(self) -> Mapping[str, str]:
        return {"backend_version": "1", "compiler_version": "waiting 1"}

    def start(self, artefacts: ArtefactStore) -> None:
        self._store = artefacts

    def machines(self) -> Sequence[Machine]:
        print_ = Fingerprint("waiting", 1, "", "waiting 1", "warm-3", 1e-3)
        timers = [
            Machine(name, frozenset(("time",)), print_, lease_group=name)
            for name in self.machine_names
        ]
        # Builds are to be no limit here: each machine that times has one beside it.
        builder = Machine("builder", frozenset(("build",)), slots=len(timers))
        return [builder, *timers] if self._store else []

    def tell(
        self, task: str, message: Any, artefacts: Sequence[str] = (), *, replace: bool = False
    ) -> None:
        """Machines that only wait need no inputs."""

    def release(self, task: str) -> None:
        """Nothing is kept."""

    def submit(self, job: Job) -> Future[Reply]:
        number, future = self._ledger.open()
        reply, seconds = self._reply(job)
        where = "builder" if job.place is None else str(job.place[0])
        begin = time.monotonic()
        if where != "builder":
            begin = max(begin, self._free.get(where, 0.0))
            self._free[where] = begin + seconds
        heapq.heappush(self._due, (begin + seconds, next(self._order), number, reply))
        return future

    def _reply(self, job: Job) -> tuple[Reply, float]:
        message, store = job.message, self._store
        assert store is not None
        if job.place is None:
            text = json.dumps(message["candidate"], sort_keys=True).encode()
            digest = hashlib.sha256(text).hexdigest()[:16]
            body = {
                "artefact": store.add_bytes(text),
                "lowered": digest,
                "binary": digest,
                "timings": {"build": BUILD},
                "span": [0.0, BUILD],
                "readings": {},
                "warnings": [],
            }
            return Reply("done", body=body), BUILD
        name = str(job.place[0])
        if not self._leases.renew(name):
            return Reply("again", job.place), 0.0
        if message["op"] == "forget":
            return Reply("done", job.place), 0.0
        key = (name, message["number"])
        if message["op"] == "run":
            candidate = json.loads(store.content(message["artefact"]))
            self._held[key] = self.latencies[json.dumps(candidate["config"], sort_keys=True)]
        # Each machine drifts by itself, and slowly.
        phase = time.monotonic() + 7.0 * self.machine_names.index(name)
        speed = self._held[key] * (1 + DRIFT * np.sin(phase))
        samples = speed * (1 + NOISE * np.abs(self._rng.standard_normal(message.get("count", 3))))
        body = {"samples": samples.tolist(), "calls": 1}
        if message["op"] == "sample":
            return Reply("done", job.place, body=body), TURN
        body |= {"timings": {"load": CHECK}, "readings": {}, "warnings": []}
        return Reply("done", job.place, body=body), CHECK

    def poll(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while True:
            while self._due and self._due[0][0] <= time.monotonic():
                _, _, number, reply = heapq.heappop(self._due)
                self._ledger.answer(number, reply)
            now = time.monotonic()
            if self._ledger.deliver() or now >= end:
                return
            until = min(end, self._due[0][0]) if self._due else end
            time.sleep(max(0.0, until - now))

    def lease(self, machine: str, seconds: float) -> Lease | None:
        token = self._leases.acquire(machine, machine, seconds)
        return None if token is None else Lease(self, machine, token)

    def holds_lease(self, lease: Lease) -> bool:
        return self._leases.holds(lease.token)

    def release_lease(self, lease: Lease) -> None:
        self._leases.release(lease.token)

    def cancel(self) -> None:
        self._due.clear()
        self._ledger.give_back_all()

    def check_speed(self, machine: str) -> float | None:
        return None

    def close(self) -> None:
        self._store = None
        self.cancel()


def race(machines: int, candidates: int) -> Raced:
    """Measure candidates on so many machines, as a run does."""
    rng = np.random.default_rng(1)
    space = ToySpace(extent=2**5)
    found = {it.digest: it for it in space.sample(2 * candidates, rng)}
    drawn: list[Candidate] = list(found.values())[:candidates]
    seconds = 1e-3 * np.exp(SPREAD * np.abs(rng.standard_normal(len(drawn))))
    latencies = {
        json.dumps(candidate.to_json()["config"], sort_keys=True): float(latency)
        for candidate, latency in zip(drawn, seconds, strict=True)
    }
    engine = WaitingEngine([f"machine {at}" for at in range(machines)], latencies)
    target, workload = Target("cpu", "waiting", cores=1), drawn[0].sketch.workload
    shared, protocol = SharedWorkers(), MeasureProtocol()
    shared.get(
        WorkerSetup(REFERENCE_BACKEND, target, 1, protocol),
        lambda setup, is_late: EngineWorkers(engine, setup, is_late=is_late),
    )
    with LocalMeasurer(
        REFERENCE_BACKEND, target, 1, workload, protocol=protocol, shared=shared
    ) as it:
        it.wait_ready()
        # What others are compared with is there: a run begins once, and is long.
        it.measure(drawn[:1])
        begin = time.monotonic()
        outcomes = collected(it, drawn[1:])
        taken = time.monotonic() - begin
    shared.close()
    best = min((outcome.latency or np.inf, digest) for digest, outcome in outcomes.items())[1]
    true = {candidate.digest: at for candidate, at in zip(drawn, seconds, strict=True)}
    return Raced(machines, len(outcomes), taken, true[best] / min(true.values()))


def collected(measurer: LocalMeasurer, drawn: Sequence[Candidate]) -> dict[str, Outcome]:
    """Outcomes by digest, with as many candidates out as the search has for so many machines."""
    found: dict[str, Outcome] = {}
    if measurer.lanes == 1:
        rounds = [drawn[at : at + ROUND] for at in range(0, len(drawn), ROUND)]
        for round_ in rounds:
            measurer.submit(round_)
        for round_ in rounds:
            outcomes = measurer.collect(Collecting())
            found |= {one.digest: other for one, other in zip(round_, outcomes, strict=True)}
        return found
    left, window = deque(drawn), Window(ROUND)

    def on_known(candidate: Candidate, outcome: Outcome) -> None:
        found[candidate.digest] = outcome
        window.arrive([(candidate, outcome)])

    while left or window.pending:
        while left and window.is_short(measurer.lanes):
            round_ = [left.popleft() for _ in range(min(ROUND, len(left)))]
            measurer.submit(window.add(round_))
        measurer.collect_known(Collecting(), window.missing, on_known)
        window.take_step()
    return found
