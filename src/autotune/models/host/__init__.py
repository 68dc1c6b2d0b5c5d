"""Models in a process of their own: one that crashes, hangs or misbehaves does not end a run."""

from __future__ import annotations

from autotune.models.host.model_host import HostLimits, ModelHost, ModelSpec
from autotune.models.host.models import HostedCostModel, HostedPruningModel
from autotune.models.host.transport import differentiable_names

__all__ = [
    "ModelHost",
    "HostLimits",
    "HostedCostModel",
    "HostedPruningModel",
    "ModelSpec",
    "differentiable_names",
]
