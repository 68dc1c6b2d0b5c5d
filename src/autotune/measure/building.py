"""Getting candidates built, each program once, while the host does something else."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from autotune.measure.dispatcher import Dispatcher
from autotune.measure.jobs import Reply
from autotune.measure.protocol import MeasureProtocol
from autotune.measure.trial import Trial, outcome_of
from autotune.store.records import Outcome

__all__ = ["Building", "Span"]

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
