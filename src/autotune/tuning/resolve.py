"""Everything that a run is made of, made from options: nothing is measured or written."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
from attrs import define, evolve, field, frozen

from autotune.errors import AutotuneError, DatabaseError
from autotune.measure import Measurer, MeasurerContext, SharedWorkers
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
from autotune.store.database import Database
from autotune.store.records import MeasureKey, Run, run_identity
from autotune.store.sqlite import open_database
from autotune.tuning.budget import Budget
from autotune.tuning.machines import machines_tag, worker_setup
from autotune.tuning.options import KINDS, Choice, TuneOptions, unused_by
from autotune.tuning.programs import Task, TaskRun, tasks_on_backends
from autotune.tuning.resume import Checkpoint, decided, new_run_id, why_not_resumable

__all__ = [
    "RunPlan",
    "RunProcesses",
    "is_probably_answered",
    "model_hosts",
    "resolve_run",
]


@frozen(eq=False, kw_only=True)
class RunPlan:
    """Tasks that are tuned together, and the parts that decide.

    Options and tasks are all that decides which candidates a run proposes: they identify it.

    Attributes:
        options: What the user asked for.
        tasks: One for each program and backend.
        strategies: The strategy of each task.
        cost_models: The cost model of each, which tasks may share.
        scheduler: Chooses the task of each round.
        make_measurer: Makes the measurer of a task, not started.
        workers: Those that the measurers of the tasks share; closed with the run.
        models: What holds the models that the tasks ask.
        warnings: What a person should know, such as that a backend cannot take part.
    """

    options: TuneOptions
    tasks: Sequence[TaskRun]
    strategies: Sequence[Strategy]
    cost_models: Sequence[CostModel]
    scheduler: TaskScheduler
    make_measurer: Callable[[TaskRun], Measurer]
    workers: SharedWorkers = field(factory=SharedWorkers)
    models: tuple[ModelHost, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def key(self) -> MeasureKey:
        """The measure key; of several backends that compete, that of the first."""
        return self.tasks[0].key

    @property
    def strategy(self) -> str:
        """Name of the strategy."""
        return self.options.chosen["strategy"].name

    @property
    def workload(self) -> str:
        """The workload's spelling, or a digest over those of several tasks.

        Spellings, as what a run has asked for and learnt is in the names of its own tasks.
        """
        spellings = [task.workload.spelling for task in self.tasks]
        if len(spellings) == 1 or self._has_several_keys and len(set(spellings)) == 1:
            return spellings[0]
        return _digest(",".join(spellings))

    @property
    def _has_several_keys(self) -> bool:
        return any(task.key != self.key for task in self.tasks)

    @property
    def space(self) -> str:
        """Name and version of the space of all tasks; a digest of the versions of several."""
        spaces = [task.space for task in sorted(self.tasks, key=lambda it: bool(it.refusal))]
        versions = list(dict.fromkeys(f"{space.name}-{space.version}" for space in spaces))
        if len(versions) == 1:
            return versions[0]
        names = "+".join(dict.fromkeys(space.name for space in spaces))
        return f"{names}-{_digest(','.join(versions))}"

    @property
    def decisions(self) -> dict[str, Any]:
        """Decisions in a run's identity beside workload, key, space, strategy and seed."""
        found = self.options.decisions(len(self.tasks))
        if len(self.tasks) > 1:
            found["tasks"] = [task.workload.spelling for task in self.tasks]
            found["weights"] = [task.weight for task in self.tasks]
        if any(task.program is not None for task in self.tasks):
            found["programs"] = [_digest(task.program) for task in self.tasks]
        if self._has_several_keys:
            found["keys"] = [task.key.to_json() for task in self.tasks]
        return found

    @property
    def identity(self) -> str:
        """Digest that finds the run again."""
        decided = self.workload, self.key, self.space, self.strategy, self.decisions
        return run_identity(*decided, self.options.seed)

    def new_run(self, trials: int, *, fresh: bool, created: float, network: str = "") -> Run:
        """A run that is about to start.

        Args:
            trials: The budget; 0 for one of time alone.
            fresh: Whether records of other runs are to be ignored.
            created: Unix time in seconds.
            network: As :attr:`Run.network`.
        """
        named: dict[str, Any] = {"network": network} if network else {}
        names = [task.name for task in self.tasks]
        return Run(
            run_id=new_run_id(),
            identity=self.identity,
            workload=self.workload,
            key=self.key,
            space=self.space,
            strategy=self.strategy,
            options={**self.decisions, "fresh": fresh, **named, "task_names": names},
            seed=self.options.seed,
            trials=trials,
            status="running",
            created=created,
        )

    def older_run(self, database: Database) -> str:
        """Describe a run of another version that would be this one; "" for nothing."""
        for run in reversed(database.runs(self.workload)):
            if why := self.changed_since(run):
                return f"run {run.run_id} is not continued: {why}; its records are still used"
        return ""

    def changed_since(self, run: Run) -> str:
        """Say why this version cannot resume a run that another version began.

        Returns:
            What differs, if it is what the user asks for here and only the versions of parts, or
            what identifies a run, have changed; "" where there is nothing to say.
        """
        own, other = self.key.to_json(), run.key.to_json()
        versions = [
            (name, other[name], own[name])
            for name in ("backend_version", "compiler_version", "protocol")
        ]
        spaces = run.space.partition("-")[0], self.space.partition("-")[0]
        same = all(own[name] == other[name] for name in ("target", "backend", "threads"))
        asked = (run.strategy, run.seed, spaces[0]) == (
            self.strategy,
            self.options.seed,
            spaces[1],
        )
        if not (same and asked and decided(run) == self.decisions):
            return ""
        versions.append(("search space", run.space, self.space))
        changes = [
            f"{name.replace('_', ' ')} {before} is {now} now"
            for name, before, now in versions
            if before != now
        ]
        return "; ".join([*changes, why_not_resumable(run)]).strip("; ")

    @property
    def programs(self) -> int:
        """Number of programs, each on one backend or on several."""
        return self.tasks[-1].position + 1

    @property
    def times_candidates_first(self) -> bool:
        """True if a task has a candidate before what it has without tuning is timed.

        Where tasks share the time, none is to spend it on an untuned program that takes seconds.
        """
        return len(self.tasks) > 1 and not any(task.contest for task in self.tasks)

    @property
    def first_round(self) -> int | None:
        """Candidates in a task's first round; None for whole rounds.

        A single task's are measured in any case, and of backends that compete, none is to lose by
        one candidate.
        """
        return self.options.first_round if self.times_candidates_first else None


