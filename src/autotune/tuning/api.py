"""The Python entry points: tune one program, or several together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from os import PathLike
from typing import Any

from autotune.errors import InvalidValueError
from autotune.measure import MeasureProtocol
from autotune.models.host import ModelHost
from autotune.process.interrupts import InterruptGuard
from autotune.store.sqlite import open_database
from autotune.targets import Target
from autotune.tuning.entrants import Task, backend_for
from autotune.tuning.events import EventListener, WarningRaised
from autotune.tuning.result import Result
from autotune.tuning.run_parts import RunParts, model_host
from autotune.tuning.settings import DEFAULT_ROUND_SIZE, DEFAULT_TRIALS, Settings, checked_backends
from autotune.tuning.tuner import Budget, Tuner

__all__ = ["Task", "tune", "tune_tasks"]


def tune(
    program: object,
    *,
    target: Target | str | PathLike[str] = "cpu",
    backend: str | Sequence[str] | None = None,
    space: str = "sketch",
    strategy: str = "evolutionary",
    cost_model: str | None = None,
    pruning_model: str | None = "psa",
    trials: int = DEFAULT_TRIALS,
    time: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    database: str | PathLike[str] = "autotune.db",
    fresh: bool = False,
    round_size: int = DEFAULT_ROUND_SIZE,
    lookahead: int = 1,
    strategy_options: Mapping[str, Any] | None = None,
    cost_model_options: Mapping[str, Any] | None = None,
    pruning_model_options: Mapping[str, Any] | None = None,
    load_cost_model: str | PathLike[str] | None = None,
    protocol: MeasureProtocol | None = None,
    observers: Sequence[str] = (),
    listeners: Sequence[EventListener] = (),
) -> Result:
    """Find a fast schedule for one program.

    Everything measured is recorded in ``database``. A call that was made before is answered from
    there; one that was interrupted, or made with a smaller budget, is continued.

    Args:
        program: A workload, such as ``autotune.ir.workloads.gemm(m=512, n=512, k=512)``, or a
            program that the backend imports, such as a TVM ``PrimFunc``.
        target: ``"cpu"`` for this machine, the name of a preset, a JSON file, or a target.
        backend: What builds and runs candidates; by default the one that is installed, and of
            several the one that imports the program, or TVM. Where several are named, such as
            ``"tvm,mlir"`` or a list, each gets its share of the one budget: equal at first, then
            where more is to be gained. The result is the winner's, and has the others' beside it
            (``Result.rivals``). This and the other parts are given by name, or by import string
            ``"module:Class"`` where no plugin registers them.
        space: The search space.
        strategy: The search strategy.
        cost_model: The learned model that the strategy may consult; None for the strategy's own
            choice, which is ``gbdt`` for the built-in ones.
        pruning_model: A model that needs no measurements; None or ``"none"`` for none.
        trials: Candidates to measure, including those that records answer.
        time: Wall seconds after which to stop, if that comes first.
        seed: Seed of all randomness.
        threads: Threads that the program runs on; by default one per core of the target.
        database: Path of the database; it is made if it does not exist.
        fresh: Ignore records and earlier runs.
        round_size: Candidates that are proposed at once, before the model learns from them.
        lookahead: Rounds that are proposed before the outcomes of the one before are known, so
            that they are built meanwhile: 1, or 0 for none.
        strategy_options: Options of the strategy.
        cost_model_options: Options of the cost model.
        pruning_model_options: Options of the pruning model.
        load_cost_model: What the cost model has learned before: a file, as written by
            ``autotune train fit``, or the name of a trained model that a plugin brings; it goes on
            learning from there.
        protocol: How candidates are checked and timed.
        observers: What reads something of every candidate beside its latency, such as
            ``["perf"]``; see ``Outcome.readings``.
        listeners: Functions that are told what happens; see ``autotune.tuning.events``.

    Raises:
        AutotuneError: an argument is wrong (nothing was measured or written), nothing can be
            measured here, or the database cannot be used.
        TuningInterrupted: the run was stopped by Ctrl-C or SIGTERM; the same call continues it.
    """
    settings = {name: value for name, value in locals().items() if name != "program"}
    several = backend is not None and len(checked_backends(backend)) > 1
    scheduler = "gradient" if several else "round-robin"
    (result,) = tune_tasks([Task(program)], scheduler=scheduler, **settings)
    return result


def tune_tasks(
    tasks: Sequence[object],
    *,
    scheduler: str = "gradient",
    scheduler_options: Mapping[str, Any] | None = None,
    trials: int | None = None,
    time: float | None = None,
    session_time: float | None = None,
    protocol: MeasureProtocol | None = None,
    listeners: Sequence[EventListener] = (),
    **settings: Any,
) -> list[Result]:
    """Tune several programs together, such as those of a network.

    Args:
        tasks: Programs, or :class:`Task` where one has a weight or a name.
        scheduler: Chooses which program gets the next round.
        scheduler_options: Its options.
        trials: Candidates to measure over all programs; by default as many for each as
            :func:`tune` measures.
        time: Wall seconds after which to stop, if that comes first.
        session_time: Wall seconds after which this call stops, whatever earlier calls took of the
            run that it continues.
        protocol: How candidates are checked and timed.
        listeners: Functions that are told what happens.
        settings: The other arguments of :func:`tune`.

    Returns:
        One result per program, in order. Their ``seconds`` are those of the whole run.

    Raises:
        AutotuneError: as :func:`tune`.
    """
    began = _clock()
    given = [task if isinstance(task, Task) else Task(task) for task in tasks]
    if not given:
        raise InvalidValueError("there is no task to tune")
    if settings.get("backend") is None:
        settings["backend"] = backend_for(given)
    checked = Settings.checked(
        scheduler=scheduler,
        scheduler_options=scheduler_options,
        trials=DEFAULT_TRIALS * len(given) if trials is None else trials,
        seconds=time,
        session_time=session_time,
        **settings,
    )
    # Entered first: a signal that comes while the database is opened must not be lost. Models get
    # ready in the background, from here on.
    with ExitStack() as stack:
        guard = stack.enter_context(InterruptGuard())
        models = {name: stack.enter_context(model_host(checked)) for name in checked.backends}
        timing = protocol or MeasureProtocol()
        parts = RunParts.of(given, checked, timing, models)
        warn = _warn_all(listeners, [task.name for task in parts.tasks])
        for model in models.values():
            model.on_warning = warn
        for message in parts.warnings:
            warn(message)
        database = stack.enter_context(open_database(checked.database, warn=warn))
        tuner = Tuner(
            tasks=parts.tasks,
            spec=parts.spec,
            scheduler=parts.scheduler,
            database=database,
            budget=Budget(checked.trials, checked.seconds, checked.session_seconds),
            fresh=checked.fresh,
            listeners=tuple(listeners),
            guard=guard,
            protocol=timing,
            prepared=lambda: _wait_ready(models.values()),
            clock=_clock,
            began=began,
        )
        return tuner.run()


# The argument `time` of the functions above hides the module.
_clock: Callable[[], float] = time.monotonic


def _wait_ready(models: Iterable[ModelHost]) -> None:
    for model in models:
        model.wait_ready()


def _warn_all(listeners: Sequence[EventListener], tasks: Sequence[str]) -> Callable[[str], None]:
    """Tells every listener of a warning that is about all tasks."""

    def warn(message: str) -> None:
        for listener in listeners:
            listener(WarningRaised(", ".join(tasks), message))

    return warn
