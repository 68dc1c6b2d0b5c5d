"""Tests of the local machine behind the contract of engines: a cluster of a single node."""

from __future__ import annotations

import json
import os
import signal

import pytest

from autotune.errors import InvalidValueError
from autotune.measure.engines import MeasureEngine, RunnerContext
from autotune.measure.engines.local_engine import LocalEngine
from autotune.targets import detect_cpu
from autotune.testing.engine_suite import EngineHost, EngineSuite, engine_context
from autotune.testing.reference_backend import SCRIPTED_NATIVE


class TestLocalEngine(EngineSuite):
    @classmethod
    def context(cls) -> RunnerContext:
        return engine_context(SCRIPTED_NATIVE, target=detect_cpu(), options={"builders": 1})

    @classmethod
    def program(cls) -> str:
        # Longer than the deadline of a job that is to be late.
        return json.dumps({"build_seconds": 0.05})

    @classmethod
    def make_engine(cls, context: RunnerContext) -> MeasureEngine:
        return LocalEngine(context)

    def test_a_killed_timer_is_replaced_and_its_job_is_not_repeated(
        self, host: EngineHost
    ) -> None:
        artefact, machine = host.built(), host.timer()
        engine = host.engine
        assert isinstance(engine, LocalEngine)
        with host.leased(machine):
            assert host.reply(host.run(artefact, machine)).kind == "done"
            _, timer = engine.pids[machine.name]
            os.kill(timer, signal.SIGSTOP)
            waiting = host.sample(machine)
            os.kill(timer, signal.SIGKILL)
            assert host.reply(waiting).kind in ("died", "lost")
            host.wait(lambda: host.timer().incarnation > machine.incarnation)
            assert host.reply(host.sample(machine)).kind == "again"
            assert host.reply(host.run(artefact, host.timer())).kind == "done"


def test_wrong_options_are_named() -> None:
    with pytest.raises(InvalidValueError, match="between 0 and 256, not -1"):
        LocalEngine(engine_context(options={"builders": -1}))
    with pytest.raises(InvalidValueError, match="no option 'builder'.*Did you mean 'builders'"):
        LocalEngine(engine_context(options={"builder": 1}))