def resolve_run(
    given: Sequence[Task],
    options: TuneOptions,
    models: Mapping[str, ModelHost],
    refused: MutableMapping[int, AutotuneError] | None = None,
    fallen: MutableMapping[int, str] | None = None,
    workers: SharedWorkers | None = None,
) -> RunPlan | None:
    """Make what a run is made of.

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
        The plan; None where every program was refused.

    Raises:
        AutotuneError: no backend can take part for a program; names the reason of each.
    """
    tasks, warnings = tasks_on_backends(given, options, refused, fallen)
    if not tasks:
        return None
    workers = workers or SharedWorkers()
    names = dict.fromkeys(task.key.backend for task in tasks)
    tags = {name: machines_tag(options, name, workers) for name in names}
    tasks = [_on_machines(task, tags[task.key.backend]) for task in tasks]
    model_seed, scheduler_seed, input_seed, *task_seeds = _seeds(options, tasks[-1].position + 1)
    own = {name: _cost_model(models.get(name), model_seed, options) for name in options.backend}
    no_model = RandomCostModel(ModelContext(seed=_integer(model_seed)))
    cost_models = [no_model if task.refusal else own[task.key.backend] for task in tasks]
    asked = dict.fromkeys(task.key.backend for task in tasks if not task.refusal)
    return RunPlan(
        options=options,
        tasks=tuple(tasks),
        strategies=[
            # Backends that compete begin with the same proposals.
            _strategy(task, options, cost_model, models, task_seeds[task.position])
            for task, cost_model in zip(tasks, cost_models, strict=True)
        ],
        cost_models=cost_models,
        scheduler=_scheduler(tasks, options, _integer(scheduler_seed)),
        make_measurer=partial(
            _make_measurer, options=options, seed=_integer(input_seed), workers=workers
        ),
        workers=workers,
        models=tuple(models[name] for name in asked if name in models),
        warnings=(*_warnings_of_parts(options), *warnings),
    )


def _on_machines(task: TaskRun, tag: str) -> TaskRun:
    """A task that is measured on machines that are named so."""
    return evolve(task, key=evolve(task.key, protocol=task.key.protocol + tag))


def _warnings_of_parts(options: TuneOptions) -> list[str]:
    """Caveats of a preset, and a part that is meant for a trained model where none is loaded."""
    said = [] if options.preset is None else list(options.preset.caveats)
    if options.load_cost_model is not None:
        return said
    for kind in ("strategy", "cost_model"):
        chosen = options.chosen[kind]
        if chosen.name in manager().names(kind) and manager().get(kind, chosen.name).trained:
            known = ", ".join(manager().names("trained_model")) or "none"
            return [
                *said,
                f"{kind.replace('_', ' ')} {chosen.name!r} is meant for a cost model that was "
                "trained beforehand, and begins here with one that knows nothing: name a trained "
                f"model (--load-cost-model; installed: {known}) or a file of autotune train fit",
            ]
    return said


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


def _scheduler(tasks: Sequence[TaskRun], options: TuneOptions, seed: int) -> TaskScheduler:
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


