"""Contents of a page: records by task, and runs with their curves; nothing is drawn here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter

from attrs import define, evolve, field, frozen

from autotune.errors import AutotuneError, DatabaseError
from autotune.plugins.workload_names import task_name
from autotune.report.summaries import Holding, by_measure_key
from autotune.store.database import Database, RecordFilter
from autotune.store.records import MeasureKey, Record, Run
from autotune.store.rejections import Rejection, reject_reason
from autotune.tuning.resume import Checkpoint

__all__ = [
    "Contents",
    "CurvePoint",
    "RunContents",
    "Share",
    "TaskContents",
    "TrialPoint",
    "best_so_far",
    "collect",
    "improvements",
    "run_contents",
]


@frozen
class TrialPoint:
    """Measured candidate of a run.

    Attributes:
        number: Position in its run, from 0.
        elapsed: Seconds that its run had taken by then.
        latency: Seconds per call; None where the candidate does not count.
    """

    number: int
    elapsed: float
    latency: float | None


@frozen
class CurvePoint:
    """Value that was reached at a time.

    Attributes:
        trials: Trials by then.
        elapsed: Seconds of the run by then.
        seconds: Of the best so far: of one call, or of one inference of a network.
    """

    trials: int
    elapsed: float
    seconds: float


@define
class TaskContents(Holding):
    """The records of one task under one measure key.

    Attributes:
        trials: What each run measured, in order, by the run's name.
        rejections: Candidates that do not count, by class.
        names: Digests by which runs call it: of the computation, and as each record writes it.
    """

    trials: dict[str, list[TrialPoint]] = field(factory=dict)
    rejections: dict[str, Rejection] = field(factory=dict)
    names: set[str] = field(factory=set)

    def add(self, record: Record) -> None:
        """Count one more record."""
        Holding.add(self, record)
        workload = record.candidate.sketch.workload
        self.names |= {workload.digest, workload.spelling}
        if record.baseline:
            return
        outcome = record.outcome
        if not outcome.ok:
            reason = reject_reason(outcome)
            known = self.rejections.get(reason, Rejection(0, outcome.message))
            self.rejections[reason] = evolve(known, count=known.count + 1)
        if not outcome.imported:
            counts = outcome.ok and not outcome.beaten_by
            trial = TrialPoint(record.trial, record.elapsed, outcome.latency if counts else None)
            self.trials.setdefault(record.run_id, []).append(trial)

    @property
    def title(self) -> str:
        """Title of a task; that of an imported program names its largest stage, too.

        Compilers call every program of a network ``main``.
        """
        name = task_name(self.workload)
        if self.workload.parameters or self.workload.external:
            return name
        stage = max(self.workload.stages, key=lambda stage: stage.flop)
        shape = " x ".join(map(str, stage.output.shape))
        return f"{name}: {stage.name} {shape} {stage.output.dtype}"

    @property
    def baseline(self) -> Record | None:
        """The fastest program without tuning that could be timed."""
        valid = [record for record in self.baselines if record.latency is not None]
        return min(valid, key=attrgetter("rank"), default=None)

    @property
    def before(self) -> float | None:
        """Seconds of one call without tuning."""
        return None if self.baseline is None else self.baseline.latency

    @property
    def after(self) -> float | None:
        """Seconds of one call of the program to use."""
        return None if self.best is None else self.best.latency


FindTask = Callable[[str, MeasureKey], TaskContents | None]


@frozen(eq=False)
class Share:
    """The part of one task in the time of a network.

    Attributes:
        task: The task.
        weight: Calls in one inference.
        before: Seconds of these calls without tuning; None where that is unknown.
        after: Seconds with the programs to use.
    """

    task: TaskContents
    weight: float
    before: float | None
    after: float | None


@frozen(eq=False)
class RunContents:
    """Run of the tuner.

    Attributes:
        run: The run as stored.
        tasks: The tasks that have records, each with its calls in one inference.
        missing: How many tasks have none.
        seconds: Where the time went, by activity; empty where that is unknown.
        note: Why something of the run is unknown; "" where nothing is.
    """

    run: Run
    tasks: tuple[tuple[TaskContents, float], ...]
    missing: int
    seconds: Mapping[str, float]
    note: str = ""

    @property
    def trials(self) -> int:
        """Candidates that this run measured."""
        return sum(len(task.trials.get(self.run.run_id, ())) for task, _ in self.tasks)

    @property
    def shares(self) -> tuple[Share, ...]:
        """The tasks of a network, those that take most of its time now first."""
        found = [
            Share(task, weight, _times(weight, task.before), _times(weight, task.after))
            for task, weight in self.tasks
        ]
        return tuple(sorted(found, key=lambda share: -(share.after or share.before or 0.0)))

    @property
    def total(self) -> tuple[CurvePoint, ...]:
        """Seconds of all calls of all tasks with the best programs so far, trial by trial.

        A task counts as it is without tuning until a candidate is faster. The curve begins when
        something is known of every task.
        """
        steps = [
            (trial, place)
            for place, (task, _) in enumerate(self.tasks)
            for trial in task.trials.get(self.run.run_id, ())
        ]
        steps.sort(key=lambda step: (step[0].elapsed, step[0].number))
        best = [math.inf if task.before is None else task.before for task, _ in self.tasks]
        points = []
        for count, (trial, place) in enumerate(steps, start=1):
            best[place] = min(best[place], math.inf if trial.latency is None else trial.latency)
            total = sum(w * it for (_, w), it in zip(self.tasks, best, strict=True))
            if math.isfinite(total):
                points.append(CurvePoint(count, trial.elapsed, total))
        return tuple(points)


@frozen(eq=False)
class Contents:
    """Everything that a page shows.

    Attributes:
        location: Where the database is.
        tasks: In the order in which their first records were stored.
        runs: In the order in which they were started.
    """

    location: str
    tasks: tuple[TaskContents, ...]
    runs: tuple[RunContents, ...]


def collect(database: Database, run_id: str | None = None) -> Contents:
    """Reads records and runs; latencies of imported records are no part of any curve.

    Args:
        database: Of the records.
        run_id: The only run that is meant; None for all.
    """
    where = RecordFilter(run_id=run_id)
    tasks = by_measure_key(database.records(where), TaskContents)
    for task in tasks:
        same = RecordFilter(workload=task.workload.digest, key=task.key)
        for record in database.baseline_records(same):
            task.add(record)
    by_name = {(name, task.key): task for task in tasks for name in task.names}

    def find(digest: str, key: MeasureKey) -> TaskContents | None:
        # A run keeps the digests that its version gave; records have those of today.
        return by_name.get((digest, key)) or by_name.get((_of_today(database, digest), key))

    runs = [run for run in database.runs() if run_id in (None, run.run_id)]
    return Contents(
        database.location, tuple(tasks), tuple(run_contents(run, find) for run in runs)
    )


def best_so_far(trials: Iterable[TrialPoint]) -> tuple[CurvePoint, ...]:
    """The curve of a task in one run: a point for each trial from the first valid one on."""
    points = []
    best = math.inf
    for count, trial in enumerate(trials, start=1):
        best = min(best, math.inf if trial.latency is None else trial.latency)
        if math.isfinite(best):
            points.append(CurvePoint(count, trial.elapsed, best))
    return tuple(points)


def improvements(points: Sequence[CurvePoint]) -> tuple[CurvePoint, ...]:
    """The points at which a curve falls, and its last one."""
    before = [math.inf, *(point.seconds for point in points)]
    last = len(points) - 1
    return tuple(
        point
        for place, point in enumerate(points)
        if place == last or point.seconds < before[place]
    )


def _times(weight: float, seconds: float | None) -> float | None:
    return None if seconds is None else weight * seconds


def _of_today(database: Database, digest: str) -> str:
    record = next(database.records(RecordFilter(workload=digest)), None)
    return digest if record is None else record.candidate.sketch.workload.digest


def run_contents(run: Run, find: FindTask) -> RunContents:
    """A run, as far as what is stored of it can be understood; a note says what cannot.

    Args:
        run: The run.
        find: Gives what there is of a workload, by its digest, under a measure key.
    """
    try:
        names, weights = _tasks_of(run)
        seconds, note = _seconds_of(run, len(names))
    except DatabaseError as error:
        names, weights, seconds, note = [], [], {}, str(error)
    found = [(find(*name), weight) for name, weight in zip(names, weights, strict=True)]
    calls: dict[int, float] = {}
    for task, weight in found:
        # Programs that have had digests of their own may be one by now.
        calls[id(task)] = calls.get(id(task), 0.0) + weight
    known = {id(task): task for task, _ in found if task is not None}
    missing = sum(task is None for task, _ in found)
    tasks = tuple((task, calls[number]) for number, task in known.items())
    return RunContents(run, tasks, missing, seconds, note)


def _tasks_of(run: Run) -> tuple[list[tuple[str, MeasureKey]], list[float]]:
    """Workload and measure key of each task of a run, and its weight.

    Raises:
        DatabaseError: what is stored of the run does not say so.
    """
    digests = run.options.get("tasks", [run.workload])
    if not isinstance(digests, list) or not all(isinstance(it, str) for it in digests):
        raise DatabaseError("the tasks of the run are no list of digests")
    weights = run.options.get("weights", [1.0] * len(digests))
    if not isinstance(weights, list) or not all(map(_is_weight, weights)):
        raise DatabaseError("the weights of the run's tasks are no list of positive numbers")
    if len(weights) != len(digests):
        raise DatabaseError(f"the run has {len(digests)} tasks and {len(weights)} weights")
    try:
        keys = [MeasureKey.from_json(key) for key in run.options.get("keys", ())]
    except (AutotuneError, TypeError) as error:
        raise DatabaseError(f"the measure keys of the run cannot be read: {error}") from error
    keys = keys if len(keys) == len(digests) else [run.key] * len(digests)
    return list(zip(digests, keys, strict=True)), [float(weight) for weight in weights]


def _is_weight(value: object) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and 0 < value < math.inf  # type: ignore[operator]


def _seconds_of(run: Run, tasks: int) -> tuple[Mapping[str, float], str]:
    """Seconds of a run by activity, and the reason if they are unknown."""
    if run.checkpoint is None:
        return {}, "the run has no checkpoint"
    try:
        return Checkpoint.from_json(run.checkpoint, tasks).progress.seconds, ""
    except DatabaseError as error:
        return {}, str(error)
