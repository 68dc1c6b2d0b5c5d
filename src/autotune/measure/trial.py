"""Candidate on its way from being submitted to having an outcome."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from attrs import define, evolve, field, frozen

from autotune.measure.jobs import Dispatcher, Place, Reply
from autotune.measure.protocol import MeasureProtocol
from autotune.measure.racing import rounded
from autotune.process.channel import Message
from autotune.sketches import Candidate, is_baseline
from autotune.store.records import Outcome

__all__ = [
    "Building",
    "Span",
    "Batch",
    "Leader",
    "Trial",
    "held_together",
    "mark_duplicates",
    "outcome_of",
]

_MOST_BUILDS = 3


@frozen
class Leader:
    """The best candidate so far: what others are compared with.

    Attributes:
        candidate: The candidate.
        latency: What it took in this session, in seconds; None where it has not been timed since
            the workers were started. Then only an earlier session knows, whose seconds are others.
    """

    candidate: Candidate
    latency: float | None


@define(eq=False)
class Trial:
    """A candidate, and what is known of it.

    Attributes:
        number: Names it among all trials of a measurer.
        candidate: What to build; None is the untuned program.
        always: Whether to compile it although its program is known.
        place: The worker that holds it.
        device_program: The program, where another process than the one that built it holds it.
        outcome: How it ended, once that is known.
        duplicate_of: The trial with the same program that is measured instead.
        lowered: Digest of its lowered program, or "".
        binary: Digest of its machine code, or "".
        samples: Seconds per call, as the clock showed them.
        timings: Seconds by phase.
        readings: What observers have read.
        drift: See :class:`Outcome`.
        reference: See :class:`Outcome`.
        losses: How often its worker ended without its fault.
        abandoned: Whether it was given up before it had an outcome.
    """

    number: int
    candidate: Candidate | None
    always: bool = False
    place: Place | None = None
    device_program: Message | None = field(default=None, repr=False)
    outcome: Outcome | None = None
    duplicate_of: Trial | None = None
    lowered: str = ""
    binary: str = ""
    samples: list[float] = field(factory=list)
    timings: dict[str, float] = field(factory=dict)
    readings: Mapping[str, Any] = field(factory=dict)
    drift: float = 1.0
    reference: float | None = None
    losses: int = 0
    abandoned: bool = False

    @property
    def is_baseline(self) -> bool:
        """True if this is a program that a user has without tuning."""
        return is_baseline(self.candidate)

    @property
    def is_inconclusive(self) -> bool:
        """True if it ended without a verdict on its program."""
        return self.abandoned if self.outcome is None else self.outcome.retriable

    @property
    def digest(self) -> str:
        """Digest of the candidate; "" for the untuned program."""
        return "" if self.candidate is None else self.candidate.digest

    @property
    def latency(self) -> float:
        """Median of the samples over the drift, in seconds."""
        return rounded(statistics.median(self.samples) / self.drift)

    def set_latency(self, latency: float) -> None:
        """Choose the drift so that the samples mean this latency, in seconds."""
        self.drift = statistics.median(self.samples) / latency

    def lose(self, *, blame: bool = True) -> None:
        """A worker ended while it did nothing with this: retry, a limited number of times.

        Args:
            blame: Whether this counts; it does not where it is known who was to blame.
        """
        self.place = None
        self.losses += blame
        if self.losses >= _MOST_BUILDS:
            self.fail("crash", f"{_MOST_BUILDS} workers that were given it ended by themselves")

    def fail(self, status: str, message: str) -> None:
        """End with an outcome other than ok."""
        self.outcome = self._complete(Outcome(status, timings=self.timings, message=message))

    def take(self, outcome: Outcome) -> None:
        """End with an outcome that a worker gave."""
        self.outcome = self._complete(outcome)

    def finish(self) -> None:
        """End as ok, with the samples and the drift that there are."""
        self.outcome = self._complete(
            Outcome(
                "ok",
                self.latency,
                tuple(self.samples),
                self.timings,
                drift=self.drift,
                reference=self.reference,
                readings=self.readings,
            )
        )

    def take_from_original(self) -> None:
        """End with the outcome of the trial with the same program."""
        original = self.duplicate_of
        if self.outcome is None and original is not None and original.outcome is not None:
            outcome = original.outcome
            digest = outcome.duplicate_of or original.digest
            self.lowered = self.lowered or outcome.lowered
            self.binary = self.binary or outcome.binary
            self.take(evolve(outcome, timings=self.timings, duplicate_of=digest))

    def _complete(self, outcome: Outcome) -> Outcome:
        return evolve(outcome, lowered=self.lowered, binary=self.binary)


def held_together(trials: Sequence[Trial], leader: Trial | None) -> list[Trial]:
    """Trials that one worker holds; what the worker of the best candidate holds comes last.

    That worker is needed for the others, too, which may build again after their turn.

    Args:
        trials: What workers hold, in the order in which it is to be timed.
        leader: The best candidate, where there is one.
    """
    busy = None if leader is None else leader.place
    places = [trial.place for trial in trials]
    first = next((place for place in places if place != busy), busy)
    return [trial for trial in trials if trial.place == first]


def mark_duplicates(trials: Sequence[Trial]) -> None:
    """Let those that have the program of a later one take its outcome."""
    for number, trial in enumerate(trials):
        alike = (it for it in trials[number + 1 :] if it.lowered == trial.lowered != "")
        trial.duplicate_of = next(alike, None)


def outcome_of(reply: Reply) -> Outcome:
    """The outcome of the candidate whose worker ended."""
    timings = {reply.phase: reply.seconds}
    if reply.kind == "timeout":
        return Outcome("timeout", timings=timings, message=reply.message)
    message = f"worker failed during {reply.phase}: {reply.message}"
    return Outcome("crash", timings=timings, message=message)


@define(eq=False)
class Batch:
    """Trials in the order of their candidates; a candidate that occurs twice has one trial.

    Attributes:
        in_order: A trial for each candidate.
        chunk: Trials that are being built and timed.
        delivered: Outcomes that were delivered, in order.
    """

    in_order: Sequence[Trial]
    chunk: list[Trial] = field(factory=list)
    delivered: list[Outcome] = field(factory=list)
    _taken: int = 0
    _known: set[int] = field(factory=set)

    @property
    def is_taken(self) -> bool:
        """True if :meth:`take_known` has given every outcome."""
        return len(self._known) == len(self.in_order)

    def take_known(self) -> Iterator[tuple[Candidate, Outcome]]:
        """Candidates whose outcomes are known and were not given before."""
        for position, trial in enumerate(self.in_order):
            if position in self._known or trial.outcome is None or trial.candidate is None:
                continue
            # Counted afterwards: what is interrupted in between is given again.
            yield trial.candidate, trial.outcome
            self._known.add(position)

    @property
    def trials(self) -> list[Trial]:
        """Each trial once."""
        return list(dict.fromkeys(self.in_order))

    @property
    def is_over(self) -> bool:
        """True if every trial has an outcome."""
        return not self.chunk and self._taken == len(self.trials)

    @property
    def open_chunk(self) -> list[Trial]:
        """Trials of the chunk that have no outcome yet."""
        return [trial for trial in self.chunk if trial.outcome is None]

    def next_chunk(self, size: int) -> list[Trial]:
        """Make the next trials the chunk, and return them."""
        self.chunk = self.trials[self._taken : self._taken + size]
        self._taken += len(self.chunk)
        return self.chunk

    def abandon(self) -> None:
        """Give up what has no outcome."""
        for trial in self.in_order:
            trial.abandoned = trial.outcome is None

    def tell(self, on_outcome: Callable[[int, Outcome], None] | None) -> None:
        """Tell outcomes in order, as far as they are known."""
        while len(self.delivered) < len(self.in_order):
            outcome = self.in_order[len(self.delivered)].outcome
            if outcome is None:
                return
            self.delivered.append(outcome)
            if on_outcome is not None:
                on_outcome(len(self.delivered) - 1, outcome)

    def tell_rest(self, on_outcome: Callable[[int, Outcome], None] | None) -> None:
        """After an interrupt: tell every outcome that may not have been taken in.

        That is also the one being delivered, and any that waited for an earlier candidate.
        """
        if on_outcome is None:
            return
        for trial in self.trials:
            trial.take_from_original()
        for position in range(max(0, len(self.delivered) - 1), len(self.in_order)):
            outcome = self.in_order[position].outcome
            if outcome is not None:
                on_outcome(position, outcome)


_PHASES = ("build", "observe")

Span = tuple[float, float]
"""Beginning and end of something, in monotonic seconds."""


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

    def begin(self, trials: Sequence[Trial]) -> None:
        """Request as :meth:`request`; workers that wait for something begin now."""
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
        """Return when workers were compiling, since the last call."""
        spans, self._spans = self._spans, []
        return spans

    def _post(self, trial: Trial) -> None:
        self._in_flight.add(trial.number)
        message = {
            "op": "build",
            "number": trial.number,
            "candidate": None if trial.candidate is None else trial.candidate.to_json(),
            "always": trial.always,
        }
        self._dispatcher.post(message, self._deadlines, partial(self._built, trial))

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
