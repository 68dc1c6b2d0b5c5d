"""The interface of where records and runs are kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from attrs import frozen

from autotune.plugins import Context
from autotune.store.records import Baseline, MeasureKey, Outcome, Record, Run, standing

_Self = TypeVar("_Self", bound="Database")


@frozen(eq=False, kw_only=True)
class DatabaseContext(Context):
    """The context of a database.

    Attributes:
        path: Where it is, in its own spelling.
        read_only: Whether it is to write nothing.
        warn: Told in one sentence what the database has lost, or None.
    """

    path: str
    read_only: bool = False
    warn: Callable[[str], None] | None = None


@frozen
class RecordFilter:
    """Choice of records; whatever is None does not matter.

    Attributes:
        workload: Digest of the workload.
        workload_name: Name of the workload, such as ``gemm``.
        key: The whole measure key.
        target: Fingerprint of the target.
        backend: Name of the backend.
        threads: Threads.
        protocol: Identity of the measuring protocol.
        run_id: The run that measured it.
        status: Status of the outcome.
        candidate: Digest of the candidate.
        imported: Whether it came from a file, and was not timed here.
    """

    workload: str | None = None
    workload_name: str | None = None
    key: MeasureKey | None = None
    target: str | None = None
    backend: str | None = None
    threads: int | None = None
    protocol: str | None = None
    run_id: str | None = None
    status: str | None = None
    candidate: str | None = None
    imported: bool | None = None


class Database(ABC):
    """Durable records, baselines and runs; a context manager that closes on leaving.

    Every write is durable when the method returns. Several processes may use one database.
    Every method raises ``DatabaseError`` when the database cannot be read or written.
    """

    @property
    @abstractmethod
    def location(self) -> str:
        """Location for people: a path, or ``:memory:``."""

    @abstractmethod
    def append_record(self, record: Record) -> int:
        """Store a record; returns its number, which grows from record to record."""

    @abstractmethod
    def append_missing(self, records: Sequence[Record]) -> int:
        """Store those records that are not there, at once; returns how many these were.

        A record is there when one of the same run, trial, candidate and measure key is; that of a
        baseline when it is there as it is.
        """

    @abstractmethod
    def amend(
        self, run_id: str, candidate: str, outcome: Outcome, key: MeasureKey | None = None
    ) -> None:
        """Replace the outcome of a candidate in a run, and of the candidates that equal it.

        Those are the candidates with the same program (``duplicate_of``) under the same measure
        key; they keep their own digests. All of it happens at once or not at all.

        Args:
            run_id: The run that measured the candidate.
            candidate: Digest of the candidate.
            outcome: What its outcome is from now on.
            key: The measure key under which this is so; None where the run has one only.

        Raises:
            DatabaseError: the run has no record of this candidate.
        """

    @abstractmethod
    def records(self, where: RecordFilter | None = None) -> Iterator[Record]:
        """Records of candidates in the order in which they were appended; of no baseline."""

    @abstractmethod
    def count(self, where: RecordFilter | None = None) -> int:
        """Number of records that :meth:`records` would give."""

    @abstractmethod
    def fastest_of_each(self, where: RecordFilter | None = None) -> list[Record]:
        """The fastest candidate of each workload under each measure key, oldest first.

        It is the record with the lowest latency among those that are ok; the first of equals.
        Records that were timed here come before imported ones, and those that were not beaten in
        turns before those that were.
        """

    def best_of_each(self, where: RecordFilter | None = None) -> list[Record]:
        """The program to use of each workload under each measure key, oldest first.

        That is the fastest candidate, or the baseline where that one is no gain over it; see
        :func:`~autotune.store.records.standing`.
        """
        found = self.fastest_of_each(where)
        if where is not None and (where.candidate is not None or where.imported is not None):
            return found
        return [
            standing(
                record,
                self.baselines(
                    RecordFilter(workload=record.candidate.sketch.workload.digest, key=record.key)
                ),
            )
            for record in found
        ]

    def best(self, where: RecordFilter) -> Record | None:
        """The fastest of :meth:`best_of_each`; the first of equals."""
        found = self.best_of_each(where)
        return min(found, key=attrgetter("rank"), default=None)

    @abstractmethod
    def lookup(self, candidate: str, key: MeasureKey) -> Record | None:
        """The most recent record of a candidate (by digest) that need not be measured again.

        Records that are retriable (a crash, a timeout) are passed over, and so are imported ones.
        """

    @abstractmethod
    def lookup_program(self, program: str, workload: str, key: MeasureKey) -> Record | None:
        """The most recent record of a program that need not be measured again.

        Records that are retriable are passed over, and so are imported ones, and those whose
        outcome is that of another candidate with the same program: the other one's is given.

        Args:
            program: Digest of the lowered program or of the machine code.
            workload: Digest of the workload.
            key: The measure key.

        Raises:
            InvalidValueError: the digest is empty.
        """

    @abstractmethod
    def append_baseline(self, baseline: Baseline) -> None:
        """Store the outcome of a program that a user has without tuning."""

    @abstractmethod
    def baselines(self, where: RecordFilter | None = None) -> list[Baseline]:
        """The most recent baseline of each name that is not retriable, oldest first.

        Of each workload under each measure key that matches; what the filter says of candidates
        is no matter. One that was timed here and one that was imported count as two.
        """

    def baseline_records(self, where: RecordFilter | None = None) -> Iterator[Record]:
        """Records that :meth:`baselines` gives, where a candidate has a valid record, too."""
        for baseline in self.baselines(where):
            alike = RecordFilter(workload=baseline.workload, key=baseline.key)
            for record in self.fastest_of_each(alike):
                yield baseline.record(record)

    @abstractmethod
    def start_run(self, run: Run) -> None:
        """Store a new run.

        Raises:
            DatabaseError: there is a run with this id.
        """

    @abstractmethod
    def update_run(
        self,
        run_id: str,
        *,
        status: str | None = None,
        trials: int | None = None,
        checkpoint: Mapping[str, Any] | None = None,
    ) -> None:
        """Change what is given of a run, at once.

        Raises:
            DatabaseError: there is no run with this id.
            InvalidValueError: there is no such status.
        """

    @abstractmethod
    def claim_run(self, run: Run, checkpoint: Mapping[str, Any]) -> bool:
        """Make a run ``running`` with this checkpoint, unless it is not any more as it was read.

        Args:
            run: The run as it was read.
            checkpoint: Its state from now on.

        Returns:
            Whether that was done. Of several that claim a run, one succeeds.

        Raises:
            DatabaseError: there is no run with this id.
        """

    @abstractmethod
    def run(self, run_id: str) -> Run | None:
        """The run with this id."""

    @abstractmethod
    def find_run(self, identity: str) -> Run | None:
        """The most recent run with this identity."""

    @abstractmethod
    def runs(self, workload: str | None = None) -> list[Run]:
        """Every run (of the workload with this spelling), in the order they were started."""

    @abstractmethod
    def runs_of_network(self, network: str) -> Iterator[Run]:
        """Runs that tuned a network, the most recent first; each is read when it is asked for.

        Args:
            network: As :attr:`Run.network`; not empty.
        """

    def check(self) -> None:
        """Read everything that there is.

        Raises:
            DatabaseDamaged: something is not as it was written.
        """
        self.runs()
        for _ in self.records():
            pass

    @abstractmethod
    def close(self) -> None:
        """Close the database. Calling it again does nothing."""

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
