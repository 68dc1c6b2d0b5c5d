"""Measuring candidates in isolated processes."""

from __future__ import annotations

from autotune.isolation.errors import WorkerStartFailed
from autotune.measure.local_measurer import LocalMeasurer
from autotune.measure.measurer import Measurer, OnOutcome
from autotune.measure.protocol import PROTOCOL_VERSION, MeasureProtocol

__all__ = [
    "PROTOCOL_VERSION",
    "LocalMeasurer",
    "MeasureProtocol",
    "Measurer",
    "OnOutcome",
    "WorkerStartFailed",
]
