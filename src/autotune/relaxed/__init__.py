"""Tapes over real numbers, with derivatives: what a descent through schedules reads.

Nothing here imports torch but :mod:`autotune.relaxed.torch_function`, which has to be asked for.
"""

from __future__ import annotations

from autotune.relaxed.bounds import Bounds, param_bounds
from autotune.relaxed.by_sketch import BySketch
from autotune.relaxed.lowering import FORMS, Instruction, Lowered, lower_exact, lower_relaxed
from autotune.relaxed.relaxed_tape import RelaxedTape
from autotune.relaxed.smoothing import FELIX, Smoothing

__all__ = [
    "FELIX",
    "FORMS",
    "Bounds",
    "BySketch",
    "Instruction",
    "Lowered",
    "RelaxedTape",
    "Smoothing",
    "lower_exact",
    "lower_relaxed",
    "param_bounds",
]
