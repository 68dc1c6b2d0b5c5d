"""Finds fast schedules for tensor programs; every decision-making part is a plugin.

    import autotune

    result = autotune.tune(autotune.ir.workloads.gemm(m=512, n=512, k=512), trials=64)
    print(result.best.outcome.latency)
    matmul = result.build()

Names are resolved when they are first used, so that importing this package stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.errors import AutotuneError, NoValidCandidate
    from autotune.ir import workloads as workloads
    from autotune.ir.workloads import Workload
    from autotune.measure import MeasureProtocol
    from autotune.plugins.workload_names import make_workload
    from autotune.process.interrupts import TuningInterrupted
    from autotune.sketches import Candidate
    from autotune.store.database import Database, RecordFilter
    from autotune.store.records import Outcome, Record
    from autotune.store.sqlite import open_database
    from autotune.targets import Target
    from autotune.tuning.api import Task, tune, tune_tasks
    from autotune.tuning.result import Result
    from autotune.tuning.tuned_function import TunedFunction, compile_record

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
    "make_workload",
    "open_database",
    "tune",
    "tune_tasks",
    "workloads",
]

_MODULE_OF = {
    "AutotuneError": "autotune.errors",
    "Candidate": "autotune.sketches",
    "Database": "autotune.store.database",
    "MeasureProtocol": "autotune.measure",
    "NoValidCandidate": "autotune.errors",
    "Outcome": "autotune.store.records",
    "Record": "autotune.store.records",
    "RecordFilter": "autotune.store.database",
    "Result": "autotune.tuning.result",
    "Target": "autotune.targets",
    "Task": "autotune.tuning.api",
    "TunedFunction": "autotune.tuning.tuned_function",
    "TuningInterrupted": "autotune.process.interrupts",
    "Workload": "autotune.ir.workloads",
    "compile_record": "autotune.tuning.tuned_function",
    "make_workload": "autotune.plugins.workload_names",
    "open_database": "autotune.store.sqlite",
    "tune": "autotune.tuning.api",
    "tune_tasks": "autotune.tuning.api",
}


def __getattr__(name: str) -> Any:
    if name == "workloads":
        return importlib.import_module("autotune.ir.workloads")
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'autotune' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
