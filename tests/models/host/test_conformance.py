"""Hosted models are models: they pass the suites of models."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from faulty_models import FAULTY_PRUNING_MODEL
from toy_parts import TOY_TREES

from autotune.models.host import HostedCostModel, HostedPruningModel, ModelHost, ModelSpec
from autotune.targets import Target, resolve
from autotune.testing.cost_model_suite import CostModelFactory, CostModelSuite
from autotune.testing.pruning_model_suite import PruningModelFactory, PruningModelSuite


def failing(message: str) -> None:
    raise AssertionError(message)


@pytest.fixture(scope="module")
def module_target() -> Target:
    return resolve("avx512-8core")


@pytest.fixture(scope="module")
def pruning_host(module_target: Target) -> Iterator[ModelHost]:
    spec = ModelSpec("pruning_model", FAULTY_PRUNING_MODEL)
    with ModelHost(module_target, [spec], on_warning=failing) as host:
        yield host


@pytest.mark.slow
class TestHostedTrees(CostModelSuite):
    @pytest.fixture
    def cost_model_factory(self, module_target: Target) -> Iterator[CostModelFactory]:
        hosts: list[ModelHost] = []

        def make() -> HostedCostModel:
            spec = ModelSpec("cost_model", TOY_TREES, {"seed": 3, "threads": 1})
            hosts.append(ModelHost(module_target, [spec], on_warning=failing))
            return HostedCostModel(hosts[-1])

        yield make
        for host in hosts:
            host.close()


class TestHostedPruningModel(PruningModelSuite):
    @pytest.fixture
    def pruning_model_factory(self, pruning_host: ModelHost) -> PruningModelFactory:
        return lambda: HostedPruningModel(pruning_host)
