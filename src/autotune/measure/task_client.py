"""Requests of a task to the workers that it shares with others, and its lanes there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
from attrs import define, field, frozen

from autotune.ir.workloads import Workload
from autotune.measure.jobs import Dispatcher, JobPool, Place, Position, Reply
from autotune.measure.protocol import MeasureProtocol
from autotune.measure.timing_session import Carrier, OnComparison, TimingSession
from autotune.measure.trial import Trial, outcome_of
from autotune.measure.validation import ReferenceFiles, reserve_reference
from autotune.measure.workers import MeasureWorkers
from autotune.process.channel import Message
from autotune.process.ending import ending_with
from autotune.store.records import Comparison, Outcome

__all__ = [
    "Building",
    "Span",
    "TaskClient",
    "TaskInputs",
]

_PHASES = ("build", "observe")

Span = tuple[float, float]
"""When something began and ended, in monotonic seconds."""


class Building:
    """Has candidates built on all workers, and notices those that are the same program.

    Args:
        dispatcher: The workers.
        protocol: Deadlines.
    """

    def __init__(self, dispatcher: Dispatcher, protocol: MeasureProtocol) -> None:
        self._dispatcher = dispatcher
        self._deadlines = {phase: protocol.deadlines[phase] for phase in _PHASES}
        self._by_program: dict[str, Trial] = {}
        self._in_flight: set[int] = set()
        self._spans: list[Span] = []

    def add(self, trials: Sequence[Trial]) -> None:
        """Begin to build; returns at once."""
        for trial in trials:
            self._post(trial)
        self._dispatcher.pump(0.0)

    def begin(self, trials: Sequence[Trial]) -> None:
        """As :meth:`request`, and workers that wait for something begin now."""
        self.request(trials)
        self._dispatcher.pump(0.0)

    def await_all(self, trials: Sequence[Trial]) -> None:
        """Wait until each has an outcome, an original, or a living worker that holds it."""
        while not all(map(self.is_settled, trials)):
            self.attend(trials)

    def attend(self, trials: Sequence[Trial]) -> None:
        """Wait until something may have happened; what was lost with its worker is rebuilt."""
        self.request(trials)
        self._dispatcher.pump()

    def request(self, trials: Sequence[Trial]) -> None:
        """Begin to build what is neither built nor being built; returns at once."""
        for trial in trials:
            if not self.is_settled(trial) and trial.number not in self._in_flight:
                if trial.place is not None:
                    trial.lose(blame=False)
                if trial.outcome is not None:
                    continue
                if trial.device_program is not None:
                    # It is built, and the process that was to run it has been replaced.
                    trial.place = self._dispatcher.pool.device_place
                else:
                    self._post(trial)

    def is_settled(self, trial: Trial) -> bool:
        """Return whether nothing has to be built for a trial any more."""
        if trial.outcome is not None or trial.duplicate_of is not None:
            return True
        return trial.place is not None and self._dispatcher.pool.holds(trial.place)

    def reassign_duplicate(self, trial: Trial) -> None:
        """Do not take the outcome of the original, which is inconclusive.

        The first trial that this happens to is measured itself, for all that come after it.
        """
        trial.duplicate_of = None
        self._assign_duplicate(trial)
        # Workers that know the program must compile it all the same.
        trial.always = trial.duplicate_of is None

    @staticmethod
    def measured_later(trial: Trial, among: Sequence[Trial]) -> bool:
        """Tell if what is measured instead of a trial is none of these and has no outcome yet.

        Builds of a later batch may end before those of an earlier one.
        """
        original = trial.duplicate_of
        return original is not None and original.outcome is None and original not in among

    def take_over(self, trial: Trial) -> None:
        """Measure a trial itself, and what was to be measured instead takes its outcome."""
        original = trial.duplicate_of
        if original is None:
            return
        if original.duplicate_of is not None:
            trial.duplicate_of = original.duplicate_of
            return
        trial.duplicate_of, original.duplicate_of = None, trial
        for digest in filter(None, (trial.lowered, trial.binary)):
            self._by_program[digest] = trial
        trial.always = trial.always or trial.place is None

    def abandon(self) -> None:
        """Mark all that was submitted as abandoned."""
        for trial in self._by_program.values():
            trial.abandoned = trial.outcome is None

    def take_spans(self) -> list[Span]:
        """When workers were compiling, since the last call."""
        spans, self._spans = self._spans, []
        return spans

    def _post(self, trial: Trial) -> None:
        self._in_flight.add(trial.number)
        report = partial(self._built, trial)
        self._dispatcher.post(trial.build_message(), self._deadlines, report)

    def _built(self, trial: Trial, reply: Reply) -> None:
        self._in_flight.discard(trial.number)
        body = reply.body
        if reply.kind in ("lost", "again"):
            trial.lose(blame=reply.kind == "lost")
        elif reply.kind != "done":
            trial.take(outcome_of(reply))
        elif "outcome" in body:
            trial.take(Outcome.from_json(body["outcome"]))
        elif "duplicate" in body:
            trial.lowered = body["duplicate"]
            self._assign_duplicate(trial)
            # What the worker knows may be this trial itself, from before its worker was lost.
            trial.always = trial.duplicate_of is None
        else:
            began, ended = body["span"]
            self._spans.append((began, ended))
            trial.timings = dict(body["timings"])
            trial.readings = dict(body["readings"])
            trial.lowered, trial.binary = body["lowered"], body["binary"]
            trial.device_program = body.get("device_program")
            shipped = trial.device_program is not None
            trial.place = self._dispatcher.pool.device_place if shipped else reply.place
            self._assign_duplicate(trial)

    def _assign_duplicate(self, trial: Trial) -> None:
        if trial.is_baseline:
            # Baselines are measured in a way of their own: no candidate duplicates them.
            return
        digests = [digest for digest in (trial.lowered, trial.binary) if digest]
        for digest in digests:
            known = self._by_program.get(digest)
            if known is None or known.is_inconclusive:
                self._by_program[digest] = trial
        originals = [self._by_program[digest] for digest in digests]
        # An original may itself duplicate the one that is measured.
        measured = [it.duplicate_of or it for it in originals]
        if not trial.always:
            trial.duplicate_of = next((it for it in measured if it is not trial), None)


# How long the host's thread waits for replies before it looks for what lanes ask, and how long
# for the next job of a lane that has just got a reply.
_PUMP_SECONDS = 0.002
_NEXT_JOB_SECONDS = 0.0005


@define(eq=False)
class _Asked:
    """A job that a lane waits for."""

    message: Message
    deadlines: Mapping[str, float]
    place: Place
    answered: threading.Event = field(factory=threading.Event)
    reply: Reply | None = None

    def answer(self, reply: Reply) -> None:
        self.reply = reply
        self.answered.set()


@define(eq=False)
class LaneDispatcher:
    """Interface of a dispatcher to a session, on the thread of a lane.

    Attributes:
        dispatcher: That of the host's thread.
        asked: What lanes have asked and nobody has taken yet.
        stopped: Whether every job is answered with ``again``.
    """

    dispatcher: Dispatcher
    asked: SimpleQueue[_Asked] = field(factory=SimpleQueue)
    stopped: bool = False
    _open: set[_Asked] = field(factory=set)
    _answered: int = 0

    @property
    def pool(self) -> JobPool:
        """Workers that do the jobs."""
        return self.dispatcher.pool

    def ask(self, message: Message, deadlines: Mapping[str, float], place: Place) -> Reply:
        """As :meth:`Dispatcher.ask`, while the host's thread is in :meth:`serve`."""
        asked = _Asked(message, deadlines, place)
        self.asked.put(asked)
        asked.answered.wait()
        return asked.reply or Reply("again", place)

    def settle_down(self) -> None:
        """Nothing to wait for: what ends on one machine disturbs no other."""

    def serve(self) -> None:
        """Hand on what lanes have asked, and deliver replies; on the host's thread."""
        self._hand_on()
        self._answered = 0
        self.dispatcher.pump(_PUMP_SECONDS)
        # Lanes that have a reply ask for the next job at once: their machines are not to wait.
        for _ in range(self._answered):
            try:
                self._post(self.asked.get(timeout=_NEXT_JOB_SECONDS))
            except Empty:
                break
        self._hand_on()

    def stop(self) -> None:
        """Answer everything with ``again``, from now on."""
        self.stopped = True
        for asked in list(self._open):
            asked.answer(Reply("again", asked.place))
        self._open.clear()
        self._hand_on()

    def _hand_on(self) -> None:
        while not self.asked.empty():
            self._post(self.asked.get())

    def _post(self, asked: _Asked) -> None:
        if self.stopped:
            asked.answer(Reply("again", asked.place))
            return
        self._open.add(asked)
        self.dispatcher.post(asked.message, asked.deadlines, self._answering(asked), asked.place)

    def _answering(self, asked: _Asked) -> Callable[[Reply], None]:
        def answer(reply: Reply) -> None:
            self._answered += 1
            self._open.discard(asked)
            asked.answer(reply)

        return answer


