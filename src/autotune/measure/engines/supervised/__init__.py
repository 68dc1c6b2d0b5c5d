"""Engines whose machines have supervisors: processes that own a device, and workers for it."""

from __future__ import annotations

from autotune.measure.engines.supervised.cluster import Cluster, Node, Supervised
from autotune.measure.engines.supervised.engine import SupervisedEngine
from autotune.measure.engines.supervised.supervisor import Supervisor, SupervisorSetup

__all__ = [
    "Cluster",
    "Node",
    "Supervised",
    "SupervisedEngine",
    "Supervisor",
    "SupervisorSetup",
]
