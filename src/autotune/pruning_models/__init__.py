"""Pruning (draft) models: the interface and the built-ins."""

from __future__ import annotations

from autotune.pruning_models.pruning_model import PruningModel
from autotune.pruning_models.psa import PSA
from autotune.pruning_models.roofline import Roofline

__all__ = ["PSA", "PruningModel", "Roofline"]
