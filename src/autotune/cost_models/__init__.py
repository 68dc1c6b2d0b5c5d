"""Cost (verify) models: the interfaces and the built-ins."""

from __future__ import annotations

from autotune.cost_models.analytic import AnalyticCostModel
from autotune.cost_models.cost_model import CostModel
from autotune.cost_models.differentiable import DifferentiableCostModel, require_differentiable
from autotune.cost_models.gbdt import GradientBoostedTrees
from autotune.cost_models.model_file import ModelFile, SavedModel, read_model, write_model
from autotune.cost_models.random import RandomCostModel
from autotune.cost_models.trainable import TrainableCostModel, TrainingGroup

__all__ = [
    "AnalyticCostModel",
    "CostModel",
    "DifferentiableCostModel",
    "GradientBoostedTrees",
    "ModelFile",
    "RandomCostModel",
    "SavedModel",
    "TrainableCostModel",
    "TrainingGroup",
    "read_model",
    "require_differentiable",
    "write_model",
]
