"""Measuring candidates in isolated processes."""

from __future__ import annotations

from autotune.measure.local_measurer import LocalMeasurer
from autotune.measure.measurer import Collecting, LoadedProgram, Measurer, OnOutcome
from autotune.measure.protocol import PROTOCOL_VERSION, PROTOCOLS, MeasureProtocol
from autotune.measure.trial import Leader
from autotune.measure.workers import SharedWorkers
from autotune.process.errors import TimeIsOver, WorkerStartFailed

__all__ = [
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
