"""Finds fast schedules for tensor programs; every decision-making part is a plugin.

    import autotune

    result = autotune.tune(autotune.workloads.gemm(m=512, n=512, k=512), trials=64)
    print(result.best.outcome.latency)
    matmul = result.build()

Names are resolved when they are first used, so that importing this package stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune import events as events
    from autotune import report as report
    from autotune import targets as targets
    from autotune import workloads as workloads
    from autotune.api import Task, tune, tune_tasks
    from autotune.database import Database, RecordFilter, open_database
    from autotune.errors import AutotuneError, NoValidCandidate
    from autotune.interrupts import TuningInterrupted
    from autotune.measure import MeasureProtocol
    from autotune.records import Outcome, Record
    from autotune.result import Result
    from autotune.sketches import Candidate
    from autotune.targets import Target
    from autotune.tuned_function import TunedFunction, compile_record
    from autotune.workload_spec import make_workload
    from autotune.workloads import Workload

__all__ = [
    "AutotuneError",
    "Candidate",
    "Database",
    "MeasureProtocol",
    "NoValidCandidate",
    "Outcome",
    "Record",
    "RecordFilter",
    "Result",
    "Target",
    "Task",
    "TunedFunction",
    "TuningInterrupted",
    "Workload",
    "compile_record",
    "events",
    "make_workload",
    "open_database",
    "report",
    "targets",
    "tune",
    "tune_tasks",
    "workloads",
]

_MODULE_OF = {
    "AutotuneError": "autotune.errors",
    "Candidate": "autotune.sketches",
    "Database": "autotune.database",
    "MeasureProtocol": "autotune.measure",
    "NoValidCandidate": "autotune.errors",
    "Outcome": "autotune.records",
    "Record": "autotune.records",
    "RecordFilter": "autotune.database",
    "Result": "autotune.result",
    "Target": "autotune.targets",
    "Task": "autotune.api",
    "TunedFunction": "autotune.tuned_function",
    "TuningInterrupted": "autotune.interrupts",
    "Workload": "autotune.workloads",
    "compile_record": "autotune.tuned_function",
    "make_workload": "autotune.workload_spec",
    "open_database": "autotune.database",
    "tune": "autotune.api",
    "tune_tasks": "autotune.api",
}
_SUBMODULES = ("events", "report", "targets", "workloads")


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"autotune.{name}")
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'autotune' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
