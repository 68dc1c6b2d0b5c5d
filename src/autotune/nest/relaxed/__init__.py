"""Tapes over real numbers, with derivatives: the input of gradient descent over schedules.

Only :mod:`autotune.nest.relaxed.torch_function` imports torch, and it has to be asked for.
"""

from __future__ import annotations

from autotune.nest.relaxed.bounds import ParamBounds, param_bounds
from autotune.nest.relaxed.lowering import (
    FORMS,
    Lowered,
    RelaxedInstruction,
    lower_exact,
    lower_relaxed,
)
from autotune.nest.relaxed.relaxed_tape import RelaxedTape
from autotune.nest.relaxed.smoothing import FELIX, Smoothing

__all__ = [
    "FELIX",
    "FORMS",
    "ParamBounds",
    "RelaxedInstruction",
    "Lowered",
    "RelaxedTape",
    "Smoothing",
    "lower_exact",
    "lower_relaxed",
    "param_bounds",
]
