"""Measuring candidates in isolated processes."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from autotune.measure.protocol import PHASES, PROTOCOL_VERSION, PROTOCOLS, MeasureProtocol
from autotune.process.errors import TimeIsOver, WorkerStartFailed

if TYPE_CHECKING:
    from autotune.measure.local_measurer import LocalMeasurer
    from autotune.measure.measurer import Collecting, LoadedProgram, Measurer, OnOutcome
    from autotune.measure.trial import Leader
    from autotune.measure.workers import SharedWorkers

__all__ = [
    "PHASES",
    "PROTOCOLS",
    "PROTOCOL_VERSION",
    "Collecting",
    "LoadedProgram",
    "Leader",
    "LocalMeasurer",
    "MeasureProtocol",
    "Measurer",
    "OnOutcome",
    "SharedWorkers",
    "TimeIsOver",
    "WorkerStartFailed",
]

# The host's side: workers import this package, too, and start sooner without it.
_MODULE_OF = {
    "Collecting": "measurer",
    "Leader": "trial",
    "LoadedProgram": "measurer",
    "LocalMeasurer": "local_measurer",
    "Measurer": "measurer",
    "OnOutcome": "measurer",
    "SharedWorkers": "workers",
}


def _imported_later(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


if not TYPE_CHECKING:
    __getattr__ = _imported_later


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
