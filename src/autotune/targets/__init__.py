"""Target machines: descriptions, detection, presets."""

from __future__ import annotations

from autotune.targets.architectures import compute_capability, most_shared_memory
from autotune.targets.cuda_detection import (
    CudaDevice,
    cuda_devices,
    detect_cuda,
    matching_device,
)
from autotune.targets.cuda_driver import CudaDriver, CudaError, load_driver, version_text
from autotune.targets.detection import check_is_x86_64, check_runs_here, detect_cpu
from autotune.targets.presets import preset, preset_names
from autotune.targets.rates import (
    BANDWIDTH_PATTERNS,
    PEAK_DTYPES,
    fma_instruction_set,
    measure_bandwidth,
    measure_core_rates,
    measure_peak,
    measure_rates,
    peak_instruction_set,
    repeat_times,
)
from autotune.targets.resolution import resolve
from autotune.targets.target import Cache, Target
from autotune.targets.tf32 import TF32_EPS, TF32_SUFFIX, allows_tf32, with_tf32

__all__ = [
    "BANDWIDTH_PATTERNS",
    "PEAK_DTYPES",
    "TF32_EPS",
    "TF32_SUFFIX",
    "Cache",
    "CudaDevice",
    "CudaDriver",
    "CudaError",
    "Target",
    "allows_tf32",
    "check_is_x86_64",
    "check_runs_here",
    "compute_capability",
    "cuda_devices",
    "detect_cpu",
    "detect_cuda",
    "fma_instruction_set",
    "load_driver",
    "matching_device",
    "measure_bandwidth",
    "measure_core_rates",
    "measure_peak",
    "measure_rates",
    "most_shared_memory",
    "peak_instruction_set",
    "preset",
    "preset_names",
    "repeat_times",
    "resolve",
    "version_text",
    "with_tf32",
]
