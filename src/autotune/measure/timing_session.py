"""Validation and timing of built candidates, one at a time, beside the leader."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from attrs import evolve

from autotune.measure.jobs import Job, JobPool, Place, Steps
from autotune.measure.plausibility import Plausibility
from autotune.measure.protocol import MeasureProtocol
from autotune.measure.racing import (
    MIN_RATIO,
    Race,
    clearly_slower,
    compare,
    credible,
    drift_of,
    is_slower_for_certain,
    latency_after,
    rounded,
)
from autotune.measure.timing import LONG_SECONDS
from autotune.measure.trial import Leader, Trial, outcome_of
from autotune.process.channel import Message
from autotune.process.stopwatch import Clock
from autotune.store.records import Comparison, Outcome

__all__ = ["OnComparison", "TimingSession"]

OnComparison = Callable[[str, str, Comparison, bool], None]
"""Called with two candidates that were timed in turns: digest of the best one so far, digest of
its challenger, the challenger against it, and whether the challenger is the best one now."""

# The first of them is that of a worker which has yet to read the arrays of the task.
_PHASES = ("task", "load", "verify", "run", "observe")
# A candidate that seemed slower than this, compared with the best one, is no challenger of it;
# and so much slower than the winner a baseline has to be to be left out early.
_NEAR = 1.15
# How many candidates that were much slower may be timed before the best one is looked at again.
_OLDEST_DRIFT = 2
# A winner that seems faster than the baseline by more than that, and is not so beyond the noise,
# gets so many times the turns, and seconds at most: on a busy machine few turns tell nothing.
_MORE_TURNS, _MORE_SECONDS = 8, 3.0
# A baseline is cut off in its first call after so many seconds at least, or so many calls of the
# best candidate; its phase also fills and compares the arrays, at so many bytes a second at least.
_LEAST_CUT_OFF, _CUT_OFF_CALLS = 0.2, 3.0
_LEAST_COMPARING, _COMPARED_BYTES = 0.1, 1e8


class TimingSession:
    """Times programs that workers hold, in steps that somebody has to carry out.

    Args:
        pool: The workers.
        protocol: How to time.
        rng: Shuffles the turns.
        plausibility: What latencies are held to; None where times are simulated.
        clock: Monotonic seconds of the host.
    """

    def __init__(
        self,
        pool: JobPool,
        protocol: MeasureProtocol,
        rng: np.random.Generator,
        *,
        plausibility: Plausibility | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._pool = pool
        self._protocol = protocol
        self._rng = rng
        self._plausibility = plausibility
        self._clock = clock
        self._drift = 1.0
        self._drift_age = 0
        self._contenders: list[Trial] = []
        self.leader: Trial | None = None
        self.latency = 0.0

    def lead(self, trial: Trial | None, latency: float = 0.0) -> None:
        """Make a held program the best one so far.

        Args:
            trial: The program; None when there is none.
            latency: What it counts as taking, in seconds.
        """
        self.leader, self.latency = trial, latency

    def leads(self, digest: str) -> bool:
        """Return whether the best program so far is this candidate's, and is held."""
        leader = self.leader
        return leader is not None and leader.digest == digest and self.is_held(leader)

    @property
    def lost_leader(self) -> Leader | None:
        """The best candidate so far, when its worker has ended."""
        leader = self.leader
        if leader is None or leader.candidate is None or self.is_held(leader):
            return None
        return Leader(leader.candidate, self.latency)

    def install(self, trial: Trial, latency: float | None) -> Steps[None]:
        """Check a held program that is said to be the best one, and make it so if it is.

        One that was timed in this session keeps its latency: what it takes now tells the drift.
        One of another session is timed like any other program, since seconds of sessions do not
        compare. One that fails is no measure for others.

        Args:
            trial: The program.
            latency: What it took in this session, in seconds; None if it was timed in another one.
        """
        if latency is None:
            yield from self.screen(trial)
            yield from self.settle()
            return
        self.lead(None)
        if (yield from self._check(trial, latency, self._protocol.deadlines)):
            self._drift = trial.drift = drift_of(trial.samples, latency)
            # Candidates with the same program take it from here.
            trial.finish()
            self.lead(trial, latency)

    def follow(self, leader: Trial, latency: float, place: Place | None) -> Steps[bool]:
        """Hold a copy of the best program of all machines at a place, to time others beside it.

        Args:
            leader: The program.
            latency: What it counts as taking, in seconds.
            place: Where.

        Returns:
            Whether that is possible; nothing is to be timed here otherwise.
        """
        mine = self.leader
        if mine is not None and mine.number == leader.number and self.is_held(mine):
            self._drift *= self.latency / latency
            self.lead(mine, latency)
            return True
        if place is None:
            return False
        copy = Trial(leader.number, leader.candidate, always=True, place=place)
        copy.lowered, copy.binary = leader.lowered, leader.binary
        yield from self.install(copy, latency)
        return self.leader is copy

    def is_untimed(self, trial: Trial) -> bool:
        """Return whether a trial has yet to be checked and timed."""
        return (
            trial.outcome is None and trial.duplicate_of is None and trial not in self._contenders
        )

    def screen(self, trial: Trial) -> Steps[None]:
        """Check a program and time it briefly.

        It ends with an outcome unless it may be the best one: then :meth:`settle` decides. A
        trial whose worker has ended without its fault loses its place.
        """
        incumbent = None if self.leader is None else self.latency * self._drift
        deadlines = self._protocol.deadlines_beside(self.latency if self.leader else None)
        if (yield from self._check(trial, incumbent, deadlines)):
            yield from self._screened(trial, incumbent)

    def _screened(self, trial: Trial, incumbent: float | None) -> Steps[None]:
        if self.leader is None:
            trial.finish()
            self.lead(trial, trial.latency)
            self._drift = 1.0
            return
        hopeless = min(trial.samples) > self._protocol.drop_factor * (incumbent or 0.0)
        if hopeless and self._drift_age < _OLDEST_DRIFT:
            self._drift_age += 1
            self._finish_by_drift(trial)
            return
        self._drift_age = 0
        ours, best = yield from self._beside(self.leader, trial, hopeless)
        if trial.outcome is not None or not self.is_held(trial):
            return
        if not ours:
            # The best program is gone; the known speed of the machine must do.
            self._finish_by_drift(trial)
            return
        self._drift = drift_of(best, self.latency)
        trial.reference = statistics.median(best)
        trial.samples += ours[1:]
        trial.set_latency(self.latency / compare(ours, best).ratio)
        if clearly_slower(ours, best):
            trial.finish()
        else:
            self._contenders.append(trial)

    def screen_baseline(self, trial: Trial, best: float, io_bytes: int) -> Steps[None]:
        """Check a baseline, and time it only as long as it still can win.

        Otherwise it is cut off in its first call, and its outcome says what that exceeds.

        Args:
            trial: The program.
            best: Latency of the best candidate in seconds.
            io_bytes: Of its inputs and outputs.
        """
        cut_off = max(_LEAST_CUT_OFF, _CUT_OFF_CALLS * best)
        deadlines = dict(self._protocol.deadlines)
        around = _LEAST_COMPARING + io_bytes / _COMPARED_BYTES
        is_cut_off = cut_off + around < deadlines["verify"]
        deadlines["verify"] = min(deadlines["verify"], cut_off + around)
        if (yield from self._check(trial, best, deadlines)):
            yield from self._screened(trial, best)
            return
        outcome = trial.outcome
        is_late = outcome is not None and outcome.status == "timeout"
        if is_cut_off and is_late and outcome is not None and "verify" in outcome.timings:
            why = f"it was cut off after {cut_off:.2g} s, as the best candidate is far faster"
            trial.take(evolve(outcome, message=why, exceeds=cut_off))

    def _finish_by_drift(self, trial: Trial) -> None:
        """End a program that was not timed beside the best one, by what that one took before."""
        trial.drift = self._drift
        trial.reference = rounded(self.latency * self._drift)
        trial.finish()

    def _beside(
        self, leader: Trial, trial: Trial, hopeless: bool
    ) -> Steps[tuple[list[float], list[float]]]:
        """Pairs of samples, of a program and of the best one, each taken one after the other.

        They change places after every other sample, and the program has just been sampled. That
        is as seldom as pairs allow: the first call after a change is not timed, as caches hold
        the data of the other one. Long calls are timed without that, one by one, and only until
        it is certain that the program is slower; of one that is hopeless a single pair says by
        how much.
        """
        ours, best = trial.samples[-1:], list[float]()
        is_long, last = self._is_long(trial), 2 * self._protocol.min_samples
        while (position := len(ours) + len(best)) < last:
            who, samples = ((trial, ours), (leader, best))[(position + 1) // 2 % 2]
            new = yield from self._sample(who, 1 if is_long else min(2, last - position), 0)
            if new is None:
                break
            samples += new
            paired = ours[: len(best)], best[: len(ours)]
            if is_long and (hopeless or is_slower_for_certain(*paired)):
                break
        complete = min(len(ours), len(best))
        return ours[:complete], best[:complete]

    def _is_long(self, trial: Trial) -> bool:
        return statistics.median(trial.samples) >= LONG_SECONDS

    def release_lost(self) -> None:
        """Have those checked and timed again whose worker has ended before their turns."""
        waiting = self._contenders
        self._contenders = [it for it in waiting if it.outcome is not None or self.is_held(it)]

    def settle(
        self, on_comparison: OnComparison | None = None, *, repeats_lost: bool = False
    ) -> Steps[None]:
        """Time those that may be the best one in turns with it, and end them all.

        At first those that are near it, and near the fastest of them; then, as long as there are
        any, those that seem faster still. What has not won its turns is never recorded as faster.

        Args:
            on_comparison: See :data:`OnComparison`.
            repeats_lost: Whether those that are lost without their fault, or whose turns end as
                the best one is, have no outcome then: they are to be timed again.
        """
        near = _NEAR
        while (leader := self.leader) is not None and self.is_held(leader):
            waiting = [it for it in self._contenders if it.outcome is None and self.is_held(it)]
            waiting = [it for it in waiting if it.latency < near * self.latency]
            if not waiting:
                break
            waiting.sort(key=lambda trial: trial.latency)
            most = waiting[: self._protocol.most_contenders]
            # Those that one of them seems to beat may be spared their turns, if it does.
            challengers = [it for it in most if it.latency < _NEAR * most[0].latency]
            told = yield from self._race(leader, challengers, on_comparison, repeats_lost)
            if not told:
                break
            if self.leader is not leader or challengers == most:
                near = 1.0
        if repeats_lost:
            if self.leader is not None and not self.is_held(self.leader):
                self._contenders = [it for it in self._contenders if it.outcome is not None]
            self.release_lost()
        self.finish_all()

    def finish_early(self) -> None:
        """After an interrupt: end all that wait for :meth:`settle` as they were screened.

        One that seems faster than the best one may owe that to luck, which the confirmation at the
        end of the run finds out. To count it as slower would hide it for good.
        """
        for trial in self._contenders:
            if trial.outcome is None:
                trial.finish()
        self._contenders.clear()

    def finish_all(self) -> None:
        """End with what is known all that wait for :meth:`settle`.

        Those that seem faster than the best one count as a little slower: were it equal, such a
        one might be taken for the best one, and others would be compared with what it is not.
        """
        for trial in self._contenders:
            if trial.outcome is None:
                if self.leader is not None and trial.latency < self.latency:
                    trial.set_latency(self.latency * MIN_RATIO)
                trial.finish()
        self._contenders.clear()

    def rematch(self, trials: Sequence[Trial]) -> Steps[None]:
        """Check programs and time them in turns; every sample is of one turn.

        The last one, if it is a baseline, is left out as soon as it is clearly slower than the
        first; where it only seems so, there are more turns. When a worker ends without the fault
        of its program, those that have not failed have no outcome: they are to be timed all
        together again.
        """
        able = []
        for trial in trials:
            if (yield from self.check(trial)):
                able.append(trial)

        def is_over(race: Race) -> bool:
            if not race.running:
                return True
            if race.rounds >= race.max_rounds:
                return not (able[race.running[-1]].is_baseline and self._needs_more(race))
            return race.rounds >= race.min_rounds and _is_decided(race)

        def drop(race: Race) -> None:
            # Many looks find a difference between equals more often than one look: only a large
            # one ends this early.
            last = race.running[-1]
            is_slow = last > 0 and race.against(last, 0).high * _NEAR < 1
            if is_slow and race.rounds >= 3 and able[last].is_baseline:
                race.note(last, None)

        race = Race.under(self._protocol, len(able))
        for number, placement in race.turns(self._rng, is_over=is_over, drop=drop):
            race.note(number, (yield from self.turn(able[number], placement)))
        if any(trial.outcome is None and not self.is_held(trial) for trial in trials):
            return
        for number, trial in enumerate(able):
            if trial.outcome is None:
                trial.samples = race.times[number] or trial.samples
                trial.finish()

    def _needs_more(self, race: Race) -> bool:
        """Tell if the last program only seems slower than the first, and more turns are cheap."""
        last = race.running[-1]
        if last == 0 or race.rounds >= _MORE_TURNS * race.max_rounds:
            return False
        shortest = self._protocol.min_sample_seconds
        spent = sum(max(seconds, shortest) for times in race.times for seconds in times)
        if spent * self._protocol.samples_per_turn > _MORE_SECONDS:
            return False
        over = race.against(0, last)
        return over.ratio > _NEAR and not over.faster

    def check(self, trial: Trial) -> Steps[bool]:
        """Check a held program and take its first samples; returns whether there are any."""
        return (yield from self._check(trial, 0.0, self._protocol.deadlines))

    def turn(self, trial: Trial, placement: int) -> Steps[float | None]:
        """Seconds per call in a turn of a held program; None when it is gone or has failed."""
        count = 1 if self._is_long(trial) else self._protocol.samples_per_turn
        samples = yield from self._sample(trial, count, placement)
        return None if samples is None else statistics.median(samples)

    def _race(
        self,
        leader: Trial,
        challengers: Sequence[Trial],
        on_comparison: OnComparison | None,
        needs_leader: bool,
    ) -> Steps[bool]:
        """Time challengers in turns with the best one; returns whether that tells anything.

        Few turns say next to nothing of how much faster a program is. Where the best one is
        needed to the end, those that it was lost in tell nothing.
        """
        entries = [leader, *challengers]
        race, latency = Race.under(self._protocol, len(entries)), self.latency
        for number, placement in race.turns(self._rng):
            race.note(number, (yield from self.turn(entries[number], placement)))
        if not race.times[0] or leader.outcome is not None and not leader.outcome.ok:
            return False
        if needs_leader and not self.is_held(leader):
            return False
        latency = credible(latency, race.times[0])
        self._drift = drift_of(race.times[0], latency)
        best, best_latency = leader, latency
        ratios = {}
        for number, trial in enumerate(entries):
            if number and race.times[number] and trial.outcome is None:
                ratios[number] = comparison = race.against(number, 0)
                trial.samples += race.times[number]
                trial.reference = statistics.median(race.times[0])
                after = latency_after(comparison, latency)
                if comparison.ratio > 1:
                    after = credible(after, race.times[number])
                trial.set_latency(after)
                trial.finish()
                if trial.latency < best_latency:
                    best, best_latency = trial, trial.latency
        for number, comparison in ratios.items():
            if on_comparison is not None:
                trial = entries[number]
                on_comparison(leader.digest, trial.digest, comparison, trial is best)
        self.lead(best, best_latency)
        return True

    def _check(
        self, trial: Trial, incumbent: float | None, deadlines: Mapping[str, float]
    ) -> Steps[bool]:
        """Check a program and take its first samples; returns whether there are any."""
        message = {"op": "run", "number": trial.number, "incumbent": incumbent}
        if trial.device_program is not None:
            message["device_program"] = trial.device_program
        body = yield from self._ask(trial, message, deadlines)
        if body is None:
            return False
        trial.timings = dict(body["timings"])
        trial.samples = list(body["samples"])
        trial.readings = {**trial.readings, **body["readings"]}
        return True

    def _sample(self, trial: Trial, count: int, placement: int) -> Steps[list[float] | None]:
        """Samples of a held program; None when it is gone or has failed, which is noted."""
        expected = statistics.median(trial.samples) if trial.samples else self.latency
        message = {
            "op": "sample",
            "number": trial.number,
            "count": count,
            "placement": placement,
            "expected": expected,
        }
        body = yield from self._ask(trial, message, self._protocol.deadlines)
        return None if body is None else list(body["samples"])

    def _ask(
        self, trial: Trial, message: Message, deadlines: Mapping[str, float]
    ) -> Steps[Message | None]:
        """The body of a good answer; otherwise the trial has an outcome, or has lost its place."""
        if trial.place is None or not self.is_held(trial):
            return None
        phases = {phase: deadlines[phase] for phase in _PHASES}
        began = self._clock()
        reply = yield Job(message, phases, trial.place)
        elapsed = self._clock() - began
        if reply.kind in ("lost", "again"):
            trial.lose(blame=reply.kind == "lost")
        elif reply.kind != "done":
            trial.take(outcome_of(reply))
        elif "outcome" in reply.body:
            trial.take(Outcome.from_json(reply.body["outcome"]))
        elif (why := self._contradiction(reply.body, elapsed)) is not None:
            trial.fail("implausible", why)
        else:
            return reply.body
        return None

    def _contradiction(self, body: Message, elapsed: float) -> str | None:
        """Say why the samples of an answer cannot be true; None where they can."""
        if self._plausibility is None:
            return None
        return self._plausibility.contradiction(body["samples"], body["calls"], elapsed)

    def is_held(self, trial: Trial) -> bool:
        """Return whether a living process has the program of a trial."""
        return trial.place is not None and self._pool.holds(trial.place)


def _is_decided(race: Race) -> bool:
    others = [race.against(0, number) for number in race.running if number != 0]
    return all(it.faster and it.high - it.low <= 2 * race.resolution for it in others)
