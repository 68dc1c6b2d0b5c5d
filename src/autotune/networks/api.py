"""The Python entry points for networks: tune one, build one from records, list its tasks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from autotune.errors import AutotuneError, InvalidValueError, UnknownNameError, one_line
from autotune.ir.workloads import Workload
from autotune.networks.fixed_inputs import AskedInputs
from autotune.networks.frontend import CompiledNetwork, Frontend, NetworkProgram, PassReport
from autotune.networks.loading import ImportLimit, UniqueTask, load_network, unique_tasks
from autotune.networks.model_result import ModelResult, ModelTask, percent_text
from autotune.networks.running import (
    NAIVE_FLOP_PER_SECOND,
    TIMING_SECONDS,
    build_network,
    check_network,
    saving_seconds,
)
from autotune.networks.source import (
    Source,
    as_inputs,
    as_path,
    backends_of_frontends,
    find_frontend,
    in_precision,
    text_of,
    with_inputs,
)
from autotune.plugins.options import check_known
from autotune.plugins.parts import factory_of
from autotune.process.importing import no_collection
from autotune.process.stopwatch import Clock
from autotune.report import Table, formats
from autotune.runtime.device import release_unused
from autotune.store.best_record import best_of_backends
from autotune.store.sqlite import open_database
from autotune.tuning.api import run_tasks
from autotune.tuning.budget import Reserve
from autotune.tuning.events import NetworkLoaded, NetworkTaskFacts, PassFinished, WarningRaised
from autotune.tuning.options import TuneOptions, spec_of
from autotune.tuning.programs import Task, backend_of_parts, tasks_on_backends, usable_backends
from autotune.tuning.resolve import RunProcesses, is_probably_answered
from autotune.tuning.result import Result

__all__ = [
    "Coverage",
    "EarlyCheck",
    "ModelOptions",
    "TaskCoverage",
    "build_model",
    "build_recorded",
    "check_measuring",
    "coverage_table",
    "model_tasks",
    "run_model",
    "tune_model",
]


@frozen(kw_only=True, eq=False)
class ModelOptions:
    """Options of reading a model.

    Attributes:
        frontend: Name of the part that reads it; by default the first that accepts it.
        passes: Passes over the graph that are replaced, by name: a function from the frontend's
            graph to another one, or None to leave the pass out.
        check: Whether outputs are compared with those of the model, before tuning where the
            untuned network is fast enough, and after it.
        weights: What a second of a task counts in what is minimised, by the task's name;
            by default as much as it has calls.
    """

    frontend: str | None = None
    passes: Mapping[str, Callable[[Any], Any] | None] = field(factory=dict)
    check: bool = True
    weights: Mapping[str, float] = field(factory=dict)


def tune_model(
    model: object,
    example_inputs: object = None,
    *,
    frontend: str | None = None,
    passes: Mapping[str, Callable[[Any], Any] | None] | None = None,
    check: bool = True,
    weights: Mapping[str, float] | None = None,
    precision: str | None = None,
    dims: Mapping[str, int] | None = None,
    inputs: Mapping[str, object] | None = None,
    **options: Any,
) -> ModelResult:
    """Find fast schedules for all programs of a network, within one budget.

    The scheduler spends it where the sum of occurrences x latency is expected to fall most.
    A program that the search space refuses is searched in the space of the compiler's own rules
    that the backend falls back to, if there is one. One that cannot be imported, or gets no
    trials, is run by the backend's default schedule. As with :func:`autotune.tune`, what is
    measured is recorded, and the same call resumes or answers.

    Args:
        model: A torch module with example inputs, an exported program, a module of a compiler, or
            the path of a file; what can be read depends on the frontends that are installed.
        example_inputs: What the model is called with, where it does not say so itself.
        frontend: As of :class:`ModelOptions`.
        passes: As of :class:`ModelOptions`.
        check: As of :class:`ModelOptions`.
        weights: As of :class:`ModelOptions`.
        precision: ``float16`` or ``bfloat16`` to convert a module of torch to; by default it stays
            as it is. Outputs are then compared with those of the module as it was.
        dims: Lengths of axes that the model names instead, such as ``{"batch": 1}``.
        inputs: By name of an input: a shape (a tuple), an array or the path of a ``.npy`` file as
            its example, or a number that is its value in every call, as in ``{"sr": 16000}``.
        options: The fields of :class:`~autotune.tuning.options.TuneOptions`. ``trials`` and
            ``time`` are for the whole network; each program is tuned with the first ``backend``
            that takes it, by default of those that the frontend prefers.

    Raises:
        UnsupportedWorkload: a node of the model cannot be imported; names it.
        InvalidValueError: the model cannot be read, or an option is out of range.
        WrongOutputs: the imported network computes something else than the model.
        AutotuneError: as of :func:`autotune.tune`.
    """
    source = Source(as_path(model), as_inputs(example_inputs), text_of(model))
    asked = AskedInputs(dims=dims or {}, inputs=inputs or {})
    source = in_precision(with_inputs(source, asked), precision)
    reading = ModelOptions(
        frontend=frontend, passes=passes or {}, check=check, weights=weights or {}
    )
    return run_model(source, reading, TuneOptions(**options))


def build_model(
    model: object,
    example_inputs: object = None,
    *,
    frontend: str | None = None,
    passes: Mapping[str, Callable[[Any], Any] | None] | None = None,
    check: bool = True,
    precision: str | None = None,
    dims: Mapping[str, int] | None = None,
    inputs: Mapping[str, object] | None = None,
    **options: Any,
) -> CompiledNetwork:
    """Compile a network with the best schedules that a database has; measures nothing.

    Args:
        model: As of :func:`tune_model`, like the other arguments.
        example_inputs: As of :func:`tune_model`.
        frontend: As of :class:`ModelOptions`.
        passes: As of :class:`ModelOptions`.
        check: As of :class:`ModelOptions`.
        precision: As of :func:`tune_model`.
        dims: As of :func:`tune_model`.
        inputs: As of :func:`tune_model`.
        options: ``database``, ``target``, ``threads`` and ``backend``, as of
            :class:`~autotune.tuning.options.TuneOptions`.

    Raises:
        AutotuneError: as of :func:`tune_model`.
        BuildFailed: the compiler rejected the network; names the task.
    """
    source = Source(as_path(model), as_inputs(example_inputs), text_of(model))
    asked = AskedInputs(dims=dims or {}, inputs=inputs or {})
    source = in_precision(with_inputs(source, asked), precision)
    reading = ModelOptions(frontend=frontend, passes=passes or {}, check=check)
    return build_recorded(source, reading, TuneOptions(**options)).build(check=check)


def run_model(
    source: Source,
    reading: ModelOptions,
    options: TuneOptions,
    clock: Clock = time.monotonic,
    *,
    began: float | None = None,
    builds: bool = False,
    saves: Path | None = None,
    limit: ImportLimit | None = None,
) -> ModelResult:
    """Tune as :func:`tune_model`, from a source and checked options.

    Args:
        source: The model.
        reading: How it is read.
        options: How to tune.
        clock: Monotonic seconds.
        began: When the caller began, by ``clock``.
        builds: Whether the caller builds, checks and times the network within the same time.
        saves: The file that it also writes the network to then; None for none.
        limit: Of the import; by default that of ``options``.
    """
    start = clock() if began is None else began
    check_measuring(reading, options)
    limit = limit or ImportLimit.of(options, source.text, lambda: clock() - start)
    with ExitStack() as stack:
        with limit.during("it was read"):
            early = _early_processes(source, reading, options, stack)
        network, tasks, options = _loaded(source, reading, options, limit)
        check = EarlyCheck(
            network=network,
            tasks=tasks,
            options=options,
            limit=limit,
            clock=clock,
            compares=reading.check,
            builds=builds,
            saves=saves,
        )
        return _run_loaded(check, reading.weights, start, early, source.key)


def check_measuring(reading: ModelOptions, options: TuneOptions) -> None:
    """Refuse a target that no network can be timed on here, before a model is read.

    Raises:
        AutotuneError: no backend of a frontend can measure for it; what is wrong with each.
    """
    backends = options.backend or backends_of_frontends(reading.frontend, options.machine)
    if backends and all(backends):
        usable_backends(evolve(options, backend=backends), {})


def _early_processes(
    source: Source, reading: ModelOptions, options: TuneOptions, stack: ExitStack
) -> RunProcesses | None:
    """Workers and models that get ready while the model is read; None without a known backend.

    They do not where the database probably answers: most often they would be started in vain.
    """
    frontend = find_frontend(source, reading.frontend, options.machine)
    own = frontend.backend_for(options.machine)
    known = (own, *frontend.kernel_backends(options.machine))
    if not own or not {*options.backend} <= {*known}:
        return None
    options = evolve(options, backend=_chosen_backends(known, options))
    late = is_probably_answered(options, source.key)
    processes = RunProcesses(options, starts_late=late, prefers_first=True)
    stack.enter_context(processes)
    processes.start_workers()
    return processes


def _run_loaded(
    check: EarlyCheck,
    counts: Mapping[str, float],
    start: float,
    early: RunProcesses | None,
    key: str,
) -> ModelResult:
    """Tune the tasks of a network that was read.

    Args:
        check: Of the network, before it is tuned.
        counts: As :attr:`ModelOptions.weights`.
        start: When the caller began.
        early: What was started already.
        key: As :attr:`Source.key`.
    """
    network, tasks, options = check.network, check.tasks, check.options
    for task in tasks:
        if task.refusal:
            options.tell(WarningRaised(task.name, f"it is not tuned: {task.refusal}"))
    # The scheduler gives every task its first trials in this order: a budget that ends before it
    # has gone to where most time is expected.
    weights = _weights(tasks, counts)
    tunable = [it for it in tasks if it.is_tunable]
    tunable.sort(key=lambda it: -weights[it.name] * it.work)
    refused: dict[int, AutotuneError] = {}
    fallen: dict[int, str] = {}
    given = [_given(task, weights[task.name], network.backend) for task in tunable]
    results: Sequence[Result] = []
    if given:
        meanwhile = check.run
        if options.machine.kind == "cuda":
            # Before any worker has the device, whose memory and time are its own then.
            reserve = check.run()
            release_unused()
            meanwhile = partial(evolve, reserve)
        results = run_tasks(
            given,
            options,
            check.clock,
            refused=refused,
            fallen=fallen,
            began=start,
            meanwhile=meanwhile,
            processes=early if early and early.options.backend == options.backend else None,
            network=key,
        )
    else:
        check.run()
    fallbacks = {tunable[position].name: reason for position, reason in fallen.items()}
    reasons = {tunable[position].name: str(error) for position, error in refused.items()}
    accepted = [task.name for task in tunable if task.name not in reasons]
    by_name = dict(zip(accepted, results, strict=True))
    found = [_tuned_task(task, by_name, reasons, fallbacks) for task in tasks]
    found = [_buildable(network, it, options) for it in found]
    return _tuned(network, found, options, results[0] if results else None)


def _given(task: UniqueTask, weight: float, backend: str) -> Task:
    """A task for the tuner: a workload, or a program that its backend has imported."""
    if isinstance(task.program, Workload):
        return Task(task.workload, weight, task.name)
    imported = {} if task.imported is None else {backend: task.imported}
    return Task(task.program, weight, task.name, imported)


def _tuned_task(
    task: UniqueTask,
    results: Mapping[str, Result],
    reasons: Mapping[str, str],
    fallbacks: Mapping[str, str],
) -> ModelTask:
    """Join a task with its result if it was tuned, and with the reason if it was not."""
    result = results.get(task.name)
    record = None if result is None else result.best
    known = evolve(task, refusal=task.refusal or reasons.get(task.name, ""))
    return ModelTask(known, record, result, fallback=fallbacks.get(task.name, ""))


def _buildable(network: NetworkProgram, task: ModelTask, options: TuneOptions) -> ModelTask:
    """The task with a record that the network can be built of, which its best one may not be."""
    if task.record is None or task.result is None:
        return task
    refusal = network.refuses(task.record, options.machine)
    if not refusal:
        return task
    other = task.result.fastest
    if other is not None and network.refuses(other, options.machine):
        other = None
    taken = "untuned" if other is None else f"run by record {other.name}"
    options.tell(WarningRaised(task.name, f"in the network it is {taken}: {refusal}"))
    return evolve(task, record=other)


def _tuned(
    network: NetworkProgram,
    tasks: Sequence[ModelTask],
    options: TuneOptions,
    first: Result | None,
) -> ModelResult:
    """A network after its run, of which the first result tells as much as any."""
    return ModelResult(
        network,
        tuple(tasks),
        options.machine,
        options.machine.cores,
        options.database,
        {} if first is None else dict(first.seconds),
        _untuned_reason(tasks) if first is None else first.reason,
        first is not None and first.from_records,
    )


def _untuned_reason(tasks: Sequence[ModelTask]) -> str:
    is_all_views = all(it.task.view for it in tasks)
    return "there is nothing to tune" if is_all_views else "no task can be tuned"


def _weights(tasks: Sequence[UniqueTask], given: Mapping[str, float]) -> dict[str, float]:
    """Weight of a second of each task."""
    names = {name: task.name for task in tasks for name in task.names}
    found = {task.name: float(task.occurrences) for task in tasks}
    for name, weight in given.items():
        if name not in names:
            raise UnknownNameError("task", name, names)
        found[names[name]] = weight
    return found


def build_recorded(source: Source, reading: ModelOptions, options: TuneOptions) -> ModelResult:
    """A network with what the database of ``options`` has for its tasks; nothing is measured."""
    network, tasks, options = _loaded(source, reading, options)
    machine = options.machine
    found = []
    with open_database(options.database, read_only=True) as database:
        for task in tasks:
            record = None
            if task.workload is not None:
                record = best_of_backends(
                    database,
                    task.workload.digest,
                    machine,
                    options.backend,
                    lambda it: not network.refuses(it, machine),
                )
            found.append(ModelTask(task, record))
    return ModelResult(network, tuple(found), machine, machine.cores, options.database)


@frozen(eq=False)
class TaskCoverage:
    """Tell whether a task of a network can be tuned.

    Attributes:
        task: The task, with the reason where it is refused.
        sketches: Sketches of its search space.
        configurations: Configurations of its search space.
        space: Name of that space, which is another than the run's where the backend falls back.
    """

    task: UniqueTask
    sketches: int = 0
    configurations: int = 0
    space: str = ""


@frozen(eq=False)
class Coverage:
    """Tunable share of a network.

    Attributes:
        network: The network.
        tasks: Its tasks, equal ones as one.
        space: Name of the search space.
    """

    network: NetworkProgram
    tasks: tuple[TaskCoverage, ...]
    space: str

    @property
    def flop(self) -> float:
        """Of one inference."""
        return sum(it.task.total_flop for it in self.tasks)

    @property
    def tunable_flop(self) -> float:
        """Of the tasks that can be tuned in the search space itself, in one inference."""
        own = (it for it in self.tasks if it.task.is_tunable and it.space == self.space)
        return sum(it.task.total_flop for it in own)


def model_tasks(source: Source, reading: ModelOptions, options: TuneOptions) -> Coverage:
    """The tasks of a network, those of most work first, and which the search space can express."""
    network, tasks, options = _loaded(source, reading, options)
    tunable = [it for it in tasks if it.is_tunable]
    refused: dict[int, AutotuneError] = {}
    given = [_given(task, task.occurrences, network.backend) for task in tunable]
    spaces, _ = tasks_on_backends(given, options, refused, {}, measures=False)
    accepted = [task.name for number, task in enumerate(tunable) if number not in refused]
    by_name = {name: one.space for name, one in zip(accepted, spaces, strict=True)}
    reasons = {tunable[number].name: str(error) for number, error in refused.items()}
    found = []
    for task in tasks:
        space = by_name.get(task.name)
        known = evolve(task, refusal=task.refusal or reasons.get(task.name, ""))
        if space is None:
            found.append(TaskCoverage(known))
        else:
            sizes = len(space.sketches()), space.count()
            found.append(TaskCoverage(known, *sizes, space.name))
    found.sort(key=lambda it: (it.task.view, -it.task.total_flop))
    return Coverage(network, tuple(found), options.chosen["search_space"].name)


def _loaded(
    source: Source,
    reading: ModelOptions,
    options: TuneOptions,
    limit: ImportLimit | None = None,
) -> tuple[NetworkProgram, tuple[UniqueTask, ...], TuneOptions]:
    """The network, its tasks, and the options with the backend of the network."""
    limit = limit or ImportLimit(source.text)

    def on_pass(report: PassReport) -> None:
        limit.doing = f"its graph was prepared, after pass {report.name!r}"
        options.tell(PassFinished(source.text, report.name, report.seconds, report.note))

    with no_collection():
        with limit.during("it was read"):
            frontend = find_frontend(source, reading.frontend, options.machine)
            _check_parts(frontend, source.text, options)
            network = load_network(
                source,
                options.machine,
                options.machine.cores,
                frontend=reading.frontend,
                passes=reading.passes,
                on_pass=on_pass,
            )
            limit.doing = "its programs were imported"
            tasks = unique_tasks(network)
        known = (network.backend, *network.kernel_backends)
        _check_backends(network.name, known, options)
        facts = [NetworkTaskFacts(it.name, it.occurrences, it.flop, it.is_tunable) for it in tasks]
        options.tell(NetworkLoaded(network.name, tuple(facts)))
        for remark in network.fixed.remarks if network.fixed else ():
            options.tell(WarningRaised(network.name, remark))
    return network, tasks, evolve(options, backend=_chosen_backends(known, options))


def _check_parts(frontend: Frontend, text: str, options: TuneOptions) -> None:
    """Refuse parts that no network of a frontend can be tuned with, before one is read.

    Args:
        frontend: What reads the model.
        text: As of :class:`~autotune.networks.source.Source`.
        options: How to tune.

    Raises:
        InvalidValueError: a backend is not one of the frontend's, or the search space has no such
            option.
        PluginError: the search space cannot be imported.
    """
    if own := frontend.backend_for(options.machine):
        _check_backends(text, (own, *frontend.kernel_backends(options.machine)), options)
    space = options.chosen["search_space"]
    spec = spec_of("search_space", space.name)
    if spec is None:
        factory_of("search_space", space.name)
    else:
        check_known(f"search space {spec.name!r}", space.options, spec.options)


def _check_backends(name: str, known: tuple[str, ...], options: TuneOptions) -> None:
    """Refuse a backend that is asked for and does not build the programs of a network."""
    if others := [it for it in options.backend if it not in known]:
        raise InvalidValueError(
            f"the programs of {name} are built by backend {' or '.join(map(repr, known))}, "
            f"and not by {', '.join(map(repr, others))}; name no backend"
        )


def _chosen_backends(known: tuple[str, ...], options: TuneOptions) -> tuple[str, ...]:
    """Backends of a run, the preferred first.

    Those that are asked for; or that which the search space or the runner works with; or that of
    the programs.

    Args:
        known: Those whose records the network can be built of, that of its programs first.
        options: How to tune.
    """
    return options.backend or backend_of_parts(options) or known[:1]


_MOST_FLOP = 4e9
"""Networks of more are not run before they are tuned: without a schedule that takes too long."""
_MOST_SHARE = 0.02
"""Nor are those of which the check takes a larger part of the time, which it is there to save."""
_SECONDS_PER_PROGRAM = 0.15
"""Time that drafting, printing and compiling a program without a record takes."""
_SECONDS_PER_TRIAL = 1.0
"""About what the first candidate of a program takes, and to build and time it again at the end."""
_BUILT_BYTES_PER_SECOND = 1e8
"""Weights are copied, and packed for the schedules that take them so, at this rate."""
_TUNED_FLOP_PER_SECOND = 2e10
"""To compare the outputs of a tuned network, it and its model are called, at so much at least."""


@frozen(kw_only=True, eq=False)
class EarlyCheck:
    """Compares the untuned network with its model, and says what time its building will take.

    Attributes:
        network: What was imported.
        tasks: Its tasks.
        options: How it is tuned.
        limit: Of the import, which this is a part of.
        clock: Monotonic seconds.
        compares: Whether outputs are compared at all.
        builds: Whether the caller builds, checks and times the network within the same time.
        saves: The file that it also writes the network to then; None for none.
    """

    network: NetworkProgram
    tasks: Sequence[UniqueTask]
    options: TuneOptions
    limit: ImportLimit
    clock: Clock
    compares: bool
    builds: bool
    saves: Path | None

    def run(self) -> Reserve:
        """Check a network that is fast enough without schedules; the time to keep for later.

        Raises:
            WrongOutputs: it computes something else than its model.
            AutotuneError: it cannot be built, or the time is over.
        """
        if self.saves is not None:
            self.network.check_saving(self.saves, self.options.machine)
        programs = len(self.network.tasks)
        calls = self.flop / _TUNED_FLOP_PER_SECOND if self.compares else 0.0
        reserve = Reserve(TIMING_SECONDS + calls, programs)
        if self.compares and self.is_affordable:
            built, checked = self._compare()
            reserve = Reserve(TIMING_SECONDS + checked, programs, built / max(1, programs))
        copying = self.network.weight_bytes / _BUILT_BYTES_PER_SECOND
        copying += saving_seconds(self.network.weight_bytes) if self.saves else 0.0
        reserve = evolve(reserve, seconds=reserve.seconds + copying) if self.builds else Reserve()
        self._warn_of_time(reserve)
        return reserve

    @property
    def flop(self) -> float:
        """Of one inference."""
        return sum(task.total_flop for task in self.tasks)

    @property
    def is_affordable(self) -> bool:
        """True if building and calling it takes little, and little of the time that there is."""
        expected = self.flop / NAIVE_FLOP_PER_SECOND + _SECONDS_PER_PROGRAM * len(self.tasks)
        return self.flop <= _MOST_FLOP and expected <= _MOST_SHARE * self._seconds

    @property
    def _seconds(self) -> float:
        """The limit of the call; infinite for none."""
        limits = [self.options.time, self.options.session_time]
        return min((it for it in limits if it is not None), default=math.inf)

    def _compare(self) -> tuple[float, float]:
        """Seconds that building the untuned network took, and running it beside the model."""
        machine, began = self.options.machine, self.clock()
        with self.limit.during("it was built without schedules"):
            compiled = build_network(self.network, {}, machine, machine.cores)
            built = self.clock()
            self.limit.doing = "it was compared with the model"
            check_network(self.network, compiled)
        return built - began, self.clock() - built

    def _warn_of_time(self, reserve: Reserve) -> None:
        """Say where the call may not take long enough for a trial of each program."""
        limit, taken = self._seconds, self.limit.spent() + reserve.least
        programs = sum(task.is_tunable for task in self.tasks)
        trials = programs if self.options.trials is None else min(self.options.trials, programs)
        needed = taken + trials * _SECONDS_PER_TRIAL
        if needed < limit:
            return
        then = f", and to build, check and time it about {reserve.least:.0f} s"
        left = "nothing is" if taken >= limit else f"{limit - taken:.0f} s are"
        message = (
            f"to import and check it took {self.limit.spent():.0f} s"
            f"{then if reserve.least else ''}: {left} left of {limit:g} s to tune it; a trial of "
            f"each of its {programs} programs needs about {math.ceil(needed)} s (--time)"
        )
        self.options.tell(WarningRaised(self.network.name, message))


_REASON_WIDTH = 72
_FLOP_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def flop_text(flop: float) -> str:
    """A number of operations: ``"1.23 GFLOP"``."""
    scale, unit = next((it for it in _FLOP_UNITS if flop >= it[0]), _FLOP_UNITS[-1])
    return f"{flop / scale:.3g} {unit}FLOP"


def coverage_table(coverage: Coverage) -> Table:
    """The tasks of a network: which can be tuned, why the others cannot."""
    rows = [_coverage_row(it, coverage) for it in coverage.tasks]
    computing = [it for it in coverage.tasks if not it.task.view]
    tuned = [it for it in computing if it.task.is_tunable and it.space == coverage.space]
    fallen = [it for it in computing if it.task.is_tunable and it.space != coverage.space]
    calls = sum(it.task.occurrences for it in computing)
    tuned_calls = sum(it.task.occurrences for it in tuned)
    notes = [
        f"can be tuned: {len(tuned)} of {len(computing)} tasks, {tuned_calls} of {calls} calls, "
        f"{percent_text(coverage.tunable_flop, coverage.flop)} of the flop"
    ]
    if fallen:
        spaces = ", ".join(sorted({it.space for it in fallen}))
        notes.append(f"by the fallback to {spaces}: {len(fallen)} tasks")
    if len(tuned) + len(fallen) < len(computing):
        notes.append("what is refused is run by the backend's default schedule")
    title = f"{coverage.network.name}: {flop_text(coverage.flop)} in {calls} calls"
    columns = ("task", "calls>", "flop>", "share>", "sketches>", "configurations>", "tuned")
    return Table(title, columns, tuple(rows), tuple(notes))


def _coverage_row(it: TaskCoverage, coverage: Coverage) -> tuple[str, ...]:
    task = it.task
    how = f"by space {it.space}"
    if task.view:
        how = "no: a view, which computes nothing"
    elif task.refusal:
        how = f"no: {one_line(task.refusal, _REASON_WIDTH)}"
    return (
        formats.shortened(task.name),
        str(task.occurrences),
        flop_text(task.flop),
        percent_text(task.total_flop, coverage.flop),
        str(it.sketches or "-"),
        f"{it.configurations:,}" if it.configurations else "-",
        how,
    )
