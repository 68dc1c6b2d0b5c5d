"""Cost (verify) models: the interfaces and the built-ins."""

from __future__ import annotations

from autotune.models.cost.analytic import AnalyticCostModel
from autotune.models.cost.cost_model import (
    CostModel,
    DifferentiableCostModel,
    Observation,
    TrainableCostModel,
    TrainingGroup,
    check_has_learned,
    require_differentiable,
    split_learn,
)
from autotune.models.cost.gbdt import GradientBoostedTrees
from autotune.models.cost.model_file import (
    ModelFile,
    ObservationLog,
    SavedModel,
    arrays_digest,
    arrays_from_json,
    arrays_to_json,
    check_model,
    read_model,
    trained_model,
    write_model,
)
from autotune.models.cost.random import RandomCostModel

__all__ = [
    "AnalyticCostModel",
    "CostModel",
    "DifferentiableCostModel",
    "GradientBoostedTrees",
    "ModelFile",
    "Observation",
    "ObservationLog",
    "RandomCostModel",
    "SavedModel",
    "TrainableCostModel",
    "TrainingGroup",
    "arrays_digest",
    "arrays_from_json",
    "arrays_to_json",
    "check_has_learned",
    "check_model",
    "read_model",
    "require_differentiable",
    "split_learn",
    "trained_model",
    "write_model",
]
