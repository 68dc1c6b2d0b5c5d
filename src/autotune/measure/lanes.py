"""Lanes of one task: equal machines, on which candidates are raced at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from attrs import define, field

from autotune.measure.jobs import Dispatcher, Position, Reply, Steps
from autotune.measure.timing_session import OnComparison, TimingSession
from autotune.measure.trial import Trial
from autotune.store.records import Comparison

__all__ = ["Lanes"]


@define(eq=False)
class _Lane:
    """A machine with its own session.

    Attributes:
        session: Holds the copy of the best candidate.
        trials: What is checked and takes its turns now.
        steps: What is left to do with them; None where that is over.
        compared: Comparisons that nobody has been told of.
        unable: Number of a program that fails as a copy here.
    """

    session: TimingSession
    trials: list[Trial] = field(factory=list)
    steps: Steps[None] | None = None
    compared: list[tuple[str, str, Comparison, bool]] = field(factory=list)
    unable: int | None = None


class Lanes:
    """The lanes of one task, which race candidates on several equal machines at the same time.

    Each machine has a lane: a session of its own, with a copy of the best candidate. A few
    candidates are checked there and take their turns with that copy, so that a race belongs to one
    machine, whose drift it cancels; races of different candidates are on different machines. The
    best one travels to a machine once. What beats the copy in one lane is the best one of all
    lanes, unless another lane has found a faster one meanwhile; each lane follows before it begins
    its next candidate.

    The reply to a job of a lane has its next job sent at once, as soon as it is delivered.

    Args:
        dispatcher: Of the task.
        first: The session whose best program is that of all lanes.
        new_session: Starts the session of the lane with a number.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        first: TimingSession,
        new_session: Callable[[int], TimingSession],
    ) -> None:
        self._dispatcher = dispatcher
        self._first = first
        self._new_session = new_session
        self._lanes: dict[Position, _Lane] = {}
        self._ended: list[_Lane] = []
        self._rests = False

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
            lane = self._lanes[position] = _Lane(self._new_session(len(self._lanes)))
        lane.trials, lane.unable = list(trials), None
        lane.steps = self._time(lane, leader, self._first.latency)
        self._advance(lane, lane.steps)
        return True

    def serve(self, on_comparison: OnComparison | None = None) -> list[Trial]:
        """Carry jobs and replies for a moment; returns the trials that lanes are done with.

        One that its machine has lost has no outcome then, and is to be timed again.
        """
        self._dispatcher.pump()
        return self._taken(on_comparison)

    def rest(self, on_comparison: OnComparison | None = None) -> list[Trial]:
        """Wait until every lane is done with the candidate that it is at.

        Returns:
            What lanes had; what they have not begun has no outcome.
        """
        done: list[Trial] = []
        self._rests = True
        try:
            while self.busy:
                done += self.serve(on_comparison)
        finally:
            self._rests = False
        self.release_leases()
        return done

    def release_leases(self) -> None:
        """Let the machines of idle lanes do other things, such as builds."""
        for position, lane in self._lanes.items():
            if not lane.trials:
                self._dispatcher.pool.end_lease(position)

    def stop(self) -> None:
        """End all lanes at once, and wait for no reply."""
        for lane in self._lanes.values():
            if lane.steps is not None:
                lane.steps.close()
            # What was timed, and was about to take turns, keeps what it seemed to take.
            lane.session.finish_early()
            lane.trials, lane.steps = [], None
            lane.compared.clear()
        self._ended.clear()

    def forget(self) -> None:
        """Forget the copies: machines have been given other inputs."""
        for lane in self._lanes.values():
            lane.session.lead(None)

    def _time(self, lane: _Lane, leader: Trial, latency: float) -> Steps[None]:
        """All that is done with the trials of a lane on its machine."""
        session, trials = lane.session, lane.trials

        def on_comparison(one: str, other: str, compared: Comparison, replaced: bool) -> None:
            lane.compared.append((one, other, compared, replaced))

        if (yield from session.follow(leader, latency, trials[0].place)):
            for trial in trials:
                if self._rests:
                    break
                yield from session.screen(trial)
            session.release_lost()
            yield from session.settle(on_comparison, repeats_lost=True)
        elif session.is_held(trials[0]):
            lane.unable = leader.number

    def _advance(self, lane: _Lane, steps: Steps[None], reply: Reply | None = None) -> None:
        """Have the next job of a lane done, unless its steps are over."""
        if lane.steps is not steps:
            # It was stopped, and nobody waits for this reply.
            return
        try:
            job = next(steps) if reply is None else steps.send(reply)
        except StopIteration:
            self._ended.append(lane)
            return
        on_reply = partial(self._advance, lane, steps)
        self._dispatcher.post(job.message, job.deadlines, on_reply, job.place)

    def _taken(self, on_comparison: OnComparison | None) -> list[Trial]:
        """Trials that lanes are done with; the best program of all lanes is what it is then."""
        done: list[Trial] = []
        ended, self._ended = self._ended, []
        for lane in ended:
            trials, lane.trials, lane.steps = lane.trials, [], None
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
