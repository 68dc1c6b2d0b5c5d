"""Guarded models are models: they pass the suites of models."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autotune.models.host import Guard, GuardedCostModel, GuardedPruningModel, ModelSpec
from autotune.targets import Target, resolve
from autotune.testing.cost_model_suite import CostModelFactory, CostModelSuite
from autotune.testing.faulty_models import FAULTY_PRUNING_MODEL
from autotune.testing.pruning_model_suite import PruningModelFactory, PruningModelSuite
from autotune.testing.toy_parts import TOY_TREES


def failing(message: str) -> None:
    raise AssertionError(message)


@pytest.fixture(scope="module")
def module_target() -> Target:
    return resolve("avx512-8core")


@pytest.fixture(scope="module")
def pruning_guard(module_target: Target) -> Iterator[Guard]:
    spec = ModelSpec("pruning_model", FAULTY_PRUNING_MODEL)
    with Guard(module_target, [spec], on_warning=failing) as guard:
        yield guard


class TestGuardedTrees(CostModelSuite):
    @pytest.fixture
    def cost_model_factory(self, module_target: Target) -> Iterator[CostModelFactory]:
        guards: list[Guard] = []

        def make() -> GuardedCostModel:
            spec = ModelSpec("cost_model", TOY_TREES, {"seed": 3, "threads": 1})
            guards.append(Guard(module_target, [spec], on_warning=failing))
            return GuardedCostModel(guards[-1])

        yield make
        for guard in guards:
            guard.close()


class TestGuardedPruningModel(PruningModelSuite):
    @pytest.fixture
    def pruning_model_factory(self, pruning_guard: Guard) -> PruningModelFactory:
        return lambda: GuardedPruningModel(pruning_guard)
