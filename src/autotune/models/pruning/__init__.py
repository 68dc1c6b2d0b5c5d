"""Pruning (draft) models: the interface and the built-ins."""

from __future__ import annotations

from autotune.models.pruning.pruning_model import PruningModel, Roofline
from autotune.models.pruning.psa import PSA

__all__ = ["PSA", "PruningModel", "Roofline"]
