"""Neutral elements, in the ways in which programs write them."""

from __future__ import annotations

import math

from autotune.ir.element_types import element_type
from autotune.ir.expressions import Constant
from autotune.ir.workloads import Axis, Stage, Tensor

__all__ = ["is_neutral"]


def is_neutral(combiner: str, number: Constant) -> bool:
    """Whether a number is the neutral element of a combiner.

    For max and min so are the finite limits of a type, which many programs write for it, and NaN,
    which the operations that prefer numbers to NaN start from.
    """
    if number.dtype == "bool":
        return bool(number.value) == (combiner == "min")
    axes = (Axis("k", 1, "reduce"),)
    stage = Stage(Tensor("result", (), number.dtype), axes, number, combiner)
    neutral = stage.identity()
    if number.value == neutral:
        return True
    if not isinstance(neutral, float) or not math.isinf(neutral):
        return False
    limit = element_type(number.dtype).largest
    return math.isnan(number.value) or bool(number.value == math.copysign(limit, neutral))
