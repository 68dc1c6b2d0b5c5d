"""Everything that a run is made of, made from options: nothing is measured or written."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, MutableMapping, Sequence

import numpy as np
from attrs import evolve, frozen

from autotune.errors import AutotuneError
from autotune.measure import Measurer, MeasurerContext, SharedWorkers
from autotune.measure.workers import WorkerSetup
from autotune.models import ModelContext
from autotune.models.cost import CostModel, RandomCostModel
from autotune.models.host import HostedCostModel, HostedPruningModel, ModelHost, ModelSpec
from autotune.models.pruning import PruningModel
from autotune.plugins.guarded_parts import create_held_part
from autotune.plugins.manager import manager
from autotune.plugins.parts import create_part
from autotune.search.schedulers import SchedulerContext, TaskScheduler
from autotune.search.schedulers.round_robin import RoundRobin
from autotune.search.strategies import Strategy, StrategyContext
from autotune.tuning.choices import KINDS, Choice, unused_by
from autotune.tuning.machines import machines_tag
from autotune.tuning.options import TuneOptions
from autotune.tuning.programs import Task, TaskOnBackend, tasks_on_backends
from autotune.tuning.resume import RunSpec
from autotune.tuning.task_spec import TaskSpec

__all__ = ["RunParts", "model_hosts", "resolve_run"]


@frozen(eq=False)
class RunParts:
    """The resolved parts of a run, as the tuner takes them.

    Attributes:
        tasks: One for each program and backend.
        spec: What decides the proposals of the run.
        scheduler: Chooses among the tasks.
        programs: How many programs there are, each on one backend or on several.
        warnings: What a person should know, such as that a backend cannot take part.
        workers: Those that the measurers of the tasks share.
        models: Names of the backends whose models the tasks ask.
    """

    tasks: tuple[TaskSpec, ...]
    spec: RunSpec
    scheduler: TaskScheduler
    programs: int
    warnings: tuple[str, ...]
    workers: SharedWorkers
    models: tuple[str, ...]


def resolve_run(
    given: Sequence[Task],
    options: TuneOptions,
    models: Mapping[str, ModelHost],
    refused: MutableMapping[int, AutotuneError] | None = None,
    fallen: MutableMapping[int, str] | None = None,
    workers: SharedWorkers | None = None,
) -> RunParts | None:
    """Make the parts of a run.

    Args:
        given: The programs.
        options: How to tune, with a backend.
        models: What holds the models for each backend, which learn from it alone; see
            :func:`model_hosts`.
        refused: Takes the programs that no backend can take; see :func:`tasks_on_backends`.
        fallen: Takes those that are searched in a space that a backend falls back to, likewise.
            Models of the run do not know such a space: its best candidates are varied without.
        workers: What measurers take their workers from; by default there are none yet.

    Returns:
        The parts; None where every program was refused.

    Raises:
        AutotuneError: no backend can take part for a program; names the reason of each.
    """
    tasks, warnings = tasks_on_backends(given, options, refused, fallen)
    if not tasks:
        return None
    workers = workers or SharedWorkers()
    tags = {name: machines_tag(options, name, workers) for name in _backends_of(tasks)}
    tasks = [evolve(task, machines=tags[task.backend_name]) for task in tasks]
    programs = tasks[-1].position + 1
    model_seed, scheduler_seed, input_seed, *task_seeds = _seeds(options, programs)
    cost_models = {
        name: _cost_model(models.get(name), model_seed, options) for name in options.backend
    }
    no_model = RandomCostModel(ModelContext(seed=_integer(model_seed)))
    specs = [
        _task_spec(
            task,
            options,
            no_model if task.refusal else cost_models[task.backend_name],
            None if task.refusal else models.get(task.backend_name),
            # Backends that compete begin with the same proposals.
            task_seeds[task.position],
            _integer(input_seed),
            workers,
        )
        for task in tasks
    ]
    scheduler = _scheduler(tasks, options, _integer(scheduler_seed))
    warnings = [*_untrained(options), *warnings]
    if options.preset is not None:
        warnings = [*options.preset.caveats, *warnings]
    spec = _run_spec(tasks, options)
    asked = tuple(dict.fromkeys(it.backend_name for it in tasks if not it.refusal))
    asked = tuple(name for name in asked if name in models)
    return RunParts(tuple(specs), spec, scheduler, programs, tuple(warnings), workers, asked)


def _untrained(options: TuneOptions) -> list[str]:
    """A warning where parts are meant for a trained model, and the run loads none."""
    if options.load_cost_model is not None:
        return []
    for kind in ("strategy", "cost_model"):
        chosen = options.chosen[kind]
        if chosen.name in manager().names(kind) and manager().get(kind, chosen.name).trained:
            known = ", ".join(manager().names("trained_model")) or "none"
            return [
                f"{kind.replace('_', ' ')} {chosen.name!r} is meant for a cost model that was "
                "trained beforehand, and begins here with one that knows nothing: name a trained "
                f"model (--load-cost-model; installed: {known}) or a file of autotune train fit"
            ]
    return []


def _backends_of(tasks: Sequence[TaskOnBackend]) -> list[str]:
    return list(dict.fromkeys(task.backend_name for task in tasks))


def model_hosts(options: TuneOptions) -> dict[str, ModelHost]:
    """The model host of each backend."""
    seed, *_ = _seeds(options, 0)
    cost_model, pruning_model = options.chosen["cost_model"], options.chosen["pruning_model"]
    common = {"seed": _integer(seed), "threads": options.machine.cores}
    specs = []
    if not _is_held_here(options):
        arguments = {**common, "options": dict(cost_model.options)}
        file = options.load_cost_model
        specs.append(ModelSpec("cost_model", cost_model.name, arguments, file))
    if not pruning_model.is_none:
        arguments = {**common, "options": dict(pruning_model.options)}
        specs.append(ModelSpec("pruning_model", pruning_model.name, arguments))
    return {name: ModelHost(options.machine, specs) for name in options.backend if specs}


def _is_held_here(options: TuneOptions) -> bool:
    """Tell if the cost model needs no process of its own: there is none, or it is random scores.

    These are the same in any process, learn nothing, and cannot crash.
    """
    chosen = options.chosen["cost_model"]
    is_random = chosen.name == RandomCostModel.name and not chosen.options
    return chosen.is_none or (is_random and options.load_cost_model is None)


def _cost_model(
    models: ModelHost | None, seed: np.random.SeedSequence, options: TuneOptions
) -> CostModel:
    """The model in its process, or random scores: those asked for, or some never asked for."""
    if models is None or _is_held_here(options):
        return RandomCostModel(ModelContext(seed=_integer(seed)))
    return HostedCostModel(models)


def _scheduler(tasks: Sequence[TaskOnBackend], options: TuneOptions, seed: int) -> TaskScheduler:
    """The chosen scheduler, or a trivial one for a single task.

    With a single task the chosen one is created only where it has options, to check them: its
    name is no part of such a run's identity, and its state must not be either.
    """
    chosen = options.chosen["task_scheduler"]
    infos = [task.info for task in tasks]
    objective = options.objective if len(tasks) > 1 else None
    context = SchedulerContext(tasks=infos, seed=seed, objective=objective)
    if len(tasks) == 1 and not chosen.options:
        return RoundRobin(context)
    scheduler: TaskScheduler = create_part(
        "task_scheduler", chosen.name, evolve(context, options=chosen.options)
    )
    return RoundRobin(context) if len(tasks) == 1 else scheduler


def _task_spec(
    task: TaskOnBackend,
    options: TuneOptions,
    cost_model: CostModel,
    models: ModelHost | None,
    seed: np.random.SeedSequence,
    input_seed: int,
    workers: SharedWorkers,
) -> TaskSpec:
    chosen = _strategy_for(task, options)
    pruning_model: PruningModel | None = None
    if models is not None and not options.chosen["pruning_model"].is_none:
        pruning_model = HostedPruningModel(models)
    context = StrategyContext(
        space=task.space,
        rng=np.random.default_rng(seed),
        cost_model=cost_model,
        pruning_model=pruning_model,
        options=chosen.options,
    )
    strategy: Strategy = create_part("strategy", chosen.name, context)
    return TaskSpec(
        name=task.name,
        workload=task.workload,
        target=options.machine,
        space=task.space,
        strategy=strategy,
        cost_model=cost_model,
        key=task.key(options),
        make_measurer=_measurer_factory(task, options, input_seed, workers),
        program=task.program,
        default_schedule=task.backend.default_schedule,
        least_untuned=_least_untuned(task, options),
        cuts_off=not options.time_untuned,
        weight=task.weight,
        contest=task.contest,
    )


def _least_untuned(task: TaskOnBackend, options: TuneOptions) -> float:
    """Least latency of the untuned program; 0.0 where it is timed however long that takes."""
    is_said = options.machine.kind == "cpu" and not options.time_untuned
    return task.least_untuned if is_said else 0.0


def _strategy_for(task: TaskOnBackend, options: TuneOptions) -> Choice:
    """The strategy of a task: the usual one where its space is not the one that was chosen.

    Unless the chosen one asks no models, and so works in every space.
    """
    chosen = options.chosen["strategy"]
    asks_none = {"cost_model", "pruning_model"} <= set(unused_by(chosen.name))
    if not task.refusal or asks_none or chosen.name == KINDS["strategy"]:
        return chosen
    return Choice(KINDS["strategy"])


def _measurer_factory(
    task: TaskOnBackend, options: TuneOptions, seed: int, workers: SharedWorkers
) -> Callable[[], Measurer]:
    chosen = options.chosen["measurer"]
    machine = options.machine
    context = MeasurerContext(
        setup=WorkerSetup(
            task.backend_name, machine, machine.cores, options.protocol, options.observers
        ),
        workload=task.workload,
        program=task.program,
        workers=workers,
        seed=seed,
        options=chosen.options,
    )

    def make() -> Measurer:
        measurer: Measurer = create_held_part("measurer", chosen.name, context)
        return measurer

    return make


def _run_spec(tasks: Sequence[TaskOnBackend], options: TuneOptions) -> RunSpec:
    spaces = [task.space for task in sorted(tasks, key=lambda task: bool(task.refusal))]
    keys = tuple(task.key(options) for task in tasks)
    return RunSpec(
        workloads=tuple(task.workload.spelling for task in tasks),
        weights=tuple(task.weight for task in tasks),
        key=keys[0],
        space="+".join(dict.fromkeys(f"{space.name}-{space.version}" for space in spaces)),
        options=options,
        programs=tuple(_digest(task.program) for task in tasks),
        keys=keys if any(key != keys[0] for key in keys) else (),
    )


def _digest(text: str | None) -> str:
    return "" if text is None else hashlib.sha256(text.encode()).hexdigest()[:16]


def _seeds(options: TuneOptions, tasks: int) -> list[np.random.SeedSequence]:
    """Seeds of the cost models, of the scheduler, of the inputs, and of each program."""
    return np.random.SeedSequence(options.seed).spawn(3 + tasks)


def _integer(seed: np.random.SeedSequence) -> int:
    return int(seed.generate_state(1, np.uint32)[0])
