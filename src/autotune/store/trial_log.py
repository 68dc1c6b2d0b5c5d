"""The log of a run's trials: source of history, counts and best."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from autotune.ir.converter import from_json, json_forms, list_form, to_json
from autotune.sketches import Candidate
from autotune.store.records import OUTCOME_STATUSES, Outcome
from autotune.store.rejections import Rejection, reject_reason

if TYPE_CHECKING:
    from cattrs import Converter

__all__ = ["LogEntry", "TrialLog", "describe_counts"]

# Messages are long: a run of which every candidate fails in a way of its own keeps these many.
_MOST_MESSAGES = 32


@frozen
class LogEntry:
    """Trial of a log.

    Attributes:
        digest: The candidate's digest.
        status: Status of its outcome.
        latency: Seconds per call, when it is valid; those of other sessions as
            :meth:`TrialLog.rescale` has converted them.
        elapsed: Seconds since the run began.
        cached: Whether the outcome came from another run's records.
        source: The run whose record holds the outcome.
        message: What went wrong, if something did; kept for the first failure of each class.
        reason: The class of what went wrong, "" when nothing did.
        beaten: Whether another one was faster in turns at the end of a run although its latency is
            higher.
    """

    digest: str
    status: str
    latency: float | None
    elapsed: float
    cached: bool
    source: str
    message: str = ""
    reason: str = ""
    beaten: bool = False

    @property
    def rank(self) -> tuple[bool, float]:
        """Key that orders valid trials, the best first: those that were beaten come last."""
        return self.beaten, self.latency or 0.0


class TrialLog:
    """The trials of a run in order."""

    def __init__(self, entries: Iterable[LogEntry] = ()) -> None:
        self._entries: list[LogEntry] = []
        self._best: LogEntry | None = None
        self._failures: dict[str, str] = {}
        self._rejections: dict[str, Rejection] = {}
        for entry in entries:
            self._append(entry)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> tuple[LogEntry, ...]:
        """The trials."""
        return tuple(self._entries)

    def add(self, candidate: Candidate, outcome: Outcome, elapsed: float, source: str) -> LogEntry:
        """Append one trial; returns its entry."""
        reason = reject_reason(outcome)
        known = outcome.ok or reason in self._rejections
        known |= outcome.status in self._failures and len(self._rejections) >= _MOST_MESSAGES
        entry = LogEntry(
            candidate.digest,
            outcome.status,
            outcome.latency,
            elapsed,
            outcome.cached,
            source,
            "" if known else outcome.message,
            reason,
            bool(outcome.beaten_by),
        )
        self._append(entry)
        return entry

    def _append(self, entry: LogEntry) -> None:
        self._entries.append(entry)
        if entry.latency is None:
            self._failures.setdefault(entry.status, entry.message)
            reason = entry.reason or entry.status  # logs of earlier versions have no classes
            earlier = self._rejections.get(reason, Rejection(0, entry.message))
            self._rejections[reason] = Rejection(earlier.count + 1, earlier.message)
        elif self._best is None or entry.rank < self._best.rank:
            self._best = entry

    def amend(self, digest: str, outcome: Outcome) -> None:
        """Replace what is known of a candidate, such as one found wrong later."""
        old, self._entries = self._entries, []
        self._best, self._failures, self._rejections = None, {}, {}
        for entry in old:
            if entry.digest == digest:
                entry = evolve(
                    entry,
                    status=outcome.status,
                    latency=outcome.latency,
                    message=outcome.message,
                    reason=reject_reason(outcome),
                    beaten=bool(outcome.beaten_by),
                )
            self._append(entry)

    def rescale(self, digests: Collection[str], factor: float) -> None:
        """Convert the latencies of these candidates into the seconds of another session."""
        old, self._entries, self._best = self._entries, [], None
        self._failures, self._rejections = {}, {}
        for entry in old:
            if entry.latency is not None and entry.digest in digests:
                entry = evolve(entry, latency=entry.latency * factor)
            self._append(entry)

    def first(self, trials: int) -> TrialLog:
        """A log of the first ``trials`` trials only."""
        return TrialLog(self._entries[:trials])

    @property
    def best(self) -> LogEntry | None:
        """The fastest valid trial, the earliest of equals."""
        return self._best

    def leaders(self, count: int) -> list[LogEntry]:
        """The fastest valid trials, the best first; each candidate once."""
        valid = {entry.digest: entry for entry in self._entries if entry.latency is not None}
        return sorted(valid.values(), key=attrgetter("rank"))[:count]

    @property
    def best_latency(self) -> float | None:
        """Seconds of the fastest valid trial."""
        return None if self._best is None else self._best.latency

    @property
    def trials_without_gain(self) -> int:
        """Trials since the one that was the fastest valid one so far; all where none is valid."""
        last, fastest = -1, math.inf
        for number, entry in enumerate(self._entries):
            if entry.latency is not None and entry.latency < fastest:
                last, fastest = number, entry.latency
        return len(self._entries) - 1 - last

    def has_measured(self, run_id: str) -> bool:
        """Return whether a run has measured any valid trial itself."""
        return any(it.source == run_id and it.latency is not None for it in self._entries)

    @property
    def failures(self) -> dict[str, str]:
        """First message of each status other than ok that occurred."""
        return dict(self._failures)

    @property
    def rejections(self) -> dict[str, Rejection]:
        """Number of rejected candidates by class, the most frequent first."""
        ordered = sorted(self._rejections.items(), key=lambda item: (-item[1].count, item[0]))
        return dict(ordered)

    @property
    def rejection_counts(self) -> dict[str, int]:
        """Number of trials that were rejected, by class, the most frequent first."""
        return {reason: found.count for reason, found in self.rejections.items()}

    @property
    def cached(self) -> int:
        """Number of trials that were answered from records."""
        return sum(entry.cached for entry in self._entries)

    @property
    def counts(self) -> dict[str, int]:
        """Number of trials by status, every status present."""
        counts = dict.fromkeys(OUTCOME_STATUSES, 0)
        for entry in self._entries:
            counts[entry.status] += 1
        return counts

    def history(self) -> list[tuple[int, float, float | None]]:
        """(trial, elapsed seconds, best latency so far), one per trial."""
        points = []
        best: float | None = None
        for trial, entry in enumerate(self._entries):
            counts = entry.latency is not None and not entry.beaten
            if counts and (best is None or (entry.latency or 0.0) < best):
                best = entry.latency
            points.append((trial, entry.elapsed, best))
        return points

    def to_json(self) -> list[list[Any]]:
        """A list that :meth:`from_json` reads back."""
        return list(to_json(self))

    @staticmethod
    def from_json(data: Sequence[Sequence[Any]]) -> TrialLog:
        """Read what :meth:`to_json` wrote.

        Raises:
            InvalidValueError: the value is not a log.
        """
        return from_json(TrialLog, data)


@json_forms
def _forms(converter: Converter) -> None:
    list_form(converter, LogEntry)
    write = converter.get_unstructure_hook(LogEntry)
    # The last field is written where it is set, as for few trials.
    converter.register_unstructure_hook(
        LogEntry, lambda entry: write(entry) if entry.beaten else write(entry)[:-1]
    )
    converter.register_unstructure_hook(TrialLog, lambda log: converter.unstructure(log.entries))
    converter.register_structure_hook(
        TrialLog, lambda data, _: TrialLog(converter.structure(data, list[LogEntry]))
    )


def describe_counts(counts: Mapping[str, int]) -> str:
    """``"60 ok, 3 invalid, 1 timeout"``: statuses that occurred."""
    return ", ".join(f"{number} {status}" for status, number in counts.items() if number) or "none"
