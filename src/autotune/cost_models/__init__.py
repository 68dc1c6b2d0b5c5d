"""Interface and built-ins."""

from __future__ import annotations

from autotune.cost_models.cost_model import CostModel

__all__ = ["CostModel"]
