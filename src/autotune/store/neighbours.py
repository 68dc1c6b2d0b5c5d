"""Recorded tasks that are like a task: where what was learned may be of use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import frozen

from autotune.ir.workloads import Workload, WorkloadForm
from autotune.store.database import Database, RecordFilter
from autotune.store.records import MeasureKey, Record

__all__ = [
    "Neighbour",
    "RecordedWorkload",
    "find_neighbours",
    "recorded_workloads",
    "training_records",
]


@frozen(eq=False)
class RecordedWorkload:
    """A workload that was measured under some measure key.

    Attributes:
        best: The record of its fastest candidate.
        form: What the workload is like.
    """

    best: Record
    form: WorkloadForm


@frozen(eq=False)
class Neighbour:
    """A recorded workload that is like a task.

    Attributes:
        best: The record of its fastest candidate.
        distance: From the task: :meth:`autotune.ir.workloads.WorkloadForm.distance`.
        is_equal: Whether it is the same task under the same conditions, so that its records answer
            trials.
    """

    best: Record
    distance: float
    is_equal: bool

    @property
    def workload(self) -> Workload:
        """Workload that it computes."""
        return self.best.candidate.sketch.workload


def recorded_workloads(database: Database, key: MeasureKey) -> list[RecordedWorkload]:
    """Every workload, with its fastest candidate, as measured on one kind of machine.

    Only records of the same target, backend and number of threads are like those of ``key``; other
    versions of the compiler and other protocols are. Imported records are claims: they are left
    out.
    """
    where = RecordFilter(target=key.target, backend=key.backend, threads=key.threads)
    timed = (it for it in database.fastest_of_each(where) if not it.outcome.imported)
    return [RecordedWorkload(it, WorkloadForm.of(it.candidate.sketch.workload)) for it in timed]


def find_neighbours(
    workload: Workload, key: MeasureKey, recorded: Iterable[RecordedWorkload], most: int
) -> list[Neighbour]:
    """The recorded workloads that are nearest to a task, the nearest first.

    Equal ones under the same measure key come first, then all by distance; of equals that under
    the same measure key, and the one recorded last.

    Args:
        workload: What the task computes.
        key: What its measurements depend on.
        recorded: As :func:`recorded_workloads` returns them.
        most: How many, at most.
    """
    form = WorkloadForm.of(workload)
    found = []
    for it in recorded:
        distance = form.distance(it.form)
        if distance is not None:
            is_equal = form.digest == it.form.digest and it.best.key == key
            found.append(Neighbour(it.best, distance, is_equal))
    found.sort(key=lambda it: (not it.is_equal, it.distance, it.best.key != key, -it.best.created))
    return found[:most]


def training_records(database: Database, neighbour: Neighbour, most: int) -> list[Record]:
    """Records of a neighbour to learn from: its fastest, its slowest, and some between.

    Each candidate counts once, with its last outcome that need not be measured again. Failures
    are an eighth at most.

    Args:
        database: Where they are.
        neighbour: The recorded task.
        most: How many, at most.
    """
    where = RecordFilter(
        workload=neighbour.workload.digest, key=neighbour.best.key, imported=False
    )
    latest = {
        record.candidate.digest: record
        for record in database.records(where)
        if not record.outcome.retriable
    }
    failed = [it for it in latest.values() if not it.outcome.ok]
    valid = sorted((it for it in latest.values() if it.outcome.ok), key=_latency)
    failures = _spread(failed, min(len(failed), most // 8))
    return [*_spread(valid, most - len(failures)), *failures]


def _latency(record: Record) -> float:
    return record.latency or 0.0


def _spread(records: Sequence[Record], most: int) -> list[Record]:
    """At most so many, at equal distances, the first and the last among them."""
    if len(records) <= most:
        return list(records)
    if most < 2:
        return list(records[:most])
    step = (len(records) - 1) / (most - 1)
    return [records[round(number * step)] for number in range(most)]
