"""Cost (verify) models: the interface and the built-ins."""

from __future__ import annotations

from autotune.cost_models.cost_model import CostModel
from autotune.cost_models.gbdt import GradientBoostedTrees
from autotune.cost_models.random import RandomCostModel

__all__ = ["CostModel", "GradientBoostedTrees", "RandomCostModel"]
