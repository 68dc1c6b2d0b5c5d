"""Pruning (draft) models: the interface and the built-ins."""

from __future__ import annotations

from autotune.models.pruning.pruning_model import PruningModel
from autotune.models.pruning.psa import PSA
from autotune.models.pruning.roofline import Roofline

__all__ = ["PSA", "PruningModel", "Roofline"]
