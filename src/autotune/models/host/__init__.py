"""Models in a process of their own: one that crashes, hangs or misbehaves does not end a run."""

from __future__ import annotations

from autotune.models.host.differentiable import differentiable_names
from autotune.models.host.guard import Guard, GuardLimits, ModelSpec
from autotune.models.host.models import GuardedCostModel, GuardedPruningModel

__all__ = [
    "Guard",
    "GuardLimits",
    "GuardedCostModel",
    "GuardedPruningModel",
    "ModelSpec",
    "differentiable_names",
]
