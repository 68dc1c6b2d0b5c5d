"""The Python entry points: tune one program, or several together."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from os import PathLike
from typing import Any

import numpy as np
from attrs import field, frozen

from autotune.backends import Backend
from autotune.cost_models import CostModel
from autotune.database import open_database
from autotune.errors import InvalidValueError, PluginError
from autotune.events import EventListener, WarningRaised
from autotune.guarded_models import Guard, GuardedCostModel, GuardedPruningModel, ModelSpec
from autotune.interrupts import InterruptGuard
from autotune.measure import LocalMeasurer, MeasureProtocol, Measurer
from autotune.parts import create_part
from autotune.plugins import manager
from autotune.pruning_models import PruningModel
from autotune.records import MeasureKey
from autotune.result import Result
from autotune.resume import RunSpec
from autotune.settings import DEFAULT_ROUND_SIZE, DEFAULT_TRIALS, Settings
from autotune.spaces import SearchSpace
from autotune.strategies import Strategy, StrategyContext
from autotune.targets import Target
from autotune.task_schedulers import TaskInfo
from autotune.task_session import TaskSpec
from autotune.tuner import Budget, Tuner
from autotune.workload_spec import task_name
from autotune.workloads import Workload

__all__ = ["Task", "tune", "tune_tasks"]


@frozen(eq=False)
class Task:
    """One of several programs that are tuned together.

    Attributes:
        program: A workload, or a program that a backend imports.
        weight: How often it occurs; the scheduler minimises the weighted sum of latencies.
        name: What to call it; by default made from the workload.
    """

    program: object
    weight: float = 1.0
    name: str | None = None


def tune(
    program: object,
    *,
    target: Target | str | PathLike[str] = "cpu",
    backend: str = "tvm",
    space: str = "sketch",
    strategy: str = "evolutionary",
    cost_model: str = "gbdt",
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
    protocol: MeasureProtocol | None = None,
    observers: Sequence[str] = (),
    listeners: Sequence[EventListener] = (),
) -> Result:
    """Find a fast schedule for one program.

    Everything measured is recorded in ``database``. A call that was made before is answered from
    there; one that was interrupted, or made with a smaller budget, is continued.

    Args:
        program: A workload, such as ``autotune.workloads.gemm(m=512, n=512, k=512)``, or a
            program that the backend imports, such as a TVM ``PrimFunc``.
        target: ``"cpu"`` for this machine, the name of a preset, a JSON file, or a target.
        backend: What builds and runs candidates. This and the other parts are given by name, or
            by import string ``"module:Class"`` where no plugin registers them.
        space: The search space.
        strategy: The search strategy.
        cost_model: The learned model that the strategy may consult.
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
        protocol: How candidates are checked and timed.
        observers: What reads something of every candidate beside its latency, such as
            ``["perf"]``; see ``Outcome.readings``.
        listeners: Functions that are told what happens; see ``autotune.events``.

    Raises:
        AutotuneError: an argument is wrong (nothing was measured or written), nothing can be
            measured here, or the database cannot be used.
        TuningInterrupted: the run was stopped by Ctrl-C or SIGTERM; the same call continues it.
    """
    settings = {name: value for name, value in locals().items() if name != "program"}
    (result,) = tune_tasks([Task(program)], scheduler="round-robin", **settings)
    return result


def tune_tasks(
    tasks: Sequence[object],
    *,
    scheduler: str = "gradient",
    scheduler_options: Mapping[str, Any] | None = None,
    trials: int | None = None,
    time: float | None = None,
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
    checked = Settings.checked(
        scheduler=scheduler,
        scheduler_options=scheduler_options,
        trials=DEFAULT_TRIALS * len(given) if trials is None else trials,
        seconds=time,
        **settings,
    )
    # Entered first: a signal that comes while the database is opened must not be lost. Models get
    # ready in the background, from here on.
    with ExitStack() as stack:
        guard = stack.enter_context(InterruptGuard())
        models = stack.enter_context(_model_guard(checked))
        parts = _Parts.of(given, checked, protocol or MeasureProtocol(), models)
        warn = _warn_all(listeners, [task.name for task in parts.tasks])
        models.on_warning = warn
        database = stack.enter_context(open_database(checked.database, warn=warn))
        tuner = Tuner(
            tasks=parts.tasks,
            spec=parts.spec,
            cost_model=parts.cost_model,
            scheduler=parts.scheduler,
            database=database,
            budget=Budget(checked.trials, checked.seconds),
            fresh=checked.fresh,
            listeners=tuple(listeners),
            guard=guard,
            prepared=models.wait_ready,
            began=began,
        )
        return tuner.run()


# The argument `time` of the functions above hides the module.
_clock: Callable[[], float] = time.monotonic


@frozen(eq=False)
class _Understood:
    """A task's program, understood."""

    name: str
    workload: Workload
    program: str | None
    weight: float


