"""Warm starts of a new run: the best of equal records, and lessons of similar tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import frozen

from autotune.ir.workloads import Workload, WorkloadForm
from autotune.models.cost import Observation
from autotune.plugins.workload_names import task_name
from autotune.sketches import Candidate
from autotune.spaces import SearchSpace
from autotune.spaces.transfer import moved_candidate
from autotune.store.database import Database, RecordFilter
from autotune.store.records import MeasureKey, Record, WarmSource
from autotune.tuning.programs import TaskRun

__all__ = ["WarmStart", "find_warm_starts", "seed_limit"]

MOST_SOURCES = 8
"""Recorded workloads that a task begins with."""
SEED_SHARE = 8
"""Number of trials of which one is that of a seed; a task has one in any case."""
MOST_TRAINING = 64
"""Records of a workload that a cost model learns from before the first trial."""
MOST_TRAINING_OF_RUN = 512
"""Records that a run's cost model learns from in all: they are in every checkpoint."""


@frozen(eq=False)
class WarmStart:
    """Warm start of a task.

    Attributes:
        sources: Where it comes from, the nearest first.
        seeds: Candidates to propose first; one of equal records may be of another space.
        training: What the task's cost model learns before the first trial, but for what it learns
            from an earlier task of the run.
    """

    sources: tuple[WarmSource, ...] = ()
    seeds: tuple[Candidate, ...] = ()
    training: tuple[Observation, ...] = ()


def seed_limit(trials: int | None, tasks: int) -> int:
    """Number of seeds of each of some tasks within a budget of so many trials."""
    if trials is None:
        return MOST_SOURCES
    return min(MOST_SOURCES, max(1, trials // (SEED_SHARE * tasks)))


def find_warm_starts(
    database: Database, tasks: Sequence[TaskRun], trials: int | None, *, learns: bool
) -> list[WarmStart]:
    """Find the warm starts of a run's tasks; nothing is written.

    Args:
        database: The records.
        tasks: The tasks.
        trials: The run's budget; None for one of time alone.
        learns: Whether strategies ask cost models.
    """
    keys = dict.fromkeys(task.key for task in tasks)
    recorded = {key: recorded_workloads(database, key) for key in keys}
    nearest = [
        find_neighbours(task.workload, task.key, recorded[task.key], MOST_SOURCES)
        for task in tasks
    ]
    seeds = [
        _seeds(task, found, seed_limit(trials, len(tasks)))
        for task, found in zip(tasks, nearest, strict=True)
    ]
    lessons = _lessons(database, tasks, nearest) if learns else {}
    made, taught = [], set()
    for task, found, proposed in zip(tasks, nearest, seeds, strict=True):
        own = [(task.key, it.workload.digest) for it in found if it.best.key == task.key]
        new = [source for source in own if source in lessons and source not in taught]
        taught.update(new)
        sources = [_source(it, proposed.get(it), lessons, task.key) for it in found]
        made.append(
            WarmStart(
                tuple(it for it in sources if it.used_as),
                tuple(proposed.values()),
                tuple(pair for source in new for pair in lessons[source]),
            )
        )
    return made


_Lessons = dict[tuple[MeasureKey, str], list[Observation]]
"""Observations to learn from, by the conditions and the workload."""


def _seeds(task: TaskRun, nearest: Sequence[Neighbour], most: int) -> dict[Neighbour, Candidate]:
    """A candidate of the task for each of the nearest that has one; each candidate once."""
    found: dict[Neighbour, Candidate] = {}
    digests: set[str] = set()
    for neighbour in nearest:
        if len(found) == most:
            break
        candidate = _seed(task, neighbour)
        if candidate is not None and candidate.digest not in digests:
            found[neighbour] = candidate
            digests.add(candidate.digest)
    return found


def _seed(task: TaskRun, neighbour: Neighbour) -> Candidate | None:
    candidate = neighbour.best.candidate
    if neighbour.is_equal:
        return _as_in_space(candidate.on(task.workload), task.space)
    return moved_candidate(candidate, task.space)


def _as_in_space(candidate: Candidate, space: SearchSpace) -> Candidate:
    """The candidate with the space's own sketch, if it has this one."""
    own = (it for it in space.sketches() if it.digest == candidate.sketch.digest)
    return Candidate(next(own, candidate.sketch), candidate.values)


def _lessons(
    database: Database, tasks: Sequence[TaskRun], nearest: Sequence[Sequence[Neighbour]]
) -> _Lessons:
    """Outcomes under the conditions of a task, of the workloads that are nearest to one."""
    wanted: dict[tuple[MeasureKey, str], Neighbour] = {}
    for task, found in zip(tasks, nearest, strict=True):
        # The features of a candidate without a loop nest take a compiler.
        if task.space.score_limit is None:
            alike = (it for it in found if it.best.key == task.key)
            wanted.update({(task.key, it.workload.digest): it for it in alike})
    share = min(MOST_TRAINING, MOST_TRAINING_OF_RUN // max(1, len(wanted)))
    return {
        source: [
            (record.candidate, record.outcome)
            for record in training_records(database, neighbour, share)
            if not record.candidate.sketch.is_opaque
        ]
        for source, neighbour in wanted.items()
    }


def _source(
    neighbour: Neighbour, seed: Candidate | None, lessons: _Lessons, key: MeasureKey
) -> WarmSource:
    """Use that a neighbour was put to."""
    best, workload = neighbour.best, neighbour.workload
    training = 0
    if best.key == key:
        training = len(lessons.get((key, workload.digest), ()))
    uses = []
    if seed is not None:
        uses.append("best" if neighbour.is_equal else "seed")
    if training:
        uses.append("training")
    return WarmSource(
        best.name,
        workload.digest,
        task_name(workload),
        neighbour.distance,
        tuple(uses),
        "" if seed is None else seed.digest,
        training,
    )


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


RecordedWorkload = tuple[Record, WorkloadForm]
"""The fastest record of a workload, and what that workload is like."""


def recorded_workloads(database: Database, key: MeasureKey) -> list[RecordedWorkload]:
    """Every workload, with its fastest candidate, as measured on one kind of machine.

    Only records of the same target, backend and number of threads are like those of ``key``; other
    versions of the compiler and other protocols are. Imported records are claims: they are left
    out.
    """
    where = RecordFilter(target=key.target, backend=key.backend, threads=key.threads)
    timed = (it for it in database.fastest_of_each(where) if not it.outcome.imported)
    return [(it, WorkloadForm.of(it.candidate.sketch.workload)) for it in timed]


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
    for best, other in recorded:
        distance = form.distance(other)
        if distance is not None:
            is_equal = form.digest == other.digest and best.key == key
            found.append(Neighbour(best, distance, is_equal))
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
