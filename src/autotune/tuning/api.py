"""The Python entry points: tune one program, or several together."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from attrs import evolve, frozen

from autotune.errors import AutotuneError, InvalidValueError, UnsupportedWorkload
from autotune.models.host import ModelHost
from autotune.models.training.task_list import ListedTask
from autotune.process.call_watch import CallWatch
from autotune.process.interrupts import InterruptGuard
from autotune.process.stopwatch import Clock
from autotune.store.sqlite import open_database
from autotune.tuning.budget import TIME_OVER, Reserve
from autotune.tuning.events import EventListener, WarningRaised
from autotune.tuning.options import TuneOptions
from autotune.tuning.programs import Task, backend_for
from autotune.tuning.resolve import RunProcesses, resolve_run
from autotune.tuning.result import Result
from autotune.tuning.tuner import Tuner

__all__ = [
    "RecordedTask",
    "record_tasks",
    "run_tasks",
    "tune",
    "tune_tasks",
]

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
        @wraps(function)
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
    """Tune as :func:`tune_tasks`, from checked options.

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
        plan = resolve_run(given, options, shared.models, refused, fallen, shared.workers)
        _warn_of_tasks(options, given, refused or {}, fallen or {})
        if plan is None:
            return []
        stack.callback(plan.workers.close)
        names = ", ".join(task.name for task in plan.tasks)

        def warn(message: str) -> None:
            options.tell(WarningRaised(names, message))

        for model in shared.models.values():
            model.on_warning = warn
        for message in plan.warnings:
            warn(message)
        tuner = Tuner(
            plan=plan,
            database=stack.enter_context(open_database(options.database, warn=warn)),
            guard=guard,
            prepared=partial(_prepared, meanwhile, plan.models),
            clock=clock,
            began=began,
            network=network,
        )
        return tuner.run()


def _warn_of_tasks(
    options: TuneOptions,
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
        options.tell(WarningRaised(named, text))


def _prepared(meanwhile: Callable[[], Reserve], models: Iterable[ModelHost]) -> Reserve:
    reserve = meanwhile()
    for model in models:
        model.wait_ready()
    return reserve


Watching = Callable[[ListedTask], AbstractContextManager[Sequence[EventListener]]]

DEFAULT_PROGRAMS = 300
DEFAULT_RANDOM_SHARE = 0.5


@frozen(eq=False)
class RecordedTask:
    """Progress of the recording of a task.

    Attributes:
        task: The task.
        result: Its run so far; None where the backend has no schedules for it.
        programs: How many candidates were asked for.
        failure: Why there is no result; "" where there is one.
    """

    task: ListedTask
    result: Result | None
    programs: int
    failure: str = ""

    @property
    def trials(self) -> int:
        """Candidates that have an outcome."""
        return 0 if self.result is None else self.result.trials

    @property
    def is_complete(self) -> bool:
        """True if nothing is left to record: all programs, or all that there are."""
        result = self.result
        return result is None or result.trials >= self.programs or result.reason != TIME_OVER

    def to_json(self) -> dict[str, Any]:
        """A JSON object; the latency is in seconds."""
        best = None if self.result is None else self.result.best
        return {
            "task": self.task.name,
            "programs": self.trials,
            "complete": self.is_complete,
            "outcomes": {} if self.result is None else dict(self.result.outcomes),
            "best": None if best is None else best.latency,
            "run": None if self.result is None else self.result.run_id,
            "failure": self.failure,
        }


def record_tasks(
    tasks: Iterable[ListedTask],
    options: TuneOptions,
    *,
    programs: int = DEFAULT_PROGRAMS,
    random_share: float = DEFAULT_RANDOM_SHARE,
    watching: Watching = lambda task: nullcontext(()),
    clock: Clock = time.monotonic,
) -> list[RecordedTask]:
    """Measure schedules of every task, one run each; nothing is measured twice.

    Half of the schedules are random and half are evolved, so that the data shows both what the
    space is like and what is found by a search. The same call continues what was interrupted, at
    any point, and continues with the remaining tasks.

    Args:
        tasks: What to record.
        options: How to tune; strategy and trials are those of the recording, and the time is that
            of all tasks.
        programs: Candidates of each task, failures included.
        random_share: Share of the candidates that is random.
        watching: Entered for each task while it is recorded; gives its listeners.
        clock: Monotonic seconds.

    Returns:
        One item for each task that was begun, in order.

    Raises:
        AutotuneError: as :func:`autotune.tune`; a task that the backend has no schedules for is
            no error, but an item with a failure.
    """
    began, limit = clock(), options.time
    strategy = ("evolutionary", {"epsilon": random_share})
    options = evolve(
        options,
        trials=programs,
        time=None,
        parts={**options.parts, "strategy": strategy},
        # What is recorded shows the space, not what was found in others.
        warm_start=False,
    )
    done: list[RecordedTask] = []
    for task in tasks:
        left = None if limit is None else limit - (clock() - began)
        if left is not None and left <= 0:
            break
        try:
            with watching(task) as listeners:
                own = evolve(options, session_time=left, listeners=tuple(listeners))
                (result,) = run_tasks([task.make()], own)
        except UnsupportedWorkload as error:
            done.append(RecordedTask(task, None, programs, str(error)))
        else:
            done.append(RecordedTask(task, result, programs))
    return done