@frozen(eq=False)
class _Parts:
    """Everything a tuner needs, made from settings; nothing is measured or written."""

    tasks: tuple[TaskSpec, ...] = field()
    spec: RunSpec
    cost_model: CostModel
    scheduler: Any

    @staticmethod
    def of(
        given: Sequence[Task], settings: Settings, protocol: MeasureProtocol, models: Guard
    ) -> _Parts:
        backend: Backend = create_part("backend", settings.backend)
        backend.check_measuring(settings.target, settings.threads)
        understood = _understand_all(given, backend, settings)
        _, scheduler_seed, input_seed, *task_seeds = _seeds(settings, len(given))
        cost_model = GuardedCostModel(models)
        pruning_model = GuardedPruningModel(models) if settings.pruning_model else None
        tasks = []
        for task, seed in zip(understood, task_seeds, strict=True):
            space = _make_space(task.workload, backend, settings)
            strategy = _make_strategy(space, cost_model, pruning_model, seed, settings)
            make = _measurer_factory(task, settings, protocol, _integer(input_seed))
            tasks.append(
                TaskSpec(
                    name=task.name,
                    workload=task.workload,
                    target=settings.target,
                    space=space,
                    strategy=strategy,
                    make_measurer=make,
                    program=task.program,
                    weight=task.weight,
                )
            )
        scheduler = create_part(
            "task_scheduler",
            settings.scheduler,
            tasks=[_task_info(task) for task in understood],
            seed=_integer(scheduler_seed),
            options=dict(settings.scheduler_options),
        )
        spec = _run_spec(understood, tasks[0].space, backend, settings, protocol)
        return _Parts(tuple(tasks), spec, cost_model, scheduler)


def _model_guard(settings: Settings) -> Guard:
    """What holds the models of a run, in their own process."""
    seed, *_ = _seeds(settings, 0)
    arguments = {"seed": _integer(seed), "threads": settings.threads}
    specs = [ModelSpec("cost_model", settings.cost_model, arguments)]
    if settings.pruning_model:
        specs.append(ModelSpec("pruning_model", settings.pruning_model))
    return Guard(settings.target, specs)


def _warn_all(listeners: Sequence[EventListener], tasks: Sequence[str]) -> Callable[[str], None]:
    """Tells every listener of a warning that is about all tasks."""

    def warn(message: str) -> None:
        for listener in listeners:
            listener(WarningRaised(", ".join(tasks), message))

    return warn


def _understand_all(
    given: Sequence[Task], backend: Backend, settings: Settings
) -> list[_Understood]:
    understood: list[_Understood] = []
    for task in given:
        weight = task.weight
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not weight > 0:
            raise InvalidValueError(f"a task's weight must be positive, not {weight!r}")
        workload, program = _understand(task.program, backend, settings.backend)
        name = task.name or task_name(workload)
        taken = sum(other.name.partition(" #")[0] == name for other in understood)
        name = f"{name} #{taken + 1}" if taken else name
        understood.append(_Understood(name, workload, program, float(weight)))
    return understood


