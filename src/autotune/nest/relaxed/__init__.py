"""Tapes over real numbers, with derivatives: the input of gradient descent over schedules.

Only :mod:`autotune.nest.relaxed.torch_function` imports torch, and it has to be asked for.
"""

from __future__ import annotations

from autotune.nest.relaxed.relaxed_tape import (
    FELIX,
    FORMS,
    Lowered,
    ParamBounds,
    RelaxedInstruction,
    RelaxedTape,
    Smoothing,
    lower_exact,
    lower_relaxed,
    param_bounds,
)

__all__ = [
    "FELIX",
    "FORMS",
    "Lowered",
    "ParamBounds",
    "RelaxedInstruction",
    "RelaxedTape",
    "Smoothing",
    "lower_exact",
    "lower_relaxed",
    "param_bounds",
]
