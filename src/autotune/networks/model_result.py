"""The result of tuning a network, and its versioned JSON form."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import asdict, evolve, field, frozen

from autotune.errors import one_line
from autotune.networks.frontend import CompiledNetwork, NetworkProgram, Rival
from autotune.networks.loading import UniqueTask
from autotune.networks.running import (
    NAIVE_FLOP_PER_SECOND,
    Timing,
    build_network,
    check_network,
    time_network,
)
from autotune.report import Table, formats, time_line
from autotune.sketches import UNTUNED
from autotune.store.records import Record
from autotune.targets import Target
from autotune.tuning.result import Result

__all__ = [
    "BASELINE",
    "DEFAULT",
    "FALLBACK",
    "LatencyGap",
    "MODEL_RESULT_SCHEMA",
    "MODEL_RESULT_VERSION",
    "ModelResult",
    "ModelTask",
    "OUTSIDE",
    "TUNED",
    "VIEW",
    "largest_gaps",
    "percent_text",
]

MODEL_RESULT_SCHEMA = "autotune.model_result"
MODEL_RESULT_VERSION = 1
"""Grows when a field of the JSON form changes its meaning or goes away."""

TUNED = "tuned"
BASELINE = "baseline"
FALLBACK = "fallback space"
DEFAULT = "default schedule"
VIEW = "view"
_RIVAL_SECONDS = 0.5
_REASON_WIDTH = 200
_COLUMN_WIDTH = 72


@frozen(eq=False)
class ModelTask:
    """Equal tasks of a network, and their record.

    Attributes:
        task: The tasks.
        record: What is run for them; None for the backend's default schedule.
        result: What tuning them gave; None where they were not tuned.
        measured: Seconds of all their calls in one inference of the built network; None where it
            was not timed.
        fallback: Why the search space refuses it, where the space that the backend falls back to
            was searched; "" otherwise.
    """

    task: UniqueTask
    record: Record | None
    result: Result | None = None
    measured: float | None = None
    fallback: str = ""

    @property
    def name(self) -> str:
        """Of the first of them."""
        return self.task.name

    @property
    def trials(self) -> int:
        """Candidates that were tried."""
        return 0 if self.result is None else self.result.trials

    @property
    def run_by(self) -> str:
        """Kind of program that runs it, as documented: ``tuned``, ``baseline``, ``view``, ..."""
        if self.task.view:
            return VIEW
        if self.record is None:
            return DEFAULT
        if self.record.baseline:
            return BASELINE
        opaque = self.record.candidate.sketch.is_opaque
        return FALLBACK if self.fallback and opaque else TUNED

    @property
    def reason(self) -> str:
        """Reason for which no program of the space runs it, in a line; "" where one does."""
        if self.task.view:
            return "there is nothing to compute"
        if self.task.refusal:
            return one_line(self.task.refusal, _REASON_WIDTH)
        if self.run_by == FALLBACK:
            return one_line(self.fallback, _REASON_WIDTH)
        if self.record is not None:
            return f"no candidate beats the {self.record.baseline}" if self.record.baseline else ""
        if self.result is None:
            return "there is no record of it"
        if not self.result.trials:
            return "it got no trials of the budget"
        return one_line(self.result.failure_text(), _REASON_WIDTH)

    @property
    def latency(self) -> float | None:
        """Seconds of one call: as tuning timed it, else as the built network took."""
        if self.record is not None and self.record.latency is not None:
            return self.record.latency
        return None if self.measured is None else self.measured / self.task.occurrences

    @property
    def total(self) -> float | None:
        """Seconds of all calls in one inference; 0 for a view."""
        if self.task.view:
            return 0.0
        latency = self.latency
        return None if latency is None else latency * self.task.occurrences

    @property
    def expected(self) -> float:
        """About how many seconds all calls in one inference take."""
        if self.total is not None:
            return self.total
        baseline = None if self.result is None else self.result.baseline
        least = 0.0 if baseline is None else baseline.exceeds or 0.0
        return self.task.occurrences * max(least, self.task.flop / NAIVE_FLOP_PER_SECOND)

    @property
    def untuned(self) -> float | None:
        """Seconds of one call without tuning, of the fastest program that there is; or None."""
        if self.result is None or self.latency is None:
            return None
        speedup = self.result.speedup
        return None if speedup is None else self.latency * speedup

    @property
    def least_untuned(self) -> float:
        """Seconds of one call without tuning, or as many as it takes at least."""
        least = None if self.result is None else self.result.least_speedup
        known = self.untuned if least is None else (self.latency or 0.0) * least
        return known or self.latency or 0.0

    def to_json(self, network: ModelResult) -> dict[str, Any]:
        """A JSON object."""
        task = self.task
        return {
            "name": self.name,
            "names": list(task.names),
            "nodes": list(task.nodes),
            "digest": None if task.workload is None else task.workload.digest,
            "occurrences": task.occurrences,
            "flop": task.flop,
            "flop_share": _share(task.total_flop, network.flop),
            "run_by": self.run_by,
            "reason": self.reason,
            "trials": self.trials,
            "latency": self.latency,
            "total": self.total,
            "share": _share(self.total, network.latency),
            "untuned": self.untuned,
            "measured": self.measured,
            "record": None if self.record is None else self.record.name,
            "result": None if self.result is None else self.result.to_json(),
        }


@frozen(eq=False)
class ModelResult:
    """The outcome of tuning a network.

    Attributes:
        network: The network.
        tasks: Its tasks, equal ones as one, in order of their first call.
        target: What it was tuned for.
        threads: Threads that it runs on.
        database: Where the records are.
        seconds: Wall seconds of tuning by activity, as of :class:`autotune.Result`.
        reason: Why tuning ended; "" where nothing was tuned.
        from_records: Whether nothing was searched.
        timing: How long the built network takes; None before :meth:`timed`.
        skipped: What was left out after the network was built, for want of time or of its device:
            ``checked`` or ``timed``, the outputs' comparison first.
        lacks: What the built network needs to run that is not here; "" where it can be called.
        rival: The fastest other runtime here that runs the model; None where none was timed.
    """

    network: NetworkProgram
    tasks: tuple[ModelTask, ...]
    target: Target
    threads: int
    database: str
    seconds: Mapping[str, float] = field(factory=dict)
    reason: str = ""
    from_records: bool = False
    timing: Timing | None = None
    skipped: tuple[str, ...] = ()
    lacks: str = ""
    rival: Rival | None = None

    @property
    def name(self) -> str:
        """Name of the network for a person."""
        return self.network.name

    @property
    def trials(self) -> int:
        """Candidates of all tasks."""
        return sum(task.trials for task in self.tasks)

    @property
    def is_tunable(self) -> bool:
        """True if there is something to tune: a task that is no view.

        What only moves its inputs, or sorts them, has none, and is built and run all the same.
        """
        return any(not task.task.view for task in self.tasks)

    @property
    def flop(self) -> float:
        """Of one inference."""
        return sum(task.task.total_flop for task in self.tasks)

    @property
    def latency(self) -> float:
        """Estimated seconds of one inference: occurrences x latency, over the timed tasks."""
        return sum(task.total or 0.0 for task in self.tasks)

    @property
    def expected(self) -> float:
        """About how many seconds an inference takes, what was not timed included.

        A task that nobody timed counts by its flop, or as what it is known to exceed.
        """
        return sum(task.expected for task in self.tasks)

    @property
    def untimed(self) -> tuple[str, ...]:
        """Names of the tasks whose latency is not known, and is no part of the estimate."""
        return tuple(task.name for task in self.tasks if task.total is None)

    @property
    def untuned(self) -> float | None:
        """Estimated seconds of one inference without tuning; None where that is not known.

        Tasks that are run by the default schedule count as they are.
        """
        unknown = any(it.result and it.result.least_speedup is not None for it in self.tasks)
        if unknown or all(task.untuned is None for task in self.tasks):
            return None
        return self.least_untuned

    @property
    def least_untuned(self) -> float:
        """Estimated seconds of one inference without tuning, at least.

        Untuned programs that are slow for certain were not run.
        """
        return sum(it.task.occurrences * it.least_untuned for it in self.tasks if not it.task.view)

    @property
    def speedup(self) -> float | None:
        """Speed of the estimate relative to that without tuning, if both are known."""
        untuned = self.untuned
        return untuned / self.latency if untuned is not None and self.latency else None

    @property
    def least_speedup(self) -> float | None:
        """Least :attr:`speedup`, where some untuned programs were not run."""
        if not self.latency or self.untuned is not None:
            return None
        known = any(
            it.untuned is not None or it.least_untuned > (it.latency or 0.0) for it in self.tasks
        )
        return self.least_untuned / self.latency if known else None

    @property
    def gaps(self) -> tuple[LatencyGap, ...]:
        """Explanations of a measured latency that is off the estimate by more than a tenth."""
        if self.timing is None or not self.is_tunable:
            return ()
        timed = [it for it in self.tasks if it.measured is not None]
        parts = [LatencyGap(it.name, it.total or 0.0, it.measured or 0.0) for it in timed]
        return largest_gaps(parts, self.latency, self.timing.latency)

    @property
    def chosen(self) -> dict[str, Record | None]:
        """Record of each task of the network, by its name."""
        return {name: it.record for it in self.tasks for name in it.task.names}

    def build(self, *, check: bool = True) -> CompiledNetwork:
        """Compile the network in this process.

        Args:
            check: Whether its outputs are compared with the model's.

        Returns:
            A callable on numpy arrays, torch tensors and whatever else has DLPack; ``save`` writes
            a file that runs elsewhere.

        Raises:
            BuildFailed: the compiler rejected it; names the task.
            InvalidSchedule: a record cannot be replayed; names the task.
            WrongOutputs: it computes something else than the model.
        """
        compiled = build_network(self.network, self.chosen, self.target, self.threads)
        if check:
            check_network(self.network, compiled, target=self.target)
        return compiled

    def timed(self, compiled: CompiledNetwork, most_seconds: float = math.inf) -> ModelResult:
        """The result with what the built network takes, whole and by task, and what a rival does.

        Args:
            compiled: The built network.
            most_seconds: About how long that may take.
        """
        timing = time_network(self.network, compiled, most_seconds=most_seconds)
        tasks = tuple(evolve(it, measured=_sum(timing.tasks, it.task.names)) for it in self.tasks)
        seconds = min(_RIVAL_SECONDS, most_seconds)
        rival = self.network.rival(self.network.example_inputs(), self.threads, seconds)
        return evolve(self, tasks=tasks, timing=timing, rival=rival)

    @property
    def undecided(self) -> float:
        """Share of the expected time that is in tasks without a record."""
        left = sum(it.expected for it in self.tasks if it.run_by == DEFAULT)
        return left / self.expected if self.expected else 0.0

    def table(self) -> Table:
        """Table of the tasks' records and times, the longest first.

        ``print(result.table().to_text())`` shows it.
        """
        return _table(self)

    def to_json(self) -> dict[str, Any]:
        """A JSON object; ``docs`` describe the schema, ``schema`` and ``version`` name it."""
        timing = self.timing
        return {
            "schema": MODEL_RESULT_SCHEMA,
            "version": MODEL_RESULT_VERSION,
            "network": {
                "name": self.name,
                "backend": self.network.backend,
                "flop": self.flop,
                "inputs": [_tensor(it) for it in self.network.inputs],
                "outputs": [_tensor(it) for it in self.network.outputs],
                "passes": [
                    {"name": it.name, "seconds": it.seconds, "note": it.note}
                    for it in self.network.passes
                ],
            },
            "target": {"fingerprint": self.target.fingerprint, **self.target.to_json()},
            "threads": self.threads,
            "trials": self.trials,
            "seconds": {**self.seconds, "total": sum(self.seconds.values())},
            "latency": self.latency,
            "untimed": list(self.untimed),
            "skipped": list(self.skipped),
            "untuned": self.untuned,
            "speedup": self.speedup,
            "least_untuned": self.least_untuned,
            "measured": timing
            and {"latency": timing.latency, "fastest": timing.fastest, "calls": timing.calls},
            "rival": None if self.rival is None else asdict(self.rival),
            "gaps": [asdict(gap) for gap in self.gaps],
            "tasks": [task.to_json(self) for task in self.tasks],
            "run": {
                "database": self.database,
                "from_records": self.from_records,
                "reason": self.reason,
            },
        }


def _tensor(tensor: Any) -> dict[str, Any]:
    return {"name": tensor.name, "shape": list(tensor.shape), "dtype": tensor.dtype}


def _share(part: float | None, whole: float) -> float | None:
    return part / whole if part is not None and whole > 0 else None


def _sum(seconds: Mapping[str, float], names: tuple[str, ...]) -> float | None:
    found = [seconds[name] for name in names if name in seconds]
    return sum(found) if found else None


def percent_text(part: float, whole: float) -> str:
    """A share in percent with up to two decimals: ``"99.96 %"``, ``"100 %"``."""
    if not whole > 0:
        return "-"
    share = 100 * part / whole
    text = f"{share:.2f}".rstrip("0").rstrip(".")
    # What is not all of it is not shown as all of it.
    return f"{'<' if text == '100' and part < whole else ''}{text} %"


def _table(result: ModelResult) -> Table:
    """Tabulate the record of each task and its time, the longest first."""
    tasks = sorted(result.tasks, key=lambda it: (it.task.view, -(it.total or 0.0)))
    columns = ["task", "calls>", "flop share>", "trials>", "latency>", "total>", "share>"]
    if result.timing is not None:
        columns.append("in network>")
    rows = [_model_row(task, result) for task in tasks]
    return Table(_headline(result), (*columns, "run by"), tuple(rows), tuple(_notes(result)))


def _model_row(task: ModelTask, result: ModelResult) -> tuple[str, ...]:
    run_by = task.run_by if task.run_by in (TUNED, VIEW) else f"{task.run_by}: {task.reason}"
    measured = [formats.seconds(task.measured)] if result.timing is not None else []
    return (
        formats.shortened(task.name),
        str(task.task.occurrences),
        percent_text(task.task.total_flop, result.flop),
        str(task.trials or "-"),
        formats.seconds(task.latency),
        "-" if task.task.view else formats.seconds(task.total),
        formats.percent(task.total or 0.0, result.latency),
        *measured,
        one_line(run_by, _COLUMN_WIDTH),
    )


def _headline(result: ModelResult) -> str:
    figures = []
    if result.timing is not None:
        figures.append(f"{formats.seconds(result.timing.latency)} an inference")
        if result.rival is not None:
            ratio = formats.ratio(result.rival.latency / result.timing.latency)
            figures.append(f"{ratio} the speed of {result.rival.name}")
    if result.latency:
        figures.append(f"{formats.seconds(result.latency)} estimated from its tasks")
    defaults = _default_schedules(result)
    if defaults and result.speedup is not None:
        figures.append(f"{formats.ratio(result.speedup)} the speed of {defaults}")
    elif defaults and result.least_speedup is not None:
        figures.append(f"at least {formats.ratio(result.least_speedup)} the speed of {defaults}")
    return f"{result.name}: {', '.join(figures)}" if figures else result.name


def _default_schedules(result: ModelResult) -> str:
    """Name of the programs without tuning; "" where nothing but naive loop nests was timed."""
    timed = (it for task in result.tasks if task.result for it in task.result.baselines)
    names = {it.name for it in timed if it.outcome.latency is not None} - {UNTUNED}
    return " and ".join(sorted(names))


def _notes(result: ModelResult) -> list[str]:
    computing = [it for it in result.tasks if not it.task.view]
    tuned = [it for it in computing if it.run_by == TUNED]
    flop = sum(it.task.total_flop for it in tuned)
    notes = [
        f"tuned: {len(tuned)} of {len(computing)} tasks, "
        f"{percent_text(flop, result.flop)} of the flop"
        if result.is_tunable
        else "there is nothing to tune: views and operators of the host are all there is"
    ]
    for how in (FALLBACK, DEFAULT):
        fallen = [it for it in computing if it.run_by == how]
        times = [it.total for it in fallen if it.total is not None]
        if times:
            share = formats.percent(sum(times), result.latency)
            notes.append(f"by the {how}: {len(fallen)} tasks, {share} of the time")
    if result.untimed:
        notes.append(f"not timed, and no part of the estimate: {_listed(result.untimed)}")
    if result.from_records:
        total = formats.seconds(sum(result.seconds.values()))
        notes.append(f"answered from records; the run took {total} when it was made")
    elif result.seconds:
        notes.append(f"trials: {result.trials}; {result.reason}")
        notes.append(time_line(result.seconds))
    if result.timing is not None:
        timing = result.timing
        inside = sum(timing.tasks.values())
        notes.append(
            f"measured: median of {timing.calls} calls, the fastest "
            f"{formats.seconds(timing.fastest)}; {formats.seconds(inside)} in the tasks, each "
            "call timed by itself"
        )
    if result.gaps:
        notes.append(_gap_line(result.gaps))
    if result.skipped and result.lacks:
        notes.append(f"not {' and not '.join(result.skipped)}: {one_line(result.lacks)}")
    elif result.skipped:
        expected = formats.seconds(result.expected)
        notes.append(
            f"not {' and not '.join(result.skipped)} for want of time: an inference takes about "
            f"{expected}, most of it in tasks that are not tuned yet"
        )
    return [*notes, f"records: {result.database}"]


def _gap_line(gaps: tuple[LatencyGap, ...]) -> str:
    """Line on most of the time that the estimate does not have, or has too much of."""
    texts = []
    for gap in gaps:
        estimated, measured = formats.seconds(gap.estimated), formats.seconds(gap.measured)
        name = formats.shortened(gap.part)
        is_outside = gap.part == OUTSIDE
        texts.append(f"{measured} {name}" if is_outside else f"{name} ({estimated} -> {measured})")
    return f"estimated -> measured, where they differ most: {', '.join(texts)}"


def _listed(names: tuple[str, ...], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(formats.shortened, names[:most])) + more


OUTSIDE = "outside the tasks"
"""Name of the gap that no task has: calls of the virtual machine, and memory."""

_AGREES = 0.1
"""An estimate that is off by no more than this part of itself needs no explanation."""
_MOST = 3


@frozen
class LatencyGap:
    """A part of a network in seconds of one inference.

    Attributes:
        part: Name of a task, or :data:`OUTSIDE`.
        estimated: As tuning timed it.
        measured: In the built network.
    """

    part: str
    estimated: float
    measured: float


def largest_gaps(
    tasks: Iterable[LatencyGap], estimated: float, measured: float
) -> tuple[LatencyGap, ...]:
    """The parts that explain why a network takes longer than estimated, or not as long.

    Args:
        tasks: All tasks that were timed in the built network.
        estimated: Seconds of one inference, as estimated.
        measured: Seconds of one inference of the built network.

    Returns:
        Those that together make more than half of the difference, at most three, the largest
        first; () where the estimate is off by at most a tenth.
    """
    whole = measured - estimated
    if abs(whole) <= _AGREES * estimated:
        return ()
    parts = [*tasks]
    # Tasks are timed one by one, which takes longer: then nothing is left outside them.
    outside = max(0.0, measured - sum(it.measured for it in parts))
    parts.append(LatencyGap(OUTSIDE, 0.0, outside))
    sign = 1.0 if whole > 0 else -1.0

    def share(gap: LatencyGap) -> float:
        return sign * (gap.measured - gap.estimated)

    found: list[LatencyGap] = []
    for gap in sorted(parts, key=share, reverse=True)[:_MOST]:
        if share(gap) <= 0 or sum(map(share, found)) > abs(whole) / 2:
            break
        found.append(gap)
    return tuple(found)
