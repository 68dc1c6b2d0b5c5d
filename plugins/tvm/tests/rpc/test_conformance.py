"""The runner ``rpc`` keeps to the contract of engines, on real servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest
from autotune_tvm.rpc.engine import RPCEngine
from rpc_servers import RPCFleet

from autotune.measure.engines import MeasureEngine, RunnerContext
from autotune.targets import detect_cpu
from autotune.testing.engine_suite import EngineSuite, engine_context

pytestmark = pytest.mark.long


class TestRPCEngine(EngineSuite):
    fleet: ClassVar[RPCFleet]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def servers(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        with RPCFleet(tmp_path_factory.mktemp("fleet"), servers=2) as cls.fleet:
            yield

    @classmethod
    def context(cls) -> RunnerContext:
        return engine_context("native", target=detect_cpu(), options=cls.fleet.options())

    @classmethod
    def make_engine(cls, context: RunnerContext) -> MeasureEngine:
        return RPCEngine(context)
