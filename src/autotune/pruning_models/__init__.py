"""Interface and built-ins."""

from __future__ import annotations

from autotune.pruning_models.pruning_model import PruningModel

__all__ = ["PruningModel"]
