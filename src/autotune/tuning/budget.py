"""Budget of a run, why it ends, and the share of its time that is kept for after the search."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable

from attrs import frozen

from autotune.process.stopwatch import Stopwatch
from autotune.tuning.options import DEFAULT_TRIALS, TuneOptions
from autotune.tuning.resume import Progress

__all__ = [
    "ALL_FAILED",
    "CONVERGED",
    "EXHAUSTED",
    "GIVE_UP_AFTER",
    "TIME_OVER",
    "TRIALS_USED",
    "Budget",
    "Reserve",
    "TimeLimit",
]

GIVE_UP_AFTER = 32

TRIALS_USED = "the trial budget is used up"
TIME_OVER = "the time is over"
EXHAUSTED = "the space is exhausted"
CONVERGED = "no program has gained from its last trials"
ALL_FAILED = f"the first {GIVE_UP_AFTER} candidates all failed"


# Building the leaders of a task and timing them takes about as long as so many trials, or as all
# that it has had, until a winner of the session has been confirmed.
_TRIALS_PER_CONFIRMATION = 3
# Where so many winners wait, the first one is confirmed early, to know what that takes ...
_WORTH_MEASURING = 4
# ... once the time that is left is so many times what is kept for all of them. Others may take
# longer than that one, by about so much.
_TIMES_KEPT = 2.0
_OTHERS = 1.25
# To build a program without a schedule takes this share of what a candidate does.
_UNTUNED_BUILD = 0.25
# What is kept for confirmations is at most this share of the time.
_MOST_KEPT = 0.15
# A call takes at most five seconds more than its limit. In these a winner may be confirmed, as
# far as one second after the last may begin; a candidate that is being timed has one second.
_LAST_BEGIN, _LAST_END = 3.0, 4.0
_SEARCH_GRACE = 1.0


@frozen
class Reserve:
    """Time that is kept for what the caller does after a run.

    Attributes:
        seconds: How long that takes, apart from the programs.
        programs: Programs that the caller builds; each takes about as long as a trial's build.
        untuned_build: Seconds that one takes without a schedule; None where that is not known.
    """

    seconds: float = 0.0
    programs: int = 0
    untuned_build: float | None = None

    @property
    def least(self) -> float:
        """Seconds for all of it where nothing is tuned."""
        return self.seconds + self.programs * (self.untuned_build or 0.0)


@frozen
class Budget:
    """Limits of a run, over all its sessions and all its tasks together.

    Attributes:
        trials: Candidates, those answered from records included; None for as many as the time
            allows.
        seconds: Wall seconds, or None.
        session_seconds: Wall seconds of one session, whatever came before it; or None.
    """

    trials: int | None
    seconds: float | None = None
    session_seconds: float | None = None

    @classmethod
    def of(cls, options: TuneOptions, programs: int) -> Budget:
        """Budget of a run of so many programs: where only its time is given, all of that."""
        trials = options.trials
        if trials is None and options.time is None:
            trials = DEFAULT_TRIALS * programs
        return cls(trials, options.time, options.session_time)

    @property
    def recorded_trials(self) -> int:
        """The trials as a :class:`Run` has them."""
        return self.trials or 0

    def left(self, done: int) -> int:
        """Candidates that may follow ``done`` of them; more than there can be without a limit."""
        return sys.maxsize if self.trials is None else self.trials - done

    def is_used_up(self, progress: Progress) -> bool:
        """Tell if a finished run did as much as this allows, or all that there was to do."""
        if self.left(progress.trials) <= 0 or progress.reason in (EXHAUSTED, CONVERGED):
            return True
        # As for a time limit: a session that only started up has done nothing that was asked for.
        spent = max(
            sum(progress.seconds.values()) - progress.seconds.get("startup", 0.0), progress.used_up
        )
        return self.seconds is not None and spent >= self.seconds


class TimeLimit:
    """The time of one session of a run.

    A session may take what is left of the run's budget, or of its own, whichever is less; the
    start-up of earlier sessions is no part of what was spent, since this one has its own. What the
    search has left undone when the run's budget was used up is done by the next call, in as
    much time again at most.

    Args:
        budget: What may be spent.
        watch: Time of the run.
        used_up: The largest budget of seconds that earlier sessions have used up; 0 for none.
    """

    def __init__(self, budget: Budget, watch: Stopwatch, used_up: float = 0.0) -> None:
        self._watch = watch
        before = watch.earlier
        limits = [limit for limit in (budget.session_seconds,) if limit is not None]
        self._search_is_over = False
        if budget.seconds is not None:
            self._search_is_over = budget.seconds <= max(before, used_up)
            limits.append(budget.seconds - (0.0 if self._search_is_over else before))
        self._seconds = min(limits, default=math.inf)
        self._budget = budget.seconds if limits and self._seconds == limits[-1] else None
        self._used_up_before = used_up
        self._reserve = Reserve()
        self._reserved = 0.0
        self._kept = 0.0
        self._built: list[float] = []
        self._repeated, self._repeating = 0, 0.0
        self._is_searching = True

    @property
    def left(self) -> float:
        """Seconds that this session may still take; infinite without a limit."""
        return self._seconds - self._reserved - self._watch.session

    def used_up(self, *, is_over: bool) -> float:
        """The largest budget of seconds that is used up; 0 for none.

        Args:
            is_over: Whether the session has ended because of its time.
        """
        now = self._budget if is_over and self._budget is not None else 0.0
        return max(self._used_up_before, now)

    def reserve(self, reserve: Reserve) -> None:
        """Keep time for what the caller does after the session."""
        self._reserve = reserve
        self._reserved = reserve.least

    def end_search(self) -> None:
        """Let the rest of the time, and the little that a call may take more, be used."""
        self._is_searching = False

    @property
    def _grace(self) -> float:
        """Share of the seconds beyond the limit that the session may take, from 0 to 1.

        A caller that has something to do afterwards needs them for what that takes longer.
        """
        return 0.0 if self._reserved > 0 else 1.0

    @property
    def is_over(self) -> bool:
        """True if no other winner should be confirmed."""
        return self.left <= -_LAST_BEGIN * self._grace

    def search_is_over(self) -> bool:
        """Return whether the search should end: what is left is kept for what comes after it."""
        return self._search_is_over or self.left <= self._kept

    def is_late(self) -> bool:
        """Return whether what is being waited for should be given up."""
        return self.left <= -max(
            _SEARCH_GRACE, 0.0 if self._is_searching else _LAST_END * self._grace
        )

    def note_builds(self, seconds: Iterable[float]) -> None:
        """Take note of what workers needed to build candidates, in seconds each."""
        self._built += seconds

    def note_confirmation(self, trials: int, seconds: float) -> None:
        """Take note of what it took to confirm the winner of a program.

        Args:
            trials: How many the program has had.
            seconds: Wall seconds.
        """
        self._repeated += _repeated([trials])
        self._repeating += seconds

    def is_confirmation_unknown(self, waiting: int) -> bool:
        """Tell if one of so many winners should be confirmed early, as much is kept for all."""
        return (
            waiting >= _WORTH_MEASURING
            and not self._repeated
            and 0 < self._kept < self.left <= _TIMES_KEPT * self._kept
        )

    def keep_for(self, waiting: Iterable[int], trials: int, tuned: int | None = None) -> None:
        """Keep time for what comes after the search.

        Args:
            waiting: How many trials each program has had whose winner will have to be confirmed.
            trials: Trials of this session so far: what one takes is estimated from them.
            tuned: Programs that have a candidate by now; None for all. The others are built as
                they are, which takes far less.
        """
        if not trials or not math.isfinite(self._seconds):
            return
        self._reserved = self._reserve.seconds + self._building(trials, tuned)
        if self._repeated:
            per_trial = _OTHERS * self._repeating / self._repeated
        else:
            per_trial = (self._watch.session - self._watch.session_seconds("startup")) / trials
        wanted = _repeated(waiting) * per_trial - _LAST_BEGIN * self._grace
        self._kept = min(max(0.0, wanted), _MOST_KEPT * self._seconds)

    def _building(self, trials: int, tuned: int | None) -> float:
        """Seconds that the caller takes to build its programs."""
        if self._built:
            per_tuned = sum(self._built) / len(self._built)
        else:
            per_tuned = self._watch.session_seconds("build") / trials
        per_untuned = self._reserve.untuned_build
        if per_untuned is None:
            per_untuned = _UNTUNED_BUILD * per_tuned
        programs = self._reserve.programs
        scheduled = programs if tuned is None else min(tuned, programs)
        return scheduled * per_tuned + (programs - scheduled) * per_untuned


def _repeated(waiting: Iterable[int]) -> int:
    """Number of trials that confirming the winners of programs with so many each is like."""
    return sum(min(_TRIALS_PER_CONFIRMATION, had) for had in waiting)
