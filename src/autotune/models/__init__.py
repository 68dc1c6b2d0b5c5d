"""Models that score candidates: features, pruning and cost models, training and host."""

from __future__ import annotations

from autotune.models.context import ModelContext

__all__ = ["ModelContext"]