def _understand(program: object, backend: Backend, name: str) -> tuple[Workload, str | None]:
    if isinstance(program, Workload):
        return program, None
    if backend.imports(program):
        imported = backend.import_program(program)
        return imported.workload, imported.program
    others = [
        other
        for other in manager().names("backend")
        if other != name and create_part("backend", other).imports(program)
    ]
    if others:
        raise InvalidValueError(
            f"backend {name!r} does not import a {_type_name(program)}; "
            f"pass backend={others[0]!r}, which does"
        )
    raise InvalidValueError(
        f"cannot tune a {_type_name(program)}: give an autotune.Workload, such as "
        f"autotune.workloads.gemm(m=512, n=512, k=512), or a program that a backend imports "
        f"(backends: {', '.join(sorted({name, *manager().names('backend')}))})"
    )


def _type_name(value: object) -> str:
    kind = type(value)
    prefix = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return prefix + kind.__qualname__


def _make_space(workload: Workload, backend: Backend, settings: Settings) -> SearchSpace:
    space: SearchSpace = create_part(
        "search_space",
        settings.space,
        workload=workload,
        target=settings.target,
        limits=backend.limits(settings.target),
    )
    _check_instance("search space", settings.space, space, SearchSpace)
    return space


def _make_strategy(
    space: SearchSpace,
    cost_model: CostModel,
    pruning_model: PruningModel | None,
    seed: np.random.SeedSequence,
    settings: Settings,
) -> Strategy:
    context = StrategyContext(
        space=space,
        rng=np.random.default_rng(seed),
        cost_model=cost_model,
        pruning_model=pruning_model,
        options=settings.strategy_options,
    )
    strategy: Strategy = create_part("strategy", settings.strategy, context=context)
    _check_instance("strategy", settings.strategy, strategy, Strategy)
    return strategy


def _check_instance(kind: str, name: str, made: object, expected: type[Any]) -> None:
    if not isinstance(made, expected):
        raise PluginError(
            f"{kind} {name!r} made a {_type_name(made)}, not a {expected.__qualname__}"
        )


def _measurer_factory(
    task: _Understood, settings: Settings, protocol: MeasureProtocol, seed: int
) -> Callable[[], Measurer]:
    def make() -> Measurer:
        return LocalMeasurer(
            settings.backend,
            settings.target,
            settings.threads,
            task.workload,
            task.program,
            protocol=protocol,
            observers=settings.observers,
            seed=seed,
        )

    return make


def _task_info(task: _Understood) -> TaskInfo:
    return TaskInfo(weight=task.weight, flop=float(task.workload.flop), group=task.workload.name)


def _run_spec(
    tasks: Sequence[_Understood],
    space: SearchSpace,
    backend: Backend,
    settings: Settings,
    protocol: MeasureProtocol,
) -> RunSpec:
    key = MeasureKey(
        target=settings.target.fingerprint,
        backend=settings.backend,
        backend_version=backend.version,
        compiler_version=backend.compiler_version(),
        threads=settings.threads,
        protocol=protocol.identity,
    )
    return RunSpec(
        workloads=tuple(task.workload.digest for task in tasks),
        weights=tuple(task.weight for task in tasks),
        key=key,
        space=f"{space.name}-{space.version}",
        strategy=settings.strategy,
        strategy_options=settings.strategy_options,
        cost_model=settings.cost_model,
        pruning_model=settings.pruning_model,
        scheduler=settings.scheduler,
        seed=settings.seed,
        round_size=settings.round_size,
        lookahead=settings.lookahead,
        scheduler_options=settings.scheduler_options,
        programs=tuple(_digest(task.program) for task in tasks),
    )


def _digest(text: str | None) -> str:
    return "" if text is None else hashlib.sha256(text.encode()).hexdigest()[:16]


def _seeds(settings: Settings, tasks: int) -> list[np.random.SeedSequence]:
    """Seeds of the cost model, of the scheduler, of the inputs, and of each task."""
    return np.random.SeedSequence(settings.seed).spawn(3 + tasks)


def _integer(seed: np.random.SeedSequence) -> int:
    return int(seed.generate_state(1, np.uint32)[0])
