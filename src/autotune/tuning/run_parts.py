"""Everything that a run is made of, made from settings: nothing is measured or written."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen

from autotune.measure import LocalMeasurer, MeasureProtocol, Measurer
from autotune.models.cost import CostModel
from autotune.models.host import HostedCostModel, HostedPruningModel, ModelHost, ModelSpec
from autotune.models.pruning import PruningModel
from autotune.plugins.parts import create_part
from autotune.search.schedulers import TaskInfo, TaskScheduler
from autotune.search.strategies import Strategy, StrategyContext
from autotune.store.records import MeasureKey
from autotune.tuning.entrants import Entrant, Task, all_entrants, check_instance
from autotune.tuning.resume import RunSpec
from autotune.tuning.settings import Settings
from autotune.tuning.task import TaskSpec

__all__ = ["RunParts", "model_host"]


@frozen(eq=False)
class RunParts:
    """What a tuner needs.

    Attributes:
        tasks: One for each program and backend.
        spec: What decides the proposals of the run.
        scheduler: Chooses among the tasks.
        warnings: What a person should know, such as that a backend cannot take part.
    """

    tasks: tuple[TaskSpec, ...]
    spec: RunSpec
    scheduler: TaskScheduler
    warnings: tuple[str, ...]

    @staticmethod
    def of(
        given: Sequence[Task],
        settings: Settings,
        protocol: MeasureProtocol,
        models: Mapping[str, ModelHost],
    ) -> RunParts:
        """Make them.

        Args:
            given: The programs.
            settings: How to tune.
            protocol: How to measure.
            models: What holds the models for each backend, which learn from it alone.
        """
        entrants, warnings = all_entrants(given, settings)
        _, scheduler_seed, input_seed, *task_seeds = _seeds(settings, len(given))
        cost_models = {name: HostedCostModel(models[name]) for name in settings.backends}
        tasks = [
            _task(
                entrant,
                settings,
                cost_models[entrant.backend_name],
                HostedPruningModel(models[entrant.backend_name])
                if settings.pruning_model
                else None,
                # Backends that compete begin with the same proposals.
                task_seeds[entrant.position],
                _measurer_factory(entrant, settings, protocol, _integer(input_seed)),
                protocol,
            )
            for entrant in entrants
        ]
        scheduler = create_part(
            "task_scheduler",
            settings.scheduler,
            tasks=[_task_info(entrant) for entrant in entrants],
            seed=_integer(scheduler_seed),
            options=dict(settings.scheduler_options),
        )
        spec = _run_spec(entrants, [task.key for task in tasks], settings)
        return RunParts(tuple(tasks), spec, scheduler, tuple(warnings))


def model_host(settings: Settings) -> ModelHost:
    """What holds the models of one backend, in their own process."""
    seed, *_ = _seeds(settings, 0)
    arguments: dict[str, Any] = {"seed": _integer(seed), "threads": settings.threads}
    if settings.cost_model_options:
        arguments["options"] = dict(settings.cost_model_options)
    file = settings.cost_model_file
    specs = [ModelSpec("cost_model", settings.cost_model, arguments, file)]
    if settings.pruning_model:
        options = settings.pruning_model_options
        specs.append(ModelSpec("pruning_model", settings.pruning_model, options))
    return ModelHost(settings.target, specs)


def _task(
    entrant: Entrant,
    settings: Settings,
    cost_model: CostModel,
    pruning_model: PruningModel | None,
    seed: np.random.SeedSequence,
    make_measurer: Callable[[], Measurer],
    protocol: MeasureProtocol,
) -> TaskSpec:
    context = StrategyContext(
        space=entrant.space,
        rng=np.random.default_rng(seed),
        cost_model=cost_model,
        pruning_model=pruning_model,
        options=settings.strategy_options,
    )
    strategy: Strategy = create_part("strategy", settings.strategy, context=context)
    check_instance("strategy", settings.strategy, strategy, Strategy)
    return TaskSpec(
        name=entrant.name,
        workload=entrant.workload,
        target=settings.target,
        space=entrant.space,
        strategy=strategy,
        cost_model=cost_model,
        key=_measure_key(entrant, settings, protocol),
        make_measurer=make_measurer,
        program=entrant.program,
        contest=entrant.title if entrant.competes else "",
    )


def _measurer_factory(
    entrant: Entrant, settings: Settings, protocol: MeasureProtocol, seed: int
) -> Callable[[], Measurer]:
    def make() -> Measurer:
        return LocalMeasurer(
            entrant.backend_name,
            settings.target,
            settings.threads,
            entrant.workload,
            entrant.program,
            protocol=protocol,
            observers=settings.observers,
            seed=seed,
        )

    return make


def _task_info(entrant: Entrant) -> TaskInfo:
    name = entrant.workload.name
    return TaskInfo(
        weight=entrant.weight,
        flop=float(entrant.workload.flop),
        # What one backend reaches says nothing of another.
        group=f"{name} on {entrant.backend_name}" if entrant.competes else name,
        contest=entrant.title if entrant.competes else "",
    )


def _measure_key(entrant: Entrant, settings: Settings, protocol: MeasureProtocol) -> MeasureKey:
    return MeasureKey(
        target=settings.target.fingerprint,
        backend=entrant.backend_name,
        backend_version=entrant.backend.version,
        compiler_version=entrant.backend.compiler_version(),
        threads=settings.threads,
        protocol=protocol.identity,
    )


def _run_spec(
    entrants: Sequence[Entrant], keys: Sequence[MeasureKey], settings: Settings
) -> RunSpec:
    space = entrants[0].space
    return RunSpec(
        workloads=tuple(entrant.workload.digest for entrant in entrants),
        weights=tuple(entrant.weight for entrant in entrants),
        key=keys[0],
        space=f"{space.name}-{space.version}",
        strategy=settings.strategy,
        strategy_options=settings.strategy_options,
        cost_model=settings.cost_model,
        cost_model_options=settings.cost_model_options,
        pruning_model=settings.pruning_model,
        pruning_model_options=settings.pruning_model_options,
        scheduler=settings.scheduler,
        seed=settings.seed,
        round_size=settings.round_size,
        lookahead=settings.lookahead,
        scheduler_options=settings.scheduler_options,
        programs=tuple(_digest(entrant.program) for entrant in entrants),
        cost_model_file=""
        if settings.cost_model_file is None
        else settings.cost_model_file.digest,
        keys=tuple(keys) if any(key != keys[0] for key in keys) else (),
    )


def _digest(text: str | None) -> str:
    return "" if text is None else hashlib.sha256(text.encode()).hexdigest()[:16]


def _seeds(settings: Settings, tasks: int) -> list[np.random.SeedSequence]:
    """Seeds of the cost models, of the scheduler, of the inputs, and of each program."""
    return np.random.SeedSequence(settings.seed).spawn(3 + tasks)


def _integer(seed: np.random.SeedSequence) -> int:
    return int(seed.generate_state(1, np.uint32)[0])