def _strategy(
    task: TaskRun,
    options: TuneOptions,
    cost_model: CostModel,
    models: Mapping[str, ModelHost],
    seed: np.random.SeedSequence,
) -> Strategy:
    chosen = _strategy_for(task, options)
    host = None if task.refusal else models.get(task.key.backend)
    pruning_model: PruningModel | None = None
    if host is not None and not options.chosen["pruning_model"].is_none:
        pruning_model = HostedPruningModel(host)
    context = StrategyContext(
        space=task.space,
        rng=np.random.default_rng(seed),
        cost_model=cost_model,
        pruning_model=pruning_model,
        options=chosen.options,
    )
    strategy: Strategy = create_part("strategy", chosen.name, context)
    return strategy


def _strategy_for(task: TaskRun, options: TuneOptions) -> Choice:
    """The strategy of a task: the usual one where its space is not the one that was chosen.

    Unless the chosen one asks no models, and so works in every space.
    """
    chosen = options.chosen["strategy"]
    asks_none = {"cost_model", "pruning_model"} <= set(unused_by(chosen.name))
    if not task.refusal or asks_none or chosen.name == KINDS["strategy"]:
        return chosen
    return Choice(KINDS["strategy"])


def _make_measurer(
    task: TaskRun, *, options: TuneOptions, seed: int, workers: SharedWorkers
) -> Measurer:
    chosen = options.chosen["measurer"]
    context = MeasurerContext(
        setup=worker_setup(options, task.key.backend),
        workload=task.workload,
        program=task.program,
        workers=workers,
        seed=seed,
        options=chosen.options,
    )
    measurer: Measurer = create_held_part("measurer", chosen.name, context)
    return measurer


def _digest(text: str | None) -> str:
    return "" if text is None else hashlib.sha256(text.encode()).hexdigest()[:16]


def _seeds(options: TuneOptions, tasks: int) -> list[np.random.SeedSequence]:
    """Seeds of the cost models, of the scheduler, of the inputs, and of each program."""
    return np.random.SeedSequence(options.seed).spawn(3 + tasks)


def _integer(seed: np.random.SeedSequence) -> int:
    return int(seed.generate_state(1, np.uint32)[0])


@define(eq=False)
class RunProcesses:
    """Workers and models of a run; a context manager, which ends them.

    Models get ready in the background from entering it on, unless they are started late.

    Attributes:
        options: Of the run, with its backends.
        starts_late: Whether models and workers are started only once they are needed.
        prefers_first: Whether those of the first backend only get ready: it probably takes all
            programs.
        models: What holds the models for each backend.
        workers: Those that measurers share.
    """

    options: TuneOptions
    starts_late: bool = field(default=False, kw_only=True)
    prefers_first: bool = field(default=False, kw_only=True)
    models: Mapping[str, ModelHost] = field(init=False)
    workers: SharedWorkers = field(factory=SharedWorkers, init=False)
    _ending: ExitStack = field(factory=ExitStack, init=False)

    def __enter__(self) -> RunProcesses:
        self.models = model_hosts(self.options)
        with ExitStack() as stack:
            stack.callback(self.workers.close)
            for backend, host in self.models.items():
                stack.callback(host.close)
                if not self.starts_late and backend in self._early:
                    host.start()
            self._ending = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ending.close()

    def start_workers(self) -> None:
        """Start those that the usual measurer takes, where they are processes of this machine.

        A device is left alone: until a run begins, other processes may need its memory. Where
        they are started late, a measurer starts them.
        """
        if self.starts_late:
            return
        options = self.options
        is_usual = options.chosen["measurer"].name == KINDS["measurer"]
        if not is_usual or options.uses_engine or options.machine.kind != "cpu":
            return
        for backend in self._early:
            self.workers.get(worker_setup(options, backend)).start()

    @property
    def _early(self) -> tuple[str, ...]:
        return self.options.backend[:1] if self.prefers_first else self.options.backend


def is_probably_answered(options: TuneOptions, network: str) -> bool:
    """Return whether a network need not be measured, as far as can be told before it is read.

    The database has a finished run of the same options, whose network has the same key. It is
    another network, or another version of a part, that makes this wrong: a run starts its workers
    when it needs them then.

    Args:
        options: Of the run, with its backends.
        network: As :attr:`Run.network`.
    """
    if options.fresh:
        return False
    try:
        with open_database(options.database, read_only=True) as database:
            return any(_answers(run, options) for run in database.runs_of_network(network))
    except DatabaseError:
        return False


def _answers(run: Run, options: TuneOptions) -> bool:
    asked = run.status, run.key.backend, run.key.target, run.key.threads
    machine = options.machine
    wanted = "finished", options.backend[0], machine.fingerprint, machine.cores
    if asked != wanted or run.checkpoint is None or run.seed != options.seed:
        return False
    own = decided(run)
    tasks = len(own.pop("tasks", [run.workload]))
    # What the network decides, which is not read yet.
    own = {name: value for name, value in own.items() if name not in ("weights", "programs")}
    if own != options.decisions(tasks) or run.strategy != options.chosen["strategy"].name:
        return False
    progress = Checkpoint.from_json(run.checkpoint, tasks).progress
    return Budget.of(options, tasks).is_used_up(progress)