@define(eq=False)
class _Lane:
    """A machine with its own session.

    Attributes:
        session: Holds the copy of the best candidate.
        trials: What is checked and takes its turns now.
        thread: Waits for the replies meanwhile.
        compared: Comparisons that nobody has been told of.
        unable: Number of a program that fails as a copy here.
        error: What the thread has raised.
    """

    session: TimingSession
    trials: list[Trial] = field(factory=list)
    thread: threading.Thread | None = None
    compared: list[tuple[str, str, Comparison, bool]] = field(factory=list)
    unable: int | None = None
    error: BaseException | None = None


class Lanes:
    """The lanes of one task, which race candidates on several equal machines at the same time.

    Each machine has a lane: a session of its own, with a copy of the best candidate. A few
    candidates are checked there and take their turns with that copy, so that a race belongs to one
    machine, whose drift it cancels; races of different candidates are on different machines. The
    best one travels to a machine once. What beats the copy in one lane is the best one of all
    lanes, unless another lane has found a faster one meanwhile; each lane follows before it begins
    its next candidate.

    A lane waits for its replies on a thread of its own; all that the threads ask goes through the
    host's thread, which alone talks to machines.

    Args:
        dispatcher: Of the task.
        first: The session whose best program is that of all lanes.
        new_session: Starts the session of the lane with a number; a dispatcher carries its jobs.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        first: TimingSession,
        new_session: Callable[[Carrier, int], TimingSession],
    ) -> None:
        self._dispatcher = dispatcher
        self._first = first
        self._new_session = new_session
        self._carrier = LaneDispatcher(dispatcher)
        self._lanes: dict[Position, _Lane] = {}
        self._ended: SimpleQueue[_Lane] = SimpleQueue()
        self._resting = threading.Event()

    @property
    def count(self) -> int:
        """Number of machines that time."""
        return len(self._dispatcher.pool.lanes)

    @property
    def is_used(self) -> bool:
        """True if anything has been timed here."""
        return bool(self._lanes)

    @property
    def busy(self) -> bool:
        """True if anything is being timed."""
        return any(lane.trials for lane in self._lanes.values())

    def is_timing(self, trial: Trial) -> bool:
        """Return whether a trial is being timed."""
        return any(trial in lane.trials for lane in self._lanes.values())

    def idle(self) -> list[Position]:
        """Positions that can begin something, beside the best program that there is."""
        leader = self._first.leader
        found = []
        for position in self._dispatcher.pool.lanes:
            lane = self._lanes.get(position)
            is_able = lane is None or leader is None or lane.unable != leader.number
            if is_able and (lane is None or not lane.trials):
                found.append(position)
        return found

    @property
    def are_unable(self) -> bool:
        """True if the best program fails on every machine, and is no measure for others."""
        leader, positions = self._first.leader, self._dispatcher.pool.lanes
        known = [self._lanes[it].unable for it in positions if it in self._lanes]
        return (
            leader is not None
            and len(known) == len(positions) > 0
            and all(number == leader.number for number in known)
        )

    def begin(self, position: Position, trials: Sequence[Trial]) -> bool:
        """Check and time built programs on a machine, which must be idle; returns at once.

        Returns:
            Whether it has begun; not where the machine is gone or may not time now.
        """
        leader, pool = self._first.leader, self._dispatcher.pool
        place = pool.place_at(position)
        if leader is None or place is None or not pool.try_lease(position):
            return False
        for trial in trials:
            trial.place = place
        lane = self._lanes.get(position)
        if lane is None:
            lane = self._lanes[position] = _Lane(
                self._new_session(self._carrier, len(self._lanes))
            )
        lane.session.carried_by(self._carrier)
        lane.trials, lane.unable = list(trials), None
        lane.thread = threading.Thread(
            target=self._time,
            args=(lane, lane.trials, leader, self._first.latency),
            name=f"lane {position}",
            daemon=True,
        )
        lane.thread.start()
        return True

    def serve(self, on_comparison: OnComparison | None = None) -> list[Trial]:
        """Carry jobs and replies for a moment; returns the trials that lanes are done with.

        One that its machine has lost has no outcome then, and is to be timed again.
        """
        self._carrier.serve()
        return self._taken(on_comparison)

    def rest(self, on_comparison: OnComparison | None = None) -> list[Trial]:
        """Wait until every lane is done with the candidate that it is at.

        Returns:
            What lanes had; what they have not begun has no outcome.
        """
        done: list[Trial] = []
        self._resting.set()
        try:
            while self.busy:
                done += self.serve(on_comparison)
        finally:
            self._resting.clear()
        self.release_leases()
        return done

    def release_leases(self) -> None:
        """Let the machines of idle lanes do other things, such as builds."""
        for position, lane in self._lanes.items():
            if not lane.trials:
                self._dispatcher.pool.end_lease(position)

    def stop(self) -> None:
        """End all lanes at once: what they have not finished loses its place."""
        self._carrier.stop()
        for lane in self._lanes.values():
            while lane.thread is not None and lane.thread.is_alive():
                self._carrier.stop()
                lane.thread.join(_PUMP_SECONDS)
            # What was timed, and was about to take turns, keeps what it seemed to take.
            lane.session.finish_early()
            lane.trials, lane.thread, lane.error = [], None, None
            lane.compared.clear()
        self._ended = SimpleQueue()
        self._carrier = LaneDispatcher(self._dispatcher)

    def forget(self) -> None:
        """Forget the copies: machines have been given other inputs."""
        for lane in self._lanes.values():
            lane.session.lead(None)

    def _time(self, lane: _Lane, trials: list[Trial], leader: Trial, latency: float) -> None:
        """On the thread of a lane: all that is done with some trials on its machine."""

        def on_comparison(*compared: object) -> None:
            lane.compared.append(compared)  # type: ignore[arg-type]

        try:
            session = lane.session
            if session.follow(leader, latency, trials[0].place):
                for trial in trials:
                    if self._resting.is_set():
                        break
                    session.screen(trial)
                session.release_lost()
                session.settle(on_comparison, repeats_lost=True)
            elif session.is_held(trials[0]):
                lane.unable = leader.number
        except BaseException as error:  # raised again by the host's thread
            lane.error = error
        finally:
            self._ended.put(lane)

    def _taken(self, on_comparison: OnComparison | None) -> list[Trial]:
        """Trials that lanes are done with; the best program of all lanes is what it is then."""
        done: list[Trial] = []
        while not self._ended.empty():
            lane = self._ended.get()
            trials, error = lane.trials, lane.error
            lane.trials, lane.thread, lane.error = [], None, None
            if error is not None:
                raise error
            session, first = lane.session, self._first
            mine, best = session.leader, first.leader
            if mine is not None and best is not None and mine.number == best.number:
                # Its turns may have shown that it takes less than it counts as.
                first.lead(best, min(first.latency, session.latency))
            elif mine in trials and session.latency < first.latency:
                first.lead(mine, session.latency)
            compared, lane.compared = lane.compared, []
            for one, other, comparison, replaced in compared:
                if on_comparison is not None:
                    is_best = first.leader is not None and first.leader.digest == other
                    on_comparison(one, other, comparison, replaced and is_best)
            done += trials
        return done


@frozen
class TaskInputs:
    """A task as it is described to workers.

    Attributes:
        workload: What candidates compute.
        program: The imported program's text form, if there is one.
        seed: Seed of the random inputs, and of the order of turns.
    """

    workload: Workload
    program: str | None
    seed: int


@define(eq=False)
class TaskClient:
    """Client of the workers for one task.

    Attributes:
        workers: The workers.
        task: Its description.
        dispatcher: Gives them the jobs of the task.
        building: Has them build.
        new_session: Starts another session of timing with them.
        timing: The session of the search.
        lanes: Time candidates on several machines at once, where there are several.
        close: Frees what workers and host keep for the task.
        inputs: What the workers run programs on: ``search``, ``rematch``, or "" for nothing yet.
    """

    workers: MeasureWorkers[Any]
    task: TaskInputs
    dispatcher: Dispatcher
    building: Building
    new_session: Callable[[], TimingSession]
    timing: TimingSession
    lanes: Lanes
    close: Callable[[], object]
    _files: ExitStack
    inputs: str = field(default="", init=False)
    _reference: ReferenceFiles | None = field(default=None, init=False)

    @staticmethod
    def of(workers: MeasureWorkers[Any], task: TaskInputs) -> TaskClient:
        """A task that workers which have been started know nothing of yet."""
        setup = workers.setup
        dispatcher, rng = workers.admit(), np.random.default_rng(task.seed)
        plausibility = workers.plausibility(task.workload)

        def new_session(carrier: Carrier = dispatcher) -> TimingSession:
            return TimingSession(carrier, setup.protocol, rng, plausibility=plausibility)

        def new_lane(carrier: Carrier, number: int) -> TimingSession:
            # Lanes take their turns at the same time: each has a generator of its own.
            own = np.random.default_rng([task.seed, number])
            return TimingSession(carrier, setup.protocol, own, plausibility=plausibility)

        timing = new_session()
        files = ExitStack()
        client = TaskClient(
            workers,
            task,
            dispatcher,
            Building(dispatcher, setup.protocol),
            new_session,
            timing,
            Lanes(dispatcher, timing, new_lane),
            lambda: None,
            files,
        )
        client.close = ending_with(client, dispatcher.release, files.close)
        return client

    def give_inputs(self, kind: str) -> None:
        """Tell the workers what to run programs on, if they run them on something else.

        They forget then what they hold of this task, and can build; before something runs,
        :meth:`fill_inputs` has to be called.

        Args:
            kind: ``search``, or ``rematch`` for other inputs.
        """
        if self.inputs == kind:
            return
        task, setup = self.task, self.workers.setup
        seed = task.seed + (kind == "rematch")
        files = reserve_reference(task.workload, seed)
        # To the end: a worker may still be about to read those before these.
        self._files.callback(files.close)
        message = {
            "op": "task",
            "task": self.dispatcher.task,
            "workload": task.workload.to_json(),
            "program": task.program,
            "target": setup.target.to_json(),
            "threads": setup.threads,
            "cpus": list(self.workers.cpus),
            "protocol": setup.protocol.to_json(),
            "seed": seed,
            "quick": kind == "search",
            "observers": list(setup.observers),
            **self.workers.publish(files),
        }
        self.dispatcher.pool.tell(self.dispatcher.task, message, replace=True)
        self.inputs, self._reference = kind, files

    def fill_inputs(self) -> None:
        """Have the inputs, and what is right. Again, it does nothing.

        Raises:
            WorkerStartFailed: there is no memory for them.
        """
        if self._reference is not None:
            self._reference.fill()

    def holds(self, trial: Trial) -> bool:
        """Return whether a living worker has the program of a trial."""
        return trial.place is not None and self.dispatcher.pool.holds(trial.place)

    def remember(self, trials: Sequence[Trial]) -> None:
        """Tell the workers which programs need not be compiled again."""
        known = [
            trial.lowered
            for trial in trials
            if trial.lowered and trial.outcome is not None and not trial.outcome.retriable
        ]
        if known:
            task = self.dispatcher.task
            self.dispatcher.pool.tell(task, {"op": "known", "task": task, "programs": known})

    def forget(self, trials: Sequence[Trial]) -> None:
        """Let workers free the programs of trials that are over.

        In one message each: a worker is only given a few at a time, and builds are to follow.
        """
        seconds = self.workers.setup.protocol.deadlines["load"]
        numbers: dict[Place, list[int]] = {}
        for trial in trials:
            if trial.place is not None and self.holds(trial) and trial is not self.timing.leader:
                numbers.setdefault(trial.place, []).append(trial.number)
                trial.place = None
        for place, those in numbers.items():
            message = {"op": "forget", "numbers": those}
            self.dispatcher.post(message, {"load": seconds}, _ignore, place)


def _ignore(_reply: object) -> None:
    """Ignore a reply."""
