"""The cost model of the trace space."""

from __future__ import annotations

from autotune.models import ModelContext
from autotune.models.cost import GradientBoostedTrees
from autotune_tvm.trace.features import FEATURE_VERSION, lowered_features

__all__ = ["LoweredTrees"]


class LoweredTrees(GradientBoostedTrees):
    """Gradient-boosted trees over features of the lowered program.

    Args:
        context: As of :class:`~autotune.models.cost.GradientBoostedTrees`.

    Raises:
        InvalidValueError: an option is given.
    """

    name = "lowered"

    def __init__(self, context: ModelContext) -> None:
        super().__init__(context, lowered_features, FEATURE_VERSION)
