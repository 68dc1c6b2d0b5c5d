"""Parts of a run."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
from toy_parts import REFERENCE_BACKEND, TOY_SPACE

from autotune.errors import InvalidValueError
from autotune.ir.workloads import gemm
from autotune.search.schedulers import GradientTaskScheduler, RoundRobin, SchedulerContext
from autotune.spaces import SpaceContext
from autotune.testing.toy_space import ToySpace
from autotune.tuning.options import TuneOptions
from autotune.tuning.programs import Task
from autotune.tuning.resolve import RunPlan, model_hosts, resolve_run

CREATED: list[SchedulerContext] = []


def counted(context: SchedulerContext) -> GradientTaskScheduler:
    CREATED.append(context)
    return GradientTaskScheduler(context)


def resolved(tasks: int, scheduler: object, space: str = TOY_SPACE) -> RunPlan:
    parts = {"search_space": space, "strategy": "random", "task_scheduler": scheduler}
    options = TuneOptions(backend=REFERENCE_BACKEND, threads=1, trials=8, parts=parts)
    found = resolve_run([Task(gemm(m=8, n=8, k=8))] * tasks, options, {})
    assert found is not None
    return found


@pytest.mark.parametrize(("tasks", "kind"), [(1, RoundRobin), (2, GradientTaskScheduler)])
def test_a_scheduler_is_created_for_several_tasks(tasks: int, kind: type[Any]) -> None:
    CREATED.clear()
    parts = resolved(tasks, f"{__name__}:counted")
    assert type(parts.scheduler) is kind
    assert [len(context.tasks) for context in CREATED] == ([] if tasks == 1 else [tasks])


@pytest.mark.parametrize("tasks", [1, 2])
def test_options_of_a_scheduler_are_checked_also_for_one_task(tasks: int) -> None:
    with pytest.raises(InvalidValueError, match="has no option 'alpah'"):
        resolved(tasks, ("gradient", {"alpah": 0.5}))
    assert type(resolved(1, ("gradient", {"alpha": 0.5})).scheduler) is RoundRobin


def loosened(context: SpaceContext) -> ToySpace:
    space = ToySpace()
    sketch = space.sketches()[0].name
    space.loosened = {sketch: ("every core gets work",)}
    return space


def test_a_soft_constraint_that_was_dropped_is_a_warning() -> None:
    parts = resolved(1, "round-robin", f"{__name__}:loosened")
    (warning,) = parts.warnings
    assert "'every core gets work'" in warning and ToySpace().sketches()[0].name in warning


def noting(context: SpaceContext) -> ToySpace:
    space = ToySpace()
    space.notes = ("products run in plain loops",)
    return space


def test_what_spaces_have_to_say_is_one_warning_for_all_programs() -> None:
    parts = resolved(2, "round-robin", f"{__name__}:noting")
    (warning,) = parts.warnings
    about, note = warning.split(": ")
    assert note == "products run in plain loops" and len(about.split(", ")) == 2


@pytest.mark.parametrize(
    ("cost_model", "pruning_model", "hosted"),
    [
        ("random", None, 0),
        ("random", "psa", 1),
        (("random", {"option": 1}), None, 1),
        ("autotune.models.cost.random:RandomCostModel", None, 1),
    ],
)
def test_random_scores_need_no_process(
    cost_model: object, pruning_model: object, hosted: int
) -> None:
    parts = {"cost_model": cost_model, "pruning_model": pruning_model}
    options = TuneOptions(backend=REFERENCE_BACKEND, threads=1, trials=8, parts=parts)
    assert len(model_hosts(options)) == hosted


def test_random_scores_are_those_of_a_process_of_their_own() -> None:
    """A run that began with a process goes on without one."""
    states = []
    for name in ("random", "autotune.models.cost.random:RandomCostModel"):
        options = TuneOptions(
            backend=REFERENCE_BACKEND,
            threads=1,
            trials=8,
            seed=3,
            parts={"search_space": TOY_SPACE, "cost_model": name, "pruning_model": None},
        )
        with ExitStack() as stack:
            hosts = model_hosts(options)
            for host in hosts.values():
                stack.enter_context(host)
            found = resolve_run([Task(gemm(m=8, n=8, k=8))], options, hosts)
            assert found is not None
            states.append((len(hosts), found.cost_models[0].state()))
    assert states[0] == (0, states[1][1]) and states[1][0] == 1
