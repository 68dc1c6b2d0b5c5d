"""Programs of a network that the search space refuses are searched in the trace space."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from autotune_tvm.backend import TVMBackend
from tvm import te, topi

from autotune.errors import AutotuneError, UnsupportedWorkload
from autotune.ir.workloads import Stage
from autotune.models.cost import RandomCostModel
from autotune.search.strategies import EvolutionaryStrategy, RandomStrategy
from autotune.spaces.rules import SketchDraft
from autotune.spaces.rules.multi_level_tiling import MultiLevelTilingRule
from autotune.targets import detect_cpu
from autotune.tuning.options import TuneOptions
from autotune.tuning.programs import Task, tasks_on_backends
from autotune.tuning.resolve import model_hosts, resolve_run

OPTIONS = TuneOptions(backend="tvm", target=detect_cpu(), trials=8)


def gram() -> Any:
    """Products of all pairs of rows, which the rules refuse here."""
    x = te.placeholder((16, 32), "float32", "x")
    k = te.reduce_axis((0, 32), "k")
    y = te.compute((16, 16), lambda i, j: te.sum(x[i, k] * x[j, k], axis=k), "y")
    return te.create_prim_func([x, y])


def product() -> Any:
    x, w = (te.placeholder((16, 16), "float32", name) for name in ("x", "w"))
    return te.create_prim_func([x, w, topi.matmul(x, w)])


def scatter() -> Any:
    """Elements stored where data says, which cannot be imported."""
    x, u = (te.placeholder((16, 32), "float32", name) for name in ("x", "u"))
    places = te.placeholder((16, 32), "int32", "p")
    return te.create_prim_func([x, places, u, topi.scatter_elements(x, places, u, axis=1)])


@pytest.fixture(autouse=True)
def a_rule_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sketch rules take whatever is imported for CPUs; those of plugins may refuse a stage."""
    apply = MultiLevelTilingRule.apply

    def refuse(
        rule: MultiLevelTilingRule, draft: SketchDraft, stage: Stage
    ) -> list[SketchDraft] | None:
        if len(stage.loads) > len(stage.reads):
            raise UnsupportedWorkload(f"a rule refuses {stage.name!r}")
        return apply(rule, draft, stage)

    monkeypatch.setattr(MultiLevelTilingRule, "apply", refuse)


GIVEN = [
    Task(product(), 1.0, "product"),
    Task(gram(), 2.0, "gram"),
    Task(scatter(), 1.0, "scatter"),
]


def test_what_the_space_refuses_is_taken_by_the_traces() -> None:
    refused: dict[int, AutotuneError] = {}
    fallen: dict[int, str] = {}
    tasks, _ = tasks_on_backends(GIVEN, OPTIONS, refused, fallen)
    assert [(task.title, task.space.name) for task in tasks] == [
        ("product", "sketch"),
        ("gram", "trace"),
    ]
    assert not tasks[0].refusal and tasks[1].refusal == "a rule refuses 'y'"
    assert fallen == {1: tasks[1].refusal}
    assert set(refused) == {2} and "scatters: index 0" in str(refused[2])


def test_the_first_backend_that_need_not_fall_back_takes_a_program() -> None:
    fallen: dict[int, str] = {}
    known = {"tvm": TVMBackend()}
    given = [
        evolve(
            it,
            imported={name: backend.import_program(it.program) for name, backend in known.items()},
        )
        for it in GIVEN[:2]
    ]
    options = evolve(OPTIONS, backend=("native", "tvm"))
    tasks, warnings = tasks_on_backends(given, options, {}, fallen)
    assert [(task.title, task.key.backend, task.space.name) for task in tasks] == [
        ("product", "native", "sketch"),
        ("gram", "tvm", "trace"),
    ]
    assert not warnings and fallen == {1: "a rule refuses 'y'"}
    assert [it.program for it in tasks] == [it.imported["tvm"].program for it in given]
    models = model_hosts(options)
    parts = resolve_run(given, options, models, {}, {})
    assert parts is not None and set(models) == {"native", "tvm"}
    assert parts.models == (models["native"],)


def test_without_asking_nothing_falls_back() -> None:
    with pytest.raises(UnsupportedWorkload, match="task 'gram' .*a rule refuses 'y'"):
        tasks_on_backends(GIVEN[:2], OPTIONS)


@pytest.mark.parametrize(
    ("strategy", "kind"), [("felix", EvolutionaryStrategy), ("random", RandomStrategy)]
)
def test_it_is_searched_without_models(strategy: str, kind: type[Any]) -> None:
    options = evolve(OPTIONS, parts={"strategy": strategy})
    parts = resolve_run(GIVEN[:2], options, model_hosts(options), {}, {})
    assert parts is not None and parts.space.startswith("sketch+trace-")
    assert isinstance(parts.strategies[1], kind)
    assert isinstance(parts.cost_models[1], RandomCostModel)
    assert parts.strategies[0].name == strategy
