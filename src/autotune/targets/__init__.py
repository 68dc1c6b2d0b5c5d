"""Target machines: descriptions, detection, presets."""

from __future__ import annotations

from autotune.targets.detection import detect_cpu
from autotune.targets.presets import preset, preset_names
from autotune.targets.rates import (
    fma_instruction_set,
    measure_core_rates,
    measure_rates,
    repeat_times,
)
from autotune.targets.resolution import resolve
from autotune.targets.target import Cache, Target

__all__ = [
    "Cache",
    "Target",
    "detect_cpu",
    "fma_instruction_set",
    "measure_core_rates",
    "measure_rates",
    "preset",
    "preset_names",
    "repeat_times",
    "resolve",
]
