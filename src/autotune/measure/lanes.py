"""Lanes of one task: equal machines, on which candidates are raced at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue

from attrs import define, field

from autotune.measure.jobs import Dispatcher, JobPool, Place, Position, Reply
from autotune.measure.timing_session import Carrier, OnComparison, TimingSession
from autotune.measure.trial import Trial
from autotune.process.channel import Message
from autotune.store.records import Comparison

__all__ = ["LaneDispatcher", "Lanes"]

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
