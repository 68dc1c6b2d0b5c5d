"""Machines with supervisors, in a cluster of threads."""

from __future__ import annotations

import json

from thread_cluster import ThreadCluster

from autotune.measure.engines import MeasureEngine
from autotune.measure.engines.supervised import SupervisedEngine
from autotune.plugins import Context
from autotune.testing.engine_suite import EngineSuite


class TestSupervisedEngine(EngineSuite):
    @classmethod
    def program(cls) -> str:
        # Longer than the deadline of a job that is to be late.
        return json.dumps({"build_seconds": 0.05})

    @classmethod
    def make_engine(cls, context: Context) -> MeasureEngine:
        return SupervisedEngine(context, ThreadCluster())
