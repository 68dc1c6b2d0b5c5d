"""Workers that only pretend: programs of known speed on a machine whose speed changes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import numpy as np
from attrs import define, field

from autotune.ir.workloads import gemm
from autotune.measure.jobs import Job, JobPool, Place, Reply, Steps
from autotune.measure.protocol import MeasureProtocol
from autotune.measure.timing import FirstCall, time_call
from autotune.measure.timing_session import TimingSession
from autotune.measure.trial import Trial
from autotune.process.channel import Message
from autotune.sketches import Candidate, Ordinal, Sketch
from autotune.store.records import Outcome

Slowdown = Callable[[float], float]
_Found = TypeVar("_Found")


def toy_candidate(number: int) -> Candidate:
    """An of a thousand different candidates."""
    space = (Ordinal("tile", tuple(range(1, 1001))),)
    return Candidate(Sketch("toy", gemm(m=8, n=8, k=8), space, (), ()), (number,))


def steady(_now: float) -> float:
    """A machine that is always as fast."""
    return 1.0


def drifting(seed: int, factor: float = 1.6, seconds: float = 0.2) -> Slowdown:
    """A machine that is slower by ``factor`` for random stretches of about ``seconds``."""
    rng = np.random.default_rng(seed)
    ends = np.cumsum(rng.exponential(seconds, 10_000))

    def slowdown(now: float) -> float:
        return factor if int(np.searchsorted(ends, now)) % 2 else 1.0

    return slowdown


@define(eq=False)
class Program:
    """A program of a trial.

    Attributes:
        seconds: What a call takes while the machine is fast.
        worker: Who holds it.
        good_samples: Samples after which something happens to it; None for never.
        then: What: ``crash`` (it raises), ``died`` (it kills its worker), or ``lost`` (its worker
            is killed by somebody else).
        bad_check: Status of the outcome of its check, when that is not ``ok``.
        first_call: By how much the call of its check is slower than others.
    """

    seconds: float
    worker: int = 0
    good_samples: int | None = None
    then: str = "crash"
    bad_check: str = ""
    calls: int = 1
    first_call: float = 1.0


@define(eq=False)
class Machine:
    """Stands for a dispatcher and its workers; time passes only by calls of programs.

    Attributes:
        slowdown: How much slower than at its best the machine is, by time.
        noise: Standard deviation of the logarithm of a sample.
        protocol: How a program is timed when it is checked.
        asked: Operation, trial and placement of everything that was asked, in order.
        deadlines: What was allowed, in the same order.
    """

    slowdown: Slowdown = steady
    noise: float = 0.0
    protocol: MeasureProtocol = field(factory=MeasureProtocol)
    seed: int = 0
    now: float = 0.0
    programs: dict[int, Program] = field(factory=dict)
    asked: list[tuple[str, int, int]] = field(factory=list)
    deadlines: list[Mapping[str, float]] = field(factory=list)
    generations: dict[int, int] = field(factory=dict)
    _rng: np.random.Generator = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def trial(self, number: int, program: Program, *, baseline: bool = False) -> Trial:
        """A trial whose program is built and held."""
        trial = Trial(number, None if baseline else toy_candidate(number))
        self.programs[number] = program
        self.hold(trial)
        return trial

    def hold(self, trial: Trial) -> None:
        """Pretend that its program was built."""
        worker = self.programs[trial.number].worker
        trial.place = worker, self.generations.get(worker, 0)

    def holds(self, place: Place) -> bool:
        return self.generations.get(place[0], 0) == place[1]

    def kill(self, worker: int) -> None:
        """Replace a worker."""
        self.generations[worker] = self.generations.get(worker, 0) + 1

    def carry_out(self, steps: Steps[_Found]) -> _Found:
        """Do all that is asked for; returns what comes out."""
        try:
            job = next(steps)
            while True:
                job = steps.send(self.ask(job))
        except StopIteration as end:
            return cast(_Found, end.value)

    def ask(self, job: Job) -> Reply:
        message, deadlines, place = job.message, job.deadlines, job.place
        assert place is not None
        program = self.programs[message["number"]]
        self.asked.append((message["op"], message["number"], message.get("placement", 0)))
        self.deadlines.append(deadlines)
        if message["op"] == "run":
            return self._check(message, program, place)
        samples = []
        for _ in range(message["count"]):
            if program.good_samples is not None:
                if program.good_samples == 0:
                    return self._fail(program, place)
                program.good_samples -= 1
            samples.append(self._call(program, program.calls))
        return Reply("done", place, body={"samples": samples, "calls": program.calls})

    def _check(self, message: Message, program: Program, place: Place) -> Reply:
        if program.bad_check:
            outcome = Outcome(program.bad_check, message="scripted")
            return Reply("done", place, body={"outcome": outcome.to_json()})
        timed = _Timed(self, program)
        user = self._call(program, 1)
        first = FirstCall(program.first_call * user, user)
        self.now += first.seconds - user
        samples = time_call(timed, self.protocol, message["incumbent"], first)
        program.calls = timed.calls
        body = {
            "samples": samples,
            "calls": timed.calls,
            "timings": {"run": 1.0},
            "readings": {},
        }
        return Reply("done", place, body=body)

    def _fail(self, program: Program, place: Place) -> Reply:
        if program.then == "crash":
            outcome = Outcome("crash", message="scripted")
            return Reply("done", place, body={"outcome": outcome.to_json()})
        self.kill(program.worker)
        return Reply(program.then, place, "run", 1.0, message="killed by SIGKILL")

    def _call(self, program: Program, number: int) -> float:
        noise = float(np.exp(self._rng.normal(0.0, self.noise))) if self.noise else 1.0
        seconds = program.seconds * self.slowdown(self.now) * noise
        self.now += seconds * number
        return seconds


@define
class _Timed:
    machine: Machine
    program: Program
    calls: int = 1

    def time(self, number: int) -> float:
        self.calls = number
        return self.machine._call(self.program, number)


@define(eq=False)
class Session:
    """A session whose steps a simulated machine carries out at once."""

    machine: Machine
    timing: TimingSession

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.timing, name)
        if not inspect.isgeneratorfunction(found):
            return found
        return lambda *given, **named: self.machine.carry_out(found(*given, **named))


def session(machine: Machine, protocol: MeasureProtocol | None = None, **others: Any) -> Session:
    """A session that times on a machine, by the usual protocol where none is given."""
    pool, rng = cast(JobPool, machine), np.random.default_rng(0)
    return Session(machine, TimingSession(pool, protocol or MeasureProtocol(), rng, **others))
