"""The Python entry points: tune one program, or several together."""

from __future__ import annotations

import functools
import inspect
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Concatenate, ParamSpec, TypeVar

from attrs import evolve

from autotune.errors import AutotuneError, InvalidValueError
from autotune.models.host import ModelHost
from autotune.process.call_watch import CallWatch
from autotune.process.interrupts import InterruptGuard
from autotune.process.stopwatch import Clock
from autotune.store.sqlite import open_database
from autotune.tuning.default_backend import backend_for
from autotune.tuning.events import EventListener, WarningRaised
from autotune.tuning.options import TuneOptions
from autotune.tuning.programs import Task
from autotune.tuning.resolve import resolve_run
from autotune.tuning.result import Result
from autotune.tuning.run_plan import Budget, Reserve
from autotune.tuning.run_processes import RunProcesses
from autotune.tuning.tuner import Tuner

__all__ = ["run_tasks", "tune", "tune_tasks"]

_P = ParamSpec("_P")
_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


def _with_keywords(
    options: Callable[_P, TuneOptions],
) -> Callable[[Callable[[_Given, TuneOptions], _Made]], Callable[Concatenate[_Given, _P], _Made]]:
    """Let a function of options be called with the fields of ``options`` as keyword arguments."""

    def decorate(
        function: Callable[[_Given, TuneOptions], _Made],
    ) -> Callable[Concatenate[_Given, _P], _Made]:
        @functools.wraps(function)
        def called(given: _Given, /, *args: _P.args, **fields: _P.kwargs) -> _Made:
            return function(given, options(*args, **fields))

        own = inspect.signature(function)
        first = next(iter(own.parameters.values()))
        fields = inspect.signature(options).parameters.values()
        called.__signature__ = own.replace(  # type: ignore[attr-defined]
            parameters=[first.replace(kind=first.POSITIONAL_ONLY), *fields]
        )
        return called

    return decorate


@_with_keywords(TuneOptions)
def tune(program: object, options: TuneOptions) -> Result:
    """Find a fast schedule for one program.

    Everything measured is recorded in ``database``. A call that was made before is answered from
    there; one that was interrupted, or made with a smaller budget, is continued.

    Args:
        program: A workload, such as ``autotune.workloads.gemm(m=512, n=512, k=512)``, or a
            program that a backend imports, such as a TVM ``PrimFunc``.
        options: The fields of :class:`~autotune.tuning.options.TuneOptions`, by keyword.

    Returns:
        What was found. Where several backends competed it is the winner's, and has the others'
        beside it (``Result.rivals``).

    Raises:
        InvalidValueError: an option is out of range, or the program cannot be tuned.
        UnknownNameError: a part, target or observer does not exist.
        UnsupportedWorkload: the search space has no candidates for the program.
        UnsupportedTarget: no backend can measure for the target.
        DatabaseError: the database cannot be used, or an outcome cannot be recorded.
        PluginError: a part cannot be imported, or is not what it should be.
        WorkerStartFailed: nothing can be measured here.
        TuningInterrupted: the run was stopped by Ctrl-C or SIGTERM; the same call continues it.
    """
    (result,) = run_tasks([program], options)
    return result


@_with_keywords(TuneOptions)
def tune_tasks(tasks: Sequence[object], options: TuneOptions) -> list[Result]:
    """Tune several programs together, such as those of a network.

    Args:
        tasks: Programs, or :class:`Task` where one has a weight or a name.
        options: As of :func:`tune`. The budget is one for all programs.

    Returns:
        One result per program, in order. Their ``seconds`` are those of the whole run.

    Raises:
        AutotuneError: as :func:`tune`.
    """
    return run_tasks(tasks, options)


def run_tasks(
    tasks: Sequence[object],
    options: TuneOptions,
    clock: Clock = time.monotonic,
    *,
    refused: dict[int, AutotuneError] | None = None,
    fallen: dict[int, str] | None = None,
    began: float | None = None,
    meanwhile: Callable[[], Reserve] = Reserve,
    processes: RunProcesses | None = None,
    network: str = "",
) -> list[Result]:
    """As :func:`tune_tasks`, from checked options.

    Args:
        tasks: As of :func:`tune_tasks`.
        options: How to tune.
        clock: Monotonic seconds.
        refused: Takes, by position, the error of each program that no backend or space can take;
            these are left out, with a warning, and the results are those of the others, in order.
            Without it the first such error is raised.
        fallen: Takes, by position, why the search space refuses a program that is searched in the
            space that its backend falls back to, with a warning. Without it no backend falls back.
        began: When the caller began, by ``clock``; what came before is start-up.
        meanwhile: Called while the workers get ready, before anything is recorded; returns what
            to keep of the time of ``options`` for what the caller does afterwards.
        processes: Those of these options, entered by the caller, which may have started workers.
        network: What tells the network that the tasks are of from others, as it is recorded.
    """
    began = clock() if began is None else began
    given = [task if isinstance(task, Task) else Task(task) for task in tasks]
    if not given:
        raise InvalidValueError("there is no task to tune")
    backend = options.backend or backend_for([task.program for task in given], options)
    options = evolve(options, backend=backend)
    # Entered first: a signal that comes while the database is opened must not be lost. Models get
    # ready in the background, from here on at the latest.
    with ExitStack() as stack:
        guard = stack.enter_context(InterruptGuard())
        if threading.current_thread() is threading.main_thread():
            # Elsewhere neither an interrupt nor the end of the process would be ours to cause.
            stack.enter_context(CallWatch())
        shared = processes or stack.enter_context(RunProcesses(options))
        models = shared.models
        parts = resolve_run(given, options, models, refused, fallen, shared.workers)
        _warn_of_tasks(options.listeners, given, refused or {}, fallen or {})
        if parts is None:
            return []
        stack.callback(parts.workers.close)
        warn = _warn_all(options.listeners, [task.name for task in parts.tasks])
        for model in models.values():
            model.on_warning = warn
        for message in parts.warnings:
            warn(message)
        tuner = Tuner(
            tasks=parts.tasks,
            spec=parts.spec,
            scheduler=parts.scheduler,
            database=stack.enter_context(open_database(options.database, warn=warn)),
            budget=Budget.of(options, parts.programs),
            fresh=options.fresh,
            listeners=options.listeners,
            guard=guard,
            protocol=options.protocol,
            workers=parts.workers,
            prepared=lambda: _prepared(meanwhile, [models[name] for name in parts.models]),
            clock=clock,
            began=began,
            network=network,
        )
        return tuner.run()


def _warn_of_tasks(
    listeners: Sequence[EventListener],
    tasks: Sequence[Task],
    refused: Mapping[int, AutotuneError],
    fallen: Mapping[int, str],
) -> None:
    """Tell every listener which tasks are left out, and which fall back, by their positions."""
    said = {at: f"it is not tuned: {error}" for at, error in refused.items()}
    for at, reason in fallen.items():
        said[at] = f"it falls back to the compiler's own rules: {reason}"
    for position, text in sorted(said.items()):
        named = tasks[position].name or f"task {position + 1}"
        for listener in listeners:
            listener(WarningRaised(named, text))


def _prepared(meanwhile: Callable[[], Reserve], models: Iterable[ModelHost]) -> Reserve:
    reserve = meanwhile()
    for model in models:
        model.wait_ready()
    return reserve


def _warn_all(listeners: Sequence[EventListener], tasks: Sequence[str]) -> Callable[[str], None]:
    """Tells every listener of a warning that is about all tasks."""

    def warn(message: str) -> None:
        for listener in listeners:
            listener(WarningRaised(", ".join(tasks), message))

    return warn
